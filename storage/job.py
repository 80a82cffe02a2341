"""What a job is, and the table that keeps it: see `storage.jobs` for the list of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlite_utils
from sqlite_utils import Migrations

from storage.database import Schema
from storage.paths import JOBS_NAME
from storage.processes import still_runs

QUEUED, RUNNING = "queued", "running"
ENDED = ("done", "failed", "stopped", "interrupted")

JOBS_MIGRATIONS = Migrations("irwm-studio jobs")


@JOBS_MIGRATIONS(name="1 jobs")
def _first(db: sqlite_utils.Database) -> None:
    table = db.table("jobs")
    table.create(
        {
            "seq": int,
            "id": str,
            "kind": str,
            "title": str,
            "state": str,
            "request": str,
            "done": int,
            "total": int,
            "what": str,
            "created": str,
            "started": str,
            "ended": str,
            "result": str,
            "error": str,
            "pid": int,
            "process": str,
            "maker_pid": int,
            "maker": str,
            "lane": str,
        },
        pk="seq",
    )
    table.create_index(["id"], unique=True)
    table.create_index(["state"])


JOBS_SCHEMA = Schema(
    what="job list",
    application_id=int.from_bytes(b"IRWJ", "big"),
    version=2,
    migrations=JOBS_MIGRATIONS,
    remedy=f"move {JOBS_NAME} and its -wal and -shm files away and start again; keys and cases are not in it",
    # A lost line of progress costs nothing, and progress is written often.
    synchronous="NORMAL",
)


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the job list.

    Attributes:
        id: identifier, also the name of its folder.
        sequence: order of creation; clocks jump, sequences do not.
        kind: what runs it, such as "protect" or "investigate".
        title: what a person reads.
        state: "queued", "running", "done", "failed", "stopped" or "interrupted".
        request: what was asked, as plain JSON values.
        done, total: progress in the unit that suits the task, bytes as a rule; total 0 while unknown.
        what: the step that runs now.
        created, started, ended: UTC, ISO 8601; None until it happens.
        result, error: how it ended, as plain JSON values.
        pid: the process that runs or ran it, or waits to.
        lane: what it needs for itself, such as "cpu"; of a lane's jobs one runs at a time. "" waits for none.
    """

    id: str
    sequence: int
    kind: str
    title: str
    state: str
    request: dict[str, Any] = field(hash=False)
    done: int
    total: int
    what: str
    created: str
    started: str | None
    ended: str | None
    result: dict[str, Any] | None = field(hash=False)
    error: dict[str, Any] | None = field(hash=False)
    pid: int | None
    lane: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that another one waits for: its identifier, and what a person reads."""

    id: str
    title: str


def job_of(row: Mapping[str, Any]) -> Job:
    """A row of the table as a job."""
    values = {name: row[name] for name in Job.__dataclass_fields__ if name != "sequence"}
    for name in ("request", "result", "error"):
        values[name] = None if row[name] is None else json.loads(row[name])
    return Job(sequence=row["seq"], **values)


def is_dead(row: Mapping[str, Any]) -> bool:
    """Whether nobody works on a job that is not over: its process is gone, or its number belongs to a younger one.

    One without a process is dead when whoever made it is gone: its secrets were in that process's memory alone.
    """
    if row["pid"] is None:
        return not still_runs(row["maker_pid"], row["maker"])
    return not still_runs(row["pid"], row["process"])
