"""A key's fingerprint as separate evidence: how `detect` reports it and corrects for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.evidence.detection import detect_marks
from irwm.report.consistency import contradictions
from irwm.report.html import render_html
from irwm.report.reproduction import reproduce
from irwm.scheme.probabilities import rademacher_tail_log10
from tests.report.conftest import document_of
from tools.copies import copy_of, keys_for, with_noise, write_embedding
from tools.small_models import write_llama

# In the embedding alone; tests/evidence/test_head.py has both places.
PARAMETERS = irwm.Parameters(
    positions=20, required_positions=12, constraints=4, noise_coordinates=4, spread=0.1, places=("embedding",)
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    folder = tmp_path_factory.mktemp("model") / "model"
    return irwm.open_checkpoint(write_llama(folder, vocab_size=2500, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def key(model: irwm.Checkpoint) -> irwm.Key:
    (key,) = keys_for(model, [""], PARAMETERS)
    return key


@pytest.fixture(scope="module")
def without_mark(model, key, tmp_path_factory) -> irwm.Checkpoint:
    """A copy whose marked rows were restored, with noise on all rows."""
    copy = copy_of(model, key).float()
    copy[key.marked_rows] = model.embedding(key.marked_rows)
    return write_embedding(model, with_noise(copy, 0.2), tmp_path_factory.mktemp("suspect") / "suspect")


def test_an_undamaged_release_needs_no_second_form(model, key, tmp_path: Path) -> None:
    found = irwm.detect(write_embedding(model, copy_of(model, key), tmp_path / "release"), model, key)
    assert found.verdict == "found"
    assert [(each.form, each.place) for each in found.evidence] == [("mark", "embedding")]
    assert found.comparisons == 1 * 1 * 2 * 2


def test_a_release_without_its_mark_is_found_by_its_fingerprint(model, key, without_mark) -> None:
    (marks,) = detect_marks(irwm.Examination(without_mark, model), [key])
    assert marks.verdict == "not found"
    found = irwm.detect(without_mark, model, key)
    assert found.verdict == "found"
    mark, fingerprint = found.evidence
    assert (mark.form, fingerprint.form) == ("mark", "fingerprint")
    assert mark.log10_p > -3 > -6 > fingerprint.log10_p
    assert fingerprint.log10_p == pytest.approx(float(rademacher_tail_log10(fingerprint.z)))
    assert fingerprint.rows == 2500


def test_many_keys_get_the_same_findings_as_single_ones(model, key, without_mark) -> None:
    innocent, plain = (
        keys_for(model, ["innocent"], params, secret=bytes([100]) * 32)[0]
        for params in (PARAMETERS, replace(PARAMETERS, noise_coordinates=0, spread=0.0))
    )
    (other,) = keys_for(model, ["another recipient of the release"], PARAMETERS)
    keys = [innocent, key, other, plain]
    together = list(irwm.detect_each(irwm.Examination(without_mark, model), keys))
    alone = [irwm.detect(without_mark, model, each, keys_tried=4) for each in keys]
    assert [found.verdict for found in together] == ["not found", "found", "not found", "not found"]
    assert [found.forms for found in together] == [2, 2, 2, 1], "a key without noise has no fingerprint to look for"
    for found, expected in zip(together, alone, strict=True):
        assert (found.reason, found.comparisons) == (expected.reason, expected.comparisons)
        assert [each.log10_p for each in found.evidence] == [each.log10_p for each in expected.evidence]


def test_innocent_keys_have_two_forms_and_are_not_found(model, without_mark) -> None:
    z = []
    for number in range(12):
        (innocent,) = keys_for(model, ["innocent"], PARAMETERS, secret=bytes([100 + number]) * 32)
        found = irwm.detect(without_mark, model, innocent)
        assert found.verdict == "not found"
        assert all(each.log10_p > -3 for each in found.evidence)
        z.append(found.evidence[1].z)
    assert np.abs(z).max() < 4


def test_fingerprint_between_limits_is_inconclusive(model, key, tmp_path: Path) -> None:
    """With noise until its z is four or five, which one key in some ten thousand reaches by chance."""
    copy = copy_of(model, key).float()
    copy[key.marked_rows] = model.embedding(key.marked_rows)
    original = model.embedding()
    share = next(
        share
        for share in np.geomspace(0.5, 0.005, 60)
        if 4.0 < irwm.trace(_mixed(model, original, copy, share, tmp_path), model, [key])[0].z < 5.0
    )
    found = irwm.detect(_mixed(model, original, copy, share, tmp_path), model, key)
    assert found.verdict == "inconclusive"


def _mixed(model, original, copy, share, folder: Path) -> irwm.Checkpoint:
    path = folder / f"{share:.4f}"
    if path.exists():
        return irwm.open_checkpoint(path)
    return write_embedding(model, with_noise(original + float(share) * (copy - original), 0.3), path)


def test_other_statistic_uses_only_the_mark_with_the_same_correction(model, key, without_mark) -> None:
    found = irwm.detect(without_mark, model, key, statistic="sum", invariant="suspect")
    assert (found.forms, len(found.evidence)) == (2, 1)


def test_report_states_and_reproduces_both_forms(model, key, without_mark) -> None:
    found = irwm.detect(without_mark, model, key)
    document = document_of(model, key, without_mark, found)
    assert contradictions(document) == []
    assert reproduce(document, without_mark, model, key) == []
    assert "Fingerprint alone" in render_html(document)
    for change in ({"z": document["evidence"][1]["z"] + 1}, {"log10_p": -300.0}, {"log10_risk": 0.0}):
        edited = document | {"evidence": [document["evidence"][0], document["evidence"][1] | change]}
        assert any(each.where.startswith("evidence[1]") for each in contradictions(edited))
    bare = document | {"evidence": document["evidence"][:1]}
    assert any(each.where == "verdict.mark" for each in contradictions(bare))
    assert math.isclose(document["standing"]["evidence_bits"], -document["evidence"][1]["log10_risk"] / math.log10(2))
