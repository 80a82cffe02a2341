"""A locked vault shows in clear only the data that docs/security.md lists."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from storage import Vault
from storage.schema import RECORD_TABLES
from tests.storage.conftest import PASSPHRASE, ROOT

OF_RECORDS = {"seq", "id", "version", "created"}
IN_CLEAR = {
    "vault": {"one", "id", "created", "key_id", "memory_kib", "passes", "lanes"},
    "audit": {"seq", "version", "time", "event", "details_sha256", "sealed_sha256", "previous", "hash"},
    "audit_state": {"one", "count", "head"},
    "_sqlite_migrations": {"id", "migration_set", "name", "applied_at"},
    **dict.fromkeys(RECORD_TABLES, OF_RECORDS),
}
# Salt, wrapped key and authentication code look random without the passphrase; the rest is sealed.
SEALED = {
    "vault": {"salt", "wrapped_key"},
    "audit": {"details"},
    "audit_state": {"tag"},
    "_sqlite_migrations": set[str](),
    **{table: {"meta", "body"} for table in RECORD_TABLES},
}
EVENTS = re.compile("[a-z -]{1,30}")
HEX, TIME = re.compile("[0-9a-f]{16,64}"), re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)")


def everything(path: Path) -> dict[str, list[dict[str, Any]]]:
    with closing(sqlite3.connect(path)) as conn:
        conn.row_factory = sqlite3.Row
        tables = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [dict(row) for row in conn.execute(f"SELECT * FROM {table}")] for table in tables}


def test_readable_data_is_what_the_docs_list(filled: Vault) -> None:
    filled.sign(b"report")
    filled.change_passphrase(PASSPHRASE, "another four plain words")
    filled.lock()
    found = everything(filled.path)
    assert found.keys() == IN_CLEAR.keys()
    docs = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    _, _, section = docs.partition("### What the locked file shows")
    section = section.partition("###")[0]
    assert section
    for table, rows in found.items():
        assert rows, table
        assert f"`{table}`" in section
        for row in rows:
            assert row.keys() == IN_CLEAR[table] | SEALED[table]
            for name in SEALED[table]:
                assert isinstance(row[name], bytes)
            for name in IN_CLEAR[table]:
                value = row[name]
                if name == "event":
                    assert EVENTS.fullmatch(value)
                elif isinstance(value, str) and name not in ("migration_set", "name"):
                    assert HEX.fullmatch(value) or TIME.fullmatch(value), (table, name, value)
    events = {row["event"] for row in found["audit"]}
    assert {"key added", "case opened", "signature made"} <= events
    for event in ("key added", "case opened", "signature made", "vault unlocked"):
        assert event in re.sub(r"\s+", " ", section)
    for name in IN_CLEAR["vault"] | IN_CLEAR["audit"] | IN_CLEAR["audit_state"] | OF_RECORDS:
        assert name in ("one", "version") or f"`{name}`" in section, name


def test_sealed_part_is_29_bytes_longer_than_content(filled: Vault) -> None:
    keys = filled.keys()
    bodies = dict(filled.keys_bytes([key.id for key in keys]))
    for row in everything(filled.path)["keys"]:
        assert len(row["body"]) == 29 + len(bodies[row["id"]])


def test_witness_content_equals_the_documented_list(filled: Vault) -> None:
    seen = json.loads((filled.home / "vault.witness.json").read_text())
    assert seen.keys() == {"vault", "count", "head", "tags"}
    assert (seen["vault"], seen["count"], seen["head"]) == (filled.id, filled.audit_count, filled.audit_head)
    ((key, tag),) = seen["tags"].items()
    assert HEX.fullmatch(key)
    assert HEX.fullmatch(tag)


def test_equal_details_have_unequal_digests(vault: Vault) -> None:
    first, second = (vault.log("event", {"recipient": "Brightwater"}) for _ in range(2))
    assert first.details_sha256 != second.details_sha256
