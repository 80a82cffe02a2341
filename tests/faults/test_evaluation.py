"""Faults 34 to 37: suspects without any key, too few permutations, many keys, and the same case run again."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.evidence.decoys import clopper_pearson
from irwm.evidence.finding import Finding
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10
from irwm.evidence.verdict import COMBINATIONS, FOUND_LOG10_RISK, log10_risk
from irwm.report import render_html
from irwm.scheme.keystream import derive
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import LN10, binomial_tail_log, fisher_floor_log10, fisher_log10
from tests.conftest import Marked
from tests.report.conftest import document_of
from tests.report.test_html import Page
from tools.copies import write_embedding

KEYS, BATCH = 100, 20
ROUNDS = 1000


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> tuple[irwm.Checkpoint, irwm.Key, irwm.Checkpoint]:
    model, key, release = release_of("demo")
    return model, key, irwm.open_checkpoint(release)


def wrong_keys(model: irwm.Checkpoint, count: int) -> list[irwm.Key]:
    params = irwm.Parameters(permutations=199)
    return [
        irwm.generate_key(model, params, secret=derive(b"fault 34", b"", i.to_bytes(4, "big"))) for i in range(count)
    ]


def check_rate(name: str, risks: np.ndarray, alpha: float) -> None:
    """A share of errors above alpha must be explained by chance: its interval (95%, Clopper-Pearson) reaches alpha."""
    errors = int((risks <= math.log10(alpha)).sum())
    low, high = clopper_pearson(errors, risks.size)
    print(f"{name}: {errors} of {risks.size} at or below {alpha:g}, rate {low:.4g} to {high:.4g} (95%)")
    assert low <= alpha


@pytest.mark.slow
def test_fault_34_wrong_keys_are_found_no_more_often_than_stated(marked) -> None:
    """On another key's release; tests/test_calibration.py reads the unmarked original."""
    model, _, release = marked
    keys = wrong_keys(model, KEYS)
    found: list[Finding] = []
    examination = irwm.Examination(release, model)
    for start in range(0, KEYS, BATCH):
        found += irwm.detect_each(examination, keys[start : start + BATCH], seed=start, keys_tried=1)
    assert not [f for f in found if f.verdict == "found" or f.passes]
    risks = np.array([log10_risk(f.reading) for f in found])
    for alpha in (0.1, 0.01):
        check_rate("wrong keys", risks, alpha)
    ratios = np.array([likelihood_ratio_log10(f.ranks) for f in found])
    for c in (2.0, 10.0, 100.0):
        # At most n / c are allowed on average; the values are far below Markov's bound.
        assert (ratios >= math.log10(c)).sum() <= ratios.size / c
    assert np.mean(10.0**ratios) <= 1.0
    assert np.median(ratios) < 0  # most support the second proposition


def test_fault_34_shuffled_labels_a_thousand_times_are_found_no_more_often_than_stated(marked) -> None:
    """Shuffles which of a row's N + 1 orders is called the key's, on a marked model whose key is found."""
    model, key, release = marked
    reading = irwm.detect(release, model, key).reading
    rng = np.random.default_rng(34)
    everything = np.sort(np.concatenate((reading.observed[:, None], reading.null), axis=1), axis=1)
    rows, size = np.arange(len(everything)), everything.shape[1]
    least = []
    for _ in range(ROUNDS):
        observed = everything[rows, rng.integers(0, size, len(everything))]
        ranks = (everything <= observed[:, None]).sum(axis=1) / size
        count = binomial_tail_log(int((ranks < 0.2).sum()), len(ranks), chance_of_counting(key.parameters)) / LN10
        least.append(min(fisher_log10(ranks), count) + math.log10(COMBINATIONS))
    for alpha in (0.1, 0.01, 0.001):
        check_rate("shuffled labels", np.array(least), alpha)
    assert min(least) > FOUND_LOG10_RISK


@pytest.mark.parametrize("permutations", [0, 1, 10])
def test_fault_35_too_few_permutations_are_reported_and_give_no_small_p(marked, permutations: int) -> None:
    model, _, _ = marked
    key = irwm.generate_key(model, irwm.Parameters(permutations=permutations), secret=bytes(32))
    found = irwm.detect(model, model, key)
    assert found.verdict == "inconclusive"
    assert np.nanmin(found.ranks) >= 1 / (1 + permutations)
    assert found.log10_p >= fisher_floor_log10(50, permutations)


def test_fault_35_p_is_never_zero(marked) -> None:
    model, key, release = marked
    found = irwm.detect(release, model, key)
    assert found.ranks.min() == 1 / 1001
    assert math.isfinite(found.log10_p)
    assert found.log10_p == fisher_floor_log10(50, 1000)


def test_fault_36_correction_for_many_keys_is_applied_and_printed(marked) -> None:
    model, key, release = marked
    one, many = (irwm.detect(release, model, key, keys_tried=tried) for tried in (1, 100_000))
    assert log10_risk(many.reading, many.comparisons) == pytest.approx(
        log10_risk(one.reading, one.maps * one.places) + 5
    )
    document = document_of(model, key, release, many)
    lr = document["evaluation"]
    assert lr["log10_lr_per_comparison"] == pytest.approx(
        lr["log10_lr"] - math.log10(100_000 * many.maps * many.places)
    )
    text = Page(render_html(document)).text
    for number in ("100 000", "400 000"):
        assert number in text


@pytest.mark.gpu
def test_fault_37_cpu_and_gpu_agree(marked, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    model, key, release = marked
    noisy = release.embedding() + 0.3 * release.embedding().std() * torch.randn(
        release.embedding().shape, generator=torch.Generator().manual_seed(0)
    )
    suspect = write_embedding(release, noisy, tmp_path / "noisy")
    cpu, gpu = (irwm.detect(suspect, model, key, device=device) for device in ("cpu", "cuda"))
    assert cpu.verdict == gpu.verdict
    assert np.abs(cpu.ranks - gpu.ranks).max() <= 1 / 1001  # a value may cross one neighbour in its null
    assert cpu.log10_p == pytest.approx(gpu.log10_p, abs=0.1)
