"""Long tasks as rows: what was asked, how far it is, how it ended. They survive a reload, a crash and a restart.

No secret belongs here: neither the request nor the log is sealed. Each job has a folder of its own for its log and
results.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlite_utils

from irwm.errors import printable
from storage.canonical import json_bytes, required_text, utc_now, utc_text
from storage.database import DatabaseFile
from storage.errors import RecordNotFoundError, RecordValueError, StorageError
from storage.files import append_private, private_folder, sweep
from storage.job import ENDED, JOBS_SCHEMA, QUEUED, RUNNING, Ahead, Job, is_dead, job_of
from storage.paths import JOBS_NAME
from storage.processes import process_mark

LOG_NAME = "log.txt"
LONGEST_LINE = 20_000
# What a task needs on its way and nobody afterwards: taken away when the job ends, however it does.
SCRATCH_NAME = "scratch"
# The end of a log that a page shows; a whole one may be long.
LOG_TAIL_BYTES = 16 * 1024
_ID = re.compile("[0-9a-f]{16}")


class Jobs:
    """The job list of a home folder; made on first use. Threads and processes may use it at once.

    Raises:
        UnsafeHomeError, NewerSchemaError, DatabaseDamagedError, StorageError: the file cannot be used.
    """

    def __init__(self, home: Path, *, now: Callable[[], datetime] = utc_now) -> None:
        self.home = Path(home)
        self._now = now
        self._file = DatabaseFile(self.home / JOBS_NAME, JOBS_SCHEMA)
        private_folder(self.home)
        sweep(self.home)
        if not self._file.path.exists():
            # Somebody else may be just as fast; then theirs is as good.
            with contextlib.suppress(FileExistsError):
                self._file.create()
        self._file.prepare()

    def create(self, kind: str, title: str, request: Mapping[str, Any], lane: str = "") -> Job:
        """Adds a queued job and makes its folder.

        Args:
            lane: see `Job`.

        Raises:
            RecordValueError: the request is not plain JSON, or kind or title is missing.
            StorageError
        """
        required_text(kind=kind, title=title)
        plain = json_bytes(dict(request), "the request").decode("ascii")
        id = secrets.token_hex(8)
        self._make_folder(id)
        with self._file.writing() as db:
            db.table("jobs").insert(
                {
                    "id": id,
                    "kind": kind,
                    "title": title,
                    "state": QUEUED,
                    "request": plain,
                    "done": 0,
                    "total": 0,
                    "what": "",
                    "created": utc_text(self._now()),
                    "maker_pid": os.getpid(),
                    "maker": process_mark(os.getpid()),
                    "lane": lane,
                }
            )
            return self._row(db, id)

    def start(self, id: str, pid: int) -> Job:
        """A queued job is this process's from now on. It runs at once if its turn has come; see `take_turn`.

        Raises:
            RecordNotFoundError: no such job.
            RecordValueError: it is not queued: it was started already, or stopped before.
            StorageError
        """
        # A process that is gone already leaves no mark; "" fits none, so the job will be seen as interrupted.
        mark = process_mark(pid) or ("" if process_mark(os.getpid()) else None)
        with self._file.writing() as db:
            job = self._row(db, id)
            if job.state != QUEUED:
                raise RecordValueError(f"job {id} cannot be started", expected=QUEUED, found=job.state)
            db.table("jobs").update(job.sequence, {"pid": pid, "process": mark})
            self._turn(db, id)
            return self._row(db, id)

    def take_turn(self, id: str) -> str:
        """A job that waits runs from now on if none of its lane runs and none of it waits for longer.

        Returns:
            Its state now.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            place = _place(db, id)
            if place["state"] != QUEUED or _ahead(db, place):
                return str(place["state"])
        # Looked at again under the write lock: another one may have been as fast.
        with self._file.writing() as db:
            return self._turn(db, id)

    def ahead(self, id: str) -> list[Ahead]:
        """The jobs that a queued job waits for, the oldest first; none for one that does not wait.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            place = _place(db, id)
            return _ahead(db, place) if place["state"] == QUEUED else []

    def waiting(self, lane: str) -> int:
        """How many jobs wait for this lane."""
        query = "SELECT COUNT(*) AS number FROM jobs WHERE lane = ? AND state = ? AND pid IS NOT NULL"
        with self._file.reading() as db:
            return int(next(iter(db.query(query, [lane, QUEUED])))["number"]) if lane else 0

    def _turn(self, db: sqlite_utils.Database, id: str) -> str:
        place = _place(db, id)
        if place["state"] == QUEUED and not _ahead(db, place):
            db.table("jobs").update(place["seq"], {"state": RUNNING, "started": utc_text(self._now())})
            return RUNNING
        return str(place["state"])

    def progress(self, id: str, done: int, total: int, what: str) -> bool:
        """Notes how far a running job is; returns False, and changes nothing, when it is not running any more.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.writing() as db:
            job = self._row(db, id)
            if job.state != RUNNING:
                return False
            db.table("jobs").update(job.sequence, {"done": int(done), "total": int(total), "what": what})
            return True

    def finish(
        self,
        id: str,
        state: str,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> Job:
        """Notes how a job ended, and takes its scratch folder away. The first ending stands: Stop and a natural end may
        meet, so look at the answer.

        Args:
            state: "done", "failed", "stopped" or "interrupted".

        Raises:
            RecordNotFoundError: no such job.
            RecordValueError: another state, or values that are not plain JSON.
            StorageError
        """
        if state not in ENDED:
            raise RecordValueError("a job cannot end in this state", expected=", ".join(ENDED), found=repr(state))
        values = {
            "state": state,
            "result": None if result is None else json_bytes(dict(result), "the result").decode("ascii"),
            "error": None if error is None else json_bytes(dict(error), "the error").decode("ascii"),
            "ended": utc_text(self._now()),
        }
        # Here and not in the task alone: one that is ended the hard way takes nothing away.
        shutil.rmtree(self.folder(id) / SCRATCH_NAME, ignore_errors=True)
        with self._file.writing() as db:
            job = self._row(db, id)
            if job.is_over:
                return job
            db.table("jobs").update(job.sequence, values)
            return self._row(db, id)

    def get(self, id: str) -> Job:
        """One job.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            return self._row(db, id)

    def is_alive(self, id: str) -> bool:
        """Whether the process that runs a running job is there, as far as the system tells.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            rows = list(db.query("SELECT * FROM jobs WHERE id = ?", [id]))
        if not rows:
            raise _unknown(id)
        return rows[0]["state"] == RUNNING and not is_dead(rows[0])

    def recent(self, limit: int = 50, offset: int = 0) -> list[Job]:
        """The newest jobs, newest first by sequence; `offset` of them are passed over."""
        query = "SELECT * FROM jobs ORDER BY seq DESC LIMIT ? OFFSET ?"
        with self._file.reading() as db:
            return [job_of(row) for row in db.query(query, [max(0, limit), max(0, offset)])]

    def count(self) -> int:
        """How many jobs the list has."""
        with self._file.reading() as db:
            return int(db.execute("SELECT COUNT(*) FROM jobs").fetchone()[0])

    def interrupt_dead(self) -> list[Job]:
        """Ends the jobs that nobody runs any more, and returns them; called at start.

        See `storage.job.is_dead`.
        """
        with self._file.reading() as db:
            dead = [
                row["id"]
                for row in db.query("SELECT * FROM jobs WHERE state IN (?, ?)", [QUEUED, RUNNING])
                if is_dead(row)
            ]
        error = {"problem": "the process that worked on this ended without saying how", "advice": "start it again"}
        return [self.finish(id, "interrupted", error=error) for id in dead]

    def folder(self, id: str) -> Path:
        """The job's own folder, for its results.

        Raises:
            RecordNotFoundError: it is no job's identifier, such as one with "../".
        """
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise _unknown(id)
        return self.home / "jobs" / id

    def log_path(self, id: str) -> Path:
        """The job's log file; see `folder`."""
        return self.folder(id) / LOG_NAME

    def log(self, id: str, text: str) -> None:
        """Adds one line to the job's log. Names of strangers stand in it, so whatever would end the line, move a
        terminal's cursor or turn the direction of writing is escaped.

        Raises:
            RecordNotFoundError, StorageError
        """
        line = printable(text.removesuffix("\n"), LONGEST_LINE) + "\n"
        path = self.log_path(id)
        try:
            append_private(path, line.encode("utf-8", "backslashreplace"))
        except FileNotFoundError:
            raise _unknown(id) from None
        except OSError as error:
            raise StorageError("the job's log cannot be written", file=path, found=str(error)) from error

    def log_tail(self, id: str, limit: int = LOG_TAIL_BYTES) -> str:
        """The end of the job's log, at most `limit` bytes, beginning with a whole line where it was cut."""
        path = self.log_path(id)
        try:
            with path.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                cut = size > limit
                # One byte earlier, so that a cut that falls on a line's start keeps that line.
                stream.seek(max(0, size - limit - 1))
                data = stream.read(limit + 1)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StorageError("the job's log cannot be read", file=path, found=str(error)) from error
        if cut:
            data = data.partition(b"\n")[2]
        return data.decode("utf-8", "replace")

    def _make_folder(self, id: str) -> None:
        path = self.folder(id)
        try:
            private_folder(path.parent)
            private_folder(path)
        except OSError as error:
            raise StorageError("the job's folder cannot be made", file=path, found=str(error)) from error

    def _row(self, db: sqlite_utils.Database, id: str) -> Job:
        rows = list(db.query("SELECT * FROM jobs WHERE id = ?", [id]))
        if not rows:
            raise _unknown(id)
        return job_of(rows[0])


def _place(db: sqlite_utils.Database, id: str) -> Mapping[str, Any]:
    """Where a job stands in its lane, without its request, which may be megabytes of names."""
    rows = list(db.query("SELECT seq, lane, state FROM jobs WHERE id = ?", [id]))
    if not rows:
        raise _unknown(id)
    return rows[0]


def _ahead(db: sqlite_utils.Database, place: Mapping[str, Any]) -> list[Ahead]:
    """What runs in a job's lane, or waits there for longer; a process that died in its turn holds nobody up."""
    if not place["lane"]:
        return []
    query = (
        "SELECT id, title, pid, process FROM jobs WHERE lane = ? AND seq <> ? AND pid IS NOT NULL "
        "AND (state = ? OR (state = ? AND seq < ?)) ORDER BY seq"
    )
    rows = db.query(query, [place["lane"], place["seq"], RUNNING, QUEUED, place["seq"]])
    return [Ahead(row["id"], row["title"]) for row in rows if not is_dead(row)]


def _unknown(id: object) -> RecordNotFoundError:
    return RecordNotFoundError(f"there is no job {id!r}")
