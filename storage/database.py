"""SQLite files opened safely: private, checked before use, migrated in one transaction, with clear errors.

A connection is open for one operation. That costs about a millisecond and has three benefits: no lock is held while a
page idles, threads share no state, and the write-ahead log is folded back into the file when no process uses it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlite_utils
from sqlite_utils import Migrations

from irwm.errors import printable
from storage.errors import (
    DatabaseDamagedError,
    NewerSchemaError,
    StorageBusyError,
    StorageError,
    StorageFullError,
)
from storage.files import new_private_file, partial_name, publish_new
from storage.paths import SIDECARS, secure_file

# Long enough for a writer that folds in a large log on a slow disk, short enough for a user to wait.
BUSY_SECONDS = 10.0
# What reading a damaged file raises. The second: SQLite's own message quotes the file, and Python decodes it.
DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
# SQLite's index of the write-ahead log grows by pieces of this size; with less free space even reading fails.
INDEX_BYTES = 32 * 1024
# Instructions of SQLite's virtual machine between two checks of the clock.
STEPS = 10_000
# Three times as many objects as a vault has.
MOST_OBJECTS = 100
# Separators between the words of a definition: quotes and spaces differ between versions of sqlite-utils.
_BETWEEN = re.compile(r"[\s\"'`\[\]]+", re.ASCII)
_LONGEST_DEFINITION = 5000


# A row by its columns. Anyone who can edit the file can put any value into a column.
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """Requirements for a database file.

    Attributes:
        what: a plain name of the file, for messages.
        application_id: number in SQLite's header (PRAGMA application_id) that identifies this application's files.
        version: number of the newest migration, kept in PRAGMA user_version.
        migrations: sqlite-utils' set; applied in order.
        remedy: what to do when the file is damaged, for messages.
        synchronous: "FULL" if a commit must survive a power cut, "NORMAL" if only a crash of the program.
    """

    what: str
    application_id: int
    version: int
    migrations: Migrations
    remedy: str
    synchronous: str = "FULL"


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """One SQLite file of a known schema.

    Attributes:
        busy_seconds: how long a connection waits for another process.
        limit_seconds: how long a connection may be used, for a file that an attacker may have made so that reading it
            never ends; None without a limit.
    """

    path: Path
    schema: Schema
    busy_seconds: float = BUSY_SECONDS
    limit_seconds: float | None = None

    def create(self, fill: Callable[[sqlite_utils.Database], None] | None = None) -> None:
        """Makes the file under another name, complete with its first rows, and then renames it.

        So a half-made database is never visible, and of two creators one succeeds and the other gets an error.

        Raises:
            FileExistsError: the name is taken.
            StorageError: the folder cannot be written to.
        """
        partial = partial_name(self.path)
        try:
            with self._explained():
                # Closed before SQLite opens it: closing a descriptor later would drop SQLite's POSIX locks on the file.
                os.close(new_private_file(partial))
                with contextlib.closing(self._connect(partial)) as db:
                    # SQLite gives the log and its index the mode of the main file.
                    db.enable_wal()
                    with _immediate(db):
                        self._migrate(db)
                        if fill is not None:
                            fill(db)
                publish_new(partial, self.path)
        finally:
            remove_database(partial)

    def prepare(self) -> list[str]:
        """Checks the file and brings an older schema up to date; returns warnings from `secure_file`.

        The check uses a read-only connection: a file that is newer or not ours is not modified.

        Raises:
            UnsafeHomeError, DatabaseDamagedError, NewerSchemaError, StorageBusyError, StorageError
        """
        warnings = secure_file(self.path)
        with self._explained():
            with contextlib.closing(self._connect(self.path, "ro")) as db:
                version = self._version(db)
            if version < self.schema.version:
                with contextlib.closing(self._connect(self.path)) as db, _immediate(db):
                    # Checked again under the write lock: another process, even of a newer version, may have been
                    # faster. Its migrations are no longer pending.
                    self._version(db)
                    self._migrate(db)
        return warnings

    def stamp(self) -> tuple[tuple[int, ...] | None, ...]:
        """Numbers that change with any change to the file or its write-ahead log.

        Taken before a state is read, they are never newer than it: if they have not changed, that state may be reused.

        Raises:
            StorageError: the file's metadata cannot be read.
        """
        with self._explained():
            return tuple(_stamp(path) for path in (self.path, self.path.with_name(self.path.name + SIDECARS[0])))

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite_utils.Database]:
        """A connection that sees one unchanging state and cannot write."""
        with self._explained(), self._checked() as db:
            db.execute("PRAGMA query_only=ON")
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.rollback()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite_utils.Database]:
        """A transaction that holds the write lock from its start and commits completely or not at all.

        BEGIN IMMEDIATE: a transaction that first reads and then asks for the lock can fail midway in WAL mode,
        and what it read (the audit log's head) would be stale.
        """
        with self._explained(), self._checked() as db, _immediate(db):
            yield db

    @contextlib.contextmanager
    def _checked(self) -> Iterator[sqlite_utils.Database]:
        secure_file(self.path)
        with contextlib.closing(self._connect(self.path)) as db:
            version = self._version(db)
            if version != self.schema.version:
                raise DatabaseDamagedError(
                    f"the schema of the {self.schema.what} has changed since it was opened",
                    file=self.path,
                    expected=str(self.schema.version),
                    found=str(version),
                    advice=f"reopen the {self.schema.what}",
                )
            yield db

    def _connect(self, path: Path, mode: str = "rw") -> sqlite_utils.Database:
        # mode=rw never creates: a missing file is an error, not a fresh empty vault.
        conn = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=self.busy_seconds, isolation_level=None
        )
        try:
            if self.limit_seconds is not None:
                give_time(conn, self.limit_seconds)
            # No sqlite-utils plugins: other installed packages must not touch the vault.
            db = sqlite_utils.Database(conn, execute_plugins=False)
            for pragma in (
                "foreign_keys=ON",
                # The file may have been edited by someone else: let nothing stored in it run functions,
                # and check pages before they are used.
                "trusted_schema=OFF",
                "cell_size_check=ON",
                # A replaced wrapped key must not remain in free pages.
                "secure_delete=ON",
                f"synchronous={self.schema.synchronous}",
            ):
                db.execute(f"PRAGMA {pragma}")
        except BaseException:
            conn.close()
            raise
        return db

    def _version(self, db: sqlite_utils.Database) -> int:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if application != self.schema.application_id:
            raise DatabaseDamagedError(
                f"this file is not a {self.schema.what} created by this application, or its first page is missing",
                file=self.path,
                advice=self.schema.remedy,
            )
        if version > self.schema.version:
            raise NewerSchemaError(
                f"the {self.schema.what} was written by a newer version of this application",
                file=self.path,
                expected=f"schema {self.schema.version} or older",
                found=f"schema {version}",
                advice="use the newer version; the file was not changed",
            )
        if faults := foreign_objects(db.conn, self.schema):
            raise DatabaseDamagedError(
                f"the tables in the {self.schema.what} do not belong to this application",
                file=self.path,
                found="; ".join(faults[:3]),
                advice=f"keep the file as evidence, and {self.schema.remedy}",
            )
        return version

    def _migrate(self, db: sqlite_utils.Database) -> None:
        # Inside the caller's transaction sqlite-utils uses savepoints, so every migration, its record and the
        # version number take effect together or not at all.
        self.schema.migrations.apply(db)
        db.execute(f"PRAGMA application_id={self.schema.application_id:d}")
        db.execute(f"PRAGMA user_version={self.schema.version:d}")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise self._explanation(error) from error

    def _explanation(self, error: sqlite3.Error | UnicodeDecodeError | OSError) -> StorageError:
        what = self.schema.what
        found = in_words(error) if isinstance(error, UnicodeDecodeError) else str(error)
        # The lowest byte of an extended code is the primary code.
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StorageBusyError(
                f"the {what} is in use by another process",
                file=self.path,
                advice="wait a moment and try again; no changes were written",
            )
        if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and self._no_room()):
            return StorageFullError(
                f"the disk that contains the {what} is full",
                file=self.path,
                advice="free up some space and try again; no changes were written",
            )
        broken = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERRUPT)
        if code in broken or isinstance(error, UnicodeDecodeError):
            # SQLITE_ERROR ("no such table"): our statements are fixed and tested, so part of the file is missing.
            # SQLITE_INTERRUPT: only `give_time` interrupts.
            return DatabaseDamagedError(
                f"the {what} is damaged", file=self.path, found=found, advice=self.schema.remedy
            )
        return StorageError(f"the {what} cannot be read or written", file=self.path, found=found)

    def _no_room(self) -> bool:
        # On a disk that is completely full SQLite cannot create the log's index, and reports an I/O error.
        try:
            return shutil.disk_usage(self.path.parent).free < INDEX_BYTES
        except OSError:
            return False


def remove_database(path: Path) -> None:
    """Removes a partial database with the files that SQLite keeps next to it."""
    for end in ("", *SIDECARS, "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def in_words(error: sqlite3.DatabaseError | UnicodeDecodeError) -> str:
    """The error of a kind in `DAMAGED`, in one line."""
    if isinstance(error, UnicodeDecodeError):
        return "a table's name or definition is not UTF-8 text"
    return printable(str(error), 200)


def foreign_objects(conn: sqlite3.Connection, schema: Schema) -> list[str]:
    """Objects that the file has and the schema does not, or the reverse: tables, indexes and others, one phrase each.

    Querying a view runs its SQL, a trigger runs at the next change, and a column definition may affect other columns.
    So every definition must be, word for word, one that our own migrations write.
    """
    asked = "SELECT substr(type, 1, 20), substr(name, 1, 80), substr(sql, 1, ?) FROM sqlite_master LIMIT ?"
    objects = conn.execute(asked, (_LONGEST_DEFINITION, MOST_OBJECTS + 1)).fetchall()
    faults = ["the file contains too many tables"] if len(objects) > MOST_OBJECTS else []
    states = definitions(schema)
    ours: frozenset[tuple[str, str]] = frozenset().union(*states)
    found = set()
    for kind, name, sql in objects:
        # SQLite creates some indexes itself, without a text.
        if kind == "index" and sql is None:
            continue
        found.add((str(kind), _plain(str(sql))))
        if (kind, _plain(str(sql))) not in ours:
            faults.append(f"{printable(str(kind), 20)} {printable(str(name), 80)} does not belong to this application")
    if conn.execute("PRAGMA user_version").fetchone()[0] == schema.version:
        # Without its index a table would accept two records with the same identifier.
        faults += sorted(f"missing: {sql[:80]}" for kind, sql in states[-1] - found)
    return faults


@functools.cache
def definitions(schema: Schema) -> tuple[frozenset[tuple[str, str]], ...]:
    """Kind and text of every table and index, after each of the schema's migrations."""
    states = []
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        db = sqlite_utils.Database(conn, execute_plugins=False)
        while pending := schema.migrations.pending(db):
            later = [migration.name for migration in pending[1:]]
            schema.migrations.apply(db, stop_before=later)
            written = db.execute("SELECT type, sql FROM sqlite_master").fetchall()
            states.append(frozenset((kind, _plain(sql)) for kind, sql in written if sql))
    return tuple(states)


def _plain(sql: str) -> str:
    return _BETWEEN.sub(" ", sql).strip().lower()


def give_time(conn: sqlite3.Connection, seconds: float) -> None:
    """Interrupts the work of this connection after the given number of seconds."""
    deadline = time.monotonic() + seconds
    conn.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    # An empty log appears and disappears with every connection and has no meaning.
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found.st_size else None


@contextlib.contextmanager
def _immediate(db: sqlite_utils.Database) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.commit()
    except BaseException:
        db.rollback()
        raise
