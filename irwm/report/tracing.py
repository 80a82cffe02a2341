"""The part of a document about recipients: the result of tracing by noise, key by key, and the resulting verdict.

Everything here is computed from the finding and from the plain section itself, so the verdict can be computed again
from the document, with all keys or with some of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from irwm import Finding, Key, Trace, Tracing
from irwm.evidence.finding import FORMS, FOUND, INCONCLUSIVE, NOT_FOUND
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, log10_risk
from irwm.report import schema
from irwm.report import tracing_words as words
from irwm.report.structure import plain
from irwm.scheme.probabilities import rademacher_tail_log10

# A document lists up to this many recipients one by one.
LISTED = 500
# If there are more, it lists this many and all that are named; the others are counted. Tables have the same limit.
SHOWN = 50
BIN_WIDTH = 0.25
TRACING: Final = "tracing"
MARK: Final = "mark"


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tracing with the results of the rank rule for some of the same keys.

    Attributes:
        tracing: what `irwm.tracing.trace_each` returned.
        keys: the keys traced, in the order of `tracing.traces`.
        marks: findings of the rank rule (Algorithm 6) by place among `keys`.
    """

    tracing: Tracing
    keys: Sequence[Key] = field(repr=False)
    marks: Mapping[int, Finding]


def section(traced: Traced) -> schema.Tracing:
    """The section "tracing" of a document."""
    tracing = traced.tracing
    order = sorted(range(len(tracing.traces)), key=lambda i: _strength(tracing.traces[i].z))
    named = sum(trace.named for trace in tracing.traces)
    listed = order if len(order) <= LISTED else order[: max(SHOWN, named)]
    found: schema.Traced = plain(
        {
            "recipients": len(order),
            "keys_tried": tracing.keys_tried,
            "risk": tracing.risk,
            "tensors_read": tracing.tensors_read,
            "maps": tracing.maps,
            "by": tracing.by,
            "places": tracing.places,
            "place": tracing.place,
            "forms": FORMS,
            "looks": tracing.looks,
            "tries": tracing.tries,
            "tries_made": tracing.tries_made,
            "tries_ended": tracing.tries_ended,
            "aligned": tracing.alignment.aligned,
            "rows": tracing.rows,
            "first_pass_rows": tracing.first_pass_rows,
            "reason": tracing.reason,
            "read_by_rank_rule": len(traced.marks),
            "growth": [{"tokens": tokens, "z": z} for tokens, z in tracing.growth],
            "ranked": [
                row(place, tracing.traces[i], traced.keys[i], traced.marks.get(i)) for place, i in enumerate(listed, 1)
            ],
            "others": _others([tracing.traces[i].z for i in order[len(listed) :]]),
            "decoys": sorted((float(z) for z in tracing.decoys), reverse=True),
        }
    )
    return {**found, **summary(found)}


def row(place: int, trace: Trace, key: Key, mark: Finding | None) -> schema.Recipient:
    """One recipient of the section."""
    made: schema.Recipient = plain(
        {
            "place": place,
            "recipient": trace.recipient,
            "owner": trace.owner,
            "commitment": key.commitment,
            "z": trace.z,
            "log10_p": trace.log10_p,
            "log10_risk": trace.log10_risk,
            "named": trace.named,
            "share": trace.share,
            "rows": trace.rows,
            "mark": None if mark is None else mark_of(mark),
        }
    )
    return made


def mark_of(mark: Finding) -> dict[str, object]:
    """The result of the rank rule for one key, as a few numbers."""
    return {
        "verdict": mark.verdict,
        "count": mark.count,
        "present": mark.present,
        "rule_met": mark.passes,
        "paper_count": None if mark.paper is None else mark.paper.count,
        "paper_present": None if mark.paper is None else mark.paper.present,
        "log10_risk": log10_risk(mark.reading, mark.comparisons),
    }


def summary(found: schema.Traced) -> schema.TracingSummary:
    """Values that follow from a section's rows: the estimated copies, the risk of the names, and the z required."""
    named = [each for each in found["ranked"] if each["named"]]
    shares = sum(math.nan if each["share"] is None else each["share"] for each in named)
    return {
        "named": len(named),
        "log10_risk": max((each["log10_risk"] for each in named), default=None),
        "copies_estimated": len(named) / shares if shares > 0 else None,
        "z_needed": z_needed(found["risk"], comparisons(found)),
        "z_of_decoys": max((z for z in found["decoys"] if z is not None), default=None),
    }


def control(found: schema.Compared) -> schema.SelfTest:
    """The control of a tracing, as in `irwm.report.items.SelfTest`: no recipient who was never issued a copy may be
    named. The section's decoys must have a z."""
    z = np.array([math.nan if each is None else each for each in found["decoys"]], dtype=np.float64)
    risks = rademacher_tail_log10(z) + math.log10(comparisons(found))
    named = int((risks <= math.log10(found["risk"])).sum())
    return {
        "name": control_name(z.size),
        "expected": NOT_FOUND,
        "verdict": FOUND if named else NOT_FOUND,
        "count": named,
        "present": z.size,
        "log10_risk": min(0.0, float(risks.min())),
    }


def control_name(decoys: int) -> str:
    """The name of the control of a tracing with this number of recipients who were never issued a copy."""
    return f"{decoys} recipients who were never issued a copy, traced in the suspect"


def comparisons(found: schema.Compared) -> int:
    """The factor of every p of a section."""
    read = found["keys_tried"] * found["tensors_read"] * found["maps"] * found["tries"]
    return read * found["places"] * found["forms"] * found["looks"]


def z_needed(risk: float, comparisons: int) -> float:
    """The smallest z that names a recipient at this risk over all comparisons together."""
    bound, low, high = math.log10(risk) - math.log10(comparisons), 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if float(rademacher_tail_log10(middle)) <= bound else (middle, high)
    return high


def verdict(finding: Finding, found: schema.Tracing | None) -> schema.Said:
    """The verdict of the whole examination: the word, its reason, warnings, and what it rests on.

    The finding is that of the likeliest key. A fault of the suspect stays inconclusive for any noise; a tracing that
    neither names nor dismisses recipients turns "not found" into "inconclusive".
    """
    mark: schema.Said = plain(
        {"word": finding.verdict, "reason": finding.reason, "warnings": finding.warnings, "rests_on": MARK}
    )
    if found is None or finding.faults:
        return mark
    if found["named"]:
        unread = finding.verdict == FOUND or words.is_of_text(found)
        said = [] if unread else [words.mark_by_itself(finding)]
        return {
            "word": FOUND,
            "reason": words.named_reason(found),
            "warnings": [*finding.warnings, *said],
            "rests_on": TRACING,
        }
    strongest = min((each["log10_risk"] for each in found["ranked"]), default=0.0)
    if finding.verdict == NOT_FOUND and strongest <= DISMISSED_LOG10_RISK:
        return {**mark, "word": INCONCLUSIVE, "reason": words.in_between(strongest), "rests_on": TRACING}
    return {**mark, "warnings": [*finding.warnings, words.nobody_named(found)]}


def shown(found: schema.Tracing) -> list[schema.Recipient]:
    """The rows that a table shows: the first `SHOWN`, and all that are named."""
    return found["ranked"][: max(SHOWN, found["named"])]


def _others(z: Sequence[float]) -> dict[str, object]:
    """The recipients that are not listed, counted in equal bins of z."""
    values = np.array([value for value in z if math.isfinite(value)])
    if not values.size:
        return {"count": len(z), "edges": [], "counts": []}
    low, high = math.floor(values.min()), math.ceil(values.max() + BIN_WIDTH / 2)
    edges = np.arange(low, high + BIN_WIDTH, BIN_WIDTH)
    return {"count": len(z), "edges": edges, "counts": np.histogram(values, edges)[0]}


def _strength(z: float) -> tuple[bool, float]:
    return math.isnan(z), -z
