"""Any change of a record outside the application is detected and named."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import Cost, DamagedRecordError, DatabaseDamagedError, KeyRecord, RecordName, Vault, VaultChangedError
from storage.backup import LONGEST_VALUE, back_up, inspect, restore
from storage.canonical import json_bytes
from storage.records import open_meta, place
from storage.schema import RECORD_TABLES

Add = Callable[..., KeyRecord]
Sql = Callable[..., list[Any]]


@pytest.mark.fault(49)
@pytest.mark.parametrize("column", ["meta", "body"])
@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_a_flipped_byte_is_named_and_the_others_stay_readable(
    vault: Vault, add: Add, flip: Callable[..., None], reopened: Callable[[], Vault], column: str, at: int
) -> None:
    a, b, c = (add(vault, name) for name in "abc")
    flip("keys", column, "id", b.id, at)
    again = reopened()
    assert again.check().damaged == (RecordName("keys", b.id),)
    assert again.key_bytes(a.id) == b"SECRET-KEY-a"
    assert again.key_bytes(c.id) == b"SECRET-KEY-c"
    if column == "meta":
        assert again.keys() == [a, c]
        assert again.keys().damaged == again.keys_for("ab" * 32).damaged == (RecordName("keys", b.id),)
    else:
        assert again.keys() == [a, b, c]
        with pytest.raises(DamagedRecordError, match=b.id) as caught:
            again.key_bytes(b.id)
        assert (caught.value.table, caught.value.record) == ("keys", b.id)


def identifiers(sql: Sql, table: str) -> list[str]:
    return [row[0] for row in sql(f"SELECT id FROM {table} ORDER BY seq")]


@pytest.mark.fault(49)
@pytest.mark.parametrize("table", RECORD_TABLES)
def test_change_in_every_table_is_named(filled: Vault, sql: Sql, flip: Callable[..., None], table: str) -> None:
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
def test_exchanged_records_are_noticed(vault: Vault, add: Add, sql: Sql, clock: Any, columns: list[str]) -> None:
    vault._now = clock.now
    a = add(vault, "a")
    clock.later(seconds=1)
    b = add(vault, "b")
    rows = {row[0]: row[1:] for row in sql(f"SELECT seq, {', '.join(columns)} FROM keys")}
    if columns == ["id"]:
        sql("UPDATE keys SET id = 'aside' WHERE seq = 1")
    for target, source in ((2, 1), (1, 2)):
        assignment = ", ".join(f"{column} = ?" for column in columns)
        sql(f"UPDATE keys SET {assignment} WHERE seq = {target}", *rows[source])
    assert set(vault.check().damaged) == {RecordName("keys", a.id), RecordName("keys", b.id)}


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("meta = body", None),
        ("body = meta", None),
        ("created = '1999-01-01T00:00:00.000Z'", None),
        ("version = 1", None),
        ("seq = 77", None),
        ("id = ?", "0123456789abcdef"),
        ("id = NULL", None),
        ("id = x'00ff'", None),
        ("created = NULL", None),
        ("version = 'one'", None),
        ("meta = 'text', body = NULL", None),
        ("meta = x''", None),
    ],
)
def test_any_edited_column_is_noticed(vault: Vault, add: Add, sql: Sql, change: str, value: Any) -> None:
    sound = add(vault, "sound")
    edited = add(vault, "edited")
    sql(f"UPDATE keys SET {change} WHERE id = '{edited.id}'", *([value] if value else []))
    check = vault.check()
    assert not check.ok
    assert len(check.damaged) == 1
    assert check.records == 1
    assert vault.key_bytes(sound.id) == b"SECRET-KEY-sound"


def test_largest_sequence_number_stops_writing(vault: Vault, add: Add, sql: Sql) -> None:
    add(vault)
    sql("UPDATE keys SET seq = ?", 2**63 - 1)
    with pytest.raises(DatabaseDamagedError, match="sequence number"):
        add(vault)


def test_a_record_from_another_vault_is_noticed(
    vault: Vault, add: Add, sql: Sql, tmp_path: Path, passphrase: str, cheap: Cost
) -> None:
    mine = add(vault, "mine")
    foreign = Vault.create(tmp_path / "foreign", passphrase, cheap)
    theirs = add(foreign, "theirs")
    with foreign._file.reading() as db:
        row = next(iter(db.query("SELECT * FROM keys")))
    sql("INSERT INTO keys VALUES (2, ?, ?, ?, ?, ?)", *(row[c] for c in ("id", "version", "created", "meta", "body")))
    assert vault.keys() == [mine]
    assert vault.keys().damaged == (RecordName("keys", theirs.id),)


def test_a_removed_record_is_named(vault: Vault, add: Add, sql: Sql) -> None:
    gone, kept = add(vault, "gone"), add(vault, "kept")
    sql("DELETE FROM keys WHERE id = ?", gone.id)
    check = vault.check()
    assert vault.keys() == [kept]
    assert check.missing == (RecordName("keys", gone.id),)
    assert not check.ok


def test_another_seal_of_the_same_record_is_noticed(vault: Vault, add: Add) -> None:
    """Only an attacker with the key could make one; the audit log still has the digest of the first."""
    key = add(vault)
    with vault._file.writing() as db:
        row = next(iter(db.query("SELECT * FROM keys")))
        meta = open_meta(vault._use(), "keys", row) | {"owner": "someone else"}
        forged = vault._use().seal(json_bytes(meta), place("keys", row, "meta"))
        db.table("keys").update(1, {"meta": forged})
    assert vault.keys()[0].owner == "someone else"
    assert vault.check().damaged == (RecordName("keys", key.id),)


def test_replaced_vault_is_not_written_to(
    vault: Vault, home: Path, tmp_path: Path, passphrase: str, cheap: Cost
) -> None:
    other = Vault.create(tmp_path / "other", passphrase, cheap)
    (home / "vault.sqlite3").write_bytes(other.path.read_bytes())
    before = (home / "vault.sqlite3").read_bytes()
    with pytest.raises(VaultChangedError, match="another vault"):
        vault.add_case("for the old one")
    assert (home / "vault.sqlite3").read_bytes() == before
    assert "Another vault was here before" in Vault.open(home).warnings[0]


@pytest.mark.fault(72)
@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON audit BEGIN DELETE FROM keys; END",
        "CREATE VIEW v AS SELECT * FROM keys",
        "CREATE TABLE g (a, b AS (zeroblob(1000)))",
        "CREATE INDEX i ON keys (seq) WHERE seq > 1",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
    ],
)
def test_planted_sql_is_never_run(home: Path, vault: Vault, add: Add, passphrase: str, planted: str) -> None:
    record = add(vault, "a")
    vault.lock()
    with contextlib.closing(sqlite3.connect(vault.path)) as db:
        db.execute(planted)
        db.commit()
    with pytest.raises(DatabaseDamagedError, match="not those of this"):
        Vault.open(home)
    with pytest.raises(DatabaseDamagedError, match="not those of this"):  # nor by a session that had it open before
        vault.unlock(passphrase)
    with contextlib.closing(sqlite3.connect(vault.path)) as db:
        assert db.execute("SELECT count(*) FROM keys WHERE id = ?", [record.id]).fetchone() == (1,)


@pytest.mark.fault(90)
@pytest.mark.parametrize("removed", ["DROP INDEX idx_keys_id", "DROP TABLE labels"])
def test_a_file_that_lacks_a_table_or_an_index_is_refused(
    home: Path, vault: Vault, add: Add, tmp_path: Path, passphrase: str, removed: str
) -> None:
    add(vault, "a")
    copy = tmp_path / "copy.sqlite3"
    back_up(home, copy)
    vault.lock()
    for file in (vault.path, copy):
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.execute(removed)
            db.commit()
    with pytest.raises(DatabaseDamagedError, match="missing: create"):
        Vault.open(home)
    with pytest.raises(DatabaseDamagedError, match="missing: create"):
        inspect(copy, passphrase)


@pytest.mark.fault(72, 90)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id" TEXT', '"id" TEXT UNIQUE ON CONFLICT REPLACE'),
        ('"created" TEXT', "\"created\" TEXT DEFAULT 'same' UNIQUE ON CONFLICT REPLACE"),
        ('"id" TEXT', '"id" TEXT REFERENCES audit ON DELETE CASCADE'),
        ('"version" INTEGER', '"version" INTEGER DEFAULT 1 UNIQUE ON CONFLICT REPLACE'),
    ],
)
def test_column_definition_with_side_effects_is_refused(
    home: Path, vault: Vault, add: Add, passphrase: str, tmp_path: Path, old: str, new: str
) -> None:
    """No bracket, no trigger and no view: the definition of a table itself."""
    add(vault, "a")
    copy = tmp_path / "copy.sqlite3"
    back_up(home, copy)
    vault.lock()
    for file in (vault.path, copy):
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA writable_schema=ON")
            changed = db.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'keys'", [old, new])
            assert changed.rowcount == 1
            db.commit()
        with contextlib.closing(sqlite3.connect(file)) as db:
            assert new in db.execute("SELECT sql FROM sqlite_master WHERE name = 'keys'").fetchone()[0]
    with pytest.raises(DatabaseDamagedError, match="not those of this"):
        Vault.open(home)
    with pytest.raises(DatabaseDamagedError, match="does not belong to this application"):
        inspect(copy, passphrase)


@pytest.mark.fault(72)
def test_long_texts_of_a_backup_are_not_read(home: Path, vault: Vault, passphrase: str, tmp_path: Path) -> None:
    """Python would take four bytes for each of their characters."""
    copy = tmp_path / "copy.sqlite3"
    back_up(home, copy)
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("UPDATE vault SET created = ?", ["\N{GRINNING FACE}" + "x" * (LONGEST_VALUE + 1)])
        db.commit()
    with pytest.raises(DatabaseDamagedError, match="too big"):
        inspect(copy, passphrase)


def test_table_name_that_is_not_text_is_damage(home: Path, vault: Vault, passphrase: str, tmp_path: Path) -> None:
    """SQLite's message quotes the name, and Python fails to read the message."""
    copy = tmp_path / "copy.sqlite3"
    back_up(home, copy)
    vault.lock()
    for file in (vault.path, copy):
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        content = file.read_bytes()
        assert b"tableaudit_state" in content
        content = content.replace(b"tableaudit_state", b"tableaudit\xb8state")
        file.write_bytes(re.sub(rb"CREATE TABLE (.)audit_state", rb"CREATE TABLE \1audit(state", content))
    with pytest.raises(DatabaseDamagedError, match="UTF-8"):
        inspect(copy, passphrase)
    with pytest.raises(DatabaseDamagedError, match="UTF-8"):
        restore(copy, tmp_path / "restored")
    with pytest.raises(DatabaseDamagedError, match="UTF-8"):
        Vault.open(home)
    assert not (tmp_path / "restored" / "vault.sqlite3").exists()
