"""How each record is added to the vault, with its entry in the audit log, and how a table is read back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from storage.canonical import json_bytes, utc_text
from storage.index import Index, Look, refreshed
from storage.records import Meta, Records, build
from storage.session import VaultSession
from storage.tables import insert_logged, read_table, require


class Filing(VaultSession):
    """A session that can file records; subclasses define the kinds of records."""

    def _add(
        self,
        table: str,
        event: str,
        meta: Mapping[str, object],
        body: bytes = b"",
        *,
        refers_to: tuple[str, str] | None = None,
        noted: Mapping[str, object] | None = None,
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
            row = insert_logged(db, sealer, table, utc_text(self._now()), event, plain, body, noted or {})
        # Read back from the bytes that were sealed: the caller's own dictionaries may change later.
        return build(table, row, json.loads(plain), body)

    @contextlib.contextmanager
    def _looking(self) -> Iterator[Look]:
        stamp = self._file.stamp()
        with self._reading() as (db, sealer):
            yield Look(db, sealer, stamp)

    def _index(self, look: Look, table: str) -> Index[Any]:
        """The index of keys, releases or labels, cached while the vault is unlocked."""
        with self._opening:
            index = refreshed(self._at_hand.get(table), table, look)
            self._keep(look.sealer, table, index)
        return index

    def _all(self, table: str, wanted: Callable[[Meta], bool] = lambda meta: True) -> Records[Any]:
        with self._reading() as (db, sealer):
            return read_table(db, sealer, table, wanted)
