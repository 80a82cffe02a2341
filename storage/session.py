"""One session's view of the vault file: created or opened, unlocked, locked when idle, logged.

`storage.vault` has the vault's records; this module handles its file, its passphrase and its audit log.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import sqlite_utils

from storage import audit, header, log_witness, rekey
from storage.backup import back_up, latest_backup
from storage.canonical import required_text, utc_now, utc_text
from storage.database import DatabaseFile
from storage.encryption import DEFAULT_COST, KEY_BYTES, Cost, Sealer, passphrase_bytes, unwrap, wrap
from storage.errors import (
    StorageError,
    VaultChangedError,
    VaultExistsError,
    VaultLockedError,
    VaultMissingError,
)
from storage.files import private_folder, sweep
from storage.paths import VAULT_NAME
from storage.schema import VAULT_SCHEMA
from storage.wrong_passphrases import Tries

# About a coffee break; an abandoned page does not stay unlocked over lunch.
IDLE_SECONDS = 900.0


def time_awake_or_asleep() -> float:
    """Seconds that never run backwards and, if the system can tell, include sleep: a closed laptop is idle."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class VaultSession:
    """The life of a vault in a folder; `storage.vault.Vault` adds the records."""

    def __init__(
        self,
        home: Path,
        *,
        idle_seconds: float = IDLE_SECONDS,
        monotonic: Callable[[], float] = time_awake_or_asleep,
        now: Callable[[], datetime] = utc_now,
        tries: Tries | None = None,
        caller: str = "",
    ) -> None:
        self.home = Path(home)
        self.path = self.home / VAULT_NAME
        self.idle_seconds = idle_seconds
        self._file = DatabaseFile(self.path, VAULT_SCHEMA)
        self._monotonic = monotonic
        self._now = now
        self._guard = threading.Lock()
        self._sealer: Sealer | None = None
        # The key under which this session is sealing everything again; it replaces the present key once the file
        # confirms it.
        self._successor: Sealer | None = None
        # The opened entries for searches, by table; dropped together with the sealer.
        self._at_hand: dict[str, Any] = {}
        # One thread opens everything and the others wait: in parallel, each would take as long as all together.
        self._opening = threading.Lock()
        self._last_use = 0.0
        self._tries = tries or Tries(monotonic)
        self._caller = caller
        self._warnings: list[str] = []

    # Life

    @staticmethod
    def exists(home: Path) -> bool:
        """Whether something has the vault's name in this folder, sound or not."""
        return os.path.lexists(Path(home) / VAULT_NAME)

    @classmethod
    def create(cls, home: Path, passphrase: str, cost: Cost = DEFAULT_COST, **settings: Any) -> Self:
        """Makes a new vault and returns it unlocked.

        Args:
            cost: the cost of one guess; tests pass a cheap one here.
            settings: `idle_seconds`, `monotonic`, `now`, as for `open`.

        Raises:
            VaultExistsError: there is one already; it is not changed.
            PassphraseError: see `storage.encryption.passphrase_bytes`.
            StorageError: the folder cannot be written to.
        """
        vault = cls(home, **settings)
        if cls.exists(home):
            raise _exists(vault.path)
        passphrase_bytes(passphrase)
        private_folder(vault.home)
        sweep(vault.home)
        data_key, name, created = secrets.token_bytes(KEY_BYTES), secrets.token_hex(16), utc_text(vault._now())
        wrapped = wrap(data_key, passphrase, name, cost)
        sealer, before = Sealer(data_key, name), log_witness.read(vault.home)

        def fill(db: sqlite_utils.Database) -> None:
            header.insert(db, header.Header(name, created, sealer.key_id, wrapped))
            audit.begin(db, sealer)
            # After a deleted vault, the first line of the new one says so.
            earlier = before.remembered() if isinstance(before, log_witness.Witness) else before
            audit.append(db, sealer, created, "vault created", {"vault": name, "previous vault": earlier})

        try:
            vault._file.create(fill)
        except FileExistsError:
            raise _exists(vault.path) from None
        with vault._file.reading() as db:
            vault._remember(sealer, audit.state(db))
        vault._sealer, vault._last_use = sealer, vault._monotonic()
        vault._tries.begin(vault._caller)  # the wrong ones were tried on the vault that was here before
        return vault

    @classmethod
    def open(cls, home: Path, **settings: Any) -> Self:
        """Opens an existing vault, locked; brings an older schema up to date.

        Args:
            settings: `idle_seconds` until it locks itself, `monotonic` and `now`, the two clocks, `tries`, the shared
                count of wrong passphrases of all who open it, and `caller`, the name under which this one is counted.

        Raises:
            VaultMissingError, UnsafeHomeError, NewerSchemaError, DatabaseDamagedError, StorageBusyError, StorageError
        """
        vault = cls(home, **settings)
        if not cls.exists(home):
            latest = latest_backup(vault.home)
            advice = f"restore the backup {latest}" if latest else "create a vault on the Vault page"
            raise VaultMissingError("there is no vault here", file=vault.path, advice=advice)
        sweep(vault.home)
        vault._warnings += vault._file.prepare()
        seen = log_witness.read(vault.home)
        with vault._file.reading() as db:
            vault._note_doubt(log_witness.doubt(seen, db, header.read(db)))
        return vault

    @property
    def id(self) -> str:
        """The vault's random identifier; not secret."""
        with self._file.reading() as db:
            return header.read(db).id

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about this vault's file for the user, in whole sentences."""
        with self._guard:
            return tuple(self._warnings)

    @property
    def is_unlocked(self) -> bool:
        """Whether records can be read now. Reading this does not count as use."""
        return self._peek() is not None

    def unlock(self, passphrase: str) -> None:
        """Opens the records with the passphrase, and writes that to the audit log.

        If the log cannot be written, the records open nevertheless and `warnings` says so. There is also a warning if
        the vault's witness file is missing or not authentic.

        Raises:
            PassphraseError: it cannot be a passphrase at all.
            WrongPassphraseError: it is not this vault's. The next success logs the number of failed tries.
            TooManyTriesError: this caller entered several wrong ones and has to wait, or too many others are trying.
            CostError: the vault requires an excessive amount of memory or time.
            DatabaseDamagedError: the passphrase fits the header, but the header does not belong to the records.
            VaultChangedError: the passphrase was changed elsewhere in the meantime.
            StorageError: the vault cannot be read.
        """
        passphrase_bytes(passphrase)
        seen = log_witness.read(self.home)
        with self._file.reading() as db:
            head = header.read(db)
        with self._tries.one(self._caller):
            data_key = unwrap(head.wrapped, passphrase, head.id)
        failed = self._tries.proved(self._caller)
        sealer = Sealer(data_key, head.id)
        with self._file.reading() as db:
            if header.read(db) != head:
                raise _changed(self.path)
            audit.require_header(db, head, sealer, self.path)
            # Here too, because a log that cannot be written cannot record it either.
            self._note_doubt(log_witness.doubt(seen, db, head, sealer))
        with self._guard:
            self._drop()
            self._sealer, self._last_use = sealer, self._monotonic()
        try:
            self.log("vault unlocked", {"failed tries before": failed.wrong, "tries not looked at": failed.refused})
        except StorageError as error:
            self._note(f"The vault was unlocked, but this could not be recorded in the audit log. {error}")

    def lock(self) -> None:
        """Drops the keys and the records opened with them. Reads in progress still finish."""
        with self._guard:
            self._drop()

    def hand_over(self) -> bytes:
        """The data key, for a task process of this application that writes to this vault.

        Pass it through a pipe to that process only: not through argv, the environment, a file or a log.

        Raises:
            VaultLockedError: the vault is locked.
        """
        return self._use().data_key

    @classmethod
    def take_over(cls, home: Path, data_key: bytes, **settings: Any) -> Self:
        """The vault, unlocked with the key from another process; the audit log does not count that as an unlocking.

        Raises:
            VaultChangedError: the key belongs to another vault than the one in this folder.
            StorageError: see `open`.
        """
        vault = cls.open(home, **settings)
        with vault._file.reading() as db:
            sealer = Sealer(data_key, header.read(db).id)
            if not audit.state(db).fits(sealer):
                raise VaultChangedError(
                    "the key that was passed does not belong to this vault",
                    file=vault.path,
                    advice="lock and unlock the vault, then start the job again",
                )
        vault._sealer, vault._last_use = sealer, vault._monotonic()
        return vault

    def change_passphrase(
        self, old: str, new: str, cost: Cost | None = None, progress: rekey.Progress | None = None
    ) -> rekey.Resealed:
        """Seals everything again under a new data key, and wraps that key under the new passphrase: all of it, or none.

        Backups and copies made before still open with the old passphrase only; it does not open values that are sealed
        now or later. This session continues. Every other session, and every task with the old key, gets an error at its
        next use, and has to be unlocked or started again.

        Args:
            cost: the new cost; default the vault's present one.
            progress: called at intervals with the progress and the total, in records and entries of the log.

        Raises:
            PassphraseError, WrongPassphraseError, TooManyTriesError, CostError: see `unlock`.
            VaultChangedError: the passphrase was changed elsewhere in the meantime.
            AuditBrokenError: the log's end or the header was altered.
            StorageFullError: the free space is smaller than the vault.
            StorageError
        """
        passphrase_bytes(new)
        with self._file.reading() as db:
            head = header.read(db)
        with self._tries.one(self._caller):
            before = Sealer(unwrap(head.wrapped, old, head.id), head.id)
        data_key = secrets.token_bytes(KEY_BYTES)
        wrapped = wrap(data_key, new, head.id, cost or head.wrapped.cost)
        after = Sealer(data_key, head.id)
        with self._guard:
            self._successor = after
        try:
            with self._writing(before, after) as (db, _):
                if header.read(db) != head:
                    raise _changed(self.path)
                new_head = replace(head, key_id=after.key_id, wrapped=wrapped)
                done = rekey.seal_again(db, before, after, new_head, progress)
                details = {
                    "records sealed again": done.records,
                    "damaged records": [asdict(name) for name in done.damaged],
                    "damaged entries": list(done.entries),
                }
                audit.append(db, after, utc_text(self._now()), "passphrase changed", details)
        except BaseException:
            with self._guard:
                self._successor = None
            raise
        with self._guard:
            self._succeed(before, after)
        return done

    # Audit log and backup

    def log(self, event: str, details: Mapping[str, object] | None = None) -> audit.AuditEntry:
        """Adds an entry about something that happened outside the vault, such as the export of a report.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(event=event)
        with self._writing() as (db, sealer):
            return audit.append(db, sealer, utc_text(self._now()), event, details or {})

    @contextlib.contextmanager
    def logged(self, event: str, details: Mapping[str, object] | None = None) -> Iterator[None]:
        """Adds an entry about the block inside the `with`, if it succeeds; no one else can write until then.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(event=event)
        with self._writing() as (db, sealer):
            audit.append(db, sealer, utc_text(self._now()), event, details or {})
            yield

    def audit_log(self) -> list[audit.AuditEntry]:
        """All entries in order of sequence; readable while locked, without their details."""
        with self._file.reading() as db:
            return list(audit.entries(db, self._peek_at(db)))

    @property
    def audit_count(self) -> int:
        """How many entries the vault has written."""
        with self._file.reading() as db:
            return audit.state(db).count

    @property
    def audit_head(self) -> str:
        """The last entry's hash, hex, as reports print it."""
        with self._file.reading() as db:
            return audit.state(db).head

    def exported_log(self) -> bytes:
        """The audit log for anyone, without the details of any entry (`irwm.signing.log_lines`)."""
        with self._file.reading() as db:
            return b"".join(audit.exported(db, header.read(db).id))

    def verify_audit(self, known_head: str | None = None) -> audit.AuditCheck:
        """Checks the whole log; while locked, as far as possible without the passphrase.

        Args:
            known_head: the head that an earlier report printed; it must occur in the log.
        """
        with self._file.reading() as db:
            return audit.verify(db, header.read(db).id, self._peek_at(db), known_head)

    def backup(self, target: Path | None = None) -> Path:
        """Copies the vault, sealed as it is, to a new file; see `storage.backup.back_up`."""
        path = back_up(self.home, target, now=self._now)
        if self.is_unlocked:
            self.log("backup made", {"path": str(path)})
        return path

    # Inside

    def _use(self) -> Sealer:
        with self._guard:
            self._lock_when_idle()
            if self._sealer is None:
                raise VaultLockedError("the vault is locked", advice="unlock the vault on the Vault page")
            self._last_use = self._monotonic()
            return self._sealer

    def _peek(self) -> Sealer | None:
        with self._guard:
            self._lock_when_idle()
            return self._sealer

    def _lock_when_idle(self) -> None:
        if self._sealer is not None and self._monotonic() - self._last_use >= self.idle_seconds:
            self._drop()

    def _drop(self) -> None:
        self._sealer = self._successor = None
        self._at_hand = {}

    def _succeed(self, before: Sealer, after: Sealer) -> None:
        """Continues with the new key, if this session was unlocked with the old one and was not locked since."""
        if self._successor is after and self._sealer is not None and self._sealer.key_id == before.key_id:
            self._drop()
            self._sealer = after
        elif self._successor is after:
            self._successor = None

    def _fitting(self, sealer: Sealer, head: header.Header) -> Sealer:
        """The key, if it fits the vault in this folder.

        Raises:
            VaultChangedError: it does not fit; this session is now locked.
        """
        if head.id != sealer.vault:
            raise VaultChangedError(
                "another vault has replaced this one", file=self.path, advice="lock this vault, then unlock the new one"
            )
        if head.key_id == sealer.key_id:
            return sealer
        with self._guard:
            after = self._successor
            if after is not None and after.key_id == head.key_id:
                self._succeed(sealer, after)
            if self._sealer is not None:
                if self._sealer.key_id == head.key_id:
                    return self._sealer
                self._drop()
        raise _changed(self.path)

    def _peek_at(self, db: sqlite_utils.Database) -> Sealer | None:
        """The key if the session is unlocked and it fits; this does not count as use."""
        sealer = self._peek()
        return sealer if sealer is not None and header.read(db).key_id == sealer.key_id else None

    def _keep(self, sealer: Sealer, name: str, value: Any) -> None:
        """Caches opened records, unless the vault was locked in the meantime."""
        with self._guard:
            if self._sealer is sealer:
                self._at_hand[name] = value

    def _note(self, warning: str | None) -> None:
        with self._guard:
            if warning and warning not in self._warnings:
                self._warnings.append(warning)

    def _note_doubt(self, doubt: log_witness.Doubt | None) -> None:
        self._note(None if doubt is None else doubt.warning)

    def _remember(self, sealer: Sealer, state: audit.AuditState, *others: Sealer, doubted: bool = False) -> None:
        seen = log_witness.read(self.home)
        ahead = isinstance(seen, log_witness.Witness) and seen.vault == sealer.vault and seen.count > state.count
        if ahead and not doubted:
            return  # another process committed and wrote it meanwhile
        try:
            log_witness.write(self.home, sealer.vault, state, sealer, *others)
        except OSError as error:
            # The commit is complete; failing here would report a saved record as lost.
            self._note(f"The vault's witness could not be written: {error}")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[tuple[sqlite_utils.Database, Sealer]]:
        sealer = self._use()
        with self._file.reading() as db:
            yield db, self._fitting(sealer, header.read(db))

    @contextlib.contextmanager
    def _writing(
        self, sealer: Sealer | None = None, after: Sealer | None = None
    ) -> Iterator[tuple[sqlite_utils.Database, Sealer]]:
        """A transaction, and the key for it.

        Args:
            sealer: default this session's.
            after: the key that the vault has once the transaction is committed; default the same one.
        """
        sealer = sealer or self._use()
        seen = log_witness.read(self.home)
        with self._file.writing() as db:
            head, began = header.read(db), audit.state(db)
            sealer = self._fitting(sealer, head)
            doubt = log_witness.doubt(seen, db, head, sealer)
            if doubt is not None:
                # Into the log permanently, because after this write the witness agrees again.
                self._note_doubt(doubt)
                audit.append(db, sealer, utc_text(self._now()), doubt.event, {"warning": doubt.warning})
            yield db, sealer
            state = audit.state(db)
            if after is not None and doubt is None:
                # After a kill around the commit, either key authenticates the witness.
                self._remember(sealer, began, after)
        self._remember(after or sealer, state, doubted=doubt is not None)


def _changed(path: Path) -> VaultChangedError:
    return VaultChangedError(
        "the vault has since been sealed with another key: its passphrase was changed elsewhere, or its file was "
        "replaced",
        file=path,
        advice="unlock the vault with its current passphrase",
    )


def _exists(path: Path) -> VaultExistsError:
    return VaultExistsError(
        "there is already a vault here", file=path, advice="unlock this vault, or set IRWM_HOME to another folder"
    )
