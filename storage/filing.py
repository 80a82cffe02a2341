"""How each record is added to the vault, with its entry in the audit log, and how a table is read back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlite_utils

from storage import audit
from storage.canonical import json_bytes, utc_text
from storage.encryption import Sealer
from storage.errors import DamagedRecordError
from storage.records import WITH_BODY, RecordName, Records, added, build, open_body, open_meta
from storage.session import VaultSession
from storage.tables import Look, body_of, next_sequence, require, sealed_row


class Filing(VaultSession):
    """A session that can file records; subclasses define the kinds of records."""

    def _add(
        self,
        table: str,
        event: str,
        meta: dict[str, Any],
        body: bytes = b"",
        *,
        refers_to: tuple[str, str] | None = None,
        noted: Mapping[str, Any] | None = None,
    ) -> Any:
        """Adds one record, with its entry in the log.

        Args:
            refers_to: table and identifier of a record that must exist.
            noted: extra fields of the entry besides the record's name and digest.
        """
        plain = json_bytes(meta, "the record")
        with self._writing() as (db, sealer):
            if refers_to is not None:
                require(db, *refers_to)
            row = sealed_row(sealer, table, next_sequence(db, table), utc_text(self._now()), plain, body)
            db.table(table).insert(row)
            audit.append(db, sealer, row["created"], event, {**(noted or {}), **added(table, row["id"], plain, body)})
        # Read back from the bytes that were sealed: the caller's own dictionaries may change later.
        return build(table, row, json.loads(plain), body)

    @contextlib.contextmanager
    def _looking(self) -> Iterator[Look]:
        stamp = self._file.stamp()
        with self._reading() as (db, sealer):
            yield Look(db, sealer, stamp)

    def _all(self, table: str, wanted: Callable[[dict[str, Any]], bool] = lambda meta: True) -> Records[Any]:
        with self._reading() as (db, sealer):
            return read_table(db, sealer, table, wanted)


def read_table(
    db: sqlite_utils.Database,
    sealer: Sealer,
    table: str,
    wanted: Callable[[dict[str, Any]], bool],
    make: Callable[[Mapping[str, Any], dict[str, Any]], Any] | None = None,
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
                body = open_body(sealer, table, body_of(db, table, row)) if table in WITH_BODY else b""
                records.append(build(table, row, meta, body))
        except DamagedRecordError as error:
            damaged.append(RecordName(error.table, error.record))
    return Records(records, damaged)
