"""Errors of the storage layer; every class derives from `irwm.IrwmError`, so a page shows them all in the same way."""

from __future__ import annotations

import math

from irwm.errors import IrwmError


class StorageError(IrwmError):
    """A file of this application cannot be used; the subclasses say why."""


class UnsafeHomeError(StorageError):
    """Others could read or replace the application's folder or a file in it."""


class StorageBusyError(StorageError):
    """Another process kept the database in use for longer than the time limit; no change was written."""


class StorageFullError(StorageError):
    """The disk is full; no part of the change was written."""


class DatabaseDamagedError(StorageError):
    """The database's structure is broken, or the file is not this application's."""


class NewerSchemaError(StorageError):
    """The file was written by a newer version of this application; it was not changed."""


class RecordValueError(StorageError, ValueError):
    """A value cannot be stored: wrong type, not plain JSON, or empty although required."""


class RecordNotFoundError(StorageError, LookupError):
    """No record has this identifier."""


class VaultError(StorageError):
    """Base of the errors about the vault."""


class VaultMissingError(VaultError):
    """There is no vault in this folder yet."""


class VaultExistsError(VaultError):
    """A vault, a backup or an archive exists already; files are never overwritten."""


class VaultLockedError(VaultError):
    """The vault is locked, or locked itself after a period without use."""


class VaultChangedError(VaultError):
    """The vault was replaced or its passphrase changed after it was unlocked; no change was written."""


class JobSealedError(VaultError):
    """The text of a job cannot be read here: the vault is locked, or the job was sealed for another vault."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"the content of job {id} is sealed",
            advice="unlock the vault; jobs from a vault that has since been replaced remain sealed",
        )


class PassphraseError(VaultError, ValueError):
    """A text that cannot be a passphrase: empty, too long, or not valid Unicode."""


class WrongPassphraseError(VaultError):
    """The passphrase does not open the vault.

    The message is the same for every cause, so that it does not help an attacker who guesses.
    """

    def __init__(self) -> None:
        super().__init__(
            "this passphrase does not open the vault",
            advice="check upper and lower case and the keyboard layout, then try again; if you are sure that the "
            "passphrase is right, restore a backup, because the vault's header may be damaged",
        )


class TooManyTriesError(VaultError):
    """A passphrase was not checked: its caller has to wait, or too many others are waiting.

    Attributes:
        seconds: how long to wait.
    """

    def __init__(self, seconds: float, problem: str = "too many wrong passphrases were entered") -> None:
        self.seconds = seconds
        left = max(1, math.ceil(seconds))
        wait = "1 second" if left == 1 else f"{left} seconds"
        super().__init__(problem, advice=f"try again in {wait}")


class CostError(VaultError, ValueError):
    """A key-derivation cost outside the accepted range; refused before any work is done."""


class DamagedRecordError(VaultError):
    """One record does not authenticate: changed, exchanged with another, or moved from another vault.

    Attributes:
        table, record: which one it is; all others stay readable.
    """

    def __init__(self, table: str, record: str) -> None:
        self.table = table
        self.record = record
        super().__init__(
            f"record {record} in {table} was changed after it was written, so it is not used",
            advice="the other records remain readable; restore a backup to recover this record",
        )


class AuditBrokenError(VaultError):
    """The audit log was altered, so no more entries are written: they could cover the traces."""


class IdentityLostError(VaultError):
    """The vault's signing identity is damaged or gone; a new one can be made, which starts a new chain."""
