"""Equations 1 to 3 and the tails used for every p-value, compared with exact arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from irwm.errors import ParameterError
from irwm.scheme import probabilities as pr


def exact_tail(least: int, n: int, p: Fraction) -> Fraction:
    return sum((math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(max(least, 0), n + 1)), Fraction(0))


def log10_of(value: Fraction) -> float:
    return math.log10(value.numerator) - math.log10(value.denominator)


def test_the_papers_worked_examples() -> None:
    assert [pr.success_probability(50, 30, 0.8), pr.success_probability(50, 28, 0.7)] == [
        pytest.approx(0.99968, abs=5.1e-6), pytest.approx(0.98772, abs=5.1e-6)
    ]  # fmt: skip
    assert [pr.wrong_user_probability(50, rho, 0.2, 100_000) for rho in (30, 28)] == [
        pytest.approx(6.94e-5, abs=5.1e-8), pytest.approx(2.16e-3, abs=5.1e-6)
    ]  # fmt: skip


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 99))
def test_binomial_tail_is_exact(n: int, least: int, percent: int) -> None:
    least = min(least, n)
    p = Fraction(percent, 100)
    want = exact_tail(least, n, p)
    assert pr.binomial_tail_log(least, n, float(p)) / pr.LN10 == pytest.approx(log10_of(want), rel=1e-9, abs=1e-12)


def test_tails_below_the_range_of_doubles_stay_finite() -> None:
    want = log10_of(exact_tail(990, 1000, Fraction(1, 100)))
    assert want < -1900
    assert pr.log10_random_user(1000, 990, 0.01) == pytest.approx(want, rel=1e-10)
    assert pr.log10_wrong_user(1000, 990, 0.01, 1000) == pytest.approx(want + 3, rel=1e-10)
    assert pr.random_user_probability(1000, 990, 0.01) == 0.0  # the plain form underflows; the log form is for this


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=60))
def test_fisher_agrees_with_chi_square(ranks: list[float]) -> None:
    want = chi2.logsf(-2 * np.log(ranks).sum(), 2 * len(ranks)) / math.log(10)
    assert pr.fisher_log10(ranks) == pytest.approx(want, rel=1e-7, abs=1e-9)


def test_fisher_beyond_the_range_of_scipy() -> None:
    # One p-value combines to itself, even if it is very small.
    assert pr.fisher_log10([1e-300]) == pytest.approx(-300)
    with localcontext() as context:  # the same sum with 60 digits and no lower bound on its exponent
        context.prec, context.Emin = 60, -(10**9)
        x = -2000 * Decimal("0.001").ln()
        term = total = Decimal(1)
        for k in range(1, 2000):
            term *= x / k
            total += term
        want = float((total.ln() - x) / Decimal(10).ln())
    assert want < -3000
    assert pr.fisher_log10(np.full(2000, 1e-3)) == pytest.approx(want, rel=1e-9)


def test_a_missing_rank_is_never_evidence() -> None:
    for bad in ([0.5, math.nan], [0.0], [1.5], [-0.1]):
        with pytest.raises(ParameterError):
            pr.fisher_log10(bad)
    assert pr.fisher_log10([]) == 0.0


def test_impossible_rules_are_refused() -> None:
    assert pr.wrong_user_probability(50, 30, 0.2, 0) == 0.0
    for l, rho, recipients in ((0, 0, 1), (10, 11, 1), (10, -1, 1), (50, 30, -1)):
        with pytest.raises(ParameterError):
            pr.wrong_user_probability(l, rho, 0.2, recipients)
