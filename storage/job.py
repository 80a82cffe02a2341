"""What a job is, and the table that keeps it: see `storage.jobs` for the list of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlite_utils
from sqlite_utils import Migrations

from storage.canonical import json_bytes
from storage.database import Schema
from storage.encryption import Place, Sealer
from storage.errors import DamagedRecordError
from storage.paths import JOBS_NAME
from storage.processes import still_runs

QUEUED, RUNNING = "queued", "running"
INTERRUPTED = "interrupted"
ENDED = ("done", "failed", "stopped", INTERRUPTED)
# What a job says: sealed, each by itself.
WORDS = ("title", "request", "what", "result", "error")
# Why a job is interrupted. Not kept: who finds that its process is gone may have no key to seal it with.
LEFT = {"problem": "the process that worked on this ended without saying how", "advice": "start it again"}

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
            # The jobs key by its identifier in the vault, and what is sealed with it.
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


# The version of the schema that sealed words name.
_SEALED_SINCE = 3
JOBS_SCHEMA = Schema(
    what="job list",
    application_id=int.from_bytes(b"IRWJ", "big"),
    version=4,
    migrations=JOBS_MIGRATIONS,
    remedy=f"move {JOBS_NAME} and its -wal and -shm files away and start again; keys and cases are not in it",
    # A lost line of progress costs nothing, and progress is written often.
    synchronous="NORMAL",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """What the list says of a job to anybody who may read the file: nothing about people or models.

    Attributes:
        id: identifier, also the name of its folder.
        sequence: order of creation; clocks jump, sequences do not.
        kind: what runs it, such as "protect" or "investigate".
        state: "queued", "running", "done", "failed", "stopped" or "interrupted".
        done, total: progress in the unit that suits the task, bytes as a rule; total 0 while unknown.
        created, started, ended: UTC, ISO 8601; None until it happens.
        pid: the process that runs or ran it, or waits to.
        lane: what it needs for itself, such as "cpu"; of a lane's jobs one runs at a time. "" waits for none.
        key: the identifier of the jobs key that the rest is sealed with.
        memory: the most that was seen in use, in bytes: of the GPU's memory in the lane "cuda", else of the memory of
            its process and of those that this one started; 0 before anybody has looked.
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
        """Whether it has ended, in whatever way."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobLine):
    """A job of the list, opened.

    Attributes:
        title: what a person reads.
        request: what was asked, as plain JSON values.
        what: the step that runs now.
        result, error: how it ended, as plain JSON values.
    """

    title: str
    request: dict[str, Any] = field(hash=False)
    what: str = ""
    result: dict[str, Any] | None = field(default=None, hash=False)
    error: dict[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that another one waits for: its identifier, its kind, and its title where that can be read."""

    id: str
    kind: str
    title: str | None


def place(row: Mapping[str, Any], part: str) -> Place:
    """Where something belongs that a job says; its kind is bound too, for it decides what is done with a request."""
    return Place(_SEALED_SINCE, "jobs", row["id"], f"{row['kind']} {part}", row["seq"], row["created"])


def sealed_words(sealer: Sealer, row: Mapping[str, Any], **words: Any) -> dict[str, bytes | None]:
    """Columns of `WORDS` as they are kept, from plain JSON values; None stays None.

    Raises:
        RecordValueError: a value is not plain JSON.
    """
    plain = {name: None if value is None else json_bytes(value, f"the {name}") for name, value in words.items()}
    return {name: None if value is None else sealer.seal(value, place(row, name)) for name, value in plain.items()}


def job_of(row: Mapping[str, Any], sealer: Sealer | None) -> JobLine:
    """A row of the table: a `Job` where it can be opened, else its line alone."""
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


def is_dead(row: Mapping[str, Any]) -> bool:
    """Whether nobody works on a job that is not over: its process is gone, or its number belongs to a younger one.

    One without a process is dead when whoever made it is gone: its secrets were in that process's memory alone.
    """
    if row["pid"] is None:
        return not still_runs(row["maker_pid"], row["maker"])
    return not still_runs(row["pid"], row["process"])
