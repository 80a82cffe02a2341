"""A check of an unlocked vault: opens every record and compares all of them with the audit log.

SQLite's own check accepts a flipped byte in a record, and authenticated encryption does not notice a removed record.
The audit log has the list of records and the digest of each, including records that were added together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlite_utils

from storage import audit
from storage.encryption import Sealer
from storage.errors import DamagedRecordError
from storage.records import RecordName, added_in, build, content_digest, open_part
from storage.schema import RECORD_TABLES


@dataclass(frozen=True, slots=True)
class VaultCheck:
    """Result of a check.

    Attributes:
        records: how many records opened.
        damaged: records that do not authenticate, or differ from those whose addition the audit log recorded.
        missing: records that are gone although the audit log recorded their addition.
        unlogged: sound records that the audit log does not name, for example because its end was cut off.
        structure: faults of the file that SQLite's own check reports.
        audit: the audit log's check.
    """

    records: int
    damaged: tuple[RecordName, ...]
    missing: tuple[RecordName, ...]
    unlogged: tuple[RecordName, ...]
    structure: tuple[str, ...]
    audit: audit.AuditCheck

    @property
    def ok(self) -> bool:
        """No fault was found."""
        named = (*self.damaged, *self.missing, *self.unlogged)
        return not named and not self.structure and self.audit.ok


def structure_faults(db: sqlite_utils.Database) -> tuple[str, ...]:
    """The faults that SQLite finds in the file's pages and indexes."""
    # SQLite reports some faults as an exception, others as an answer; both mean the same here.
    answers = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)").fetchall()]
    return tuple(answer for answer in answers if answer != "ok")


def check_records(db: sqlite_utils.Database, sealer: Sealer) -> VaultCheck:
    """Checks everything, in one state of the database."""
    structure = structure_faults(db)
    digests: dict[RecordName, str] = {}
    # Dictionaries as ordered sets: searching a list of a hundred thousand damaged records would be too slow.
    damaged: dict[RecordName, None] = {}
    for table in RECORD_TABLES:
        for row in db.query(f"SELECT * FROM {table} ORDER BY seq"):
            name = RecordName(table, str(row["id"]))
            try:
                meta, body = (open_part(sealer, table, row, part) for part in ("meta", "body"))
                build(table, row, json.loads(meta), body)
                digests[name] = content_digest(meta, body)
            except DamagedRecordError:
                damaged[name] = None
    missing: list[RecordName] = []
    unlogged = dict.fromkeys(digests)
    for entry in audit.entries(db, sealer):
        for name, digest in added_in(entry.details):
            unlogged.pop(name, None)
            if name in digests and digests[name] != digest:
                damaged[name] = None
            elif name not in digests and name not in damaged:
                missing.append(name)
    return VaultCheck(
        records=len(digests),
        damaged=tuple(damaged),
        missing=tuple(missing),
        unlogged=tuple(unlogged),
        structure=structure,
        audit=audit.verify(db, sealer.vault, sealer),
    )
