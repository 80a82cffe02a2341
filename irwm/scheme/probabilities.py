"""Odds: equations 1 to 3 of the paper, exact tails and combinations of p-values, all in log space.

A p-value of this scheme is often below the smallest double (1e-308). Every function has a form that returns log10 and
stays finite there. scipy's tails end near 1e-300; its logsumexp and gammaln differ in the last digit (5e-16) from the
values in reports, take four times as long and 0.2 s to load. `explore.planning` and `evidence.decoys` use scipy when
they need thousands of larger values at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irwm.errors import ParameterError

LN10 = math.log(10.0)
# Sums need memory for each term, so a report that claims more trials than this is not evaluated.
MOST_TRIALS = 1_000_000


def _logsumexp(values: NDArray[np.float64]) -> float:
    """ln of the sum of exp."""
    top = float(values.max())
    return top if math.isinf(top) else top + math.log(float(np.exp(values - top).sum()))


def _log_factorial(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array([math.lgamma(number + 1.0) for number in numbers.tolist()])


def _times(numbers: NDArray[np.int64], logarithm: float) -> NDArray[np.float64]:
    """Each number times a logarithm; 0 times an infinite one is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(numbers == 0, 0.0, numbers * logarithm)


def binomial_tail_log(least: int, trials: int, p: float) -> float:
    """ln P(X >= least) for X ~ Binomial(trials, p); finite far below the range of doubles.

    Raises:
        ParameterError: p is not a probability, or trials is negative or more than `MOST_TRIALS`.
    """
    if not 0.0 <= p <= 1.0:
        raise ParameterError("this is not a binomial distribution", expected="0 <= p <= 1", found=f"p={p}")
    check_trials(trials)
    if least <= 0:
        return 0.0
    if least > trials or p == 0.0:
        return -math.inf
    tail = np.arange(least, trials + 1)
    total = _logsumexp(_binomial_log_mass(tail, trials, p))
    if total > -0.5:  # near certainty the complement is more precise
        head = np.arange(0, least)
        rest = min(1.0, math.exp(_logsumexp(_binomial_log_mass(head, trials, p))))
        return math.log1p(-rest) if rest < 1.0 else -math.inf
    return float(min(total, 0.0))


def check_trials(trials: int) -> None:
    """Raises ParameterError if the number of trials is too large or invalid."""
    if not 0 <= trials <= MOST_TRIALS:
        raise ParameterError(
            "the number of trials is out of range", expected=f"0 to {MOST_TRIALS}", found=str(trials)[:40]
        )


def _binomial_log_mass(k: np.ndarray, n: int, p: float) -> np.ndarray:
    choose = math.lgamma(n + 1.0) - _log_factorial(k) - _log_factorial(n - k)
    return choose + _times(k, math.log(p)) + _times(n - k, math.log1p(-p) if p < 1.0 else -math.inf)


def success_probability(l: int, rho: int, p: float) -> float:
    """Equation 1: odds that at least rho of l positions count when each does with probability p.

    >>> round(success_probability(50, 30, 0.8), 5)
    0.99968
    """
    _check_rule(l, rho)
    return math.exp(binomial_tail_log(rho, l, p))


def random_user_probability(l: int, rho: int, beta: float) -> float:
    """Equation 2: odds that a key that was never inserted meets the rule, each position by chance beta."""
    return math.exp(LN10 * log10_random_user(l, rho, beta))


def log10_random_user(l: int, rho: int, beta: float) -> float:
    """log10 of equation 2; finite where equation 2 itself underflows."""
    _check_rule(l, rho)
    return binomial_tail_log(rho, l, beta) / LN10


def wrong_user_probability(l: int, rho: int, beta: float, recipients: int) -> float:
    """Equation 3: odds that at least one of `recipients` keys that were never inserted meets the rule."""
    return math.exp(LN10 * log10_wrong_user(l, rho, beta, recipients))


def log10_wrong_user(l: int, rho: int, beta: float, recipients: int) -> float:
    """log10 of equation 3, 1 - (1 - q)^n, as -expm1(n log1p(-q)); for tiny q it is n q."""
    _check_rule(l, rho)
    if recipients < 0:
        raise ParameterError("the number of recipients cannot be negative", found=str(recipients))
    if recipients == 0:
        return -math.inf
    log_q = binomial_tail_log(rho, l, beta)
    if log_q < -600.0:  # q is below the range of doubles; the next term of the series is smaller by n q
        return (log_q + math.log(recipients)) / LN10
    q = math.exp(log_q)
    if q >= 1.0:
        return 0.0
    return math.log(-math.expm1(recipients * math.log1p(-q))) / LN10


def fisher_log10(ranks: ArrayLike) -> float:
    """log10 of Fisher's combined p of independent p-values; NaNs are rejected, an empty set gives 0.

    The tail of chi-square with 2m degrees of freedom is exp(-x) sum_{k<m} x^k / k! at x = -sum ln p, summed in log
    space.

    Raises:
        ParameterError: a value is NaN or outside (0, 1].
    """
    p = np.asarray(ranks, dtype=np.float64)
    if p.size == 0:
        return 0.0
    if not np.all((p > 0.0) & (p <= 1.0)):
        raise ParameterError("p-values must be in (0, 1]", found="NaN or a value outside this range")
    x = float(-np.log(p).sum())
    if x == 0.0:
        return 0.0
    k = np.arange(p.size)
    return min(0.0, float((-x + _logsumexp(_times(k, math.log(x)) - _log_factorial(k))) / LN10))


def rademacher_tail_log10(z: ArrayLike) -> NDArray[np.float64]:
    """log10 of a bound on P(S >= z sqrt(sum a²)) for S = sum e_i a_i with fair random signs e_i and any numbers a_i.

    The smaller of Hoeffding's exp(-z² / 2) and Bentkus and Dzindzalieta's c P(Z >= z), Z normal and
    c = 1 / (4 P(Z >= sqrt 2)) (Bernoulli 21, 2015). Both make no assumptions about the number or the sizes of the a_i,
    so z needs no calibration. NaN gives 0, no evidence.
    """
    from scipy.special import log_ndtr

    z = np.asarray(z, dtype=np.float64)
    c = -math.log(4.0) - log_ndtr(-math.sqrt(2.0))
    bound = np.minimum(-np.square(z) / 2, c + log_ndtr(-z)) / LN10
    return np.where(z > 0, np.minimum(bound, 0.0), 0.0)


def fisher_floor_log10(positions: int, permutations: int) -> float:
    """The smallest log10 p that `positions` ranks of `permutations` permutations can combine to."""
    check_trials(positions)
    return fisher_log10(np.full(positions, 1.0 / (1 + permutations)))


def _check_rule(l: int, rho: int) -> None:
    if l < 1 or not 0 <= rho <= l:
        raise ParameterError("this is not a valid counting rule", expected="0 <= rho <= l", found=f"rho={rho}, l={l}")
