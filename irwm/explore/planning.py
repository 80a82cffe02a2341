"""Inverse design: the rho and l that keep both promises, success (equation 1) and risk (equations 2 and 3).

For one l everything is monotone. T(l, rho, q) = P(Binomial(l, q) >= rho) falls with rho, so

* the risk, 1 - (1 - T(l, rho, beta))^n, is kept for every rho of at least `low(l)`;
* the success, T(l, rho, p), is kept for every rho of at most `high(l)`;

and the settings that keep both are low(l) <= rho <= high(l). This is not monotone in l: with one more position a
possible setting may become impossible (rho is an integer, so both bounds rise in steps). But neither bound rises by
more than one. Couple l + 1 coins with the first l of them, B' = B + c with c in {0, 1}:

    B' >= rho + 1 implies B >= rho, so T(l + 1, rho + 1, q) <= T(l, rho, q), and low(l + 1) <= low(l) + 1;
    B >= rho implies B' >= rho,     so T(l + 1, rho, q)     >= T(l, rho, q), and high(l + 1) >= high(l);
    by the first again high(l + 1) <= high(l) + 1, by the second low(l + 1) >= low(l).

So the margin high - low grows by at most one with each position: if it is -k, no l below l + k is possible, and the
search jumps there without missing the smallest l. If no rho keeps the risk, low is l + 1, and the inequalities still
hold; rho = 0 always succeeds, so high is at least 0, and never keeps a risk, so low is at least 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, gammaln

from irwm.errors import ParameterError
from irwm.scheme.parameters import require_whole
from irwm.scheme.probabilities import log10_wrong_user, success_probability

# Tolerance in ln of a chance, so that a promise that is met exactly, for example by one position with beta = risk,
# counts as met.
ROUNDING = 1e-12
# Marks with more rows than this are not used, and results must appear while a user types.
MOST_POSITIONS = 5000
# The most keys in use; no company has more.
MOST_RECIPIENTS = 10**12
# The smallest allowed risk; the range of doubles ends a little below.
LEAST_RISK = 1e-300
# An advised survival is given to a thousandth.
_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Wish:
    """The demands on a setting.

    Attributes:
        recipients: keys in use, n of equation 3.
        risk: the largest accepted odds that any of them, never inserted, meets the rule (equation 3).
        survival: p, share of the positions that still count after an attack.
        success: the smallest odds with which the true key must meet the rule (equation 1).
        rank_threshold: beta.
        most_positions: the largest l to consider.

    Raises:
        ParameterError: a value is outside its range.
    """

    recipients: int = 1
    risk: float = 1e-6
    survival: float = 0.8
    success: float = 0.999
    rank_threshold: float = 0.2
    most_positions: int = MOST_POSITIONS

    def __post_init__(self) -> None:
        require_whole("the number of recipients", self.recipients, 1, MOST_RECIPIENTS)
        require_whole("the maximum number of positions (l)", self.most_positions, 1, MOST_POSITIONS)
        _chance("the risk", self.risk, LEAST_RISK)
        _chance("the required success probability", self.success)
        _chance("the survival rate (p)", self.survival)
        _chance("rank_threshold (beta)", self.rank_threshold)

    @property
    def log_user_risk(self) -> float:
        """ln of the largest accepted odds of one key alone, 1 - (1 - risk)^(1/n)."""
        each = -math.log1p(-self.risk) / self.recipients
        if each < 1e-290:  # 1 - exp(-x) is x to all digits; x itself may be below the range of doubles
            return math.log(-math.log1p(-self.risk)) - math.log(self.recipients)
        return math.log(-math.expm1(-each))

    @property
    def fewest(self) -> int:
        """The least number of positions with which each promise alone is possible: the risk if all must count, and the
        success if one is sufficient."""
        for_risk = self.log_user_risk / math.log(self.rank_threshold)
        for_success = math.log1p(-self.success) / math.log1p(-self.survival)
        return max(1, math.floor(max(for_risk, for_success)))


@dataclass(frozen=True, slots=True)
class Range:
    """The rho that keep both promises at one l.

    Attributes:
        positions: l.
        least: the smallest of these rho; success is largest.
        greatest: the largest of these rho; the risk is smallest.
    """

    positions: int
    least: int
    greatest: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The recommended setting.

    Attributes:
        range: the smallest l that can keep both promises, with its rho.
        required: the recommended rho, the smallest, with which success is largest.
        success: equation 1 at it.
        log10_risk: log10 of equation 3 at it.
    """

    range: Range
    required: int
    success: float
    log10_risk: float


@dataclass(frozen=True, slots=True, eq=False)
class Odds:
    """The equations for many settings.

    Attributes:
        success: equation 1.
        missed: 1 - equation 1, computed without loss of digits.
        one: equation 2.
        any_of: equation 3.
    """

    success: NDArray[np.float64]
    missed: NDArray[np.float64]
    one: NDArray[np.float64]
    any_of: NDArray[np.float64]


def plan(wish: Wish) -> Plan:
    """The smallest l, and the rho, that keep both promises.

    Raises:
        ParameterError: no setting up to `most_positions` is possible; names the failing promise and possible changes.
    """
    found = smallest(wish)
    if found is None:
        raise _impossible(wish)
    l, rho, beta = found.positions, found.least, wish.rank_threshold
    return Plan(found, rho, success_probability(l, rho, wish.survival), log10_wrong_user(l, rho, beta, wish.recipients))


def smallest(wish: Wish) -> Range | None:
    """The smallest l up to `most_positions` at which some rho keeps both promises; None if there is none."""
    l = wish.fewest
    while l <= wish.most_positions:
        low, high = bounds(wish, l)
        if low <= high:
            return Range(l, low, high)
        l += max(1, low - high)
    return None


def bounds(wish: Wish, l: int) -> tuple[int, int]:
    """The smallest rho >= 1 that keeps the risk, or l + 1; and the largest that keeps the success, or 0."""
    risks = tails(l, wish.rank_threshold)[0]
    # The odds of failure, not of success: near certainty they have more digits.
    misses = tails(l, wish.survival)[1]
    low = int(np.argmax(np.append(risks[1:] <= wish.log_user_risk + ROUNDING, True))) + 1
    high = int(np.count_nonzero(misses[1:] <= math.log1p(-wish.success) + ROUNDING))
    return low, high


def tails(l: int, p: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(l + 1,) ln P(X >= rho) and (l + 1,) ln P(X < rho) for X ~ Binomial(l, p), 0 < p < 1, at rho = 0 ... l."""
    k = np.arange(l + 1)
    mass = gammaln(l + 1) - gammaln(k + 1) - gammaln(l - k + 1) + k * math.log(p) + (l - k) * math.log1p(-p)
    least = np.minimum(np.logaddexp.accumulate(mass[::-1])[::-1], 0.0)
    below = np.append(-np.inf, np.minimum(np.logaddexp.accumulate(mass)[:-1], 0.0))
    return least, below


def odds(
    positions: ArrayLike, required: ArrayLike, rank_threshold: ArrayLike, survival: ArrayLike, recipients: ArrayLike
) -> Odds:
    """Equations 1 to 3 for many settings at once, for plots: arrays that broadcast, 1 <= rho <= l.

    It uses the regularised incomplete beta function, P(X >= rho) = I_p(rho, l - rho + 1), in plain doubles: a chance
    below 1e-300 is 0 here, while `irwm.scheme.probabilities` still has its logarithm.
    """
    l, rho, n = (np.asarray(v, dtype=np.float64) for v in (positions, required, recipients))
    beta, p = np.asarray(rank_threshold, dtype=np.float64), np.asarray(survival, dtype=np.float64)
    one = betainc(rho, l - rho + 1.0, beta)
    with np.errstate(divide="ignore"):  # a chance of 1 has no other side
        any_of = -np.expm1(n * np.log1p(-one))
    return Odds(betainc(rho, l - rho + 1.0, p), betainc(l - rho + 1.0, rho, 1.0 - p), one, any_of)


def _impossible(wish: Wish) -> ParameterError:
    """Why no setting up to `most_positions` keeps both promises, with possible changes."""
    l, beta = wish.most_positions, wish.rank_threshold
    low, high = bounds(wish, l)
    if wish.survival <= beta:
        return ParameterError(
            "success is indistinguishable from chance: after this attack, a marked position counts no more often than "
            "an unmarked one",
            expected=f"a survival rate (p) above the rank threshold, β = {beta:g}",
            found=f"p = {wish.survival:g}",
            advice=f"Lower the rank threshold (β) to less than {wish.survival:g}, or assume a weaker attack",
        )
    if low > l:
        least = math.ceil(wish.log_user_risk / math.log(beta))
        return ParameterError(
            f"the risk limit cannot be met with {_rows(l)}: even if all of them must count, that happens too often by "
            "chance",
            expected=f"a risk of at most {wish.risk:.3g} for {_keys(wish.recipients)}",
            found=_power(log10_wrong_user(l, l, beta, wish.recipients)),
            advice=f"Allow at least {least} positions (l), accept a higher risk, or lower the rank threshold (β)",
        )
    if high < 1:
        return ParameterError(
            f"the required success probability cannot be reached with {_rows(l)}: even if a single counted position is "
            "enough, often no position counts",
            expected=f"a success probability of at least {wish.success}",
            found=f"{success_probability(l, 1, wish.survival):.6g}",
            advice="Allow more positions (l), require a lower success probability, or assume a weaker attack "
            "(a larger p)",
        )
    reached = success_probability(l, low, wish.survival)
    return ParameterError(
        f"the risk limit and the required success probability cannot both be met with {_rows(l)}: the risk requires "
        f"ρ ≥ {low}, but success requires ρ ≤ {high}",
        expected=f"a success probability of at least {wish.success} with a risk of at most {wish.risk:.3g} for "
        f"{_keys(wish.recipients)}",
        found=f"with ρ = {low}, the risk limit is met and the success probability is {reached:.6g}",
        advice=_what_would(wish, reached),
    )


def _what_would(wish: Wish, reached: float) -> str:
    """Each single change that makes the wish possible."""
    ways = []
    if wish.most_positions < MOST_POSITIONS:
        more = smallest(replace(wish, most_positions=MOST_POSITIONS))
        if more:
            ways.append(f"allow {more.positions} positions (l)")
    survival = _least_step(lambda p: _possible(replace(wish, survival=p)), wish.survival)
    if survival is not None:
        ways.append(f"assume a survival rate (p) of {survival:g} or more")
    if reached > 0.0005:
        ways.append(f"lower the required success probability to {math.floor(1000 * reached) / 1000:g} or less")
    ways.append("accept a higher risk" if wish.recipients == 1 else "accept a higher risk or fewer recipients")
    ways[0] = ways[0][0].upper() + ways[0][1:]
    return ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])}, or {ways[-1]}"


def _possible(wish: Wish) -> bool:
    """Whether the largest l allows it."""
    low, high = bounds(wish, wish.most_positions)
    return low <= high


def _least_step(works: Callable[[float], bool], above: float) -> float | None:
    """The smallest multiple of 0.001 in (above, 1) for which the monotone `works` is true, by bisection."""
    steps = range(math.floor(above * _STEPS) + 1, _STEPS)
    found = bisect_left(steps, True, key=lambda step: works(step / _STEPS))
    return steps[found] / _STEPS if found < len(steps) else None


def _rows(l: int) -> str:
    return f"{l} positions" if l > 1 else "one position"


def _keys(n: int) -> str:
    return f"{n:,} keys".replace(",", " ") if n > 1 else "one key"


def _power(log10: float) -> str:
    if log10 > -4:
        return f"{10**log10:.3g}"
    return f"{10 ** (log10 - math.floor(log10)):.2f}e{math.floor(log10)}"


def _chance(what: str, value: object, least: float = 0.0) -> None:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not least <= float(value) < 1.0 or not float(value) > 0.0:  # type: ignore[arg-type]
        between = f"a number no less than {least:g} and below 1" if least else "a number above 0 and below 1"
        raise ParameterError(f"{what} is out of range", expected=between, found=repr(value))
