"""Rows of the vault's tables: numbered and sealed before they are written, found and opened later."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import sqlite_utils

from storage import audit
from storage.database import Row
from storage.encryption import Sealer
from storage.errors import DamagedRecordError, DatabaseDamagedError, RecordNotFoundError
from storage.records import WITH_BODY, Meta, RecordName, Records, added, build, open_body, open_meta, place
from storage.schema import VAULT_SCHEMA_VERSION

# 64 random bits: short enough to read aloud; the table's index refuses a collision.
RECORD_ID_BYTES = 8


def row_of(db: sqlite_utils.Database, table: str, id: str, part: str) -> Row:
    """A record's row with its plain columns and one sealed part, "meta" or "body".

    Raises:
        RecordNotFoundError
    """
    rows: list[Row] = list(db.query(f"SELECT seq, id, version, created, {part} FROM {table} WHERE id = ?", [id]))
    if not rows:
        raise not_found(table, id)
    return rows[0]


def read_table(
    db: sqlite_utils.Database,
    sealer: Sealer,
    table: str,
    wanted: Callable[[Meta], bool],
    make: Callable[[Row, Meta], Any] | None = None,
) -> Records[Any]:
    """The records of a table whose metadata is wanted, in order; the bodies of the others are not read.

    Args:
        make: makes a value from row and metadata, if the whole record is not needed.
    """
    records, damaged = [], []
    for row in db.query(f"SELECT seq, id, version, created, meta FROM {table} ORDER BY seq"):
        try:
            meta = open_meta(sealer, table, row)
            if not wanted(meta):
                continue
            if make is not None:
                records.append(make(row, meta))
            else:
                body = open_body(sealer, table, _body_of(db, table, row)) if table in WITH_BODY else b""
                records.append(build(table, row, meta, body))
        except DamagedRecordError as error:
            damaged.append(RecordName(error.table, error.record))
    return Records(records, damaged)


def _body_of(db: sqlite_utils.Database, table: str, row: Row) -> Row:
    """The row with its body, which was not read before."""
    ((body,),) = db.execute(f"SELECT body FROM {table} WHERE seq = ?", [row["seq"]]).fetchall()
    return {**row, "body": body}


def new_id() -> str:
    """A record's identifier."""
    return secrets.token_hex(RECORD_ID_BYTES)


def sealed_row(
    sealer: Sealer, table: str, sequence: int, created: str, meta: bytes, body: bytes, id: str | None = None
) -> Row:
    row = {
        "seq": sequence,
        "id": id or new_id(),
        "version": VAULT_SCHEMA_VERSION,
        "created": created,
    }
    row["meta"] = sealer.seal(meta, place(table, row, "meta"))
    row["body"] = sealer.seal(body, place(table, row, "body"))
    return row


def insert_logged(
    db: sqlite_utils.Database,
    sealer: Sealer,
    table: str,
    created: str,
    event: str,
    meta: bytes,
    body: bytes,
    noted: Mapping[str, object],
    id: str | None = None,
) -> Row:
    """Seals and adds one record, with its entry in the log; returns the row.

    Args:
        noted: fields of the entry besides the record's name and digest.
    """
    row = sealed_row(sealer, table, next_sequence(db, table), created, meta, body, id)
    db.table(table).insert(row)
    audit.append(db, sealer, created, event, {**noted, **added(table, row["id"], meta, body)})
    return row


def exists(db: sqlite_utils.Database, table: str, id: str) -> bool:
    return bool(db.execute(f"SELECT 1 FROM {table} WHERE id = ?", [id]).fetchall())


def require(db: sqlite_utils.Database, table: str, id: str) -> None:
    if not exists(db, table, id):
        raise not_found(table, id)


def not_found(table: str, id: str) -> RecordNotFoundError:
    return RecordNotFoundError(f"there is no record {id!r} in {table}")


def next_sequence(db: sqlite_utils.Database, table: str, count: int = 1) -> int:
    """The first of `count` free numbers."""
    (last,) = db.execute(f"SELECT COALESCE(MAX(seq), 0) FROM {table}").fetchall()[0]
    # The largest number SQLite can hold; only an edited file comes near it.
    if not 0 <= last < 2**63 - count:
        raise DatabaseDamagedError(f"a sequence number in {table} was altered", advice="restore a backup")
    return int(last) + 1
