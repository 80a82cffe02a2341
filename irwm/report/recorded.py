"""Reads a document back into the finding that it records, as far as a document holds one.

With the finding, the same functions can compute the verdict and its sentences again. Parts that a document leaves out
are empty: the null itself, the suspect's rows and columns, and the warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irwm import Alignment, Finding, Parameters, Reading
from irwm.checkpoint.served_source import Heard, Recording
from irwm.evidence.detection import NO_EMBEDDING
from irwm.evidence.examination import BORROWED
from irwm.evidence.finding import FINGERPRINT, MARK, Evidence
from irwm.evidence.lineage import Lineage
from irwm.evidence.neurons import NeuronMatch
from irwm.evidence.unrelated import AmongUnrelated
from irwm.report import schema
from irwm.report.document import column
from irwm.report.items import FileRecord, ItemDescription, SelfTest
from irwm.scheme.parameters import EMBEDDING

_NONE: NDArray[np.float64] = np.empty(0)
_NO_ROWS: NDArray[np.int64] = np.empty(0, dtype=np.int64)
# For a suspect of which only the fact that it was aligned is known.
ALIGNED_SOMEHOW = Alignment.recorded(True, "", math.nan, math.nan, "")


def finding_of(document: schema.Report) -> Finding:
    """The finding that a document records."""
    evaluation, verdict = document["evaluation"], document["verdict"]
    marks, others = ([each for each in document["evidence"] if each["form"] == form] for form in (MARK, FINGERPRINT))
    return Finding(
        verdict=verdict["mark"],
        reason=verdict["mark_reason"],
        reading=reading_of(document["reading"]),
        paper=None if document["paper"] is None else reading_of(document["paper"]),
        alignment=_alignment(document["alignment"]),
        lineage=_lineage(document["lineage"]),
        parameters=Parameters.from_dict(document["parameters"]),
        commitment=document["key"]["commitment"],
        marked_rows=_NO_ROWS,
        seed=document["seed"],
        keys_tried=evaluation["keys_tried"],
        tensors_read=evaluation["tensors_read"],
        maps=evaluation["maps"],
        forms=evaluation["forms"],
        places=evaluation["places"],
        place=document["place"],
        elsewhere=None if document["elsewhere"] is None else reading_of(document["elsewhere"]),
        tensors_read_elsewhere=marks[1]["tensors_read"] if len(marks) > 1 else 1,
        fingerprint=_evidence(others[0]) if others else None,
        faults=(NO_EMBEDDING,) if _borrowed(document) else (),
    )


def _borrowed(document: schema.Report) -> bool:
    """Whether the suspect has the only fault that exists; its lineage gives it as the reason, unless the lineage is
    that of the output head."""
    lineage = document["lineage"]
    if lineage["place"] == document["place"] or document["place"] != EMBEDDING:
        return lineage["reason"] == BORROWED.reason
    return NO_EMBEDDING in document["verdict"]["mark_reason"]


def reading_of(recorded: schema.Reading) -> Reading:
    """A document's "reading" or "paper", with an empty null."""
    positions = recorded["positions"]

    return Reading(
        statistic=recorded["statistic"],
        invariant=recorded["invariant"],
        observed=column(positions, "observed"),
        null=_NONE,
        ranks=column(positions, "rank"),
        count=recorded["count"],
        present=recorded["present"],
        passes=recorded["rule_met"],
        log10_p_count=recorded["log10_p_count"],
        log10_p=recorded["log10_p"],
        by=recorded["by"],
    )


def item_of(recorded: schema.Item) -> ItemDescription:
    """An item of a document."""
    lists = {
        "files": tuple(FileRecord(**file) for file in recorded["files"]),
        "other_files": tuple(FileRecord(**file) for file in recorded["other_files"]),
        "notes": tuple(recorded["notes"]),
    }
    values: Any = {**recorded, **lists, "answers": heard_of(recorded["answers"])}
    return ItemDescription(**values)


def heard_of(recorded: schema.Answers | None) -> Heard | None:
    """The answers in a document."""
    if recorded is None:
        return None
    who = recorded["recording"]
    values: Any = {**recorded, "recording": None if who is None else Recording(**who)}
    return Heard(**values)


def controls_of(document: schema.Report) -> Sequence[SelfTest]:
    """A document's self-tests."""
    return [SelfTest(**test) for test in document["self_tests"]]


def _lineage(recorded: schema.Lineage) -> Lineage:
    among = recorded["among"]
    values = {name: _number(value) for name, value in recorded.items() if name not in ("among", "neurons")}
    return Lineage(
        **values,
        among=None if among is None else AmongUnrelated(**among),
        neurons=neurons_of(recorded),
    )


def neurons_of(recorded: schema.Lineage) -> NeuronMatch | None:
    """The match of MLP neurons in a document."""
    match = recorded["neurons"]
    if match is None:
        return None
    values: Any = {**match, "layers": tuple(tuple(pair) for pair in match["layers"])}
    return NeuronMatch(**values)


def _alignment(recorded: schema.Alignment) -> Alignment:
    """The values of an alignment that verdicts and sentences use: whether the suspect is aligned, and why."""
    scale, uniqueness = _number(recorded["row_scale"]), _number(recorded["columns_mutual_share"])
    return Alignment.recorded(recorded["aligned"], recorded["embedding_tensor"], scale, uniqueness, recorded["reason"])


def _evidence(recorded: schema.Evidence) -> Evidence:
    return Evidence(**{name: _number(value) for name, value in recorded.items() if name != "log10_risk"})


def _number(value: Any) -> Any:
    return math.nan if value is None else value
