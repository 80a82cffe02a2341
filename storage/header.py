"""The vault's one plain row: its identifier, when it was made, and the data key wrapped under the passphrase.

Anyone who can write to the file can replace this row. So its digest is part of the state that the audit log's end
authenticates (`storage.audit`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import sqlite_utils

from storage.canonical import json_bytes
from storage.encryption import Cost, WrappedKey
from storage.errors import CostError, DatabaseDamagedError


@dataclass(frozen=True, slots=True)
class Header:
    """The values needed to try a passphrase; none of them is secret.

    Attributes:
        id: the vault's identifier.
        created: UTC, ISO 8601.
        key_id: identifier of the data key (`Sealer.key_id`); a change of passphrase changes it.
        wrapped: the data key, sealed under the passphrase.
    """

    id: str
    created: str
    key_id: str
    wrapped: WrappedKey

    def digest(self) -> str:
        """SHA-256, hex, over everything in it."""
        plain = {name: value.hex() if isinstance(value, bytes) else value for name, value in _columns(self).items()}
        return hashlib.sha256(json_bytes(plain)).hexdigest()


def insert(db: sqlite_utils.Database, header: Header) -> None:
    """Writes the header of a new vault."""
    db.table("vault").insert({"one": 1, **_columns(header)})


def replace(db: sqlite_utils.Database, header: Header) -> None:
    """Replaces the header, at a change of passphrase."""
    db.table("vault").update(1, _columns(header))


def read(db: sqlite_utils.Database) -> Header:
    """The header.

    Raises:
        DatabaseDamagedError: it is missing, or its values have wrong types.
        CostError: the cost is beyond the limit; no derivation was started.
    """
    rows = list(db.query("SELECT * FROM vault WHERE one = 1"))
    row = rows[0] if rows else {}
    texts = (row.get("id"), row.get("created"), row.get("key_id"))
    blobs = (row.get("salt"), row.get("wrapped_key"))
    if not all(type(text) is str for text in texts) or not all(type(blob) is bytes for blob in blobs):
        raise DatabaseDamagedError("the vault's header is damaged", advice="restore a backup")
    cost = Cost(row["memory_kib"], row["passes"], row["lanes"])
    return Header(row["id"], row["created"], row["key_id"], WrappedKey(cost, row["salt"], row["wrapped_key"]))


def digest(db: sqlite_utils.Database) -> str:
    """The digest of the header in the file; "" if the row cannot be a header."""
    try:
        return read(db).digest()
    except (DatabaseDamagedError, CostError):
        return ""


def _columns(header: Header) -> dict[str, str | int | bytes]:
    return {
        "id": header.id,
        "created": header.created,
        "key_id": header.key_id,
        "memory_kib": header.wrapped.cost.memory_kib,
        "passes": header.wrapped.cost.passes,
        "lanes": header.wrapped.cost.lanes,
        "salt": header.wrapped.salt,
        "wrapped_key": header.wrapped.sealed,
    }
