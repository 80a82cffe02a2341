"""The likelihood ratio of the two propositions about a mark, and its verbal equivalents.

    H1  the suspect carries this key's mark
    H2  it carries no mark of this key

Both are about the weights, not about who inserted a mark or took the weights. The ratio is how many times more probable
the ranks are if H1 is true than if H2 is. It is not a probability of either proposition, which would need their
probabilities before this examination (confusing the two is the fallacy of the transposed conditional).

Under H2 every rank is uniform on {1, ..., N + 1} / (N + 1), because of the random permutations. The ranks of a marked
copy depend on how it was changed, so H1 is a family: ranks of density a r^(a - 1) on (0, 1). A smaller a makes small
ranks more likely, from a fresh mark (a near 0) to one that is gone (a = 1, which is H2). All positions have the same a,
which is unknown, so all values in (0, 1) have the same weight.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaln, logsumexp, xlogy

from irwm.errors import ParameterError
from irwm.scheme.probabilities import LN10

# ENFSI Guideline for Evaluative Reporting in Forensic Science (2015), appendix: log10 of the ratio at which a step
# starts, and its words. In the guideline the first step is "1" and the second starts at 2.
STEPS = (
    (math.log10(2.0), "weak support"),
    (1.0, "moderate support"),
    (2.0, "moderately strong support"),
    (3.0, "strong support"),
    (4.0, "very strong support"),
    (6.0, "extremely strong support"),
)
NEITHER = "no support for one proposition over the other"


def likelihood_ratio_log10(ranks: ArrayLike) -> float:
    """log10 of P(ranks | H1) / P(ranks | H2), for ranks (m,) of the marked positions; NaN (gone rows) is left out.

    With x = -sum ln r_i the ratio is

        LR = ∫_0^1 a^m prod r_i^(a - 1) da = e^x ∫_0^1 a^m e^(-a x) da = e^x x^-(m + 1) γ(m + 1, x)
           = sum_k x^k m! / (m + 1 + k)!,

    computed in log space, by the first form for large x and by the series for others. It is never 0 or infinite, grows
    with x (each factor e^(x (1 - a)) does), and is at least 1 / (m + 1). Without ranks it is 1, so log10 is 0.

    It is an *e-value*: its mean under H2 is at most 1. For r uniform on (0, 1) the integrand's mean is
    prod ∫ a r^(a - 1) dr = 1 for every a. A permutation rank is (1 + floor(N' u)) / N' with N' = N + 1 for a uniform u,
    and so never below u; the ratio falls where a rank grows, so its mean over such ranks can only be smaller. By
    Markov's inequality P(LR >= c | H2) <= 1 / c, for any N and m.

    Raises:
        ParameterError: a rank outside (0, 1].
    """
    r = np.asarray(ranks, dtype=np.float64)
    r = r[~np.isnan(r)]
    if not np.all((r > 0.0) & (r <= 1.0)):
        raise ParameterError("ranks must be in (0, 1]", found="a value outside this range")
    if not r.size:
        return 0.0
    x, s = float(-np.log(r).sum()), r.size + 1
    if x > s:  # gammainc is above 1/2, so its logarithm keeps all digits
        return float((x - xlogy(s, x) + gammaln(s) + np.log(gammainc(s, x))) / LN10)
    # Terms fall by x / (s + k) < 1; after k of them by less than exp(-k² / 2 (s + k)).
    k = np.arange(64 + 12 * math.isqrt(s))
    return float(logsumexp(xlogy(k, x) + gammaln(s) - gammaln(s + 1 + k)) / LN10)


def per_comparison_log10(log10_lr: float, comparisons: int) -> float:
    """log10 of the ratio for "one of the tested marks is in it", `comparisons` of them (keys tried × tensors read).

    That proposition's ratio is the mean of the ratios of all comparisons. All are positive, so LR / K is at most as
    large. It is valid even if the key with the largest ratio was chosen afterwards.

    Raises:
        ParameterError: fewer than one comparison.
    """
    if comparisons < 1:
        raise ParameterError(
            "the number of comparisons must include this one", expected="at least 1", found=str(comparisons)
        )
    return log10_lr - math.log10(comparisons)


def verbal_step(log10_lr: float) -> str:
    """The ENFSI step of a ratio, such as "very strong support for the first proposition"; mirrored below 1.

    Raises:
        ParameterError: not a finite number.
    """
    if not math.isfinite(log10_lr):
        raise ParameterError("a likelihood ratio must be a finite number", found=str(log10_lr))
    word = next((word for start, word in reversed(STEPS) if abs(log10_lr) >= start), None)
    if word is None:
        return NEITHER
    return f"{word} for the {'first' if log10_lr > 0 else 'second'} proposition"
