"""One session's view of the vault file: made or opened, unlocked, locked when idle, logged.

What the vault keeps is in `storage.vault`; here is how its file, its passphrase and its audit log behave.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import sqlite_utils

from storage import audit, header, witness
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
    WrongPassphraseError,
)
from storage.files import private_folder, sweep
from storage.paths import VAULT_NAME
from storage.schema import VAULT_SCHEMA
from storage.tries import Tries

# As long as a coffee; a page that someone walked away from does not stay open over lunch.
IDLE_SECONDS = 900.0
# One derivation at a time in this process: each takes the cost's memory, and a hundred guesses from a hundred
# requests shall queue, not fill the machine.
_DERIVING = threading.Lock()


def time_awake_or_asleep() -> float:
    """Seconds that never run backwards and, where the system can tell, count sleep: a closed laptop is idle."""
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
    ) -> None:
        self.home = Path(home)
        self.path = self.home / VAULT_NAME
        self.idle_seconds = idle_seconds
        self._file = DatabaseFile(self.path, VAULT_SCHEMA)
        self._monotonic = monotonic
        self._now = now
        self._guard = threading.Lock()
        self._sealer: Sealer | None = None
        # What was opened and is kept to be looked through again, by table; it goes whenever the sealer goes.
        self._at_hand: dict[str, Any] = {}
        # One thread opens everything and the others wait for it: side by side each would take as long as all together.
        self._opening = threading.Lock()
        self._last_use = 0.0
        self._tries = tries or Tries(monotonic)
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
            cost: what one guess costs; tests pass a cheap one here.
            settings: `idle_seconds`, `monotonic`, `now`, as for `open`.

        Raises:
            VaultExistsError: there is one already; it is untouched.
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
        with _DERIVING:
            wrapped = wrap(data_key, passphrase, name, cost)
        sealer, before = Sealer(data_key, name), witness.read(vault.home)

        def fill(db: sqlite_utils.Database) -> None:
            header.insert(db, header.Header(name, created, wrapped))
            audit.begin(db, sealer)
            # A vault that was deleted and begun anew says so in its first line.
            earlier = asdict(before) if isinstance(before, witness.Witness) else before
            audit.append(db, sealer, created, "vault created", {"vault": name, "stood here before": earlier})

        try:
            vault._file.create(fill)
        except FileExistsError:
            raise _exists(vault.path) from None
        with vault._file.reading() as db:
            vault._remember(name, audit.state(db))
        vault._sealer, vault._last_use = sealer, vault._monotonic()
        return vault

    @classmethod
    def open(cls, home: Path, **settings: Any) -> Self:
        """Opens an existing vault, locked; brings an older schema up to date.

        Args:
            settings: `idle_seconds` until it locks itself, `monotonic` and `now`, the two clocks, and `tries`, the
                wrong passphrases that several who open it count together.

        Raises:
            VaultMissingError, UnsafeHomeError, NewerSchemaError, DatabaseDamagedError, StorageBusyError, StorageError
        """
        vault = cls(home, **settings)
        if not cls.exists(home):
            latest = latest_backup(vault.home)
            advice = f"restore the backup {latest}" if latest else "create one on the Vault page"
            raise VaultMissingError("there is no vault here", file=vault.path, advice=advice)
        sweep(vault.home)
        vault._warnings += vault._file.prepare()
        seen = witness.read(vault.home)
        with vault._file.reading() as db:
            vault._note(witness.mismatch(seen, db, header.read(db).id))
        return vault

    @property
    def id(self) -> str:
        """The vault's random identifier; not secret."""
        with self._file.reading() as db:
            return header.read(db).id

    @property
    def warnings(self) -> tuple[str, ...]:
        """Whatever a person should know about this vault's file, in whole sentences."""
        with self._guard:
            return tuple(self._warnings)

    @property
    def is_unlocked(self) -> bool:
        """Whether records can be read now. Asking does not count as use."""
        return self._peek() is not None

    def unlock(self, passphrase: str) -> None:
        """Opens the records with the passphrase, and writes that to the audit log.

        Where the log cannot be written, the records open all the same and `warnings` says so.

        Raises:
            PassphraseError: it cannot be a passphrase at all.
            WrongPassphraseError: it is not this vault's. Failed tries are counted into the log with the next success.
            TooManyTriesError: several were wrong before, and the wait is not over.
            CostError: the vault asks for an absurd amount of memory or time.
            StorageError: the vault cannot be read.
        """
        passphrase_bytes(passphrase)
        with self._file.reading() as db:
            head = header.read(db)
        with _DERIVING:
            # Asked here, so that of many who wait for each other only the first gets a look.
            self._tries.require()
            try:
                data_key = unwrap(head.wrapped, passphrase, head.id)
            except WrongPassphraseError:
                self._tries.failed()
                raise
        failed = self._tries.succeeded()
        with self._guard:
            self._drop()
            self._sealer, self._last_use = Sealer(data_key, head.id), self._monotonic()
        try:
            self.log("vault unlocked", {"failed tries before": failed.wrong, "tries not looked at": failed.refused})
        except StorageError as error:
            self._note(f"This unlocking could not be written to the audit log. {error}")

    def lock(self) -> None:
        """Drops the keys and whatever was opened with them. What is being read at this moment still finishes."""
        with self._guard:
            self._drop()

    def hand_over(self) -> bytes:
        """The data key, for a task of ours that runs in a process of its own and writes into this vault.

        It belongs into a pipe to that process and nowhere else: not into argv, the environment, a file or a log.

        Raises:
            VaultLockedError: the vault is locked.
        """
        return self._use().data_key

    @classmethod
    def take_over(cls, home: Path, data_key: bytes, **settings: Any) -> Self:
        """The vault, unlocked by what another process handed over; that counts as no unlocking in the audit log.

        Raises:
            VaultChangedError: the key opens another vault than the one that lies here.
            StorageError: see `open`.
        """
        vault = cls.open(home, **settings)
        with vault._file.reading() as db:
            sealer = Sealer(data_key, header.read(db).id)
            if not audit.state(db).fits(sealer):
                raise VaultChangedError(
                    "the vault does not belong to the key that was handed over",
                    file=vault.path,
                    advice="lock and unlock the vault, then start again",
                )
        vault._sealer, vault._last_use = sealer, vault._monotonic()
        return vault

    def change_passphrase(self, old: str, new: str, cost: Cost | None = None) -> None:
        """Wraps the data key under a new passphrase. Backups made before still open with the old one.

        Args:
            cost: the new cost; default the vault's present one.

        Raises:
            PassphraseError, WrongPassphraseError, CostError, StorageError: see `unlock`.
            VaultChangedError: the passphrase was changed elsewhere in the meantime.
        """
        passphrase_bytes(new)
        with self._file.reading() as db:
            head = header.read(db)
        with _DERIVING:
            data_key = unwrap(head.wrapped, old, head.id)
            wrapped = wrap(data_key, new, head.id, cost or head.wrapped.cost)
        with self._writing(Sealer(data_key, head.id)) as (db, sealer):
            if header.read(db).wrapped != head.wrapped:
                raise VaultChangedError("the passphrase was changed elsewhere in the meantime", file=self.path)
            header.replace_wrapped(db, wrapped)
            audit.append(db, sealer, utc_text(self._now()), "passphrase changed", {})

    # Audit log and backup

    def log(self, event: str, details: Mapping[str, Any] | None = None) -> audit.AuditEntry:
        """Adds an entry about something that happened outside the vault, such as the export of a report.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(event=event)
        with self._writing() as (db, sealer):
            return audit.append(db, sealer, utc_text(self._now()), event, details or {})

    @contextlib.contextmanager
    def logged(self, event: str, details: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Adds an entry about what happens inside the `with`, if that succeeds; nobody else can write meanwhile.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(event=event)
        with self._writing() as (db, sealer):
            audit.append(db, sealer, utc_text(self._now()), event, details or {})
            yield

    def audit_log(self) -> list[audit.AuditEntry]:
        """All entries in order of sequence; readable while locked, without their details."""
        sealer = self._peek()
        with self._file.reading() as db:
            return list(audit.entries(db, sealer))

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

    def verify_audit(self, known_head: str | None = None) -> audit.AuditCheck:
        """Checks the whole log; while locked, as far as that goes without the passphrase.

        Args:
            known_head: the head that an earlier report printed; it must occur in the log.
        """
        sealer = self._peek()
        with self._file.reading() as db:
            return audit.verify(db, header.read(db).id, sealer, known_head)

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
                raise VaultLockedError("the vault is locked", advice="unlock it on the Vault page")
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
        self._sealer = None
        self._at_hand = {}

    def _keep(self, sealer: Sealer, name: str, value: Any) -> None:
        """Puts what was opened at hand, unless the vault was locked in the meantime."""
        with self._guard:
            if self._sealer is sealer:
                self._at_hand[name] = value

    def _note(self, warning: str | None) -> None:
        with self._guard:
            if warning and warning not in self._warnings:
                self._warnings.append(warning)

    def _remember(self, vault: str, state: audit.AuditState) -> None:
        try:
            witness.write(self.home, vault, state)
        except OSError as error:
            # The commit stands; failing here would call a saved record lost.
            self._note(f"The vault's witness could not be written: {error}")

    @contextlib.contextmanager
    def _writing(self, sealer: Sealer | None = None) -> Iterator[tuple[sqlite_utils.Database, Sealer]]:
        sealer = sealer or self._use()
        seen = witness.read(self.home)
        with self._file.writing() as db:
            if header.read(db).id != sealer.vault:
                raise VaultChangedError(
                    "another vault was put in this one's place", file=self.path, advice="lock, then unlock that one"
                )
            warning = witness.mismatch(seen, db, sealer.vault)
            if warning:
                # Into the log for good, for after this write the witness agrees again.
                self._note(warning)
                audit.append(db, sealer, utc_text(self._now()), "exchange noticed", {"warning": warning})
            yield db, sealer
            state = audit.state(db)
        self._remember(sealer.vault, state)


def _exists(path: Path) -> VaultExistsError:
    return VaultExistsError(
        "there is a vault here already", file=path, advice="unlock it, or set IRWM_HOME to another folder"
    )
