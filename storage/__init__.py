"""All data that this application stores: keys, releases, cases, audit log, jobs.

    canonical, files, processes    values to bytes, private files, which process is which
    paths, database                where files are and whether that is safe; SQLite opened, checked, migrated
    encryption, rekey              passphrase to key, records sealed for their place; all of them under a new key
    schema, header                 the vault's tables, its plain row
    records, tables                its values; their rows, sealed and opened
    audit, witness                 the hash chain; a file next to the vault that records the chain's length
    checks, backup                 every record opened and compared with the log; copies made and restored
    index                          the in-memory search index of an unlocked vault for keys and releases
    session, filing                one session's view: unlocking and idle lock; a record filed and logged
    casebook, signing, vault       cases; identities; keys, releases, labels, timestamps, and all of it together
    case_file, case_archive        a case with all that is in it; the same as one file that anyone can check
    job_keys, job_files            the keys that seal the text of jobs; the files in their folders
    job_table, jobs                the list of long tasks, in a separate file

Two SQLite files are in the home folder (`home()`): `vault.sqlite3`, whose records are sealed one by one, and
`jobs.sqlite3`, whose text is sealed with keys that the vault keeps. An attacker with the vault file learns how many
records there are, how large they are, when they were made, and the names of the events in the log; docs/security.md
lists it all. The attacker cannot change a record, the log or the header without detection, but can replace the whole
folder by an older copy. Only the log heads printed in reports reveal that (`Vault.verify_audit(known_head=...)`).

This package imports only `irwm.canonical`, `irwm.signing` and `irwm.errors`. Keys are opaque bytes here,
findings are JSON.
"""

from irwm.errors import SignatureError
from irwm.signing import Signature
from storage.backup import back_up, latest_backup, restore
from storage.encryption import Cost
from storage.errors import (
    AuditBrokenError,
    CostError,
    DamagedRecordError,
    DatabaseDamagedError,
    IdentityLostError,
    NewerSchemaError,
    PassphraseError,
    RecordNotFoundError,
    RecordValueError,
    StorageBusyError,
    StorageError,
    StorageFullError,
    UnsafeHomeError,
    VaultChangedError,
    VaultExistsError,
    VaultLockedError,
    VaultMissingError,
    WrongPassphraseError,
)
from storage.jobs import Jobs
from storage.paths import check_home, home
from storage.records import CaseRecord, FileDigest, KeyRecord, NewKey, RecordName
from storage.vault import Vault

__all__ = [
    "AuditBrokenError",
    "CaseRecord",
    "Cost",
    "CostError",
    "DamagedRecordError",
    "DatabaseDamagedError",
    "FileDigest",
    "IdentityLostError",
    "Jobs",
    "KeyRecord",
    "NewKey",
    "NewerSchemaError",
    "PassphraseError",
    "RecordName",
    "RecordNotFoundError",
    "RecordValueError",
    "Signature",
    "SignatureError",
    "StorageBusyError",
    "StorageError",
    "StorageFullError",
    "UnsafeHomeError",
    "Vault",
    "VaultChangedError",
    "VaultExistsError",
    "VaultLockedError",
    "VaultMissingError",
    "WrongPassphraseError",
    "back_up",
    "check_home",
    "home",
    "latest_backup",
    "restore",
]
