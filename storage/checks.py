"""A look at everything in an unlocked vault: every record opened, and all of them held against the audit log.

SQLite's own check passes a flipped byte in a record, and authenticated encryption passes a record that is simply gone.
The audit log knows which records there must be, and the digest of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlite_utils

from storage import audit
from storage.encryption import Sealer
from storage.errors import DamagedRecordError
from storage.records import RecordName, build, open_body, open_meta, sealed_digest
from storage.schema import RECORD_TABLES


@dataclass(frozen=True, slots=True)
class VaultCheck:
    """What a check found.

    Attributes:
        records: how many records opened.
        damaged: records that do not authenticate, or are not those that the audit log saw added.
        missing: records that the audit log saw added and that are gone.
        structure: what SQLite's own check says is wrong with the file.
        audit: the audit log's check.
    """

    records: int
    damaged: tuple[RecordName, ...]
    missing: tuple[RecordName, ...]
    structure: tuple[str, ...]
    audit: audit.AuditCheck

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.damaged and not self.missing and not self.structure and self.audit.ok


def structure_faults(db: sqlite_utils.Database) -> tuple[str, ...]:
    """What SQLite finds wrong with the file's pages and indexes."""
    # Some faults are an exception, others an answer; both mean the same here.
    answers = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)").fetchall()]
    return tuple(answer for answer in answers if answer != "ok")


def check_records(db: sqlite_utils.Database, sealer: Sealer) -> VaultCheck:
    """Checks everything, in one state of the database."""
    structure = structure_faults(db)
    digests: dict[RecordName, str] = {}
    damaged: list[RecordName] = []
    for table in RECORD_TABLES:
        for row in db.query(f"SELECT * FROM {table} ORDER BY seq"):
            name = RecordName(table, str(row["id"]))
            try:
                build(table, row, open_meta(sealer, table, row), open_body(sealer, table, row))
                digests[name] = sealed_digest(row)
            except DamagedRecordError:
                damaged.append(name)
    missing: list[RecordName] = []
    for entry in audit.entries(db, sealer):
        if entry.details is None or not {"table", "id", "sha256"} <= entry.details.keys():
            continue
        name = RecordName(entry.details["table"], entry.details["id"])
        if name not in digests and name not in damaged:
            missing.append(name)
        elif name in digests and digests[name] != entry.details["sha256"]:
            damaged.append(name)
    return VaultCheck(
        records=len(digests),
        damaged=tuple(damaged),
        missing=tuple(missing),
        structure=structure,
        audit=audit.verify(db, sealer.vault, sealer),
    )
