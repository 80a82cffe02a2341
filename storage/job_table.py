"""A job, and the table that stores it; see `storage.jobs` for the list of jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import sqlite_utils
from sqlite_utils import Migrations

from storage.canonical import json_bytes
from storage.database import Row, Schema
from storage.encryption import Place, Sealer
from storage.errors import DamagedRecordError
from storage.paths import JOBS_NAME
from storage.processes import still_runs

QUEUED, RUNNING = "queued", "running"
# A repeated job between two passes: its process waits, and other jobs may use the device.
RESTING = "resting"
UNDER_WAY = (QUEUED, RUNNING, RESTING)
INTERRUPTED = "interrupted"
ENDED = ("done", "failed", "stopped", INTERRUPTED)
# The text of a job; each of these columns is sealed separately.
WORDS = ("title", "request", "what", "result", "error")
# Why a job is interrupted. Not stored: a process that finds the job's process gone may have no key to seal this.
LEFT = {"problem": "the process that was running this job ended without a result", "advice": "start the job again"}

JOBS_MIGRATIONS = Migrations("irwm-studio jobs")


@JOBS_MIGRATIONS(name="1 sealed jobs")
def _first(db: sqlite_utils.Database) -> None:
    table = db.table("jobs")
    table.create(
        {
            "seq": int,
            "id": str,
            "kind": str,
            "state": str,
            "done": int,
            "total": int,
            "created": str,
            "started": str,
            "ended": str,
            "pid": int,
            "process": str,
            "maker_pid": int,
            "maker": str,
            "lane": str,
            "unswept": int,
            # The jobs key by its identifier in the vault, and the data sealed with it.
            "key": str,
            **dict.fromkeys(WORDS, bytes),
        },
        pk="seq",
    )
    table.create_index(["id"], unique=True)
    table.create_index(["state"])


@JOBS_MIGRATIONS(name="2 memory")
def _second(db: sqlite_utils.Database) -> None:
    db.table("jobs").add_column("memory", int, not_null_default=0)


# The schema version bound to sealed text.
_SEALED_SINCE = 3
JOBS_SCHEMA = Schema(
    what="job list",
    application_id=int.from_bytes(b"IRWJ", "big"),
    version=4,
    migrations=JOBS_MIGRATIONS,
    remedy=f"move {JOBS_NAME} and its -wal and -shm files to another folder and restart the app; the files contain no "
    "keys or cases",
    # Losing a line of progress does no harm, and progress is written often.
    synchronous="NORMAL",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """The part of a job that anyone who may read the file can see; it names no people or models.

    Attributes:
        id: identifier, also the name of its folder.
        sequence: order of creation; clocks jump, sequences do not.
        kind: which task runs it, such as "protect" or "investigate".
        state: "queued", "running", "resting", "done", "failed", "stopped" or "interrupted".
        done, total: progress in the task's unit, usually bytes; total 0 while unknown.
        created, started, ended: UTC, ISO 8601; None until it happens.
        pid: the process that runs or ran it, or waits to.
        lane: the resource it needs, such as "cpu"; only one job of a lane runs at a time. "" waits for no other job.
        key: the identifier of the jobs key that the rest is sealed with.
        memory: the peak use, in bytes: of the GPU's memory in the lane "cuda", else of the memory of its process and
            that process's children; 0 before the first measurement.
    """

    id: str
    sequence: int
    kind: str
    state: str
    done: int
    total: int
    created: str
    started: str | None
    ended: str | None
    pid: int | None
    lane: str = ""
    key: str = ""
    memory: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in any way."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobLine):
    """A job of the list, opened.

    Attributes:
        title: shown to users.
        request: the task's input, as plain JSON values.
        what: the current step.
        result: of the task, as plain JSON values; its type is that of the use case. Of a repeated task, that of its
            last pass without an error.
        error: the parts of the error that ended it, or the last pass of a resting one.
    """

    title: str
    request: dict[str, Any] = field(hash=False)
    what: str = ""
    result: Any = field(default=None, hash=False)
    error: dict[str, str | None] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that another one waits for: its identifier, its kind, and its title if that can be read."""

    id: str
    kind: str
    title: str | None


def place(row: Row, part: str) -> Place:
    """The place of a job's sealed part; the job's kind is bound too, because it determines how a request is run."""
    return Place(_SEALED_SINCE, "jobs", row["id"], f"{row['kind']} {part}", row["seq"], row["created"])


def sealed_words(sealer: Sealer, row: Row, **words: Any) -> dict[str, bytes | None]:
    """Columns of `WORDS` in their stored form, from plain JSON values; None stays None.

    Raises:
        RecordValueError: a value is not plain JSON.
    """
    plain = {name: None if value is None else json_bytes(value, f"the {name}") for name, value in words.items()}
    return {name: None if value is None else sealer.seal(value, place(row, name)) for name, value in plain.items()}


def job_of(row: Row, sealer: Sealer | None) -> JobLine:
    """A row of the table: a `Job` if it can be opened, else its line alone."""
    names = [name for name in JobLine.__dataclass_fields__ if name != "sequence"]
    line = JobLine(sequence=row["seq"], **{name: row[name] for name in names})
    if sealer is None:
        return line
    try:
        words: dict[str, Any] = {
            name: None if row[name] is None else json.loads(sealer.open(row[name], place(row, name))) for name in WORDS
        }
    except DamagedRecordError:
        return line
    words["what"] = words["what"] or ""
    if row["state"] == INTERRUPTED and words["error"] is None:
        words["error"] = dict(LEFT)
    return Job(sequence=line.sequence, **{name: getattr(line, name) for name in names}, **words)


def is_dead(row: Row) -> bool:
    """Whether a job that is not over has no process: it is gone, or a newer process has its number.

    A job without a process is dead when the process that created it is gone, because only that one had its secrets.
    """
    if row["pid"] is None:
        return not still_runs(row["maker_pid"], row["maker"])
    return not still_runs(row["pid"], row["process"])
