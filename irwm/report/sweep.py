"""A folder of suspects in one table: an overview as JSON, and as a page drawn from that JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from irwm.evidence.finding import FOUND
from irwm.report import schema
from irwm.report.answer import log10_risk, word_of
from irwm.report.document import read_document, to_json
from irwm.report.html import page
from irwm.report.received import SIGNATURE
from irwm.report.recognition_words import origin
from irwm.report.structure import plain
from irwm.report.tracing import TRACING
from irwm.report.tracing_words import is_one_copy

SCHEMA, VERSION = "irwm-sweep", 5
NAME = "sweep"
OVERVIEW_HTML, OVERVIEW_JSON, OVERVIEW_SIGNATURE = (f"{NAME}{ending}" for ending in (".html", ".json", SIGNATURE))
# The particular of a suspect's report that names the row of the overview.
FOUND_AT = "Found at"


def overview(
    *,
    folder: str,
    original: str,
    keys: int,
    keys_held: int,
    keys_sha256: str,
    case_id: str,
    settings: schema.SeededWay,
    suspects: int,
    refused: Sequence[str],
    too_deep: Sequence[str],
    cut: bool,
    tool_versions: Mapping[str, str],
) -> schema.Sweep:
    """The overview of a sweep that has just begun; rows are added to "rows".

    Args:
        folder: the folder that is swept.
        original: fingerprint of the original.
        keys: how many keys are tried on each suspect; `keys_sha256` is over their sorted commitments.
        keys_held: how many keys of this original there were to try.
        case_id: the case that the runs are filed in.
        suspects: how many were found.
        settings: the readings that were requested in addition to the verdict's own.
        refused: links that lead out of the folder and were not followed.
        too_deep: folders that are nested too deeply to be searched.
        cut: whether the folder was too large to be searched completely.
        tool_versions: as for `irwm.report.finding_document`.
    """
    document: schema.Sweep = plain(
        {
            "schema": {"name": SCHEMA, "version": VERSION},
            "folder": folder,
            "original": original,
            "keys": keys,
            "keys_held": keys_held,
            "keys_sha256": keys_sha256,
            "case_id": case_id,
            "settings": dict(settings),
            "suspects": suspects,
            "refused": list(refused),
            "too_deep": list(too_deep),
            "cut": cut,
            "versions": dict(tool_versions),
            "complete": False,
            "rows": [],
        }
    )
    return document


def from_json(data: bytes) -> schema.Sweep:
    """The overview that a sweep wrote.

    Raises:
        ReportError: not a sweep's overview, of another version, or of another structure.
    """
    return read_document(
        data,
        (SCHEMA, VERSION),
        schema.Sweep,
        "the overview of this sweep cannot be read",
        "the overview of this sweep has a different version",
        advice="Run the sweep again",
    )


def json_name(path: str) -> str:
    """The name of a suspect's report, from its path in the folder: its place in the list changes with new files."""
    return f"suspect-{hashlib.sha256(path.encode('utf-8')).hexdigest()[:12]}.json"


def keys_digest(commitments: Iterable[str]) -> str:
    """SHA-256, hex, over the sorted commitments of the keys that are tried."""
    return hashlib.sha256("".join(sorted(commitments)).encode("ascii")).hexdigest()


def summary(document: schema.Report) -> schema.SweptSummary:
    """The table's values for one suspect, from its report."""
    found = document["tracing"]
    named = [] if found is None else [row["recipient"] or row["owner"] for row in found["ranked"] if row["named"]]
    by_tracing = document["verdict"]["rests_on"] == TRACING
    risk = found["log10_risk"] if by_tracing and found is not None else None
    whose = named if by_tracing else [document["key"]["recipient"] or document["key"]["owner"]]
    return {
        "verdict": document["verdict"]["word"],
        "word": word_of(document),
        "rests_on": document["verdict"]["rests_on"],
        "whose": whose if document["verdict"]["word"] == FOUND else [],
        "log10_risk": log10_risk(document) if risk is None else risk,
        "copies_estimated": found["copies_estimated"] if found else None,
        "lineage": document["lineage"]["status"],
        "fingerprint": document["items"]["suspect"]["fingerprint"],
        "bytes": document["items"]["suspect"]["bytes_total"],
        "sha256": hashlib.sha256(to_json(document)).hexdigest(),
    }


def outcome(row: schema.SweepRow) -> str:
    """The result for one suspect, in a few words; with names only if found."""
    if row["error"] is not None:
        return f"could not be examined: {row['error']['problem']}"
    if row["verdict"] != "found":
        return row["verdict"]
    names = row["whose"]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    if row["rests_on"] == "tracing":
        alone = len(names) == 1 and row["copies_estimated"] is not None and is_one_copy(row["copies_estimated"])
        if alone:
            return f"made from the copy of {shown}"
        return f"made from at least the {'copy' if len(names) == 1 else 'copies'} of {shown}"
    return f"carries the mark of {shown}"


def overview_html(found: schema.Sweep, _json_name: str = "") -> str:
    """The overview as one self-contained file without scripts."""
    return page(
        "sweep.html.j2",
        found,
        outcome=outcome,
        origin=origin,
        found=sum(row["error"] is None and row["verdict"] == "found" for row in found["rows"]),
        failed=sum(row["error"] is not None for row in found["rows"]),
    )
