"""Long tasks as rows: request, progress, result. They survive a reload, a crash and a restart.

Kind, state, progress in numbers and times are in clear, so that a locked app can queue, stop and clean up. The text of
a job is sealed with a key that the vault keeps (`storage.job_keys`): its title, its request, the current step, its
result, its log, and the files in its folder (`storage.job_files`). `Jobs.opened` gives the list with this text, for a
caller with the keys. Keys and the passphrase are not stored here, sealed or not.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Self

import sqlite_utils

from irwm.errors import printable
from storage.canonical import json_bytes, required_text, utc_now, utc_text
from storage.database import DatabaseFile, Row
from storage.encryption import Sealer
from storage.errors import JobSealedError, RecordNotFoundError, RecordValueError, StorageError
from storage.files import append_private, private_folder, sweep
from storage.job_files import MARK, UNREADABLE, JobFiles, opened_line, sealed_line
from storage.job_keys import JobKey, JobsKeys, OpensJobs
from storage.job_table import (
    ENDED,
    INTERRUPTED,
    JOBS_SCHEMA,
    QUEUED,
    RESTING,
    RUNNING,
    UNDER_WAY,
    Ahead,
    Job,
    JobLine,
    is_dead,
    job_of,
    place,
    sealed_words,
)
from storage.paths import JOBS_NAME
from storage.processes import process_mark

LOG_NAME = "log.txt"
LONGEST_LINE = 20_000
# A task's temporary files: removed when the job ends, in any way.
SCRATCH_NAME = "scratch"
# The end of a log that a page shows; a whole log may be long.
LOG_TAIL_BYTES = 16 * 1024
# Each line is sealed separately, which makes short ones several times as long.
_SEALED_TIMES = 8
_FIXED = "seq, id, kind, created, key"
_UNDER_WAY = f"SELECT * FROM jobs WHERE state IN ({', '.join('?' * len(UNDER_WAY))}) ORDER BY seq DESC"
_ID = re.compile("[0-9a-f]{16}")


class Jobs:
    """The job list of a home folder; created on first use. Threads and processes may use it at once.

    Raises:
        UnsafeHomeError, NewerSchemaError, DatabaseDamagedError, StorageError: the file cannot be used.
    """

    def __init__(self, home: Path, *, now: Callable[[], datetime] = utc_now) -> None:
        self.home = Path(home)
        self._now = now
        self._keys: OpensJobs = JobsKeys({}, None)
        # The constant columns of a row: a line of a log must not need the list, which may be busy or damaged.
        self._fixed: dict[str, Row] = {}
        self._file = DatabaseFile(self.home / JOBS_NAME, JOBS_SCHEMA)
        private_folder(self.home)
        sweep(self.home)
        if not self._file.path.exists():
            # Another process may have created it at the same time; its list is used then.
            with contextlib.suppress(FileExistsError):
                self._file.create()
        self._file.prepare()

    def opened(self, keys: OpensJobs) -> Self:
        """The same list, with read and write access to the text of the jobs of these keys."""
        other = copy.copy(self)
        other._keys = keys
        return other

    def key_of(self, id: str) -> JobKey:
        """The job's own key, for the process that runs it.

        Raises:
            RecordNotFoundError: no such job.
            JobSealedError: it cannot be opened here.
            StorageError
        """
        return self._key(self._fixed_row(id))

    def create(self, kind: str, title: str, request: Mapping[str, object], lane: str = "") -> Job:
        """Adds a queued job and makes its folder.

        Args:
            lane: see `JobLine`.

        Raises:
            RecordValueError: the request is not plain JSON, or kind or title is missing.
            JobSealedError: no key is available to seal it.
            StorageError
        """
        required_text(kind=kind, title=title)
        json_bytes(dict(request), "the request")
        id = secrets.token_hex(8)
        key = None if self._keys.newest is None else self._keys.of(id, self._keys.newest)
        if key is None:
            raise JobSealedError(id)
        self._make_folder(id)
        with self._file.writing() as db:
            (last,) = db.execute("SELECT COALESCE(MAX(seq), 0) FROM jobs").fetchone()
            row = {
                "seq": last + 1,
                "id": id,
                "kind": kind,
                "state": QUEUED,
                "done": 0,
                "total": 0,
                "created": utc_text(self._now()),
                "maker_pid": os.getpid(),
                "maker": process_mark(os.getpid()),
                "lane": lane,
                "unswept": 0,
                "key": key.key,
            }
            db.table("jobs").insert(row | sealed_words(key.sealer(), row, title=title, request=dict(request)))
            job = self._line(_row(db, id))
            assert isinstance(job, Job)
            return job

    def start(self, id: str, pid: int) -> JobLine:
        """Gives a queued job to this process. The job runs at once if it is its turn; see `take_turn`.

        Raises:
            RecordNotFoundError: no such job.
            RecordValueError: it is not queued: it was started or stopped before.
            StorageError
        """
        # A process that is already gone has no mark; "" matches no process, so the job will appear as interrupted.
        mark = process_mark(pid) or ("" if process_mark(os.getpid()) else None)
        with self._file.writing() as db:
            row = _row(db, id)
            if row["state"] != QUEUED:
                raise RecordValueError(f"job {id} cannot be started", expected=QUEUED, found=row["state"])
            db.table("jobs").update(row["seq"], {"pid": pid, "process": mark})
            self._turn(db, id)
            return self._line(_row(db, id))

    def take_turn(self, id: str) -> str:
        """Starts a waiting job if no job of its lane runs or has waited longer.

        Returns:
            Its present state.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            spot = _spot(db, id)
            if spot["state"] != QUEUED or self._ahead(db, spot):
                return str(spot["state"])
        # Checked again under the write lock: another process may have been faster.
        with self._file.writing() as db:
            return self._turn(db, id)

    def ahead(self, id: str) -> list[Ahead]:
        """The jobs that a queued job waits for, the oldest first; empty for a job that does not wait.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            spot = _spot(db, id)
            return self._ahead(db, spot) if spot["state"] == QUEUED else []

    def waiting(self, lane: str) -> int:
        """How many jobs wait for this lane."""
        query = "SELECT COUNT(*) AS number FROM jobs WHERE lane = ? AND state = ? AND pid IS NOT NULL"
        with self._file.reading() as db:
            return int(next(iter(db.query(query, [lane, QUEUED])))["number"]) if lane else 0

    def _turn(self, db: sqlite_utils.Database, id: str) -> str:
        spot = _spot(db, id)
        if spot["state"] == QUEUED and not self._ahead(db, spot):
            db.table("jobs").update(spot["seq"], {"state": RUNNING, "started": utc_text(self._now())})
            return RUNNING
        return str(spot["state"])

    def progress(self, id: str, done: int, total: int, what: str, memory: int = 0) -> bool:
        """Records a running job's progress; returns False, and changes nothing, if the job is no longer running.

        Args:
            memory: see `JobLine`; the larger of this value and the recorded one is kept.

        Raises:
            RecordNotFoundError, JobSealedError, StorageError
        """
        with self._file.writing() as db:
            row = _row(db, id, f"{_FIXED}, state, memory")
            if row["state"] != RUNNING:
                return False
            words = sealed_words(self._key(row).sealer(), row, what=what)
            values = {"done": int(done), "total": int(total), "memory": max(int(memory), row["memory"])}
            db.table("jobs").update(row["seq"], values | words)
            return True

    def rest(
        self,
        id: str,
        what: str,
        result: Mapping[str, object] | None = None,
        error: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Ends a pass of a repeated job, which then needs no device; returns False, and changes nothing, if it is no
        longer running.

        Args:
            what: when the next pass is.
            result: of the pass; None keeps that of an earlier one.
            error: that ended the pass.

        Raises:
            RecordNotFoundError, RecordValueError, JobSealedError, StorageError
        """
        with self._file.writing() as db:
            row = _row(db, id)
            if row["state"] != RUNNING:
                return False
            words: dict[str, object] = {"what": what, "error": None if error is None else dict(error)}
            if result is not None:
                words["result"] = dict(result)
            sealed = sealed_words(self._key(row).sealer(), row, **words)
            db.table("jobs").update(row["seq"], {"state": RESTING, "done": 0, "total": 0} | sealed)
            return True

    def wake(self, id: str) -> bool:
        """Queues a resting job for its next pass; returns False, and changes nothing, if it does not rest.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.writing() as db:
            spot = _spot(db, id)
            if spot["state"] == RESTING:
                db.table("jobs").update(spot["seq"], {"state": QUEUED})
            return bool(spot["state"] == RESTING)

    def finish(
        self,
        id: str,
        state: str,
        result: Mapping[str, object] | None = None,
        error: Mapping[str, str | None] | None = None,
    ) -> JobLine:
        """Records how a job ended, and removes its scratch folder. Only the first ending counts: a Stop and a normal
        end may coincide, so check the return value.

        Args:
            state: "done", "failed", "stopped" or "interrupted".

        Raises:
            RecordNotFoundError: no such job.
            RecordValueError: another state, or values that are not plain JSON.
            JobSealedError: there is a result or an error, but no key to seal it.
            StorageError
        """
        if state not in ENDED:
            raise RecordValueError("a job cannot end in this state", expected=", ".join(ENDED), found=repr(state))
        words = {name: dict(said) for name, said in (("result", result), ("error", error)) if said is not None}
        for name, said in words.items():
            json_bytes(said, f"the {name}")
        # Here and not in the task alone: a killed task cannot remove its own files.
        shutil.rmtree(self.folder(id) / SCRATCH_NAME, ignore_errors=True)
        with self._file.writing() as db:
            row = _row(db, id)
            if row["state"] in ENDED:
                return self._line(row)
            sealed = sealed_words(self._key(row).sealer(), row, **words) if words else {}
            values = {"state": state, "ended": utc_text(self._now()), "unswept": int(state == INTERRUPTED)}
            db.table("jobs").update(row["seq"], values | sealed)
            return self._line(_row(db, id))

    def get(self, id: str) -> Job:
        """One job, opened.

        Raises:
            RecordNotFoundError: no such job.
            JobSealedError: it cannot be opened here.
            StorageError
        """
        job = self.line(id)
        if not isinstance(job, Job):
            raise JobSealedError(id)
        return job

    def line(self, id: str) -> JobLine:
        """One job; a `Job` if it can be opened.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            return self._line(_row(db, id))

    def is_alive(self, id: str) -> bool:
        """Whether the process of a running or waiting job exists, as far as the system tells.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.reading() as db:
            row = _row(db, id)
        return row["state"] in UNDER_WAY and row["pid"] is not None and not is_dead(row)

    def recent(self, limit: int = 50, offset: int = 0) -> list[JobLine]:
        """The newest jobs, newest first by sequence; the first `offset` are skipped. Jobs that can be opened are
        `Job`s."""
        query = "SELECT * FROM jobs ORDER BY seq DESC LIMIT ? OFFSET ?"
        with self._file.reading() as db:
            return [self._line(row) for row in db.query(query, [max(0, limit), max(0, offset)])]

    def under_way(self) -> list[JobLine]:
        """The jobs that are not over, newest first; those that can be opened are `Job`s."""
        with self._file.reading() as db:
            return [self._line(row) for row in db.query(_UNDER_WAY, UNDER_WAY)]

    def unswept(self) -> list[Job]:
        """The interrupted jobs whose partial output has not been cleaned up yet, as far as they can be opened; `swept`
        records a cleanup."""
        with self._file.reading() as db:
            jobs = [self._line(row) for row in db.query("SELECT * FROM jobs WHERE unswept = 1 ORDER BY seq")]
        return [job for job in jobs if isinstance(job, Job)]

    def swept(self, id: str) -> None:
        """See `unswept`.

        Raises:
            RecordNotFoundError, StorageError
        """
        with self._file.writing() as db:
            db.table("jobs").update(_row(db, id, "seq")["seq"], {"unswept": 0})

    def count(self) -> int:
        """How many jobs the list has."""
        with self._file.reading() as db:
            return int(db.execute("SELECT COUNT(*) FROM jobs").fetchone()[0])

    def interrupt_dead(self) -> list[JobLine]:
        """Ends the jobs that have no process any more, and returns them; called at start, without a key.

        See `storage.job_table.is_dead` and `unswept`.
        """
        with self._file.reading() as db:
            dead = [row["id"] for row in db.query(_UNDER_WAY, UNDER_WAY) if is_dead(row)]
        return [self.finish(id, INTERRUPTED) for id in reversed(dead)]

    def folder(self, id: str) -> Path:
        """The job's own folder, for its results.

        Raises:
            RecordNotFoundError: there is no job with this identifier, for example one with "../".
        """
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise _unknown(id)
        return self.home / "jobs" / id

    def files(self, id: str) -> JobFiles:
        """The files in the job's folder that users read.

        Raises:
            RecordNotFoundError, StorageError
        """
        row = self._fixed_row(id)
        return JobFiles(id, self.folder(id), self._sealer(row), lambda part: place(row, part))

    def log_path(self, id: str) -> Path:
        """The job's log file; see `folder`. Besides sealed lines it holds direct output of libraries."""
        return self.folder(id) / LOG_NAME

    def log(self, id: str, text: str) -> None:
        """Adds one line to the job's log, sealed. It may contain untrusted names, so characters that would end the
        line, move a terminal's cursor or change the text direction are escaped.

        Raises:
            RecordNotFoundError, JobSealedError, StorageError
        """
        path = self.log_path(id)
        row = self._fixed_row(id)
        words = printable(text.removesuffix("\n"), LONGEST_LINE)
        try:
            append_private(path, sealed_line(self._key(row).sealer(), place(row, "log"), words))
        except FileNotFoundError:
            raise _unknown(id) from None
        except OSError as error:
            raise StorageError("the job's log cannot be written", file=path, found=str(error)) from error

    def log_tail(self, id: str, limit: int = LOG_TAIL_BYTES) -> str:
        """The end of the job's log, at most `limit` bytes of whole lines. Sealed lines that cannot be opened are left
        out.

        Raises:
            RecordNotFoundError, StorageError
        """
        path = self.log_path(id)
        try:
            with path.open("rb") as stream:
                size, most = stream.seek(0, os.SEEK_END), _SEALED_TIMES * limit
                # One byte earlier, so that a cut at the start of a line keeps that line.
                stream.seek(max(0, size - most - 1))
                data = stream.read(most + 1)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StorageError("the job's log cannot be read", file=path, found=str(error)) from error
        if size > most:
            data = data.partition(b"\n")[2]
        row = self._fixed_row(id)
        lines: list[str] = []
        sealer, where = self._sealer(row), place(row, "log")
        for line in reversed(data.splitlines()):
            if not line.startswith(MARK):
                text = line.decode("utf-8", "replace")
            elif sealer is None:
                continue
            else:
                text = opened_line(sealer, where, line) or UNREADABLE
            limit -= len(text.encode("utf-8")) + 1
            if limit < 0:
                break
            lines.append(text + "\n")
        return "".join(reversed(lines))

    def _make_folder(self, id: str) -> None:
        path = self.folder(id)
        try:
            private_folder(path.parent)
            private_folder(path)
        except OSError as error:
            raise StorageError("the job's folder cannot be created", file=path, found=str(error)) from error

    def _fixed_row(self, id: str) -> Row:
        row = self._fixed.get(id)
        if row is None:
            with self._file.reading() as db:
                row = self._fixed[id] = _row(db, id, _FIXED)
        return row

    def _key(self, row: Row) -> JobKey:
        key = self._keys.of(row["id"], row["key"])
        if key is None:
            raise JobSealedError(row["id"])
        return key

    def _sealer(self, row: Row) -> Sealer | None:
        key = self._keys.of(row["id"], row["key"])
        return None if key is None else key.sealer()

    def _line(self, row: Row) -> JobLine:
        return job_of(row, self._sealer(row))

    def _ahead(self, db: sqlite_utils.Database, spot: Row) -> list[Ahead]:
        """The jobs that run in a job's lane or have waited longer there; dead jobs are left out."""
        if not spot["lane"]:
            return []
        query = (
            "SELECT * FROM jobs WHERE lane = ? AND seq <> ? AND pid IS NOT NULL "
            "AND (state = ? OR (state = ? AND seq < ?)) ORDER BY seq"
        )
        rows = db.query(query, [spot["lane"], spot["seq"], RUNNING, QUEUED, spot["seq"]])
        before = [self._line(row) for row in rows if not is_dead(row)]
        return [Ahead(job.id, job.kind, job.title if isinstance(job, Job) else None) for job in before]


def _spot(db: sqlite_utils.Database, id: str) -> Row:
    """A job's place in its lane, without its request, which may be megabytes of names."""
    return _row(db, id, "seq, lane, state")


def _row(db: sqlite_utils.Database, id: str, columns: str = "*") -> Row:
    rows: list[Row] = list(db.query(f"SELECT {columns} FROM jobs WHERE id = ?", [id]))
    if not rows:
        raise _unknown(id)
    return rows[0]


def _unknown(id: object) -> RecordNotFoundError:
    return RecordNotFoundError(f"there is no job {id!r}")
