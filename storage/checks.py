"""A look at everything in an unlocked vault: every record opened, and all of them held against the audit log.

SQLite's own check passes a flipped byte in a record, and authenticated encryption passes a record that is simply gone.
The audit log knows which records there must be, and the digest of each, also of those that came many at once.
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
    """What a check found.

    Attributes:
        records: how many records opened.
        damaged: records that do not authenticate, or are not those that the audit log saw added.
        missing: records that the audit log saw added and that are gone.
        unlogged: sound records of which the audit log knows nothing, as after its end was cut off.
        structure: what SQLite's own check says is wrong with the file.
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
        """Nothing is wrong."""
        named = (*self.damaged, *self.missing, *self.unlogged)
        return not named and not self.structure and self.audit.ok


def structure_faults(db: sqlite_utils.Database) -> tuple[str, ...]:
    """What SQLite finds wrong with the file's pages and indexes."""
    # Some faults are an exception, others an answer; both mean the same here.
    answers = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)").fetchall()]
    return tuple(answer for answer in answers if answer != "ok")


def check_records(db: sqlite_utils.Database, sealer: Sealer) -> VaultCheck:
    """Checks everything, in one state of the database."""
    structure = structure_faults(db)
    digests: dict[RecordName, str] = {}
    # Dictionaries as ordered sets: a list of a hundred thousand damaged ones could not be searched.
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
