"""The result of a job for programs: one word, and plain JSON.

Errors may name files in the app's own folder: the command line shows these names, and the endpoints must remove them.

docs/headless.md describes every field. The command line and the endpoints for programs return the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from irwm.evidence.lineage import DERIVED
from irwm.report.numbers import number
from storage.job_files import JobFiles
from storage.job_table import Job, JobLine
from storage.jobs import Jobs
from ui.services.outcomes import DONE, ERROR, FOUND, INCONCLUSIVE, NOT_FOUND, PARTS, STOPPED, WRITTEN, whose
from ui.services.protect import CSV_NAME
from ui.services.results import Investigated, OriginalRow, Released, ReleasedMany, Watched

if TYPE_CHECKING:
    from irwm.report import schema

_RECEIPT = (
    "model_fingerprint", "release_fingerprint", "family", "dtype", "owner", "recipient", "key_id", "parameters",
    "bytes", "files", "left_out", "signature", "changed_rows", "changed_head_rows", "changed_layers", "changed_tensors",
    "marked_before", "utility",
)  # fmt: skip
_READING = ("verdict", "count", "present", "log10_p", "log10_risk")
_MANY = (
    "model_fingerprint", "owner", "parameters", "recipients", "written", "skipped", "failed", "bytes", "bytes_cloned",
    "marked_before", "utility", "rows",
)  # fmt: skip
_KEY = (
    "key_id", "owner", "recipient", "verdict", "count", "present", "log10_p", "log10_risk", "lineage", "named", "z",
    "trace_log10_risk", "share",
)  # fmt: skip
# Same as in `irwm.report.tracing`, whose import takes seconds.
_TRACING = "tracing"
_ORIGINAL = ("path", "name", "lineage", "similarity", "p", "keys", "verdict", "whose", "reason")
_SUSPECT = ("verdict", "rests_on", "whose", "log10_risk", "copies_estimated", "lineage", "fingerprint", "bytes")


_WATCH = ("sources", "counts", "known", "failed", "keys", "originals", "originals_left_out", "rows")


class JobState(TypedDict):
    """A job as a line of a list; without a title if it is sealed."""

    id: str
    kind: str
    title: str | None
    state: str
    created: str
    started: str | None
    ended: str | None


def state_of(job: JobLine) -> JobState:
    """The line of a job."""
    return {
        "id": job.id,
        "kind": job.kind,
        "title": job.title if isinstance(job, Job) else None,
        "state": job.state,
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
    }


def outcome_of(job: Job) -> str | None:
    """The result of a job in one word; None while it is not over.

    A suspect that was compared with all originals of the vault is "inconclusive" if nothing was found and keys of some
    original were left out. For a folder of suspects, and for a watch, the word is "found" if one suspect is, else
    "inconclusive" if one is, could not be examined or was skipped.
    """
    if not job.is_over:
        return None
    if job.state != "done" or job.result is None:
        return STOPPED if job.state == "stopped" else ERROR
    if job.kind == "protect":
        return ERROR if job.result.get("failed") else WRITTEN
    if job.kind == "investigate":
        verdict = str(job.result["verdict"])
        return INCONCLUSIVE if verdict == NOT_FOUND and open_originals(job.result.get("originals", ())) else verdict
    if job.kind == "watch":
        return _outcome_of_watch(cast("Watched", job.result))
    if job.kind != "sweep":
        return DONE
    words = {INCONCLUSIVE if row["error"] else row["verdict"] for row in job.result.get("rows", ())}
    if any(job.result.get(name) for name in ("refused", "too_deep", "cut")):
        words.add(INCONCLUSIVE)
    return next((word for word in (FOUND, INCONCLUSIVE) if word in words), NOT_FOUND)


def _outcome_of_watch(result: Watched) -> str:
    """ "found" if any suspect so far is; "inconclusive" if one is or descends from an original, or if something was not
    looked at."""
    words = {str(row["result"]["word"]) for row in result["rows"] if row["result"]}
    if any(row["result"] and row["result"]["lineage"] == DERIVED for row in result["rows"]):
        words.add(INCONCLUSIVE)
    missed = result["failed"] or result["originals_left_out"]
    if missed or any(source["error"] or source["left"] for source in result["sources"]):
        words.add(INCONCLUSIVE)
    return next((word for word in (FOUND, INCONCLUSIVE) if word in words), NOT_FOUND)


def result_of(job: Job) -> dict[str, object] | None:
    """The result of a job of protect, investigate or trace; None if it has none."""
    if job.state != "done" or job.result is None:
        return None
    match job.kind:
        case "protect":
            return _protected(job.result)
        case "investigate":
            return _investigated(job.result) | {"verdict": outcome_of(job)}
        case "sweep":
            return {"verdict": outcome_of(job), **_swept(job.result)}
        case "watch":
            return {"verdict": outcome_of(job)} | _picked(job.result, _WATCH)
    return None


def error_of(job: Job) -> dict[str, str | None] | None:
    """The error of a failed job, in the parts of an `IrwmError`; None if it succeeded or was stopped."""
    if outcome_of(job) != ERROR:
        return None
    parts: dict[str, str | None] = dict.fromkeys(PARTS)
    if job.error:
        return {"type": "IrwmError"} | parts | {name: job.error.get(name) for name in (*PARTS, "type")}
    result = job.result or {}
    failed, recipients = result.get("failed", 0), result.get("recipients", 0)
    own = {
        "type": "InsertionError",
        "problem": f"{number(failed)} of {number(recipients)} copies could not be written",
        "advice": "See the rows for the reasons. Start again with the same list: only missing copies will be written",
    }
    return parts | own


def names_somebody(job: Job) -> bool:
    """Whether the finding depends on noise that names a recipient, and not only on the mark."""
    result = job.result or {}
    if job.kind == "sweep":
        rows = [row for row in result["rows"] if not row["error"]]
        return any(row["verdict"] == FOUND and row["rests_on"] == _TRACING and row["whose"] for row in rows)
    return result["verdict"] == FOUND and any(row["named"] for row in result["rows"])


def passed_over(result: Mapping[str, object]) -> bool:
    """Whether a sweep skipped parts of its folder, according to `result_of`."""
    return bool(result["links_not_followed"] or result["too_deep"] or result["cut_short"])


def files_of(job: Job, jobs: Jobs) -> dict[str, bytes]:
    """The files that a job wrote for users, opened, by name: reports with their signatures, or receipts.

    Raises:
        DamagedRecordError: one was changed after it was written.
        StorageError
    """
    # This import takes two seconds, and a command does not need it before its job is over.
    from irwm.report.sweep import OVERVIEW_HTML, OVERVIEW_JSON, OVERVIEW_SIGNATURE
    from ui.services.filing import report_names

    files, result = jobs.files(job.id), job.result or {}
    if job.kind == "investigate":
        found = report_names(files, result["json"]) if "json" in result else []
    elif job.kind == "sweep":
        found = [OVERVIEW_HTML, OVERVIEW_JSON, OVERVIEW_SIGNATURE]
        for row in _finished(files):
            found += report_names(files, row["json"])
    else:
        found = [CSV_NAME]
    return {name: files.read(name) for name in found if name in files}


def _finished(files: JobFiles) -> list[schema.Swept]:
    """The suspects that a sweep examined, also if the sweep ended early."""
    from irwm.report.document import ReportError
    from ui.services.stored_results import overview_of

    try:
        return [row for row in overview_of(files)["rows"] if row["error"] is None]
    except ReportError:
        return []


def _protected(result: Released | ReleasedMany) -> dict[str, object]:
    if "many" in result:
        return {"folder": result["path"]} | _picked(result, _MANY)
    return {
        "folder": result["path"],
        **_picked(result, _RECEIPT),
        "key_fingerprint": result["commitment"],
        "reading": _picked(result, _READING),
    }


def open_originals(rows: Iterable[OriginalRow]) -> list[str]:
    """Names of the originals of which keys were left out."""
    return [row["name"] for row in rows if not row["keys"]]


def _investigated(result: Investigated) -> dict[str, object]:
    originals = result.get("originals", [])
    return {
        "verdict": result["verdict"],
        "whose": list(
            dict.fromkeys(
                [*whose(result["verdict"], result["rows"]), *(who for row in originals for who in row["whose"])]
            )
        ),
        "damaged_keys": len(result["damaged"]),
        "keys": [_picked(row, _KEY) | {"key_fingerprint": row["commitment"]} for row in result["rows"]],
        "originals": [_picked(row, _ORIGINAL) for row in originals],
        **_picked(result, ("case_id", "run_id", "keys_tried", "keys_held", "original")),
    }


def _swept(result: schema.Sweep) -> dict[str, object]:
    return {
        "case_id": result["case_id"],
        "keys_tried": result["keys"],
        "keys_held": result.get("keys_held"),
        "links_not_followed": result["refused"],
        "too_deep": result["too_deep"],
        "cut_short": result["cut"],
        "suspects": [_suspect(row) for row in result["rows"]],
    }


def _suspect(row: schema.SweepRow) -> dict[str, object]:
    error = None if row["error"] is None else {name: row["error"].get(name) for name in (*PARTS, "type")}
    return {"suspect": row["path"], "error": error} | _picked(row, _SUSPECT)


def _picked(values: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    return {name: values.get(name) for name in names}
