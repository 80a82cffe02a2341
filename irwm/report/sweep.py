"""A folder of suspects in one table: an overview as JSON, and as a page drawn from that JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from irwm.report.document import ReportError
from irwm.report.html import asset, environment, faces, policy
from irwm.report.tracing_words import is_one_copy

SCHEMA, VERSION = "irwm-sweep", 1
OVERVIEW_HTML, OVERVIEW_JSON = "sweep.html", "sweep.json"


def overview(
    *,
    folder: str,
    original: str,
    keys: int,
    keys_sha256: str,
    case_id: str,
    settings: Mapping[str, Any],
    suspects: int,
    refused: Sequence[str],
    too_deep: Sequence[str],
    cut: bool,
) -> dict[str, Any]:
    """The overview of a sweep that has just begun; rows are added to "rows".

    Args:
        folder: what is swept.
        original: fingerprint of the original.
        keys: how many keys are tried on each suspect; `keys_sha256` is over their sorted commitments.
        case_id: the case that the runs are filed in.
        suspects: how many were found.
        settings: what readings were asked for besides the verdict's own.
        refused: links that lead out of the folder and were not followed.
        too_deep: folders that lie too deep to be looked into.
        cut: whether the folder held more than is looked through.
    """
    return {
        "schema": {"name": SCHEMA, "version": VERSION},
        "folder": folder,
        "original": original,
        "keys": keys,
        "keys_sha256": keys_sha256,
        "case_id": case_id,
        "settings": dict(settings),
        "suspects": suspects,
        "refused": list(refused),
        "too_deep": list(too_deep),
        "cut": cut,
        "complete": False,
        "rows": [],
    }


def read_overview(folder: Path) -> dict[str, Any]:
    """The overview in a job's folder.

    Raises:
        ReportError: there is none, or it is damaged or of another version.
    """
    path = folder / OVERVIEW_JSON
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        schema = found["schema"]["name"], found["schema"]["version"]
        rows_are_rows = all({"path", "stamp", "json", "error"} <= row.keys() for row in found["rows"])
        needed = {"folder", "original", "keys", "keys_sha256", "case_id", "settings", "refused", "complete"}
        known = needed <= found.keys()
    except FileNotFoundError as error:
        raise ReportError("the overview of this sweep is gone", file=path, advice="Run it again") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReportError(
            "the overview of this sweep cannot be read", file=path, found=type(error).__name__, advice="Run it again"
        ) from error
    if schema != (SCHEMA, VERSION) or not rows_are_rows or not known:
        raise ReportError("the overview of this sweep is of another version", file=path, found=str(schema)[:80])
    return found


def outcome(row: Mapping[str, Any]) -> str:
    """What came of one suspect, in a few words; names only of what was found."""
    if row["error"] is not None:
        return f"could not be examined: {row['error']['problem']}"
    if row["verdict"] != "found":
        return str(row["verdict"])
    names = row["whose"]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    if row["rests_on"] == "tracing":
        alone = len(names) == 1 and row["copies_estimated"] is not None and is_one_copy(row["copies_estimated"])
        return f"made from the {'copy' if len(names) == 1 else 'copies'} of {shown}{'' if alone else ', at least'}"
    return f"carries the mark of {shown}"


def overview_html(found: Mapping[str, Any]) -> str:
    """The overview as one file that needs nothing else and runs no script."""
    return (
        environment()
        .get_template("sweep.html.j2")
        .render(
            d=found,
            outcome=outcome,
            policy=policy(()),
            style=Markup(faces() + asset("report.css")),
            found=sum(row["error"] is None and row["verdict"] == "found" for row in found["rows"]),
            failed=sum(row["error"] is not None for row in found["rows"]),
        )
    )
