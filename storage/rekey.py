"""Seals everything in the vault again under a new data key, at a change of passphrase.

Anyone who knew the old passphrase and kept an old copy of the file can derive the old data key. Under a new key, they
cannot open values that are sealed later, no matter how they combine old and new parts of the file.

A record's content, identifier, number and time, and every hash in the audit log stay the same. It happens in the
caller's transaction, with one record in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlite_utils

from storage import audit, header
from storage.encryption import Sealer
from storage.errors import DamagedRecordError
from storage.records import RecordName, open_part, place
from storage.schema import RECORD_TABLES

# Called with the records and entries done so far, and their total.
Progress = Callable[[int, int], None]
# Records between two calls; about 0.05 s.
STEP = 500


@dataclass(frozen=True, slots=True)
class Resealed:
    """Counts and faults of the sealing.

    Attributes:
        records: how many records.
        damaged: records of which a part did not open; that part stays unchanged, and damaged.
        entries: entries of the audit log whose details did not open, by number; they stay unchanged.
    """

    records: int
    damaged: tuple[RecordName, ...]
    entries: tuple[int, ...]


def seal_again(
    db: sqlite_utils.Database, old: Sealer, new: Sealer, head: header.Header, progress: Progress | None = None
) -> Resealed:
    """Seals every record and every entry of the log under another key, and writes the header that holds that key.

    Raises:
        AuditBrokenError: the log's end or the present header does not authenticate under the old key.
    """
    audit.state(db).require(old)
    sizes = {table: _count(db, table) for table in (*RECORD_TABLES, audit.TABLE)}
    tick = _Ticks(sum(sizes.values()), progress)
    damaged: list[RecordName] = []
    for table in RECORD_TABLES:
        for (sequence,) in db.execute(f"SELECT seq FROM {table} ORDER BY seq").fetchall():
            damaged += _record(db, table, sequence, old, new)
            tick()
    header.replace(db, head)
    entries = audit.seal_again(db, old, new, tick)
    records = sum(sizes[table] for table in RECORD_TABLES) - len(damaged)
    return Resealed(records, tuple(damaged), tuple(entries))


def _record(db: sqlite_utils.Database, table: str, sequence: int, old: Sealer, new: Sealer) -> list[RecordName]:
    """Seals one record again; returns its name if a part of it does not open."""
    (row,) = db.query(f"SELECT * FROM {table} WHERE seq = ?", [sequence])
    sealed = {}
    for part in ("meta", "body"):
        try:
            sealed[part] = new.seal(open_part(old, table, row, part), place(table, row, part))
        except DamagedRecordError:
            continue
    if sealed:
        columns = ", ".join(f"{part} = ?" for part in sealed)
        db.execute(f"UPDATE {table} SET {columns} WHERE seq = ?", [*sealed.values(), sequence])
    return [] if len(sealed) == 2 else [RecordName(table, str(row["id"]))]


def _count(db: sqlite_utils.Database, table: str) -> int:
    return int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


class _Ticks:
    """Counts progress and reports it at intervals."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self) -> None:
        self._done += 1
        if self._progress is not None and (self._done % STEP == 0 or self._done == self._total):
            self._progress(self._done, self._total)
