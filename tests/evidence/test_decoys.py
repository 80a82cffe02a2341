"""Decoys: they read like wrong keys, are never found, and for one seed are the same on any device."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom, kstest

import irwm
from benchmarks.decoys import cases, risks
from irwm.evidence.decoys import _below, _Map, decoys, ranked
from irwm.evidence.finding import ALIGNED, LEAST_SQUARES
from irwm.evidence.neutral_model import write_neutral
from irwm.evidence.verdict import log10_risk
from irwm.scheme import statistic as stat
from irwm.scheme.condition import permute_rows
from irwm.scheme.parameters import many_recipients
from irwm.scheme.permutations import NullOrders

NUMBER = 1000


def a_of(d: int, t: int = 10) -> np.ndarray:
    a = np.random.default_rng(1).normal(size=(t, d))
    return (a - a.mean(axis=1, keepdims=True)) / a.std(axis=1, keepdims=True)


def read(model: irwm.Checkpoint, params: irwm.Parameters, suspect: irwm.Checkpoint | None = None):
    key = irwm.generate_key(model, params, secret=bytes(32))
    suspect = suspect or model
    finding = irwm.detect(suspect, model, key)
    return decoys(irwm.Examination(suspect, model), key, finding, NUMBER)


@pytest.fixture(scope="module", params=["demo", "minilm", "gemma, noise", "phi3, auto"])
def on_a_trained_model(request, demo_path, minilm_path, gemma_path, phi3_path):
    name, _, setting = request.param.partition(", ")
    paths = {"demo": demo_path, "minilm": minilm_path, "gemma": gemma_path, "phi3": phi3_path}
    model = irwm.open_checkpoint(paths[name])
    params = {"noise": many_recipients(model.hidden_size), "auto": irwm.Parameters(scale="auto")}.get(setting)
    return read(model, params or irwm.Parameters())


@pytest.mark.sweep
def test_four_thousand_wrong_keys_stay_within_the_stated_error_rate(on_a_trained_model) -> None:
    """`python -m benchmarks.decoys` repeats this with a million (docs/evaluation.md)."""
    risks = on_a_trained_model.log10_risk
    assert risks.size == NUMBER
    for level in (-1, -2, -3):
        assert (risks <= level).sum() <= binom.ppf(0.9995, NUMBER, 10.0**level)
    assert risks.min() > -6


@pytest.mark.slow
def test_wrong_keys_keep_error_rate_on_unrelated_and_unusual_embeddings(tmp_path: Path) -> None:
    met = set()
    for case in cases(tmp_path):
        for by, read_by in case.readings("cpu"):
            found = risks(read_by, NUMBER, first_seed=100)
            if not found.size:
                continue  # too few rows are left
            met.add((case.name, by))
            for level in (-1, -2, -3):
                assert (found <= level).sum() <= binom.ppf(1 - 1e-6, NUMBER, 10.0**level), (case.name, by)
            assert found.min() > -6, (case.name, by)
    assert len(met) >= 40
    assert {by for name, by in met if "unrelated" in name} == {ALIGNED, LEAST_SQUARES}


@pytest.mark.sweep
def test_decoy_p_values_and_counts_follow_chance(on_a_trained_model) -> None:
    found = on_a_trained_model
    assert kstest(10.0**found.log10_p, "uniform", alternative="greater").pvalue > 1e-3
    mean = found.counts.mean()
    assert abs(mean - 0.2 * 50) < 4 * math.sqrt(50 * 0.16 / NUMBER) + 0.05
    assert (found.log10_p <= 0).all()
    assert np.isfinite(found.log10_risk).all()


@pytest.mark.slow
def test_decoys_read_marked_suspect_as_unmarked(release_of) -> None:
    model, key, release = release_of("demo")
    suspect = irwm.open_checkpoint(release)
    finding = irwm.detect(suspect, model, key)
    found = decoys(irwm.Examination(suspect, model), key, finding, 400)
    assert finding.verdict == "found"
    assert found.log10_risk.min() > -6 > log10_risk(finding.reading)
    assert found.bank_rows <= 2048


def test_decoy_ranks_depend_on_the_seed_and_not_on_threads() -> None:
    rows, tokens = np.random.default_rng(0).normal(size=(700, 96)), np.arange(700)

    def run(seed: int, threads: int) -> np.ndarray:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return ranked(rows, tokens, a_of(96), irwm.Parameters(), 1000.0, number=400, seed=seed).log10_p
        finally:
            torch.set_num_threads(before)

    np.testing.assert_array_equal(run(3, 1), run(3, 2))
    assert not np.array_equal(run(3, 1), run(4, 1))


def test_fast_ranks_are_those_of_float64() -> None:
    """Compared with the simple method of irwm.scheme.statistic, on rows with values that differ by little more than
    rounding."""
    rng = np.random.default_rng(0)
    d, permutations = 64, NullOrders.of(5, 300, 0, 64).shared
    bank = stat.normalised(np.round(rng.normal(size=(40, d)), 1))
    orders = np.argsort(rng.random((10, d)), axis=1)
    weights = stat.joint_map(permute_rows(a_of(d), orders), 1000.0)
    chosen = rng.integers(0, 40, 200)
    inverse = np.argsort(permutations, axis=1)  # _below gathers the map's columns, the inverse of an order of the rows
    in_place = np.tile(np.arange(d), (len(bank), 1))
    null = stat.null_lengths(weights, bank, NullOrders(inverse, in_place))
    observed = null[chosen, rng.integers(0, 300, 200)]  # each equal to a value of its null
    expected = (null[chosen] <= observed[:, None] * (1 + 1e-9)).sum(axis=1)
    found = _below(*map(torch.as_tensor, (weights, bank, chosen, observed, permutations)))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_ranks_are_exact_fractions() -> None:
    """In single precision 350/1000 is below 0.35, so a position would count that does not."""
    rows = np.random.default_rng(0).normal(size=(60, 32))
    one = _Map(bytes(32), a_of(32), 1e6, 1000.0, "cpu")
    ranks = one.ranks(torch.as_tensor(stat.normalised(rows)), 300, 20, 999)
    steps = np.rint(ranks.astype(np.float64) * 1000).astype(np.int64)
    assert ranks.dtype == np.float64
    np.testing.assert_array_equal(ranks, steps / 1000)
    assert (steps == 350).any()


@pytest.mark.gpu
def test_a_gpu_gives_the_same_ranks() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    rows, tokens = np.random.default_rng(0).normal(size=(700, 96)), np.arange(700)
    cpu, gpu = (
        ranked(rows, tokens, a_of(96), irwm.Parameters(), 1000.0, number=400, device=device).log10_p
        for device in ("cpu", "cuda")
    )
    np.testing.assert_array_equal(cpu, gpu)


def test_missing_or_damaged_rows_are_not_sampled() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 64))
    rows[:100, 3] = np.nan
    rows[100:150] = 1.0  # their order carries no information
    found = ranked(rows, np.arange(300), a_of(64), irwm.Parameters(), 1000.0, number=200)
    assert found.bank_rows == 150
    assert ranked(rows[:180], np.arange(180), a_of(64), irwm.Parameters(), 1000.0, number=200) is None


def test_settings_far_above_the_papers_are_limited_and_reported() -> None:
    rows = np.random.default_rng(0).normal(size=(600, 32))
    params = irwm.Parameters(positions=600, required_positions=300, constraints=4, permutations=5000)
    found = ranked(rows, np.arange(600), a_of(32, 4), params, 1000.0, number=200, per_map=50)
    assert (found.positions, found.permutations, found.maps) == (500, 1000, 4)
    assert found.log10_risk.min() > -6


@pytest.mark.slow
def test_neutral_model_keeps_the_numbers_cannot_be_aligned_and_has_no_decoys(demo_path, tmp_path) -> None:
    model = irwm.open_checkpoint(demo_path)
    neutral, again = (
        irwm.open_checkpoint(write_neutral(model, tmp_path / name, most_rows=600)) for name in ("neutral", "again")
    )
    assert (neutral.vocab_size, neutral.hidden_size) == (600, model.hidden_size)
    known = {tuple(row) for row in np.sort(model.embedding().bfloat16().float().numpy(), axis=1)}
    assert all(tuple(row) in known for row in np.sort(neutral.embedding().numpy(), axis=1))
    assert again.fingerprint == neutral.fingerprint
    found = irwm.detect(neutral, model, irwm.generate_key(model, secret=bytes(32)))
    assert (found.verdict, found.alignment.aligned) == ("inconclusive", False)
    assert found.lineage.status != "derived"
    assert read(model, irwm.Parameters(), neutral) is None
    assert read(model, irwm.Parameters(permutations=10)) is None
