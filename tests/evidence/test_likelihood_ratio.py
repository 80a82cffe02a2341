"""The likelihood ratio: the integral, its limits, its validity under the alternative, and the words for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from irwm.errors import ParameterError
from irwm.evidence.likelihood_ratio import NEITHER, likelihood_ratio_log10, per_comparison_log10, verbal_step


def by_quadrature(ranks: np.ndarray) -> float:
    x = -np.log(ranks).sum()
    return math.log10(quad(lambda a: a**ranks.size * math.exp(x * (1 - a)), 0, 1, limit=200)[0])


@pytest.mark.parametrize("m", [1, 2, 10, 50, 200])
@pytest.mark.parametrize("power", [0.3, 1.0, 1.2, 3.0])
def test_likelihood_ratio_equals_the_integral(m: int, power: float) -> None:
    ranks = np.random.default_rng(m).uniform(size=m) ** power
    assert likelihood_ratio_log10(ranks) == pytest.approx(by_quadrature(ranks), rel=1e-9)


def test_two_formulas_agree_at_the_switch() -> None:
    for m in (1, 50, 5000):
        a, b = (likelihood_ratio_log10(np.full(m, math.exp(-(m + 1 + e) / m))) for e in (-1e-7, 1e-7))
        assert a < b
        assert b - a < 1e-6


@pytest.mark.parametrize("m", [1, 50, 100_000])
def test_likelihood_ratio_is_finite_and_grows_with_evidence(m: int) -> None:
    values = [likelihood_ratio_log10(np.full(m, r)) for r in np.geomspace(1.0, 1e-7, 200)]
    assert all(map(math.isfinite, values))
    assert min(np.diff(values)) > 0
    assert values[0] == pytest.approx(-math.log10(m + 1))  # all ranks are 1: the minimum


def test_missing_rows_are_ignored_and_no_rows_give_no_evidence() -> None:
    ranks = np.array([0.1, np.nan, 0.02])
    assert likelihood_ratio_log10(ranks) == likelihood_ratio_log10([0.1, 0.02])
    assert likelihood_ratio_log10([]) == likelihood_ratio_log10([np.nan]) == 0.0


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, math.inf])
def test_invalid_rank_is_refused(bad: float) -> None:
    with pytest.raises(ParameterError):
        likelihood_ratio_log10([0.5, bad])


@pytest.mark.parametrize("permutations", [1, 9, 99])
@pytest.mark.parametrize("m", [1, 2])
def test_mean_likelihood_ratio_without_mark_is_at_most_one(m: int, permutations: int) -> None:
    """Exactly, over all possible ranks: an e-value."""
    steps = np.arange(1, permutations + 2) / (permutations + 1)
    tuples = np.stack(np.meshgrid(*[steps] * m), axis=-1).reshape(-1, m)
    assert np.mean([10.0 ** likelihood_ratio_log10(row) for row in tuples]) <= 1.0


def test_ratio_is_corrected_for_comparisons() -> None:
    assert per_comparison_log10(5.0, 100) == 3.0
    with pytest.raises(ParameterError):
        per_comparison_log10(5.0, 0)
    for value in (math.nan, math.inf):
        with pytest.raises(ParameterError):
            verbal_step(value)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (1.0, NEITHER), (1.9, NEITHER), (2.0, "weak support"), (9.9, "weak support"), (10.0, "moderate support"),
        (100.0, "moderately strong support"), (999.0, "moderately strong support"), (1000.0, "strong support"),
        (10_000.0, "very strong support"), (999_999.0, "very strong support"), (1e6, "extremely strong support"),
        (1e300, "extremely strong support"),
    ],
)  # fmt: skip
def test_verbal_scale_follows_the_guideline_and_is_symmetric(ratio: float, word: str) -> None:
    log10 = math.log10(ratio)
    said, mirrored = verbal_step(log10), verbal_step(-log10)
    if word is NEITHER:
        assert said == mirrored == NEITHER
    else:
        assert said == f"{word} for the first proposition"
        assert mirrored == f"{word} for the second proposition"
