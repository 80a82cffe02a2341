"""Running a report's detection again and comparing every number with the document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from irwm import Checkpoint, Key, detect
from ui.report.document import ReportError, examination, plain

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
    document: Mapping[str, Any], suspect: Checkpoint, model: Checkpoint, key: Key, device: str = "cpu"
) -> list[Difference]:
    """Detect again with the recorded seed, statistic, invariant and number of keys; list what differs.

    Verdict, sentences, counts and settings must be equal, other numbers to RELATIVE or ABSOLUTE, whichever is wider.
    The items and the key are compared first: where they are others than the report names, a detection would prove
    nothing, and only that is returned.

    Args:
        document: as `from_json` returns it.
        suspect, model, key: what the report was made from.
        device: where to compute.

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
        rows_disclosed = document["rows_disclosed"]
    except (KeyError, TypeError) as error:
        raise ReportError("the report lacks what a detection needs", found=f"no {error}") from error
    found = (suspect.fingerprint, model.fingerprint, key.commitment)
    others = [Difference(w, r, f) for (w, r), f in zip(recorded.items(), found, strict=True) if r != f]
    if others:
        return others
    finding = detect(suspect, model, key, device=device, seed=seed, keys_tried=tried, **how)
    again = plain(examination(finding, finding.marked_rows.tolist() if rows_disclosed else None))
    return [difference for part in again for difference in _compare(part, document.get(part), again[part])]


def _compare(where: str, recorded: Any, found: Any) -> Iterator[Difference]:
    if isinstance(found, dict) and isinstance(recorded, dict):
        for name in dict.fromkeys((*recorded, *found)):
            if name not in _NOT_COMPARED and not (name == "text" and found.get(name) is None):
                yield from _compare(f"{where}.{name}", recorded.get(name), found.get(name))
    elif isinstance(found, list) and isinstance(recorded, list) and len(found) == len(recorded):
        for i, (r, f) in enumerate(zip(recorded, found, strict=True)):
            yield from _compare(f"{where}[{i}]", r, f)
    elif not _same(recorded, found):
        yield Difference(where, recorded, found)


def _same(recorded: Any, found: Any) -> bool:
    if isinstance(recorded, float) or isinstance(found, float):
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (recorded, found))
        return numbers and math.isclose(recorded, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(recorded) is type(found) and recorded == found
