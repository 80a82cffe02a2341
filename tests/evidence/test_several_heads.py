"""A suspect with several tensors that may be its output head: each place is corrected for its own tensors."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.evidence.detection import detect_marks
from irwm.evidence.finding import Finding
from irwm.evidence.verdict import judge_both
from irwm.ownership import Claim
from irwm.ownership.key_search import standing
from irwm.report import rulings
from irwm.report.consistency import contradictions
from irwm.report.html import render_html
from irwm.report.reproduction import reproduce
from irwm.report.tracing import Traced, summary
from irwm.tracing import trace_each
from tests.evidence.test_head import EMBEDDING, HEAD, changed
from tests.report.conftest import dispute_of, document_of
from tools.copies import keys_for
from tools.small_models import write_llama

PARAMETERS = irwm.Parameters(positions=20, required_positions=12, constraints=4, noise_coordinates=4, spread=0.2)
# The head by name, and two damaged copies of it under names that an embedding may have.
HEADS = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    return irwm.open_checkpoint(write_llama(tmp_path_factory.mktemp("model") / "model", vocab_size=2500))


@pytest.fixture(scope="module")
def key(model: irwm.Checkpoint) -> irwm.Key:
    (key,) = keys_for(model, ["Northwind"], PARAMETERS)
    return key


@pytest.fixture(scope="module")
def suspect(model: irwm.Checkpoint, key: irwm.Key, tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    """A release with the original's embedding, and with the original's rows where its head was marked."""
    folder = tmp_path_factory.mktemp("suspect")
    assert key.head is not None
    rows, plain = torch.from_numpy(key.head.marked_rows), load_file(model.path / "model.safetensors")

    def restored(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == EMBEDDING:
            return plain[name]
        return tensor.index_copy(0, rows, plain[name][rows]) if name == HEAD else tensor

    irwm.insert(model, key, folder / "release")
    changed(folder / "release", folder / "suspect", restored)
    file = folder / "suspect" / "model.safetensors"
    tensors, noise = load_file(file), torch.Generator().manual_seed(1)
    for number in range(1, HEADS):
        damage = 0.1 * tensors[HEAD].std() * torch.randn(tensors[HEAD].shape, generator=noise)
        tensors[f"copy{number}.embed_tokens.weight"] = tensors[HEAD] + damage
    save_file(tensors, file, metadata={"format": "pt"})
    return irwm.open_checkpoint(folder / "suspect")


@pytest.fixture(scope="module")
def found(suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key) -> Finding:
    return irwm.detect(suspect, model, key)


@pytest.fixture(scope="module")
def document(suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key, found: Finding) -> dict[str, Any]:
    return document_of(model, key, suspect, found)


def corrected(found: Finding, log10_p: float, tensors: int) -> float:
    """The odds of two maps, two forms and three places, with this many tensors in the place."""
    assert (found.keys_tried, found.maps, found.forms, found.places) == (1, 2, 2, 3)
    return min(0.0, log10_p + math.log10(tensors * 2 * 2 * 3))


def test_each_form_of_evidence_is_corrected_for_the_tensors_of_its_place(
    found: Finding, suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key
) -> None:
    read = found.fingerprint
    assert read is not None
    assert (found.verdict, found.place, found.tensors_read) == ("found", "embedding", 1)
    assert (read.place, read.tensors_read) == ("head", HEADS)
    assert found.log10_risk == found.log10_risk_of(read) == pytest.approx(corrected(found, read.log10_p, HEADS))
    (trace,) = irwm.trace(suspect, model, [key])
    assert trace.log10_risk == pytest.approx(found.log10_risk)
    for each, (place, tensors) in zip(found.evidence[:2], (("embedding", 1), ("head", HEADS)), strict=True):
        assert (each.form, each.place, each.tensors_read) == ("mark", place, tensors)
        assert found.log10_risk_of(each) == pytest.approx(corrected(found, each.log10_p, tensors))


@pytest.mark.parametrize(
    ("tensors", "verdict"), [(1, "found"), (HEADS, "inconclusive")], ids=["one tensor", "several tensors"]
)
def test_verdict_uses_the_number_of_tensors_of_the_fingerprint(found: Finding, tensors: int, verdict: str) -> None:
    assert found.fingerprint is not None
    log10_p = -6.2 - math.log10(2 * 2 * 2)
    read = replace(found.fingerprint, log10_p=log10_p, tensors_read=tensors)
    assert judge_both(replace(found, verdict="not found", reason="", fingerprint=read)).verdict == verdict


def test_report_states_and_reproduces_the_number_of_tensors(
    document: dict[str, Any], suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key
) -> None:
    assert [each["tensors_read"] for each in document["evidence"]] == [1, HEADS, HEADS]
    assert contradictions(document) == []
    assert reproduce(document, suspect, model, key) == []
    assert f'× <span class="n">{HEADS}</span>' in render_html(document)


def claiming(document: dict[str, Any], tensors: int, *numbers: int) -> dict[str, Any]:
    """The report with another number of tensors for these forms of evidence, and the odds that follow from it."""
    document = copy.deepcopy(document)
    forms = document["evidence"]
    for number in numbers:
        difference = math.log10(tensors / forms[number]["tensors_read"])
        forms[number]["tensors_read"] = tensors
        if forms[number]["log10_risk"] < 0:
            forms[number]["log10_risk"] += difference
    bits = standing(min(each["log10_risk"] for each in forms))
    document["standing"] |= {"evidence_bits": bits.evidence_bits, "margin_bits": bits.margin_bits}
    return document


@pytest.mark.parametrize("tensors", range(1, HEADS))
def test_report_that_states_fewer_tensors_for_its_fingerprint_is_refused(
    document: dict[str, Any], tensors: int
) -> None:
    named = {each.where for each in contradictions(claiming(document, tensors, 2))}
    assert {"evidence[2].tensors_read"} <= named


def test_report_that_states_fewer_tensors_for_a_whole_place_is_not_reproduced(
    document: dict[str, Any], suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key
) -> None:
    """Only the suspect's files show how many tensors the place has."""
    named = {each.where for each in reproduce(claiming(document, 1, 1, 2), suspect, model, key)}
    assert {f"evidence[{number}].tensors_read" for number in (1, 2)} <= named


@pytest.mark.parametrize("place", ["head", "embedding"])
def test_report_without_the_mark_of_its_fingerprints_place_is_refused(document: dict[str, Any], place: str) -> None:
    """Otherwise the number of tensors could be left out with the mark."""
    marks = [each for each in document["evidence"] if each["form"] == "mark" and each["place"] == place]
    altered = document | {"elsewhere": None, "evidence": [*marks, document["evidence"][2]]}
    assert contradictions(altered)


def test_tracing_that_states_fewer_tensors_is_refused(
    suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key
) -> None:
    examination = irwm.Examination(suspect, model)
    (marks,) = detect_marks(examination, [key])
    traced = Traced(trace_each(examination, [key], decoys=5), [key], {})
    document = document_of(model, key, suspect, marks, traced=traced)
    assert contradictions(document) == []
    section = document["tracing"]
    assert (section["place"], section["tensors_read"]) == ("head", HEADS)
    section["tensors_read"] = 1
    for row in section["ranked"]:
        row["log10_risk"] -= math.log10(HEADS)
    section |= summary(section)
    assert "tracing.tensors_read" in {each.where for each in contradictions(document)}


@pytest.fixture(scope="module")
def disputed(
    suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The key's owner and another claimant about the suspect."""
    other = irwm.open_checkpoint(write_llama(tmp_path_factory.mktemp("other") / "model", vocab_size=2500, seed=5))
    theirs = irwm.generate_key(other, replace(PARAMETERS, noise_coordinates=0, spread=0.0), b"\x07" * 32, "Copy Works")
    return dispute_of([Claim("Owner", model, key), Claim("Copy Works", other, theirs)], suspect)


def test_dispute_states_the_number_of_tensors_and_refuses_fewer(disputed: dict[str, Any]) -> None:
    assert rulings.contradictions(disputed) == []
    names = [(each["claimant"], each["model"]) for each in disputed["outcome"]["tests"]]
    number = names.index(("Owner", "model in dispute"))
    test = disputed["outcome"]["tests"][number]
    assert (test["place"], test["tensors_read"], test["elsewhere"]["tensors_read"]) == ("embedding", 1, HEADS)
    assert (test["fingerprint"]["place"], test["fingerprint"]["tensors_read"]) == ("head", HEADS)
    altered = copy.deepcopy(disputed)
    changed_test = altered["outcome"]["tests"][number]
    changed_test["fingerprint"]["tensors_read"] = 1
    changed_test["log10_risk"] -= math.log10(HEADS)
    named = {each.where for each in rulings.contradictions(altered)}
    assert f"outcome.tests[{number}].fingerprint.tensors_read" in named
