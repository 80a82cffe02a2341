"""What can go wrong in the storage floor; every class hangs under `irwm.IrwmError`, so a page shows it alike."""

from __future__ import annotations

import math

from irwm.errors import IrwmError


class StorageError(IrwmError):
    """A file of this application cannot be used; the subclasses say why."""


class UnsafeHomeError(StorageError):
    """The application's folder, or a file in it, lies or looks so that others could read or replace it."""


class StorageBusyError(StorageError):
    """Another process kept the database in use for longer than we wait; nothing was written."""


class StorageFullError(StorageError):
    """The disk is full; nothing of the change was written."""


class DatabaseDamagedError(StorageError):
    """The database's structure is broken, or the file is not this application's."""


class NewerSchemaError(StorageError):
    """The file was written by a newer version of this application; it was not touched."""


class RecordValueError(StorageError, ValueError):
    """A value cannot be stored: wrong type, not plain JSON, or empty where something is needed."""


class RecordNotFoundError(StorageError, LookupError):
    """No record has this identifier."""


class VaultError(StorageError):
    """Base of the errors about the vault."""


class VaultMissingError(VaultError):
    """There is no vault in this folder yet."""


class VaultExistsError(VaultError):
    """A vault, a backup or an archive stands there already; nothing is ever overwritten."""


class VaultLockedError(VaultError):
    """The vault is locked, or locked itself after a time without use."""


class VaultChangedError(VaultError):
    """The vault was exchanged for another, or its passphrase changed, after it was unlocked; nothing was written."""


class JobSealedError(VaultError):
    """What a job says cannot be read here: the vault is locked, or it is not the vault that the job was sealed for."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"what job {id} says is sealed",
            advice="unlock the vault; a job of a vault that another one has replaced stays sealed",
        )


class PassphraseError(VaultError, ValueError):
    """A text that cannot be a passphrase: empty, too long, or not valid Unicode."""


class WrongPassphraseError(VaultError):
    """The passphrase does not open the vault.

    The message is the same whatever failed, so that it helps nobody who guesses.
    """

    def __init__(self) -> None:
        super().__init__(
            "this passphrase does not open the vault",
            advice="check capital letters and the keyboard's language, then try again; if the passphrase is surely "
            "right, the vault's header may be damaged: restore a backup",
        )


class TooManyTriesError(VaultError):
    """A passphrase was not looked at: its caller has to wait, or too many others are waiting.

    Attributes:
        seconds: how long to wait.
    """

    def __init__(self, seconds: float, problem: str = "too many wrong passphrases were entered") -> None:
        self.seconds = seconds
        left = max(1, math.ceil(seconds))
        wait = "1 second" if left == 1 else f"{left} seconds"
        super().__init__(problem, advice=f"try again in {wait}")


class CostError(VaultError, ValueError):
    """A key-derivation cost outside the accepted range; refused before any of it is spent."""


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
            advice="the other records stay readable; restore a backup to get this one back",
        )


class AuditBrokenError(VaultError):
    """The audit log was altered, so nothing more is written: going on would cover the traces."""


class IdentityLostError(VaultError):
    """The vault's signing identity is damaged or gone; a new one can be made, whose chain starts anew."""
