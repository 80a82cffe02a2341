"""Faults 34 to 37: suspects without any key, too few permutations, many keys, and the same case run again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.evidence.finding import Finding
from irwm.evidence.verdict import COMBINATIONS, FOUND_LOG10_RISK, log10_risk
from irwm.report import render_html
from irwm.report.error_rates import clopper_pearson
from irwm.scheme.keystream import derive
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import LN10, binomial_tail_log, fisher_floor_log10, fisher_log10
from tests.conftest import Marked
from tests.evidence.test_head import document_of
from tests.report.test_html import Page
from tools.copies import write_embedding

KEYS, BATCH = 100, 20
ROUNDS = 1000


@pytest.fixture(scope="module")
def marked(demo_path: Path, tmp_path_factory: pytest.TempPathFactory):
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, secret=bytes(32))
    release = irwm.insert(model, key, tmp_path_factory.mktemp("r") / "release")
    return model, key, irwm.open_checkpoint(release.path)


def wrong_keys(model: irwm.Checkpoint, count: int) -> list[irwm.Key]:
    params = irwm.Parameters(permutations=199)
    return [
        irwm.generate_key(model, params, secret=derive(b"fault 34", b"", i.to_bytes(4, "big"))) for i in range(count)
    ]


def check_rate(name: str, risks: np.ndarray, alpha: float) -> None:
    """A share of errors above alpha must be explained by chance: its interval (95 %, Clopper-Pearson) reaches alpha."""
    errors = int((risks <= math.log10(alpha)).sum())
    low, high = clopper_pearson(errors, risks.size)
    print(f"{name}: {errors} of {risks.size} at or below {alpha:g}, rate {low:.4g} to {high:.4g} (95 %)")
    assert low <= alpha


@pytest.mark.slow
@pytest.mark.parametrize("suspect", ["the unmarked original", "another key's release"])
def test_fault_34_wrong_keys_are_found_no_more_often_than_stated(marked, suspect: str) -> None:
    model, _, release = marked
    keys = wrong_keys(model, KEYS)
    examined = model if suspect == "the unmarked original" else release
    found: list[Finding] = []
    examination = irwm.Examination(examined, model)
    for start in range(0, KEYS, BATCH):
        found += irwm.detect_each(examination, keys[start : start + BATCH], seed=start, keys_tried=1)
    assert not [f for f in found if f.verdict == "found" or f.passes]
    risks = np.array([log10_risk(f.reading) for f in found])
    for alpha in (0.1, 0.01):
        check_rate(suspect, risks, alpha)


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
    assert "Too few permutations" in found.reason
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
    document = document_of(Marked(model, key, release.path), release, many)
    lr = document["evaluation"]
    assert lr["log10_lr_per_comparison"] == pytest.approx(
        lr["log10_lr"] - math.log10(100_000 * many.maps * many.places)
    )
    text = Page(render_html(document)).text
    assert "100 000 for the keys tried on this suspect" in text
    assert "divided by the 400 000 comparisons made" in text


def test_fault_37_the_same_seed_gives_the_same_ranks_with_any_number_of_threads(marked) -> None:
    """Stated tolerance: ranks and verdict equal, other numbers to one part in a million."""
    model, key, release = marked
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            found.append(irwm.detect(release, model, key))
    finally:
        torch.set_num_threads(before)
    one, two, again = found
    for other in (two, again):
        assert other.verdict == one.verdict
        np.testing.assert_array_equal(other.ranks, one.ranks)
        np.testing.assert_allclose(other.observed, one.observed, rtol=1e-6)
        np.testing.assert_allclose(other.null, one.null, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(one.null, again.null)


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
