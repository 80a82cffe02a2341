"""Searches for our own false positives that alignment itself could cause: wrong keys on disguised originals.

Alignment uses the original and no key, so wrong keys must rank as uniformly as on an untouched model. If rows were
pulled towards what a key expects, or the null used other coordinates than the key, it would show here.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, kstest

import irwm
from benchmarks.disguises import RENAMED, TRIMMED, everything, models
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.scheme.keystream import derive

# Reads hundreds of keys on disguised models, once for the whole module.
pytestmark = pytest.mark.slow

KEYS, PERMUTATIONS = 100, 199


@pytest.fixture(scope="module", params=["demo", "gemma"])
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[irwm.Finding]:
    path = models()[request.param]
    model = irwm.open_checkpoint(path)
    hidden = tmp_path_factory.mktemp(request.param) / "x"
    write_state(apply(read_state(path), [TRIMMED, *everything(path), RENAMED], seed=5), hidden)
    params = irwm.Parameters(permutations=PERMUTATIONS)
    secrets = [derive(b"disguised calibration", b"", i.to_bytes(4, "big")) for i in range(KEYS)]
    keys = [irwm.generate_key(model, params, secret=secret) for secret in secrets]
    return list(irwm.detect_each(irwm.Examination(irwm.open_checkpoint(hidden), model), keys, keys_tried=1))


def test_a_disguised_original_is_derived_and_carries_no_key(findings: list[irwm.Finding]) -> None:
    assert {finding.lineage.status for finding in findings} == {"derived"}
    assert not [finding for finding in findings if finding.verdict == "found" or finding.reading.passes]
    assert sum(finding.verdict != "not found" for finding in findings) <= 2  # the grey zone: one in a thousand


def test_ranks_of_wrong_keys_are_uniform(findings: list[irwm.Finding]) -> None:
    ranks = np.concatenate([finding.ranks for finding in findings])
    ranks = ranks[np.isfinite(ranks)]
    assert ranks.size > 0.5 * KEYS * 50
    ranks = ranks - np.random.default_rng(0).uniform(0, 1 / (1 + PERMUTATIONS), ranks.size)
    assert kstest(ranks, "uniform").pvalue > 1e-3
    low, high = binom.interval(0.999, ranks.size, 0.2)
    assert low <= (ranks < 0.2).sum() <= high
