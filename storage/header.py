"""The vault's one plain row: its identifier, when it was made, and the data key wrapped under the passphrase."""

from __future__ import annotations

from dataclasses import dataclass

import sqlite_utils

from storage.encryption import Cost, WrappedKey
from storage.errors import DatabaseDamagedError


@dataclass(frozen=True, slots=True)
class Header:
    """What is needed to try a passphrase; none of it is secret."""

    id: str
    created: str
    wrapped: WrappedKey


def insert(db: sqlite_utils.Database, header: Header) -> None:
    """Writes the header of a new vault."""
    db.table("vault").insert({"one": 1, "id": header.id, "created": header.created, **_columns(header.wrapped)})


def replace_wrapped(db: sqlite_utils.Database, wrapped: WrappedKey) -> None:
    """Exchanges the wrapped data key, after a change of passphrase."""
    db.table("vault").update(1, _columns(wrapped))


def read(db: sqlite_utils.Database) -> Header:
    """The header.

    Raises:
        DatabaseDamagedError: it is missing, or its values are not of their types.
        CostError: the cost is beyond the cap; nothing has been spent on it.
    """
    rows = list(db.query("SELECT * FROM vault WHERE one = 1"))
    row = rows[0] if rows else {}
    texts = (row.get("id"), row.get("created"))
    blobs = (row.get("salt"), row.get("wrapped_key"))
    if not all(type(text) is str for text in texts) or not all(type(blob) is bytes for blob in blobs):
        raise DatabaseDamagedError("the vault's header is damaged", advice="restore a backup")
    cost = Cost(row["memory_kib"], row["passes"], row["lanes"])
    return Header(row["id"], row["created"], WrappedKey(cost, row["salt"], row["wrapped_key"]))


def _columns(wrapped: WrappedKey) -> dict[str, int | bytes]:
    return {
        "memory_kib": wrapped.cost.memory_kib,
        "passes": wrapped.cost.passes,
        "lanes": wrapped.cost.lanes,
        "salt": wrapped.salt,
        "wrapped_key": wrapped.sealed,
    }
