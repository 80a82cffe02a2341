"""Rows of the vault's tables: numbered and sealed before they are written, found and opened later."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import sqlite_utils

from storage.encryption import Sealer
from storage.errors import DamagedRecordError, DatabaseDamagedError, RecordNotFoundError
from storage.index import ReleaseEntry
from storage.records import RecordName, ReleaseRecord, build, open_meta, place
from storage.schema import RELEASES, VAULT_SCHEMA_VERSION

# 64 random bits: short enough to read aloud; the table's index refuses a collision.
RECORD_ID_BYTES = 8


class Look(NamedTuple):
    """One state of the vault, open for reading."""

    db: sqlite_utils.Database
    sealer: Sealer
    stamp: tuple[tuple[int, ...] | None, ...]


def open_releases(look: Look, entries: Sequence[ReleaseEntry]) -> tuple[list[ReleaseRecord], list[RecordName]]:
    """The releases of one page, and those of them that were changed or removed since the search."""
    places = ",".join("?" * len(entries))
    query = f"SELECT seq, id, version, created, meta FROM releases WHERE seq IN ({places})"
    rows = {row["seq"]: row for row in look.db.query(query, [entry.sequence for entry in entries])}
    records, damaged = [], []
    for entry in entries:
        try:
            row = rows[entry.sequence]
            record: ReleaseRecord = build(RELEASES, row, open_meta(look.sealer, RELEASES, row))
            records.append(replace(record, label=entry.label))
        except (KeyError, DamagedRecordError):
            damaged.append(RecordName(RELEASES, entry.id))
    return records, damaged


def body_of(db: sqlite_utils.Database, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its body, which was not read before."""
    ((body,),) = db.execute(f"SELECT body FROM {table} WHERE seq = ?", [row["seq"]]).fetchall()
    return {**row, "body": body}


def new_id() -> str:
    """A record's identifier."""
    return secrets.token_hex(RECORD_ID_BYTES)


def sealed_row(
    sealer: Sealer, table: str, sequence: int, created: str, meta: bytes, body: bytes, id: str | None = None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "seq": sequence,
        "id": id or new_id(),
        "version": VAULT_SCHEMA_VERSION,
        "created": created,
    }
    row["meta"] = sealer.seal(meta, place(table, row, "meta"))
    row["body"] = sealer.seal(body, place(table, row, "body"))
    return row


def require(db: sqlite_utils.Database, table: str, id: str) -> None:
    if not db.execute(f"SELECT 1 FROM {table} WHERE id = ?", [id]).fetchall():
        raise not_found(table, id)


def not_found(table: str, id: str) -> RecordNotFoundError:
    return RecordNotFoundError(f"there is no record {id!r} in {table}")


def next_sequence(db: sqlite_utils.Database, table: str, count: int = 1) -> int:
    """The first of `count` free numbers."""
    (last,) = db.execute(f"SELECT COALESCE(MAX(seq), 0) FROM {table}").fetchall()[0]
    # The largest number SQLite can hold; only an edited file comes near it.
    if not 0 <= last < 2**63 - count:
        raise DatabaseDamagedError(f"a sequence number in {table} was edited", advice="restore a backup")
    return int(last) + 1
