"""Copies of the vault, sealed as it is: made without stopping anyone, restored without losing the replaced vault."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlite_utils

from storage import audit, header
from storage.canonical import utc_now, utc_text
from storage.database import DAMAGED, DatabaseFile, foreign_objects, give_time, in_words, remove_database
from storage.encryption import DEFAULT_COST, Cost, Sealer, unwrap
from storage.errors import (
    CostError,
    DatabaseDamagedError,
    StorageBusyError,
    StorageError,
    VaultExistsError,
    VaultMissingError,
)
from storage.files import new_private_file, partial_name, private_folder, publish_new
from storage.integrity import structure_faults
from storage.paths import SIDECARS, VAULT_NAME
from storage.schema import VAULT_SCHEMA

BACKUP_FOLDER = "backups"
# How long a restore waits for a process that is writing.
BUSY_SECONDS = 5.0
# Limit for reading a file before the passphrase is proved: a sound backup takes milliseconds, a malicious one any time.
LOOK_SECONDS = 10.0
# Limit in bytes for each value that is read from a backup before it is copied.
LONGEST_VALUE = 1 << 20
# Limit for the check of every page of a backup that its passphrase opens; a large one on a slow disk takes a minute.
CHECK_SECONDS = 600.0
# Limits for a passphrase check on a backup that anyone may have sent: twice the memory and four times the work of a
# vault's own cost, about 0.8 s.
MOST_BACKUP_MEMORY_KIB = 2 * DEFAULT_COST.memory_kib
MOST_BACKUP_WORK_KIB = 4 * DEFAULT_COST.memory_kib * DEFAULT_COST.passes


def back_up(home: Path, target: Path | None = None, *, now: Callable[[], datetime] = utc_now) -> Path:
    """Copies the vault to a new file of mode 600, and checks the copy; works while locked.

    Args:
        target: the new file; default a name with audit count and time in the home's folder of backups.

    Raises:
        VaultMissingError: there is no vault.
        VaultExistsError: the target exists; it is untouched.
        DatabaseDamagedError: the vault is damaged, so its copy would be too.
        StorageError: the target cannot be written.
    """
    source = DatabaseFile(home / VAULT_NAME, VAULT_SCHEMA)
    if not source.path.exists():
        raise VaultMissingError("there is no vault to copy", file=source.path)
    with source.reading() as db:
        count = audit.state(db).count
        if target is None:
            private_folder(home / BACKUP_FOLDER)
            # Count first: names sort in the order of the vault's states, even if the clock was wrong.
            target = home / BACKUP_FOLDER / f"vault-{count:08d}-{_compact(now())}.sqlite3"
        partial = partial_name(target)
        try:
            _copy(db.conn, partial)
            _refuse_damaged(partial, source.path)
            publish_new(partial, target)
        except FileExistsError:
            raise VaultExistsError("a file with the backup's name already exists", file=target) from None
        except OSError as error:
            raise StorageError(
                "the backup cannot be written",
                file=target,
                expected="an existing folder in which files can be made, with enough space",
                found=error.strerror or str(error),
                advice="Check the folder and its disk, then try again",
            ) from error
        finally:
            remove_database(partial)
    return target


def latest_backup(home: Path) -> Path | None:
    """The backup of the newest state in the home's folder of backups."""
    return max((home / BACKUP_FOLDER).glob("vault-*.sqlite3"), default=None, key=lambda path: path.name)


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """The facts about a backup that a user needs before restoring it.

    Attributes:
        vault: identifier of the vault that it is a copy of.
        entries: how long its audit log is.
        last: time of the log's last entry, UTC, ISO 8601; "" if it has none.
    """

    vault: str
    entries: int
    last: str


def inspect(source: Path, passphrase: str, one_try: AbstractContextManager[None] | None = None) -> BackupFacts:
    """Reads a backup without changing it, and proves that this passphrase opens it.

    Args:
        one_try: entered while the passphrase is tried, to count it (`storage.wrong_passphrases.Tries.one`).

    Raises:
        VaultMissingError: there is no such file.
        WrongPassphraseError, PassphraseError: the passphrase does not open this backup.
        CostError, DatabaseDamagedError, NewerSchemaError, StorageError: the file cannot be used as a backup.
    """
    if not source.is_file():
        raise VaultMissingError("there is no such backup", file=source)
    try:
        with _reading(source) as conn:
            _refuse_foreign(conn, source)
            db = sqlite_utils.Database(conn, execute_plugins=False)
            head = header.read(db)
            _refuse_dear(head.wrapped.cost, source)
            with one_try or contextlib.nullcontext():
                data_key = unwrap(head.wrapped, passphrase, head.id)
            sealer = Sealer(data_key, head.id)
            audit.require_header(db, head, sealer, source)
            times = db.execute("SELECT time FROM audit ORDER BY seq DESC LIMIT 1").fetchall()
            return BackupFacts(head.id, audit.state(db).count, str(times[0][0]) if times else "")
    except DAMAGED as error:
        raise DatabaseDamagedError("this file is not a valid backup", file=source, found=in_words(error)) from error


def _refuse_dear(cost: Cost, source: Path) -> None:
    if cost.memory_kib > MOST_BACKUP_MEMORY_KIB or cost.memory_kib * cost.passes > MOST_BACKUP_WORK_KIB:
        raise CostError(
            "checking this backup's passphrase requires more memory or time than this app allows",
            file=source,
            expected=f"at most {MOST_BACKUP_MEMORY_KIB} KiB, and at most {MOST_BACKUP_WORK_KIB} for KiB × passes",
            found=f"{cost.memory_kib} KiB, {cost.passes} passes",
            advice="if you made this backup yourself and chose this cost, stop the app and copy the backup to "
            "vault.sqlite3 in the app's folder",
        )


@contextlib.contextmanager
def _reading(source: Path) -> Iterator[sqlite3.Connection]:
    # "immutable" creates no side files next to the backup, but must not hide a log that belongs to it.
    mode = "ro" if source.with_name(source.name + SIDECARS[0]).exists() else "ro&immutable=1"
    with contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode={mode}", uri=True)) as conn:
        give_time(conn, LOOK_SECONDS)
        # As for every file that someone else may have edited, see `DatabaseFile`.
        conn.execute("PRAGMA trusted_schema=OFF")
        conn.execute("PRAGMA cell_size_check=ON")
        # No value that is read here is longer, and Python takes four bytes for some characters of an untrusted file.
        conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        yield conn


def _refuse_foreign(conn: sqlite3.Connection, source: Path) -> None:
    """Refuses a file that is not a vault of plain tables before any query: to query a view is to run its SQL."""
    faults = []
    if conn.execute("PRAGMA application_id").fetchone()[0] != VAULT_SCHEMA.application_id:
        faults.append("the file is not a vault created by this application")
    faults += foreign_objects(conn, VAULT_SCHEMA)
    if faults:
        raise DatabaseDamagedError("this file is not a valid backup", file=source, found="; ".join(faults[:3]))


def restore(source: Path, home: Path, *, now: Callable[[], datetime] = utc_now) -> Path | None:
    """Puts a backup in the vault's place and returns where the replaced vault was kept, if there was one.

    The backup is checked as far as possible without the passphrase, then copied; the file itself is not changed.
    The next unlocking of the restored vault detects that the witness recorded a later state, warns and logs it. Stop
    other processes first: one that is about to write may still write into the vault that is set aside.

    Raises:
        VaultMissingError: there is no such backup.
        DatabaseDamagedError, NewerSchemaError: the backup cannot be used; no file was changed.
        StorageBusyError: the present vault is in use; no file was changed.
        StorageError: the folder cannot be written to.
    """
    vault = home / VAULT_NAME
    if not source.is_file():
        raise VaultMissingError("there is no such backup", file=source)
    partial = partial_name(vault)
    try:
        private_folder(home)
        with _reading(source) as conn:
            _refuse_foreign(conn, source)
            # Only pages are copied here, exactly as many as there are.
            conn.set_progress_handler(None, 0)
            _copy(conn, partial)
        copy = DatabaseFile(partial, VAULT_SCHEMA, limit_seconds=CHECK_SECONDS)
        copy.prepare()
        _refuse_damaged(partial, source, CHECK_SECONDS)
        with contextlib.closing(sqlite3.connect(partial)) as conn:
            conn.execute("PRAGMA journal_mode=WAL").fetchall()
        aside = _set_aside(vault, now) if os.path.lexists(vault) else None
        os.replace(partial, vault)
    except DAMAGED as error:
        raise DatabaseDamagedError("this file is not a valid backup", file=source, found=in_words(error)) from error
    except OSError as error:
        raise StorageError("the backup cannot be restored", file=vault, found=str(error)) from error
    finally:
        remove_database(partial)
    return aside


def _copy(source: sqlite3.Connection, partial: Path) -> None:
    os.close(new_private_file(partial))
    with contextlib.closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
        # A single complete file, without a separate log.
        copy.execute("PRAGMA journal_mode=DELETE").fetchall()


def _refuse_damaged(copy: Path, original: Path, limit_seconds: float | None = None) -> None:
    with DatabaseFile(copy, VAULT_SCHEMA, limit_seconds=limit_seconds).reading() as db:
        faults = structure_faults(db)
        check = audit.verify(db, header.read(db).id, None)
    if faults or not check.ok:
        raise DatabaseDamagedError(
            "the vault in this file is damaged, so it cannot be used as a backup",
            file=original,
            found="; ".join((*faults, check.reason)).strip("; "),
            advice="use an earlier backup, and keep this file as evidence",
        )


def _set_aside(vault: Path, now: Callable[[], datetime]) -> Path:
    aside = vault.with_name(f"{vault.name}.replaced-{_compact(now())}")
    try:
        # Gets exclusive access to the file, which fails while another process uses it. Closing then folds the log in
        # and makes no other change, so a vault that is set aside stays the same, byte for byte.
        with contextlib.closing(
            sqlite3.connect(
                f"{vault.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
            )
        ) as conn:
            conn.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            conn.execute("BEGIN EXCLUSIVE")
            conn.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StorageBusyError(
                "the vault is in use", file=vault, advice="first stop the other processes that are using the vault"
            ) from error
    except DAMAGED:
        pass  # damaged, which is why it is replaced; it is kept with its side files
    # A log left next to the new vault would be replayed into it.
    for end in SIDECARS:
        with contextlib.suppress(FileNotFoundError):
            os.rename(vault.with_name(vault.name + end), aside.with_name(aside.name + end))
    try:
        # A second name, so that there is a vault at every moment.
        os.link(vault, aside, follow_symlinks=False)
    except FileExistsError:
        raise VaultExistsError(
            "the previous vault cannot be kept, because a file with its new name already exists", file=aside
        ) from None
    except (OSError, NotImplementedError):
        os.rename(vault, aside)
    return aside


def _compact(moment: datetime) -> str:
    return utc_text(moment).replace("-", "").replace(":", "").replace(".", "")
