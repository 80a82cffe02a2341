"""Inverse design compared with brute force, and the inequalities that its jumps depend on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from irwm.errors import ParameterError
from irwm.explore.planning import MOST_POSITIONS, Range, Wish, bounds, odds, plan, smallest, tails
from irwm.scheme.probabilities import (
    binomial_tail_log,
    log10_random_user,
    log10_wrong_user,
    success_probability,
    wrong_user_probability,
)

wishes = st.builds(
    Wish,
    recipients=st.sampled_from([1, 3, 100, 10**5]),
    risk=st.floats(1e-9, 0.5),
    survival=st.floats(0.02, 0.98),
    success=st.floats(0.05, 0.9999),
    rank_threshold=st.floats(0.01, 0.9),
    most_positions=st.integers(1, 40),
)


def allowed(wish: Wish, l: int, slack: float = 1e-10) -> list[int]:
    """Every rho that keeps both promises within `slack`, by scipy's tails and equation 3 as printed."""
    rho = np.arange(1, l + 1)
    one = binom.sf(rho - 1, l, wish.rank_threshold)
    risk = -np.expm1(wish.recipients * np.log1p(-np.minimum(one, 1.0 - 1e-16)))
    success = binom.sf(rho - 1, l, wish.survival)
    return rho[(risk <= wish.risk * (1 + slack)) & (success >= wish.success - slack)].tolist()


def settled(wish: Wish) -> bool:
    """Whether rounding does not matter: no promise is met or missed by a tiny margin."""
    return all(allowed(wish, l) == allowed(wish, l, -1e-10) for l in range(1, wish.most_positions + 1))


@settings(max_examples=150, deadline=None)
@given(wishes)
def test_smallest_l_and_rho_equal_brute_force(wish: Wish) -> None:
    assume(settled(wish))
    every = ((l, allowed(wish, l)) for l in range(1, wish.most_positions + 1))
    first = next(((l, rho) for l, rho in every if rho), None)
    assert smallest(wish) == (Range(first[0], first[1][0], first[1][-1]) if first else None)


@settings(max_examples=50, deadline=None)
@given(wishes)
def test_plan_meets_both_limits_or_error_explains(wish: Wish) -> None:
    assume(settled(wish))
    try:
        found = plan(wish)
    except ParameterError as error:
        refused = error
        found = None
    if found is None:
        assert all(not allowed(wish, l) for l in range(1, wish.most_positions + 1))
        assert refused.expected
        assert refused.found
        assert refused.advice
        return
    l, rho = found.range.positions, found.required
    assert success_probability(l, rho, wish.survival) == found.success >= wish.success - 1e-12
    assert log10_wrong_user(l, rho, wish.rank_threshold, wish.recipients) == found.log10_risk
    assert found.log10_risk <= math.log10(wish.risk) + 1e-9


@settings(max_examples=100, deadline=None)
@given(wishes, st.integers(1, 200))
def test_bounds_rise_by_at_most_one_and_never_fall(wish: Wish, l: int) -> None:
    (low, high), (next_low, next_high) = bounds(wish, l), bounds(wish, l + 1)
    assert low <= next_low <= low + 1
    assert high <= next_high <= high + 1


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.floats(0.01, 0.99))
def test_tails_are_those_of_the_equations(l: int, p: float) -> None:
    least, below = tails(l, p)
    want = [binomial_tail_log(rho, l, p) for rho in range(l + 1)]
    assert least == pytest.approx(want, rel=1e-9, abs=1e-12)
    assert np.exp(least) + np.exp(below) == pytest.approx(np.ones(l + 1))


def test_limits_at_the_ends_of_the_range_are_met() -> None:
    exact = Wish(recipients=1, risk=0.25, survival=0.5, success=0.5, rank_threshold=0.25, most_positions=1)
    assert smallest(exact) == Range(1, 1, 1)
    far = plan(Wish(10**12, 1e-300, 0.9, 0.999))
    assert (far.range.positions, far.log10_risk <= -300) == (699, True)
    assert tails(1000, 0.01)[0][990] / math.log(10) == pytest.approx(log10_random_user(1000, 990, 0.01), rel=1e-10)


@pytest.mark.parametrize(
    ("wish", "kept"),
    [
        (Wish(survival=0.15), {"survival": 0.35}),
        (Wish(5, most_positions=5), {"most_positions": 60}),
        (Wish(1, 0.01, 0.3, 1 - 1e-12, most_positions=12), {"most_positions": 4000}),
        (Wish(5, 1e-6, 0.9, 0.999, most_positions=12), {"most_positions": 26}),
        (Wish(100_000, 1e-6, 0.25, 0.999), {"survival": 0.258}),
    ],
)
def test_impossible_wish_is_refused_with_advice_that_works(wish: Wish, kept: dict) -> None:
    with pytest.raises(ParameterError) as caught:
        plan(wish)
    assert caught.value.advice
    assert smallest(wish) is None
    assert smallest(replace(wish, **kept))


@pytest.mark.parametrize(
    "values",
    [
        {"recipients": 0}, {"recipients": 1.5}, {"recipients": True}, {"recipients": 10**13}, {"risk": 0.0},
        {"risk": 1.0}, {"risk": math.nan}, {"risk": 1e-301}, {"survival": 1.0}, {"success": "0.9"},
        {"rank_threshold": -0.1}, {"most_positions": 0}, {"most_positions": MOST_POSITIONS + 1},
    ],
)  # fmt: skip
def test_plan_request_out_of_range_is_refused(values: dict) -> None:
    with pytest.raises(ParameterError):
        Wish(**values)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.data(), st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.integers(1, 10**6))
def test_drawn_odds_equal_the_equations(l: int, data: st.DataObject, beta: float, p: float, n: int) -> None:
    rho = data.draw(st.integers(1, l))
    drawn = odds(l, rho, beta, p, n)
    assert float(drawn.success) == pytest.approx(success_probability(l, rho, p), rel=1e-9)
    assert float(drawn.success + drawn.missed) == pytest.approx(1.0)
    assert float(drawn.one) == pytest.approx(10 ** log10_random_user(l, rho, beta), rel=1e-9)
    assert float(drawn.any_of) == pytest.approx(wrong_user_probability(l, rho, beta, n), rel=1e-9)
