"""Every field of real reports is altered, one value at a time: the change is found, or the field is listed as an input.

The forger signs the altered document with the right identity, so only the document itself can show the change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.evidence.decoys import decoys
from irwm.ownership import Claim, resolve
from irwm.report import (
    ItemDescription,
    KeyInfo,
    SelfTest,
    consistency,
    dispute,
    finding_document,
    from_json,
    installed_versions,
    lab,
    lab_claims,
    rulings,
    stamps,
    sweep,
    sweep_claims,
    to_json,
)
from irwm.report.claims import IMPOSSIBLE, contradicted, item_fields, wrong
from irwm.report.dispute import ClaimInfo
from irwm.report.error_rates import ErrorRates, NeutralModel
from irwm.report.reproduction import Difference
from irwm.report.states import Stated, field_of, leaves, text_of
from irwm.report.tracing import Traced
from irwm.scheme.parameters import many_recipients
from irwm.tracing import recognition, trace_each
from tests.recording.answers import write_recording
from tests.report.conftest import Examined, examine
from tests.report.leaves import few_of_each, named, unnoticed
from tests.report.of_jobs import Desk
from tools.copies import copy_of, keys_for, with_noise, write_embedding
from tools.small_models import write_llama


@dataclass(frozen=True)
class Case:
    """A real document, its claims, the contradictions of its time-stamps, and its inputs."""

    document: dict[str, Any]
    claims: Callable[[dict[str, Any]], Iterable[tuple[str, Any, Any]]]
    stamped: Callable[..., list[Difference]]
    stated: Sequence[Stated]

    def contradicted(self, assigned: set[str] | None = None) -> list[Difference]:
        found = contradicted(self.claims(self.document), "impossible", assigned)
        return [*found, *self.stamped(self.document, assigned)]

    def noticed(self, forged: dict[str, Any]) -> bool:
        """Whether there is any contradiction; stops at the first one."""
        try:
            return any(True for _ in wrong(self.claims(forged))) or bool(self.stamped(forged))
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


EXAMINED = ("found", "not_found", "gone", "inconclusive", "disguised", "two_tensors")
KINDS = {
    "report": (*EXAMINED, "withheld", "faint", "crowd", "few", "apart", "paper", "in_head", "answered", "traced"),
    "dispute": ("dispute", "rival"),
    "lab": ("lab",),
    "sweep": ("sweep",),
}
ITEMS = ("items.suspect", "items.original", "claims[].original", "claims[].release", "exhibits[].item")
CASES = tuple(name for names in KINDS.values() for name in names)
# Number of values of each field that are altered (of a list the first, the last and some between); all in a full run.
OF_EACH = 13


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="session")
def files(desk: Desk) -> dict[str, Path]:
    """The JSON of a signed report of every kind, as the app's tasks wrote it."""
    return {"traced": desk.traced(), "sweep": desk.sweep(), "lab": desk.lab(), "dispute": desk.dispute()}


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest, world: dict[str, Any], files: dict[str, Path]) -> dict[str, Case]:
    found = {name: report(request.getfixturevalue(name).document) for name in EXAMINED}
    found |= {"withheld": report(withheld(world)), "faint": report(faint(world)), "crowd": report(crowd(world))}
    found |= {
        "few": report(crowd(world, 6, hides_rows=False)),
        "apart": report(apart(world)),
        "paper": report(paper(world)),
    }
    found["in_head"] = report(in_head(world))
    found["answered"] = report(answered(world))
    found["traced"] = report(from_json(files["traced"].read_bytes()))
    ours = dispute.from_json(files["dispute"].read_bytes())
    found["dispute"] = Case(ours, rulings.claims, stamps.contradictions_of_claims, rulings.STATED)
    found["rival"] = Case(rival(world), rulings.claims, stamps.contradictions_of_claims, rulings.STATED)
    found["lab"] = Case(lab.from_json(files["lab"].read_bytes()), lab_claims.claims, no_stamps, lab_claims.STATED)
    folder = files["sweep"].parent
    reports = {path.name: path.read_bytes() for path in folder.glob("suspect-*.json")}
    overview = sweep.from_json(files["sweep"].read_bytes())
    claims = partial(sweep_claims.claims, reports=reports)
    found["sweep"] = Case(overview, claims, no_stamps, sweep_claims.STATED)
    return found


@pytest.fixture(scope="session")
def missed(cases: dict[str, Case], in_full: bool) -> Callable[[str], set[str]]:
    """The fields of a case with an unnoticed forgery, computed once."""
    return functools.cache(lambda name: altered(cases[name], None if in_full else OF_EACH))


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
    exhibits = [("model in dispute", world["trimmed"])]
    described = [
        ClaimInfo.of(claim.claimant, claim.key, ItemDescription.of(claim.original), None, ours=claim.key is key)
        for claim in claims
    ]
    document = dispute.dispute_document(
        resolve(claims, exhibits),
        claims=described,
        exhibits=[(name, ItemDescription.of(model)) for name, model in exhibits],
        case={"Case": "Two"},
        created_utc="2026-11-21T02:00:00Z",
        tool_versions=installed_versions(),
        seed=0,
    )
    return dispute.from_json(to_json(document))


def withheld(world: dict[str, Any]) -> dict[str, Any]:
    """A report with controls, neutral models and wrong keys, without the rows."""
    s, model, key, other = (world[name] for name in ("copy", "model", "other", "key"))
    examination = irwm.Examination(s, model)
    finding = irwm.detect(s, model, key, seed=7, keys_tried=3)
    unrelated = irwm.detect(world["unrelated"], model, key)
    return examine(
        world, "copy", "other", disclose_rows=False,
        error_rates=ErrorRates(decoys(examination, key, finding, 400), [NeutralModel.of("N", 600, unrelated)]),
        self_tests=[SelfTest.of("this key on N", unrelated, "inconclusive"),
                    SelfTest.of("another", irwm.detect(model, model, other))],
        supporting=[irwm.detect(s, model, key, statistic="sum", invariant="suspect", seed=3, keys_tried=3)],
    ).document  # fmt: skip


def faint(world: dict[str, Any]) -> dict[str, Any]:
    """A mark hidden by noise, with a fingerprint that is still found."""
    model = world["model"]
    key = irwm.generate_key(model, many_recipients(64), b"\x05" * 32, "Acme Labs", "Northwind")
    suspect = write_embedding(model, with_noise(copy_of(model, key).float(), 0.7, 3), world["root"] / "faint")
    return about(world, suspect, key, irwm.detect(suspect, model, key))


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
        patch.setattr(recognition, "MOST_PLACES", 0)
        tracing = trace_each(examination, keys)
    read = list(irwm.detect_each(examination, keys[2:5], keys_tried=len(keys)))
    traced = Traced(tracing, keys, dict(zip((2, 3, 4), read, strict=True)))
    return about(world, suspect, keys[3], read[1], traced=traced)


def apart(world: dict[str, Any]) -> dict[str, Any]:
    """A model trained apart with more corrupted rows than are listed, and neutral models that are not controls."""
    model, key = world["model"], world["key"]
    other = irwm.open_checkpoint(write_llama(world["root"] / "apart", seed=9))
    rows = other.embedding().clone()
    rows[100:130] = float("nan")
    suspect = write_embedding(other, rows, world["root"] / "corrupted")
    finding = irwm.detect(suspect, model, key)
    neutral = [NeutralModel.of("N", 600, finding), NeutralModel.of("M", 600, irwm.detect(model, model, key))]
    return about(world, suspect, key, finding, error_rates=ErrorRates(None, neutral))


def paper(world: dict[str, Any]) -> dict[str, Any]:
    """A mark as in the paper, not hidden."""
    model = world["model"]
    key = irwm.generate_key(model, irwm.Parameters.paper(constraints=5), b"\x08" * 32, "Acme Labs")
    return about(world, world["copy"], key, irwm.detect(world["copy"], model, key))


def in_head(world: dict[str, Any]) -> dict[str, Any]:
    """The marked copy with the original's embedding put back, so that only its output head shows the mark."""
    model, key = world["model"], world["key"]
    suspect = write_embedding(world["copy"], model.embedding(), world["root"] / "in head")
    return about(world, suspect, key, irwm.detect(suspect, model, key))


def answered(world: dict[str, Any]) -> dict[str, Any]:
    """The answers of the marked copy."""
    model, key = world["model"], world["key"]
    file = world["root"] / "answers.safetensors"
    if not file.exists():
        write_recording(world["copy"], model, file)
    suspect = irwm.open_suspect(file, model)
    return about(world, suspect, key, irwm.detect(suspect, model, key))


def about(world: dict[str, Any], suspect: irwm.Checkpoint, key: irwm.Key, finding: irwm.Finding, **more: Any) -> Any:
    """The document of a finding."""
    return finding_document(
        finding,
        suspect=ItemDescription.of(suspect),
        original=ItemDescription.of(world["model"]),
        key_info=KeyInfo.of(key),
        case={"Case": "2026-014"},
        created_utc="2026-11-21T02:00:00Z",
        tool_versions=installed_versions(),
        **more,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_honest_report_has_no_contradiction(cases: dict[str, Case], name: str) -> None:
    assert cases[name].contradicted() == []


@pytest.mark.slow
@pytest.mark.fault(77)
@pytest.mark.parametrize("name", CASES)
def test_every_value_is_checked_or_listed(cases: dict[str, Case], missed: Callable[[str], set[str]], name: str) -> None:
    assert [field for field in sorted(missed(name)) if not named(cases[name].stated, field)] == []


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
    needed |= {*item_fields(*ITEMS), "exhibits"}
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
