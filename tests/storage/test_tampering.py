"""Any change of a record outside the application is detected and named."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from storage import DamagedRecordError, DatabaseDamagedError, RecordName, Vault, VaultChangedError
from storage.backup import LONGEST_VALUE, back_up, inspect, restore
from storage.canonical import json_bytes
from storage.records import open_meta, place
from storage.schema import RECORD_TABLES
from tests.storage.conftest import CHEAP, PASSPHRASE, Flip, Sql, add_key, new_keys, unlocked


@pytest.mark.fault(49)
@pytest.mark.parametrize("column", ["meta", "body"])
@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_a_flipped_byte_is_named_and_the_others_stay_readable(vault: Vault, flip: Flip, column: str, at: int) -> None:
    a, (b, c) = add_key(vault, "a"), vault.add_keys(new_keys(2))
    flip("keys", column, "id", b.id, at)
    again, damaged = unlocked(vault.home), (RecordName("keys", b.id),)
    assert again.check().damaged == damaged
    assert [bytes for _, bytes in again.keys_bytes([a.id, c.id])] == [b"SECRET-KEY-a", b"SECRET-KEY-Recipient 2"]
    if column == "meta":
        assert again.keys() == [a, c]
        assert again.keys().damaged == again.keys_for("ab" * 32).damaged == damaged
    else:
        assert again.keys() == [a, b, c]
        with pytest.raises(DamagedRecordError) as caught:
            again.key_bytes(b.id)
        assert (caught.value.table, caught.value.record) == ("keys", b.id)


def identifiers(sql: Sql, table: str) -> list[str]:
    return [row[0] for row in sql(f"SELECT id FROM {table} ORDER BY seq")]


@pytest.mark.fault(49)
@pytest.mark.parametrize("table", RECORD_TABLES)
def test_change_in_every_table_is_named(filled: Vault, sql: Sql, flip: Flip, table: str) -> None:
    first, second = identifiers(sql, table)
    records = filled.check().records
    for column, id in (("meta", first), ("body", second)):
        flip(table, column, "id", id)
    check = filled.check()
    assert check.damaged == (RecordName(table, first), RecordName(table, second))
    assert (check.records, check.missing) == (records - 2, ())


@pytest.mark.fault(51)
@pytest.mark.parametrize("table", RECORD_TABLES)
def test_removed_or_exchanged_record_in_every_table_is_named(filled: Vault, sql: Sql, table: str) -> None:
    first, second = identifiers(sql, table)
    sql(f"DELETE FROM {table} WHERE id = ?", first)
    assert filled.check().missing == (RecordName(table, first),)
    sql(f"UPDATE {table} SET id = ? WHERE id = ?", first, second)
    check = filled.check()
    assert check.damaged == (RecordName(table, first),)
    assert check.missing == (RecordName(table, second),)


@pytest.mark.fault(51)
def test_a_record_moved_to_another_table_does_not_open(filled: Vault, sql: Sql) -> None:
    sql("DELETE FROM notes")
    sql("INSERT INTO notes SELECT * FROM items")
    assert not filled.case_notes(filled.cases()[0].id)
    assert [name.table for name in filled.check().damaged] == ["notes", "notes"]


@pytest.mark.fault(51)
@pytest.mark.parametrize("columns", [["meta"], ["body"], ["meta", "body"], ["id"], ["created"]])
def test_exchanged_records_are_noticed(vault: Vault, sql: Sql, clock: Any, columns: list[str]) -> None:
    vault._now = clock.now
    a = add_key(vault, "a")
    clock.later(seconds=1)
    (b,) = vault.add_keys(new_keys(1))
    rows = {row[0]: row[1:] for row in sql(f"SELECT seq, {', '.join(columns)} FROM keys")}
    if columns == ["id"]:
        sql("UPDATE keys SET id = 'aside' WHERE seq = 1")
    for target, source in ((2, 1), (1, 2)):
        assignment = ", ".join(f"{column} = ?" for column in columns)
        sql(f"UPDATE keys SET {assignment} WHERE seq = {target}", *rows[source])
    assert set(vault.check().damaged) == {RecordName("keys", a.id), RecordName("keys", b.id)}


@pytest.mark.parametrize(
    "change",
    [
        *("meta = body", "body = meta", "meta = 'text', body = NULL", "meta = x''"),
        *("created = '1999-01-01T00:00:00.000Z'", "created = NULL", "version = 1", "version = 'one'", "seq = 77"),
        *("id = '0123456789abcdef'", "id = NULL", "id = x'00ff'"),
    ],
)
def test_any_edited_column_is_noticed(vault: Vault, sql: Sql, change: str) -> None:
    sound, edited = add_key(vault, "sound"), add_key(vault, "edited")
    sql(f"UPDATE keys SET {change} WHERE id = '{edited.id}'")
    check = vault.check()
    assert not check.ok
    assert (len(check.damaged), check.records) == (1, 1)
    assert vault.key_bytes(sound.id) == b"SECRET-KEY-sound"


def test_largest_sequence_number_stops_writing(vault: Vault, sql: Sql) -> None:
    add_key(vault)
    sql("UPDATE keys SET seq = ?", 2**63 - 1)
    with pytest.raises(DatabaseDamagedError):
        add_key(vault)


def test_a_record_from_another_vault_is_noticed(vault: Vault, sql: Sql, tmp_path: Path) -> None:
    mine = add_key(vault, "mine")
    foreign = Vault.create(tmp_path / "foreign", PASSPHRASE, CHEAP)
    theirs = add_key(foreign, "theirs")
    with foreign._file.reading() as db:
        row = next(iter(db.query("SELECT * FROM keys")))
    sql("INSERT INTO keys VALUES (2, ?, ?, ?, ?, ?)", *(row[c] for c in ("id", "version", "created", "meta", "body")))
    assert vault.keys() == [mine]
    assert vault.keys().damaged == (RecordName("keys", theirs.id),)


@pytest.mark.parametrize("added", ["alone", "with others"])
def test_another_seal_of_the_same_record_is_noticed(vault: Vault, added: str) -> None:
    """Only an attacker with the key could make one; the audit log still has the digest of the first."""
    key = add_key(vault) if added == "alone" else vault.add_keys(new_keys(3))[0]
    with vault._file.writing() as db:
        row = next(iter(db.query("SELECT * FROM keys")))
        meta = open_meta(vault._use(), "keys", row) | {"owner": "someone else"}
        forged = vault._use().seal(json_bytes(meta), place("keys", row, "meta"))
        db.table("keys").update(1, {"meta": forged})
    assert vault.keys()[0].owner == "someone else"
    assert vault.check().damaged == (RecordName("keys", key.id),)


def test_replaced_vault_is_not_written_to(vault: Vault, tmp_path: Path) -> None:
    other = Vault.create(tmp_path / "other", PASSPHRASE, CHEAP)
    (vault.home / "vault.sqlite3").write_bytes(other.path.read_bytes())
    before = (vault.home / "vault.sqlite3").read_bytes()
    with pytest.raises(VaultChangedError):
        vault.add_case("for the old one")
    assert (vault.home / "vault.sqlite3").read_bytes() == before
    assert "Another vault was here before" in Vault.open(vault.home).warnings[0]


BY_HAND = "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = '{}' WHERE name = 'keys'"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS one FROM n"


def redefined(old: str, new: str) -> str:
    """SQL that changes a part of the definition of the table of keys."""
    old, new = (text.replace("'", "''") for text in (old, new))
    changed = f"replace(sql, '{old}', '{new}') WHERE name = 'keys' AND instr(sql, '{old}')"
    return f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = {changed}"


@pytest.mark.fault(72, 90)
@pytest.mark.parametrize(
    "script",
    [
        f"DROP TABLE vault; CREATE VIEW vault AS {ENDLESS}",
        f"DROP TABLE audit; CREATE VIEW audit AS {ENDLESS}",
        f"CREATE VIEW more AS {ENDLESS}",
        "CREATE TRIGGER more AFTER INSERT ON audit BEGIN DELETE FROM keys; END",
        "CREATE TABLE more (a, b AS (zeroblob(1000)))",
        "CREATE TABLE more (a, b GENERATED ALWAYS AS (a LIKE '%a%a%a%a%a%a%b'))",
        "CREATE TABLE more (a CHECK (a LIKE '%a%a%a%a%a%a%b'))",
        "CREATE INDEX more ON keys (seq) WHERE seq > 1",
        "CREATE INDEX more ON audit (time) WHERE time LIKE '%a%a%a%a%a%a%b'",
        "CREATE INDEX more ON audit (lower(time))",
        "CREATE VIRTUAL TABLE more USING fts5(a)",
        ";".join(f"CREATE TABLE more{n} (a)" for n in range(100)),
        BY_HAND.format(f"CREATE VIEW keys AS {ENDLESS}"),
        BY_HAND.format("CREATE VIRTUAL TABLE keys USING dbstat(main)"),
        # No bracket, no trigger and no view: the definition of a table itself.
        redefined('"id" TEXT', '"id" TEXT UNIQUE ON CONFLICT REPLACE'),
        redefined('"created" TEXT', "\"created\" TEXT DEFAULT 'same' UNIQUE ON CONFLICT REPLACE"),
        redefined('"id" TEXT', '"id" TEXT REFERENCES audit ON DELETE CASCADE'),
        redefined('"version" INTEGER', '"version" INTEGER DEFAULT 1 UNIQUE ON CONFLICT REPLACE'),
        "DROP INDEX idx_keys_id",
        "DROP TABLE labels",
    ],
)
def test_foreign_or_missing_definition_is_refused_before_any_query(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """In the vault and in a backup, without a time limit: a query of an endless view would never return."""
    monkeypatch.setattr("storage.backup.LOOK_SECONDS", 1e9)
    monkeypatch.setattr("storage.backup.CHECK_SECONDS", 1e9)
    add_key(vault, "a")
    copy = back_up(vault.home, tmp_path / "copy.sqlite3")
    vault.lock()
    for file in (vault.path, copy):
        before = file.read_bytes()
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.executescript(script)
        assert file.read_bytes() != before
    changed = vault.path.read_bytes()
    for use in (
        lambda: Vault.open(vault.home),
        lambda: vault.unlock(PASSPHRASE),  # a session that had it open before
        lambda: inspect(copy, PASSPHRASE),
        lambda: restore(copy, vault.home),
    ):
        with pytest.raises(DatabaseDamagedError):
            use()
    assert vault.path.read_bytes() == changed


@pytest.mark.fault(72)
def test_long_texts_of_a_backup_are_not_read(vault: Vault, tmp_path: Path) -> None:
    """Python would take four bytes for each of their characters."""
    copy = tmp_path / "copy.sqlite3"
    back_up(vault.home, copy)
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("UPDATE vault SET created = ?", ["\N{GRINNING FACE}" + "x" * (LONGEST_VALUE + 1)])
        db.commit()
    with pytest.raises(DatabaseDamagedError):
        inspect(copy, PASSPHRASE)


def test_table_name_that_is_not_text_is_damage(vault: Vault, tmp_path: Path) -> None:
    """SQLite's message quotes the name, and Python fails to read the message."""
    copy = tmp_path / "copy.sqlite3"
    back_up(vault.home, copy)
    vault.lock()
    for file in (vault.path, copy):
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        content = file.read_bytes()
        assert b"tableaudit_state" in content
        content = content.replace(b"tableaudit_state", b"tableaudit\xb8state")
        file.write_bytes(re.sub(rb"CREATE TABLE (.)audit_state", rb"CREATE TABLE \1audit(state", content))
    for use in (
        lambda: inspect(copy, PASSPHRASE),
        lambda: restore(copy, tmp_path / "restored"),
        lambda: Vault.open(vault.home),
    ):
        with pytest.raises(DatabaseDamagedError):
            use()
    assert not (tmp_path / "restored" / "vault.sqlite3").exists()
