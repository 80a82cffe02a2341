"""Running a report's detection again and comparing every number with the document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from irwm import Checkpoint, Examination, Finding, Key, detect_each
from irwm.answers import Fits
from irwm.answers.suspect import GeneratingSuspect, trace_generated, unread_mark
from irwm.checkpoint.files import listed
from irwm.errors import printable
from irwm.evidence.decoys import decoys as rank_decoys
from irwm.evidence.detection import NOT_READ, detect_marks, judge_opened
from irwm.report import schema, tracing
from irwm.report.checks import listed as in_words
from irwm.report.document import examination
from irwm.report.error_rates import decoy_section
from irwm.report.items import after_controls
from irwm.report.structure import plain
from irwm.tracing import trace_each

# One part in a million, and the same as an absolute bound for values below one: far above the rounding of float64 sums
# in another order, far below the step 1 / (N + 1) of a rank.
RELATIVE = ABSOLUTE = 1e-6
# Of a tracing in generated text: the original is run in float32, whose sums depend on the processor. Vector
# instructions of another width change z by up to 6e-5.
OF_TEXT = 1e-3
# Of MLP neurons: which of two equally near neurons is paired depends on the last bits of float32 sums, so only
# cosines and shares of all pairs together are compared.
NEURONS, OF_NEURONS = "lineage.neurons", 0.05
_COMPARED_OF_NEURONS = ("agreement", "decoy", "ours", "theirs")
# The digest changes with the last bit of any value; the quantiles are compared instead.
_NOT_COMPARED = ("sha256",)


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs from the recorded one; `where` is its path in the document, as in "reading.count"."""

    where: str
    recorded: Any
    found: Any


@dataclass(frozen=True, slots=True, eq=False)
class Again:
    """An examination that was run again.

    Attributes:
        differences: in the document's order; empty when the report is reproduced.
        examined, finding: the examination and its result; None if the items or the key are not those that the report
            names, because a detection would then prove nothing. Generated text has no examination of weights.
        tracing: its section "tracing"; None if the document has none.
        complete: every recipient was traced again.
        not_there: in words, what the report lists as not read and what the suspect does not have now.
    """

    differences: tuple[Difference, ...]
    examined: Examination | None = None
    finding: Finding | None = None
    tracing: schema.Tracing | None = None
    complete: bool = False
    not_there: str = ""


def reproduce(
    document: schema.Report,
    suspect: Checkpoint | GeneratingSuspect,
    model: Checkpoint,
    key: Key,
    device: str = "cpu",
    keys: Sequence[Key] = (),
    decoys: bool = True,
) -> list[Difference]:
    """The differences of `examine_again`; empty when the report is reproduced."""
    return list(examine_again(document, suspect, model, key, device, keys, decoys).differences)


def examine_again(
    document: schema.Report,
    suspect: Checkpoint | GeneratingSuspect,
    model: Checkpoint,
    key: Key,
    device: str = "cpu",
    keys: Sequence[Key] = (),
    decoys: bool = True,
) -> Again:
    """Examine again with the recorded seed, statistic, invariant and number of keys, and compare.

    Verdict, sentences, counts and settings must be equal, other numbers to the wider of RELATIVE and ABSOLUTE. The
    items and the key are compared first: if they are not those that the report names, only that is returned.

    Args:
        document: as `from_json` returns it.
        suspect, model, key: what the report was made from.
        device: where to compute.
        keys: the recipients' keys, for a report that traced them. With only some of them, those recipients are traced
            again and the others are used as recorded.
        decoys: also rank the recorded number of decoy keys again, if the report has any; this takes longest.

    Raises:
        IrwmError: as `irwm.detect`.
    """
    recorded = {
        "items.suspect.fingerprint": document["items"]["suspect"]["fingerprint"],
        "items.original.fingerprint": document["items"]["original"]["fingerprint"],
        "key.commitment": document["key"]["commitment"],
    }
    reading, seed, tried = document["reading"], document["seed"], document["evaluation"]["keys_tried"]
    how = seed, reading["statistic"], reading["invariant"]
    said = (text for text in document["verdict"]["warnings"] if text.startswith(NOT_READ))
    recorded_unread = next(said, NOT_READ).removeprefix(NOT_READ)
    recorded_tracing = document["tracing"]
    found = (suspect.fingerprint, model.fingerprint, key.commitment)
    wrong = [Difference(w, r, f) for (w, r), f in zip(recorded.items(), found, strict=True) if r != f]
    if wrong:
        return Again(tuple(wrong))
    if isinstance(suspect, GeneratingSuspect):
        return _generated_again(document, suspect, model, key, keys, device)
    # If the suspect is given alone, only the report says what else came with it.
    unread_here = listed(suspect.unread)
    unread, not_there = unread_here or recorded_unread, "" if unread_here else recorded_unread
    examined = Examination(replace(suspect, given=None, unread_tensors=()), model, device)
    read = detect_each if recorded_tracing is None else detect_marks
    (finding,) = (judge_opened(each, unread) for each in read(examined, [key], *how, keys_tried=tried))
    supporting = [
        found
        for way in document["supporting"]
        for found in detect_marks(examined, [key], way["seed"], way["statistic"], way["invariant"], keys_tried=tried)
    ]
    section: schema.Tracing | None = None
    complete = False
    if recorded_tracing is not None:
        known = {each.commitment: each for each in (key, *keys) if each.parameters.noise_coordinates}
        complete = _are_all(recorded_tracing, known)
        trace_again = _all_traced if complete else _some_traced
        section = trace_again(recorded_tracing, examined, known, finding)
    rows = finding.marked_rows.tolist() if document["rows_disclosed"] else None
    again = examination(finding, rows, None, section, supporting)
    again["verdict"] = {**again["verdict"], **after_controls(again["verdict"], document["self_tests"])}
    whole: Mapping[str, object] = document
    differing = [each for part, value in again.items() for each in differences(part, whole[part], value)]
    recorded_decoys = document["error_rates"] and document["error_rates"]["decoys"]
    if decoys and recorded_decoys:
        ranked = rank_decoys(examined, key, finding, recorded_decoys["number"], recorded_decoys["seed"])
        section_of_decoys = None if ranked is None else plain(decoy_section(ranked, finding))
        differing += differences("error_rates.decoys", recorded_decoys, section_of_decoys)
    return Again(tuple(differing), examined, finding, again["tracing"], complete, not_there)


def _generated_again(
    document: schema.Report,
    suspect: GeneratingSuspect,
    model: Checkpoint,
    key: Key,
    keys: Sequence[Key],
    device: str,
) -> Again:
    """The same for a suspect that is known only by what it generated."""
    recorded, tried = document["tracing"], document["evaluation"]["keys_tried"]
    finding = unread_mark(key, model, tried, document["seed"])
    section: schema.Tracing | None = None
    complete = False
    if recorded is not None:
        known = {each.commitment: each for each in (key, *keys) if each.parameters.noise_coordinates}
        complete = _are_all(recorded, known)
        ranked = dict.fromkeys(row["commitment"] for row in recorded["ranked"] if row["commitment"] in known)
        chosen = [known[commitment] for commitment in ({**ranked, **dict.fromkeys(known)} if complete else ranked)]
        section = recorded
        if chosen:
            # The decoys are the same only if all recipients are.
            decoys = len(recorded["decoys"]) if complete else 0
            found = trace_generated(
                suspect.generated,
                model,
                chosen,
                tried,
                recorded["risk"],
                decoys,
                device,
                fits=Fits() if recorded["tries_made"] > 1 else None,
                tries_made=recorded["tries_made"],
            )
            section = tracing.section(tracing.Traced(found, chosen, {}))
            section = {**section, "tries_ended": recorded["tries_ended"]}
            if not complete:
                again = {row["commitment"]: row for row in section["ranked"]}
                rows = [{**again.get(row["commitment"], row), "place": row["place"]} for row in recorded["ranked"]]
                section = {**recorded, "ranked": plain(rows)}
                section = {**section, **tracing.summary(section)}
    rows_shown = finding.marked_rows.tolist() if document["rows_disclosed"] else None
    computed = examination(finding, rows_shown, None, section)
    computed["verdict"] = {**computed["verdict"], **after_controls(computed["verdict"], document["self_tests"])}
    whole: Mapping[str, object] = document
    differing = [each for part, value in computed.items() for each in differences(part, whole[part], value, OF_TEXT)]
    return Again(tuple(differing), None, finding, computed["tracing"], complete)


def _are_all(recorded: schema.Tracing, known: Mapping[str, Key]) -> bool:
    """Whether these are the keys of all recipients in a section "tracing"."""
    return len(known) == recorded["recipients"] and all(row["commitment"] in known for row in recorded["ranked"])


def _all_traced(
    recorded: schema.Tracing, examined: Examination, known: Mapping[str, Key], finding: Finding
) -> schema.Tracing:
    """The section "tracing" computed again, the marks of the listed recipients included.

    The number of other recipients that the rank rule was applied to stays as recorded: their marks are in no report.
    """
    # Recipients of equal z keep the report's order; without an alignment those are all of them.
    ranked = dict.fromkeys(row["commitment"] for row in recorded["ranked"])
    keys = [known[commitment] for commitment in {**ranked, **dict.fromkeys(known)}]
    found = trace_each(
        examined, keys, recorded["risk"], decoys=len(recorded["decoys"]), keys_tried=recorded["keys_tried"]
    )
    read = [row["commitment"] for row in recorded["ranked"] if row["mark"] is not None]
    marks = _marks(examined, [known[commitment] for commitment in read], finding)
    place = {key.commitment: number for number, key in enumerate(keys)}
    section = tracing.section(
        tracing.Traced(found, keys, {place[c]: mark for c, mark in zip(read, marks, strict=True)})
    )
    return {**section, "read_by_rank_rule": recorded["read_by_rank_rule"]}


def _some_traced(
    recorded: schema.Tracing, examined: Examination, known: Mapping[str, Key], finding: Finding
) -> schema.Tracing:
    """The section "tracing": every recipient whose key is given is traced and read again, the others are as recorded.

    A z does not depend on which other recipients are traced on the same rows; the odds are corrected for the recorded
    number of recipients. A recipient that a first pass ruled out was scored on some rows only and stays as recorded.
    """
    places = [
        place
        for place, row in enumerate(recorded["ranked"])
        if row["commitment"] in known and (row["rows"] == recorded["rows"] or row["z"] is None)
    ]
    chosen = [known[recorded["ranked"][place]["commitment"]] for place in places]
    if not chosen:
        return recorded
    # Another map or place is used only if the first one names nobody, which depends on all keys together.
    found = trace_each(
        examined,
        chosen,
        recorded["risk"],
        decoys=0,
        maps=(recorded["by"],),
        keys_tried=recorded["keys_tried"],
        place=recorded["place"],
    )
    marked = [i for i, place in enumerate(places) if recorded["ranked"][place]["mark"] is not None]
    marks = dict(zip(marked, _marks(examined, [chosen[i] for i in marked], finding), strict=True))
    rows = list(recorded["ranked"])
    read = {"tensors_read": found.tensors_read, "maps": found.maps, "by": found.by}
    section: schema.Tracing = plain({**recorded, **read, "aligned": found.alignment.aligned})
    factor = math.log10(tracing.comparisons(section))
    for i, place in enumerate(places):
        again = tracing.row(place + 1, found.traces[i], chosen[i], marks.get(i))
        risk = min(0.0, again["log10_p"] + factor)
        rows[place] = {**again, "log10_risk": risk, "named": risk <= math.log10(recorded["risk"])}
    section["ranked"] = rows
    return {**section, **tracing.summary(section)}


def _marks(examined: Examination, keys: Sequence[Key], finding: Finding) -> list[Finding]:
    return list(detect_marks(examined, keys, finding.seed, keys_tried=finding.keys_tried))


def differences(where: str, recorded: Any, found: Any, tolerance: float = RELATIVE) -> Iterator[Difference]:
    """Every value in which two parts of a document differ by more than the tolerance; `where` is their place."""
    if where == NEURONS and isinstance(found, dict) and isinstance(recorded, dict):
        for name in _COMPARED_OF_NEURONS:
            yield from differences(f"{where}.{name}", recorded.get(name), found.get(name), OF_NEURONS)
    elif isinstance(found, dict) and isinstance(recorded, dict):
        for name in dict.fromkeys((*recorded, *found)):
            if name not in _NOT_COMPARED and not (name == "text" and found.get(name) is None):
                yield from differences(f"{where}.{name}", recorded.get(name), found.get(name), tolerance)
    elif isinstance(found, list) and isinstance(recorded, list) and len(found) == len(recorded):
        for i, (r, f) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(f"{where}[{i}]", r, f, tolerance)
    elif not same(recorded, found, tolerance):
        yield Difference(where, recorded, found)


def not_as_recorded(wrong: Sequence[Difference]) -> str:
    """The values that an examination that was run again found, as a part of a sentence."""
    named = [
        f"{d.where}: recorded {printable(str(d.recorded), 60)}, found {printable(str(d.found), 60)}" for d in wrong[:12]
    ]
    return f"a new run gave different values ({len(wrong)}): {in_words(named, 6)}"


def should_be(wrong: Iterable[Difference], most: int = 120) -> str:
    """The values of a document that are not as they should be, as a part of a sentence.

    Args:
        most: characters of each value.
    """
    return in_words(
        [
            f"{d.where} is {printable(str(d.recorded), most)} but should be {printable(str(d.found), most)}"
            for d in wrong
        ],
        6,
    )


def same(recorded: Any, found: Any, tolerance: float = RELATIVE, absolute: float | None = None) -> bool:
    """Whether two values of a document are equal, as far as two runs of the same examination can be.

    Args:
        tolerance: relative.
        absolute: for values below one; None for the same as `tolerance`.
    """
    if isinstance(recorded, float) or isinstance(found, float):
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (recorded, found))
        near = tolerance if absolute is None else absolute
        return numbers and math.isclose(recorded, found, rel_tol=tolerance, abs_tol=near)
    return type(recorded) is type(found) and bool(recorded == found)
