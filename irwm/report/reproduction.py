"""Running a report's detection again and comparing every number with the document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from irwm import Checkpoint, Examination, Finding, Key, detect_each
from irwm.evidence.decoys import decoys as rank_decoys
from irwm.evidence.detection import NOT_READ, detect_marks, judge_opened
from irwm.evidence.examination import MAPS
from irwm.report import tracing
from irwm.report.document import ReportError, examination, plain
from irwm.report.error_rates import decoy_section
from irwm.report.items import after_controls
from irwm.tracing import trace_each

# One part in a million, and the same as an absolute bound for what is smaller than one: far above the rounding of
# float64 sums taken in another order, far below the step 1 / (N + 1) of a rank.
RELATIVE = ABSOLUTE = 1e-6
# The digest changes with the last bit of any value; the quantiles beside it are compared instead.
_NOT_COMPARED = ("sha256",)


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that did not come out as recorded; `where` is its path in the document, as in "reading.count"."""

    where: str
    recorded: Any
    found: Any


def reproduce(
    document: Mapping[str, Any],
    suspect: Checkpoint,
    model: Checkpoint,
    key: Key,
    device: str = "cpu",
    keys: Sequence[Key] = (),
    decoys: bool = True,
) -> list[Difference]:
    """Examine again with the recorded seed, statistic, invariant and number of keys; list what differs.

    Verdict, sentences, counts and settings must be equal, other numbers to RELATIVE or ABSOLUTE, whichever is wider.
    The items and the key are compared first: where they are others than the report names, a detection would prove
    nothing, and only that is returned.

    Args:
        document: as `from_json` returns it.
        suspect, model, key: what the report was made from.
        device: where to compute.
        keys: the recipients' keys, for a report that traced them. With some of them alone, those recipients are
            traced again and the others are taken as recorded.
        decoys: rank the recorded number of decoy keys again too, where the report has any; they take longest.

    Returns:
        Differences in the document's order; empty when the report is reproduced.

    Raises:
        ReportError: the document lacks what a detection needs.
        IrwmError: as `irwm.detect`.
    """
    try:
        recorded = {
            "items.suspect.fingerprint": document["items"]["suspect"]["fingerprint"],
            "items.original.fingerprint": document["items"]["original"]["fingerprint"],
            "key.commitment": document["key"]["commitment"],
        }
        how = {name: document["reading"][name] for name in ("statistic", "invariant")}
        seed, tried = document["seed"], document["evaluation"]["keys_tried"]
        forms = document["evaluation"]["forms"]
        rows_disclosed = document["rows_disclosed"]
        said = (text for text in document["verdict"]["warnings"] if text.startswith(NOT_READ))
        unread = next(said, NOT_READ).removeprefix(NOT_READ)
        recorded_tracing, others = document.get("tracing"), document.get("supporting", [])
        ways = [{name: each[name] for name in ("statistic", "invariant", "seed")} for each in others]
    except (KeyError, TypeError, AttributeError) as error:
        raise ReportError("the report lacks what a detection needs", found=f"no {error}") from error
    found = (suspect.fingerprint, model.fingerprint, key.commitment)
    wrong = [Difference(w, r, f) for (w, r), f in zip(recorded.items(), found, strict=True) if r != f]
    if wrong:
        return wrong
    # What else came with the suspect then is known from the report alone.
    examined = Examination(replace(suspect, given=None, unread_tensors=()), model, device)
    read = detect_each if forms > 1 else detect_marks
    (finding,) = (judge_opened(each, unread) for each in read(examined, [key], seed=seed, keys_tried=tried, **how))
    supporting = [found for way in ways for found in detect_marks(examined, [key], keys_tried=tried, **way)]
    section = None
    if recorded_tracing is not None:
        section = _traced_again(recorded_tracing, examined, [key, *keys], finding)
    rows = finding.marked_rows.tolist() if rows_disclosed else None
    again = plain(examination(finding, rows, None, section, supporting))
    again["verdict"] = after_controls(again["verdict"], document["self_tests"])
    recorded_decoys = (document.get("error_rates") or {}).get("decoys")
    if decoys and recorded_decoys:
        ranked = rank_decoys(examined, key, finding, recorded_decoys["number"], recorded_decoys["seed"])
        again["error_rates"] = plain({"decoys": None if ranked is None else decoy_section(ranked, finding)})
        document = {**document, "error_rates": {"decoys": recorded_decoys}}
    return [difference for part in again for difference in _compare(part, document.get(part), again[part])]


def _traced_again(
    recorded: Mapping[str, Any], examined: Examination, keys: Sequence[Key], finding: Finding
) -> dict[str, Any]:
    """The section "tracing" with every recipient whose key is there traced and read again.

    A z is the same whoever else is traced, on the same rows; the odds pay for as many as were traced then. A recipient
    whom a first pass ruled out was scored on some rows alone and stays as recorded.
    """
    known = {key.commitment: key for key in keys}
    places = [
        place
        for place, row in enumerate(recorded["ranked"])
        if row["commitment"] in known and (row["rows"] == recorded["rows"] or row["z"] is None)
    ]
    chosen = [known[recorded["ranked"][place]["commitment"]] for place in places]
    if not chosen:
        return dict(recorded)
    # Another map is asked only where nobody is named under the first, which all keys together decide.
    everybody = len(places) == recorded["recipients"]
    maps = MAPS if everybody else (recorded["by"],)
    found = trace_each(examined, chosen, recorded["risk"], decoys=len(recorded["decoys"]), maps=maps)
    marked = [i for i, place in enumerate(places) if recorded["ranked"][place]["mark"] is not None]
    found_marks = detect_marks(examined, [chosen[i] for i in marked], finding.seed, keys_tried=finding.keys_tried)
    marks = dict(zip(marked, found_marks, strict=True))
    rows = list(recorded["ranked"])
    paid = math.log10(tracing.comparisons({**recorded, "tensors_read": found.tensors_read, "maps": found.maps}))
    for i, place in enumerate(places):
        again = tracing.row(place + 1, found.traces[i], chosen[i], marks.get(i))
        risk = min(0.0, again["log10_p"] + paid)
        rows[place] = again | {"log10_risk": risk, "named": risk <= math.log10(recorded["risk"])}
    section = {**recorded, "ranked": rows, "tensors_read": found.tensors_read, "aligned": found.alignment.aligned}
    section |= {"maps": found.maps, "by": found.by}
    if everybody:  # decoys are shared out among the releases, which are then all there
        section["looks"] = found.looks
        section["decoys"] = sorted((float(z) for z in found.decoys), reverse=True)
        section["reason"] = found.reason
    return section | tracing.summary(section)


def _compare(where: str, recorded: Any, found: Any) -> Iterator[Difference]:
    if isinstance(found, dict) and isinstance(recorded, dict):
        for name in dict.fromkeys((*recorded, *found)):
            if name not in _NOT_COMPARED and not (name == "text" and found.get(name) is None):
                yield from _compare(f"{where}.{name}", recorded.get(name), found.get(name))
    elif isinstance(found, list) and isinstance(recorded, list) and len(found) == len(recorded):
        for i, (r, f) in enumerate(zip(recorded, found, strict=True)):
            yield from _compare(f"{where}[{i}]", r, f)
    elif not same(recorded, found):
        yield Difference(where, recorded, found)


def same(recorded: Any, found: Any) -> bool:
    """Whether two values of a document are equal, as far as two runs of the same examination can be."""
    if isinstance(recorded, float) or isinstance(found, float):
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (recorded, found))
        return numbers and math.isclose(recorded, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(recorded) is type(found) and recorded == found
