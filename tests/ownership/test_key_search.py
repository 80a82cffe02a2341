"""Forging by search: with freely chosen permutations it forges anything; with whole keys, only as much as chance."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

import irwm
from benchmarks.forgery import best_permutations, read, whole_keys
from irwm.errors import KeyFormatError, KeyMismatchError
from irwm.keys.digests import rows_digest
from irwm.ownership import standing
from irwm.ownership.key_search import COMMITTED, LATE, UNCOMMITTED, UNDATED, evidence_bits
from irwm.scheme.derivation import canonical
from irwm.scheme.row_pool import RowPool
from tests.ownership.test_commitment import CHANGES

TRIES = 300  # per row; docs/ownership.md has a million in all


@pytest.fixture(scope="module")
def model(gemma_path: Path) -> irwm.Checkpoint:
    """Unmarked, so any mark that is found in it is forged."""
    return irwm.open_checkpoint(gemma_path)


@pytest.fixture(scope="module")
def key(model: irwm.Checkpoint) -> irwm.Key:
    return irwm.generate_key(model, secret=bytes([9]) * 32, owner="Forger")


@pytest.mark.slow
def test_trying_whole_keys_finds_only_chance_matches(model: irwm.Checkpoint) -> None:
    n = 200
    risks = whole_keys(model, irwm.Parameters(positions=20, required_positions=12, permutations=199), n)
    assert kstest(10**risks, "uniform").pvalue > 0.001
    best = float(risks.min())
    assert best > -math.log10(n) - 3
    assert evidence_bits(best) <= math.log2(n) + 10
    assert evidence_bits(best) >= math.log2(n) - 4  # a search does gain that much, which is why it is subtracted


@pytest.mark.parametrize("statistic", ["sum", "joint"])
def test_freely_chosen_permutations_would_pass_every_rule(
    model: irwm.Checkpoint, key: irwm.Key, statistic: str
) -> None:
    """With the paper's free choice a forged key passes the paper's rule at all 50 positions, and our rule too."""
    assert not read(model, key, statistic).passes
    forged = read(model, key, statistic, best_permutations(model, key, statistic, TRIES))
    assert forged.passes
    assert forged.count == 50
    assert forged.log10_p < -50


def test_no_key_holds_a_permutation(key: irwm.Key) -> None:
    values = json.loads(key.to_bytes())
    chosen = [list(range(key.hidden_size))] * 50
    for name in ("row_permutations", "constraint_permutations", "marked_rows", "query_tokens", "choices"):
        assert name not in values
        with pytest.raises(KeyFormatError):
            irwm.Key.from_bytes(canonical(values | {name: chosen}))


def altered(key: irwm.Key, field: str) -> irwm.Key:
    change = CHANGES.get(field, {"pool": RowPool(key.pool.size, ((0, 7),))})
    return irwm.Key.from_bytes(replace(key, **change).to_bytes())  # well-formed, all the same


@pytest.mark.parametrize("field", [*CHANGES, "pool"])
def test_a_key_with_a_field_altered_is_refused(model: irwm.Checkpoint, key: irwm.Key, field: str) -> None:
    with pytest.raises(KeyMismatchError):
        irwm.detect(model, model, altered(key, field))


@pytest.mark.parametrize("field", ["secret", "owner", "recipient", "pool", "parameters"])
def test_altered_key_with_matching_digest_is_another_key(model: irwm.Checkpoint, key: irwm.Key, field: str) -> None:
    """Every choice changed with the field: this is one more try of a search, and gives no free choice."""
    forged = altered(key, field)
    choices, before = forged.choices(), key.choices()
    digest = rows_digest(model, choices.query_tokens, choices.reference_tokens, choices.marked_rows)
    assert not np.array_equal(choices.row_permutations, before.row_permutations)
    assert set(choices.marked_rows) != set(before.marked_rows)
    try:
        finding = irwm.detect(model, model, replace(forged, rows_digest=digest))
    except KeyMismatchError:  # its stable try is another one now
        return
    assert finding.verdict != "found"


TIMES = ("2025-06-01T00:00:00Z", "2025-06-01T03:00:00+02:00", "2025-06-02T00:00:00Z")


@pytest.mark.parametrize(
    ("committed", "seen", "status"),
    [
        (TIMES[0], TIMES[1], COMMITTED),
        (TIMES[1], TIMES[0], LATE),
        (TIMES[0], TIMES[0], LATE),
        (TIMES[0], None, UNDATED),
        (None, TIMES[0], UNCOMMITTED),
        (None, None, UNCOMMITTED),
    ],
)
def test_only_a_date_before_the_suspect_limits_the_search(committed: str, seen: str, status: str) -> None:
    assert standing(-30.0, committed, seen).status == status
    assert (standing(-30.0, committed, seen).search_bits == 0) == (status == COMMITTED)


@given(st.floats(-5000, 0))
def test_margin_is_evidence_minus_search(log10: float) -> None:
    stands = standing(log10)
    assert stands.margin_bits == stands.evidence_bits - 80
    assert stands.evidence_bits == pytest.approx(-log10 / math.log10(2))


@pytest.mark.parametrize("time", ["2025-06-01", "2025-06-01T00:00:00", "June", ""])
def test_time_without_zone_is_refused(time: str) -> None:
    with pytest.raises(ValueError, match=r"zone|isoformat"):
        standing(-30.0, time)
