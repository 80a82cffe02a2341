"""Every field of real reports is altered, one value at a time: the change is found, or the field is listed as an input.

The forger signs the altered document with the right identity, so only the document itself can show the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.evidence.decoys import decoys
from irwm.ownership import Claim
from irwm.report import (
    SelfTest,
    consistency,
    dispute,
    from_json,
    lab,
    lab_claims,
    rulings,
    schema,
    stamps,
    sweep,
    sweep_claims,
    to_json,
    verify_review,
)
from irwm.report.claims import IMPOSSIBLE, contradicted, item_fields, source_fields, wrong
from irwm.report.error_rates import ErrorRates, neutral_section
from irwm.report.reproduction import Difference
from irwm.report.structure import fault
from irwm.report.tracing import Traced
from irwm.report.value_states import Stated, field_of, leaves, text_of
from irwm.scheme.parameters import many_recipients
from irwm.tracing import recipients, trace_each
from tests.recording.answers import write_recording
from tests.report.conftest import Examined, dispute_of, document_of, examine
from tests.report.leaves import few_of_each, named, unnoticed
from tests.report.test_review import review_of
from tools.copies import copy_of, keys_for, with_noise, write_embedding
from tools.small_models import write_llama


@dataclass(frozen=True)
class Case:
    """A real document, its claims, the contradictions of its timestamps, and its inputs."""

    document: dict[str, Any]
    claims: Callable[[dict[str, Any]], Iterable[tuple[str, Any, Any]]]
    stamped: Callable[..., list[Difference]]
    stated: Sequence[Stated]
    kind: type = schema.Report

    def contradicted(self, assigned: set[str] | None = None) -> list[Difference]:
        found = contradicted(self.claims(self.document), "impossible", assigned)
        return [*found, *self.stamped(self.document, assigned)]

    def noticed(self, forged: dict[str, Any]) -> bool:
        """Whether there is any contradiction; stops at the first one."""
        try:
            contradicts = any(True for _ in wrong(self.claims(forged))) or bool(self.stamped(forged))
            return contradicts or fault(forged, self.kind) is not None
        except IMPOSSIBLE:
            return True

    def inputs(self) -> set[str]:
        """The fields with a value that no claim assigns."""
        assigned: set[str] = set()
        self.contradicted(assigned)
        return {field_of(place) for place, _ in leaves(self.document) if text_of(place) not in assigned}


def no_stamps(document: dict[str, Any], assigned: set[str] | None = None) -> list[Difference]:
    return []


def report(document: dict[str, Any]) -> Case:
    return Case(from_json(to_json(document)), consistency.claims, stamps.contradictions, consistency.STATED)


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest, world: dict[str, Any], files: dict[str, Path]) -> dict[str, Case]:
    found = {name: report(request.getfixturevalue(name).document) for name in EXAMINED}
    found |= {name: report(make(world)) for name, make in MADE.items()}
    read = {kind: path.read_bytes() for kind, path in files.items()}
    found["traced"] = report(from_json(read["report"]))
    ours = dispute.from_json(read["dispute"])
    for name, document in (("dispute", ours), ("rival", rival(world))):
        found[name] = Case(document, rulings.claims, stamps.contradictions_of_claims, rulings.STATED, schema.Dispute)
    found["lab"] = Case(lab.from_json(read["lab"]), lab_claims.claims, no_stamps, lab_claims.STATED, schema.Lab)
    reports = {path.name: path.read_bytes() for path in files["sweep"].parent.glob("suspect-*.json")}
    claims = partial(sweep_claims.claims, reports=reports)
    second = review_of(read["report"])
    found["review"] = Case(second, verify_review.claims, no_stamps, verify_review.STATED, schema.Review)
    found["sweep"] = Case(sweep.from_json(read["sweep"]), claims, no_stamps, sweep_claims.STATED, schema.Sweep)
    return found


def altered(case: Case, most: int | None) -> set[str]:
    """The fields with an unnoticed forgery; another test covers values that the signature file repeats."""
    values = list(leaves(case.document)) if most is None else few_of_each(case.document, most)
    chosen = [(place, value) for place, value in values if place[:2] != ("status", "custody")]
    return unnoticed(case.document, case.noticed, chosen)


def rival(world: dict[str, Any]) -> dict[str, Any]:
    """Claims with unrelated originals, and a model in dispute that is related to neither."""
    ours, theirs = world["model"], world["unrelated"]
    key = irwm.generate_key(ours, irwm.Parameters.paper(constraints=5), b"\x06" * 32, "Acme Labs")
    noisy = irwm.Parameters(constraints=4, scale="auto", noise_coordinates=4)
    other = irwm.generate_key(theirs, noisy, b"\x07" * 32, "Copy Works")
    claims = [Claim("Acme Labs", ours, key), Claim("Copy Works", theirs, other)]
    return dispute_of(claims, world["trimmed"])


def withheld(world: dict[str, Any]) -> dict[str, Any]:
    """A report with controls, neutral models and wrong keys, without the rows."""
    s, model, key, other = (world[name] for name in ("copy", "model", "other", "key"))
    examination = irwm.Examination(s, model)
    finding = irwm.detect(s, model, key, seed=7, keys_tried=3)
    unrelated = irwm.detect(world["unrelated"], model, key)
    return examine(
        world, "copy", "other", disclose_rows=False,
        error_rates=ErrorRates(decoys(examination, key, finding, 400), [neutral_section("N", 600, unrelated)]),
        self_tests=[SelfTest.of("this key on N", unrelated, "inconclusive"),
                    SelfTest.of("another", irwm.detect(model, model, other))],
        supporting=[irwm.detect(s, model, key, statistic="sum", invariant="suspect", seed=3, keys_tried=3)],
    ).document  # fmt: skip


def faint(world: dict[str, Any]) -> dict[str, Any]:
    """A mark hidden by noise, with a fingerprint that is still found."""
    model = world["model"]
    key = irwm.generate_key(model, many_recipients(64), b"\x05" * 32, "Acme Labs", "Northwind")
    suspect = write_embedding(model, with_noise(copy_of(model, key).float(), 0.7, 3), world["root"] / "faint")
    return document_of(model, key, suspect, irwm.detect(suspect, model, key))


def crowd(world: dict[str, Any], number: int = 503, *, hides_rows: bool = True) -> dict[str, Any]:
    """More recipients than are listed one by one; a first pass rules out most of them.

    Their noise replaces the rows, so it is only in the embedding; without `hides_rows` it is also in the head.
    """
    model, names = world["model"], [f"Recipient {i}" for i in range(number)]
    params = many_recipients(64, hides_rows=hides_rows)
    keys = keys_for(model, names, params)
    suspect = write_embedding(model, copy_of(model, keys[3]).float(), world["root"] / f"crowd of {number}")
    examination = irwm.Examination(suspect, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipients, "MOST_PLACES", 0)
        tracing = trace_each(examination, keys)
    read = list(irwm.detect_each(examination, keys[2:5], keys_tried=len(keys)))
    traced = Traced(tracing, keys, dict(zip((2, 3, 4), read, strict=True)))
    return document_of(model, keys[3], suspect, read[1], traced=traced)


def apart(world: dict[str, Any]) -> dict[str, Any]:
    """A model trained apart with more corrupted rows than are listed, and neutral models that are not controls."""
    model, key = world["model"], world["key"]
    other = irwm.open_checkpoint(write_llama(world["root"] / "apart", seed=9))
    rows = other.embedding().clone()
    rows[100:130] = float("nan")
    suspect = write_embedding(other, rows, world["root"] / "corrupted")
    finding = irwm.detect(suspect, model, key)
    neutral = [neutral_section("N", 600, finding), neutral_section("M", 600, irwm.detect(model, model, key))]
    return document_of(model, key, suspect, finding, error_rates=ErrorRates(None, neutral))


def paper(world: dict[str, Any]) -> dict[str, Any]:
    """A mark as in the paper, not hidden."""
    model = world["model"]
    key = irwm.generate_key(model, irwm.Parameters.paper(constraints=5), b"\x08" * 32, "Acme Labs")
    return document_of(model, key, world["copy"], irwm.detect(world["copy"], model, key))


def in_head(world: dict[str, Any]) -> dict[str, Any]:
    """The marked copy with the original's embedding put back, so that only its output head shows the mark."""
    model, key = world["model"], world["key"]
    suspect = write_embedding(world["copy"], model.embedding(), world["root"] / "in head")
    return document_of(model, key, suspect, irwm.detect(suspect, model, key))


def answered(world: dict[str, Any]) -> dict[str, Any]:
    """The answers of the marked copy."""
    model, key = world["model"], world["key"]
    file = world["root"] / "answers.safetensors"
    if not file.exists():
        write_recording(world["copy"], model, file)
    suspect = irwm.open_suspect(file, model)
    return document_of(model, key, suspect, irwm.detect(suspect, model, key))


EXAMINED = ("found", "not_found", "gone", "inconclusive", "disguised", "two_tensors")
MADE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "withheld": withheld,
    "faint": faint,
    "crowd": crowd,
    "few": partial(crowd, number=6, hides_rows=False),
    "apart": apart,
    "paper": paper,
    "in_head": in_head,
    "answered": answered,
}
KINDS = {
    "report": (*EXAMINED, *MADE, "traced"),
    "dispute": ("dispute", "rival"),
    "lab": ("lab",),
    "sweep": ("sweep",),
}
ITEMS = ("items.suspect", "items.original", "claims[].original", "claims[].release", "exhibits[].item")
CASES = tuple(name for names in KINDS.values() for name in names)
# Number of values of each field that are altered (of a list the first, the last and the middle one); all in a full run.
OF_EACH = 3


@pytest.mark.slow
@pytest.mark.fault(77)
@pytest.mark.parametrize("name", CASES)
def test_every_value_is_checked_or_listed(cases: dict[str, Case], in_full: bool, name: str) -> None:
    case = cases[name]
    assert case.contradicted() == []
    missed = altered(case, None if in_full else OF_EACH)
    assert [field for field in sorted(missed) if not named(case.stated, field)] == []


@pytest.mark.slow
@pytest.mark.fault(77)
@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_inputs_are_the_values_without_claims(cases: dict[str, Case], kind: str) -> None:
    """Each input has a group, and no group holds a value that always follows from the rest."""
    inputs = {field for name in KINDS[kind] for field in cases[name].inputs()}
    groups = cases[KINDS[kind][0]].stated
    assert sorted(field for field in inputs if not named(groups, field)) == []
    needed = {pattern for field in inputs for pattern in named(groups, field)}
    # The list of an item's fields is the same for every kind of report and place, and every dispute here has exhibits.
    # No item here is on a server; tests/jobs/test_investigate_remote.py has one.
    needed |= {*item_fields(*ITEMS), *source_fields(*ITEMS), "exhibits"}
    assert sorted({pattern for group in groups for pattern in group.fields} - needed) == []


@pytest.mark.quick("hundreds of fields, each forged; with fewer of them the list of what is not checked shows nothing")
@pytest.mark.fault(77)
def test_the_first_value_of_each_field_is_checked_or_listed(found: Examined) -> None:
    missed = altered(report(found.document), 1)
    assert [field for field in sorted(missed) if not named(consistency.STATED, field)] == []


@pytest.mark.fault(77)
def test_fields_of_answers_are_checked_or_listed(world: dict[str, Any]) -> None:
    case = report(answered(world))
    assert case.contradicted() == []
    chosen = [each for each in leaves(case.document) if each[0][:2] == ("items", "suspect")]
    missed = unnoticed(case.document, case.noticed, chosen)
    assert [field for field in sorted(missed) if not named(consistency.STATED, field)] == []
    assert not missed & {f"items.suspect.{name}" for name in ("name", "family", "tied", "answers.tokens")}
    listed = [pattern for group in consistency.STATED for pattern in group.fields if ".answers." in pattern]
    assert [pattern for pattern in listed if not any(pattern in named(consistency.STATED, f) for f in missed)] == []
