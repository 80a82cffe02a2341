"""The search for our own false positives: 1 000 random keys on each unmarked, trained model.

Every key is wrong by construction, so every "found" would be a false accusation, and ranks must be uniform for the
verdict's statistic and for the paper's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

import irwm
from irwm.scheme.keystream import derive
from irwm.scheme.parameters import chance_of_counting

# Hundreds of keys are read once for the whole module.
pytestmark = pytest.mark.slow

KEYS = 1000
PERMUTATIONS = 199  # exact at any number; `python -m benchmarks.calibration` repeats this with the default 1 000
BATCH = 100  # keys per seed, so that the permutations behind the ranks vary too


def random_keys(model: irwm.Checkpoint, start: int, params: irwm.Parameters) -> list[irwm.Key]:
    secrets = [derive(b"calibration", b"", i.to_bytes(4, "big")) for i in range(start, start + BATCH)]
    return [irwm.generate_key(model, params, secret=secret) for secret in secrets]


@pytest.fixture(scope="module")
def unmarked(trained_path: Path) -> list[irwm.Finding]:
    model = irwm.open_checkpoint(trained_path)
    findings: list[irwm.Finding] = []
    examination = irwm.Examination(model, model)
    for start in range(0, KEYS, BATCH):
        keys = random_keys(model, start, irwm.Parameters(permutations=PERMUTATIONS))
        findings += irwm.detect_each(examination, keys, seed=start, keys_tried=1)
    return findings


def ranks_of(findings: list[irwm.Finding], which: str) -> np.ndarray:
    return np.concatenate([f.ranks if which == "joint" else f.paper.ranks for f in findings])


def test_no_key_is_found(unmarked: list[irwm.Finding]) -> None:
    assert len(unmarked) == KEYS
    assert not [f for f in unmarked if f.verdict == "found"]
    assert not [f for f in unmarked if f.passes or f.paper.passes]
    # The grey zone starts at one in a thousand; more than six in a thousand would be beyond its own odds.
    assert sum(f.verdict != "not found" for f in unmarked) <= 6


@pytest.mark.parametrize("which", ["joint", "sum"])
def test_ranks_are_uniform(unmarked: list[irwm.Finding], which: str) -> None:
    ranks = ranks_of(unmarked, which)
    assert ranks.size == KEYS * 50
    jitter = np.random.default_rng(0).uniform(0, 1 / (1 + PERMUTATIONS), ranks.size)  # undoes the grid of 1 / (N + 1)
    assert kstest(ranks - jitter, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("which", ["joint", "sum"])
def test_the_share_below_beta_is_beta(unmarked: list[irwm.Finding], which: str) -> None:
    params = unmarked[0].parameters
    count, size = int((ranks_of(unmarked, which) < params.rank_threshold).sum()), KEYS * params.positions
    low, high = binom.interval(0.999, size, chance_of_counting(params))
    assert low <= count <= high


@pytest.mark.parametrize("which", ["joint", "sum"])
def test_counts_follow_the_binomial_law(unmarked: list[irwm.Finding], which: str) -> None:
    """Positions must be independent too: dependent ones would keep the mean count and widen its spread."""
    counts = np.array([f.count if which == "joint" else f.paper.count for f in unmarked])
    p = chance_of_counting(unmarked[0].parameters)
    dispersion = (KEYS - 1) * counts.var(ddof=1) / (50 * p * (1 - p))
    low, high = chi2.interval(0.999, KEYS - 1)
    assert low <= dispersion <= high


@pytest.mark.parametrize("which", ["joint", "sum"])
def test_combined_p_values_are_never_too_small(unmarked: list[irwm.Finding], which: str) -> None:
    p = 10.0 ** np.array([f.log10_p if which == "joint" else f.paper.log10_p for f in unmarked])
    assert kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    for alpha in (0.1, 0.01, 0.001):
        assert (p <= alpha).sum() <= binom.ppf(0.9995, KEYS, alpha)
