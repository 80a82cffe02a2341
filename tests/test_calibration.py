"""Searches for our own false positives: 400 random keys on each unmarked, trained model; `make every`: 1 000.

Every key is wrong by construction, so every "found" would be a false accusation. Ranks must be uniform for the
verdict's statistic and for the paper's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

import irwm
from irwm.evidence.finding import Reading
from irwm.scheme.keystream import derive
from irwm.scheme.parameters import EMBEDDING, HEAD, chance_of_counting

# Reads hundreds of keys, once for the whole module.
pytestmark = pytest.mark.slow

KEYS, EVERY = 400, 1000
PERMUTATIONS = 199  # exact at any number; `python -m benchmarks.calibration` repeats this with the default 1 000
BATCH = 100  # keys per seed, so that the permutations behind the ranks vary too


def random_keys(model: irwm.Checkpoint, start: int, params: irwm.Parameters) -> list[irwm.Key]:
    secrets = [derive(b"calibration", b"", i.to_bytes(4, "big")) for i in range(start, start + BATCH)]
    return [irwm.generate_key(model, params, secret=secret) for secret in secrets]


@pytest.fixture(scope="module")
def number(in_full: bool) -> int:
    return EVERY if in_full else KEYS


@pytest.fixture(scope="module")
def unmarked(trained_path: Path, number: int) -> list[irwm.Finding]:
    model = irwm.open_checkpoint(trained_path)
    findings: list[irwm.Finding] = []
    examination = irwm.Examination(model, model)
    for start in range(0, number, BATCH):
        keys = random_keys(model, start, irwm.Parameters(permutations=PERMUTATIONS))
        findings += irwm.detect_each(examination, keys, seed=start, keys_tried=1)
    return findings


def reading_of(finding: irwm.Finding, which: str) -> Reading:
    """The verdict's statistic in the embedding ("joint") or in the output head ("head"), or the paper's ("sum")."""
    if which == "sum":
        assert finding.paper is not None
        return finding.paper
    place = HEAD if which == "head" else EMBEDDING
    reading = finding.reading if finding.place == place else finding.elsewhere
    assert reading is not None
    return reading


def readings_of(findings: list[irwm.Finding], which: str) -> list[Reading]:
    if which == "head" and findings[0].places == 1:
        pytest.skip("its output head is its embedding")
    return [reading_of(each, which) for each in findings]


def ranks_of(findings: list[irwm.Finding], which: str) -> np.ndarray:
    return np.concatenate([each.ranks for each in readings_of(findings, which)])


def test_no_key_is_found(unmarked: list[irwm.Finding]) -> None:
    assert len(unmarked) >= KEYS
    assert not [f for f in unmarked if f.verdict == "found"]
    assert not [f for f in unmarked if f.passes or f.paper.passes]
    # The grey zone starts at one in a thousand; more than six of these would be too unlikely.
    assert sum(f.verdict != "not found" for f in unmarked) <= binom.ppf(0.9995, len(unmarked), 1e-3)


@pytest.mark.parametrize("which", ["joint", "head", "sum"])
def test_ranks_are_uniform(unmarked: list[irwm.Finding], which: str) -> None:
    ranks = ranks_of(unmarked, which)
    assert ranks.size == len(unmarked) * 50
    jitter = np.random.default_rng(0).uniform(0, 1 / (1 + PERMUTATIONS), ranks.size)  # undoes the grid of 1 / (N + 1)
    assert kstest(ranks - jitter, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("which", ["joint", "head", "sum"])
def test_share_of_ranks_below_beta_is_beta(unmarked: list[irwm.Finding], which: str) -> None:
    params = unmarked[0].parameters
    count, size = int((ranks_of(unmarked, which) < params.rank_threshold).sum()), len(unmarked) * params.positions
    low, high = binom.interval(0.999, size, chance_of_counting(params))
    assert low <= count <= high


@pytest.mark.parametrize("which", ["joint", "head", "sum"])
def test_counts_follow_the_binomial_law(unmarked: list[irwm.Finding], which: str) -> None:
    """Positions must be independent too: dependent ones would keep the mean count and widen its spread."""
    counts = np.array([each.count for each in readings_of(unmarked, which)])
    p = chance_of_counting(unmarked[0].parameters)
    dispersion = (counts.size - 1) * counts.var(ddof=1) / (50 * p * (1 - p))
    low, high = chi2.interval(0.999, counts.size - 1)
    assert low <= dispersion <= high


@pytest.mark.parametrize("which", ["joint", "head", "sum"])
def test_combined_p_values_are_conservative(unmarked: list[irwm.Finding], which: str) -> None:
    p = 10.0 ** np.array([each.log10_p for each in readings_of(unmarked, which)])
    assert kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    for alpha in (0.1, 0.01, 0.001):
        assert (p <= alpha).sum() <= binom.ppf(0.9995, len(unmarked), alpha)


def test_risk_corrected_for_both_places_is_conservative(unmarked: list[irwm.Finding]) -> None:
    risk = 10.0 ** np.array([each.log10_risk for each in unmarked])
    for alpha in (0.1, 0.01, 0.001):
        assert (risk <= alpha).sum() <= binom.ppf(0.9995, len(unmarked), alpha)


def test_shown_place_is_not_chosen_by_its_result(unmarked: list[irwm.Finding]) -> None:
    """Of two places that read the same, the embedding is shown, even if the other reads lower."""
    if unmarked[0].places == 1:
        pytest.skip("its output head is its embedding")
    lower = [each.elsewhere.log10_p < each.reading.log10_p for each in unmarked if each.elsewhere is not None]
    assert binom.ppf(0.0005, len(lower), 0.5) <= sum(lower) <= binom.ppf(0.9995, len(lower), 0.5)
