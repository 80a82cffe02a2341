"""Everything in the vault sealed again under a new data key, as a change of passphrase does.

Whoever knew the old passphrase and kept an old copy of the file can work out the old data key. Under a new one nothing
that is sealed from now on opens for them, in whatever way they put old and new parts of the file together.

What a record says, its identifier, number and time, and every hash in the audit log stay as they are. It happens in the
caller's transaction, one record in memory at a time.
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

# Called with records and entries done, and all of them.
Progress = Callable[[int, int], None]
# Records between two calls; about 0.05 s.
STEP = 500


@dataclass(frozen=True, slots=True)
class Resealed:
    """What was sealed again.

    Attributes:
        records: how many records.
        damaged: records of which a part did not open; that part stays as it was, and damaged.
        entries: entries of the audit log whose details did not open, by number; they stay as they were.
    """

    records: int
    damaged: tuple[RecordName, ...]
    entries: tuple[int, ...]


def seal_again(
    db: sqlite_utils.Database, old: Sealer, new: Sealer, head: header.Header, progress: Progress | None = None
) -> Resealed:
    """Seals every record and every entry of the log under another key, and puts the header that holds it in place.

    Raises:
        AuditBrokenError: the log's end, or the header that stands there, does not authenticate under the old key.
    """
    audit.state(db).require(old)
    sizes = {table: _count(db, table) for table in (*RECORD_TABLES, audit.TABLE)}
    tick = _Ticks(sum(sizes.values()), progress)
    damaged: list[RecordName] = []
    for table in RECORD_TABLES:
        for (sequence,) in db.execute(f"SELECT seq FROM {table} ORDER BY seq").fetchall():
            if not _record(db, table, sequence, old, new):
                damaged.append(_name(db, table, sequence))
            tick()
    header.replace(db, head)
    entries = audit.seal_again(db, old, new, tick)
    records = sum(sizes[table] for table in RECORD_TABLES) - len(damaged)
    return Resealed(records, tuple(damaged), tuple(entries))


def _record(db: sqlite_utils.Database, table: str, sequence: int, old: Sealer, new: Sealer) -> bool:
    """Seals one record again; False where a part of it does not open."""
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
    return len(sealed) == 2


def _name(db: sqlite_utils.Database, table: str, sequence: int) -> RecordName:
    ((id,),) = db.execute(f"SELECT id FROM {table} WHERE seq = ?", [sequence]).fetchall()
    return RecordName(table, str(id))


def _count(db: sqlite_utils.Database, table: str) -> int:
    return int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


class _Ticks:
    """Counts what is done, and tells every so often."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self) -> None:
        self._done += 1
        if self._progress is not None and (self._done % STEP == 0 or self._done == self._total):
            self._progress(self._done, self._total)
