"""Intermediate results that a job stores in its folder, and how they are read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator

from irwm.evidence.lineage import DERIVED
from irwm.report import lab, schema, sweep
from irwm.report.document import ReportError
from storage.errors import RecordNotFoundError, StorageError
from storage.job_files import JobFiles
from storage.job_table import Job
from storage.jobs import Jobs
from storage.vault import Vault
from ui.services.outcomes import FOUND, INCONCLUSIVE, NOT_FOUND
from ui.services.results import NO_MATCH, Screened, WatchRow

# The results of a watch, one JSON document (`ui.services.results.WatchRow`) on each line.
WATCH_ROWS = "watch.jsonl"
# The word for a suspect that could not be screened.
FAILED = "failed"
# The words of a screening, the strongest first.
_WORDS = (FOUND, INCONCLUSIVE, NOT_FOUND, NO_MATCH)
# Number of the newest jobs that are searched for watches.
_LOOK_BACK = 5000
# An investigation's findings before its controls, only for the page: not a report, and never signed or filed.
FIRST = "first.json"


def jobs_of(vault: Vault) -> Jobs:
    """The list of jobs, with all jobs that this vault opens: for work that continues an earlier job."""
    return Jobs(vault.home).opened(vault.jobs_keys())


def overview_of(files: JobFiles) -> schema.Sweep:
    """The overview of a sweep.

    Raises:
        ReportError: it is missing, damaged, of another version or sealed.
    """
    return sweep.from_json(
        _content(files, sweep.OVERVIEW_JSON, "the overview of this sweep is missing", "the overview of this sweep")
    )


def watch_rows(files: JobFiles) -> Iterator[WatchRow]:
    """The results that a watch has so far, in order; damaged ones are left out."""
    for piece in files.pieces(WATCH_ROWS):
        for line in (piece or "").splitlines():
            with contextlib.suppress(ValueError):
                row: WatchRow = json.loads(line)
                yield row


def watches(jobs: Jobs) -> Iterator[Job]:
    """The watches in the list of jobs, newest first.

    Args:
        jobs: opened.
    """
    return (job for job in jobs.recent(_LOOK_BACK) if isinstance(job, Job) and job.kind == "watch")


def is_finding(result: Screened | None) -> bool:
    """Whether a suspect of a watch carries a mark, may carry one, or descends from an original."""
    return result is not None and (result["word"] in (FOUND, INCONCLUSIVE) or str(result["lineage"]) == DERIVED)


def rank(result: Screened) -> tuple[int, bool]:
    """Smaller for a stronger result."""
    return _WORDS.index(result["word"]), result["lineage"] != DERIVED


def strength(row: WatchRow) -> tuple[int, bool, float]:
    """Smaller for a stronger finding."""
    result = row["result"]
    assert result is not None
    return *rank(result), 0.0 if result["log10_risk"] is None else result["log10_risk"]


def versions_of_models(rows: Iterable[WatchRow]) -> list[list[WatchRow]]:
    """For each model of a watch, the last row of each of its versions, in the order of their times."""
    last = {(row["address"], row["version"]): row for row in rows}
    models: dict[tuple[str, str], list[WatchRow]] = {}
    for row in sorted(last.values(), key=lambda row: row["utc"]):
        models.setdefault((row["source"], row["name"]), []).append(row)
    return list(models.values())


def finding_of(versions: Iterable[WatchRow]) -> WatchRow | None:
    """The strongest finding in the versions of a model, the newest of equal ones; None if there is none. A model stays
    a finding when its owner replaces it."""
    findings = [row for row in versions if is_finding(row["result"])]
    return min(reversed(findings), key=strength, default=None)


def lab_of(files: JobFiles) -> schema.Lab:
    """The document of a lab.

    Raises:
        ReportError: see `overview_of`.
    """
    return lab.from_json(_content(files, lab.LAB_JSON, "this lab has no results", "the results of this lab"))


def _content(files: JobFiles, name: str, gone: str, what: str) -> bytes:
    try:
        return files.read(name)
    except RecordNotFoundError as error:
        raise ReportError(gone, found=f"no {name}", advice="Run it again") from error
    except StorageError as error:
        raise ReportError(f"{what} cannot be read", found=error.problem, advice=error.advice) from error
