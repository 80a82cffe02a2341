from __future__ import annotations

import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlite_utils
from sqlite_utils import Migrations

from storage import DatabaseDamagedError, NewerSchemaError, StorageError, StorageFullError, Vault
from storage.database import DatabaseFile, Schema
from storage.schema import VAULT_SCHEMA
from tests.storage.conftest import Spawn, Sql, add_key, unlocked


def first(db: sqlite_utils.Database) -> None:
    db.table("notes").create({"id": int, "text": str}, pk="id")


def schema(version: int = 1, *more: Callable[[sqlite_utils.Database], None]) -> Schema:
    migrations = Migrations("test")
    for number, function in enumerate((first, *more), start=1):
        migrations(name=str(number))(function)
    return Schema("notebook", 0x54455354, version, migrations, "throw it away")


@pytest.fixture
def file(tmp_path: Path) -> DatabaseFile:
    made = DatabaseFile(tmp_path / "notes.sqlite3", schema())
    made.create()
    return made


def count(file: DatabaseFile) -> int:
    with file.reading() as db:
        return db.table("notes").count


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_are_private_from_their_first_byte(tmp_path: Path) -> None:
    before = os.umask(0)
    seen: set[int] = set()

    def look(db: sqlite_utils.Database) -> None:
        db.table("notes").insert({"text": "a"})
        seen.update(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir())
        assert len(names(tmp_path)) == 3, "database, log and index"

    try:
        made = DatabaseFile(tmp_path / "notes.sqlite3", schema())
        made.create(look)
        with made.writing():
            seen.update(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir())
            assert names(tmp_path) == ["notes.sqlite3", "notes.sqlite3-shm", "notes.sqlite3-wal"]
    finally:
        os.umask(before)
    assert seen == {0o600}
    assert names(tmp_path) == ["notes.sqlite3"]


def test_connections_are_set_for_safety(file: DatabaseFile) -> None:
    with file.writing() as db:
        pragmas = ("journal_mode", "foreign_keys", "trusted_schema", "secure_delete", "synchronous", "busy_timeout")
        found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas}
    assert found == {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "trusted_schema": 0,
        "secure_delete": 1,
        "synchronous": 2,
        "busy_timeout": 10_000,
    }


@pytest.mark.parametrize("name", ["what?mode=memory", "a#b", "100%25", "süß 語", "x" * 200])
def test_any_file_name_is_taken_literally(tmp_path: Path, name: str) -> None:
    made = DatabaseFile(tmp_path / name, schema())
    made.create()
    made.prepare()
    assert count(made) == 0
    assert names(tmp_path) == [name]


def test_creation_never_overwrites(file: DatabaseFile, tmp_path: Path) -> None:
    before = file.path.read_bytes()
    with pytest.raises(FileExistsError):
        file.create()
    assert file.path.read_bytes() == before
    assert names(tmp_path) == ["notes.sqlite3"]


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(_: sqlite_utils.Database) -> None:
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError):
        DatabaseFile(tmp_path / "notes.sqlite3", schema()).create(fail)
    assert names(tmp_path) == []


def test_a_missing_file_is_an_error_and_not_a_new_one(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        DatabaseFile(tmp_path / "absent.sqlite3", schema()).prepare()
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"short", bytes(4096), b"<html>" * 2000, None])
def test_a_file_that_is_not_ours_is_refused_untouched(tmp_path: Path, content: bytes | None) -> None:
    """None means the database of another program."""
    path = tmp_path / "notes.sqlite3"
    if content is None:
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute("CREATE TABLE history (url)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(DatabaseDamagedError):
        DatabaseFile(path, schema()).prepare()
    assert path.read_bytes() == before


@pytest.mark.fault(53)
def test_a_newer_schema_is_refused_without_a_write(vault: Vault, sql: Sql) -> None:
    sql("PRAGMA user_version = 99")
    path = vault.home / "vault.sqlite3"
    before, changed = path.read_bytes(), path.stat().st_mtime_ns
    for use in (lambda: Vault.open(vault.home), vault.cases, lambda: vault.add_case("a title")):
        with pytest.raises(NewerSchemaError):
            use()
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == changed


def test_older_schema_is_migrated_with_its_rows(file: DatabaseFile) -> None:
    with file.writing() as db:
        db.table("notes").insert({"text": "kept"})
    newer = replace(file, schema=schema(2, lambda db: db.table("notes").add_column("colour", str)))
    newer.prepare()
    newer.prepare()
    with newer.reading() as db:
        assert list(db.table("notes").rows) == [{"id": 1, "text": "kept", "colour": None}]
        assert [row["name"] for row in db.table("_sqlite_migrations").rows] == ["1", "2"]
    with pytest.raises(NewerSchemaError), file.reading():
        pass


def test_a_migration_that_fails_leaves_everything_as_it_was(file: DatabaseFile) -> None:
    def fail(db: sqlite_utils.Database) -> None:
        db.table("notes").drop()
        raise RuntimeError("midway")

    def colour(db: sqlite_utils.Database) -> None:
        db.table("notes").add_column("colour", str)

    with pytest.raises(RuntimeError):
        replace(file, schema=schema(3, colour, fail)).prepare()
    file.prepare()
    with file.reading() as db:
        assert [column.name for column in db.table("notes").columns] == ["id", "text"]
        assert db.table("_sqlite_migrations").count == 1


def overtake(monkeypatch: pytest.MonkeyPatch, other: DatabaseFile) -> None:
    """Lets another process prepare the file between the next check of its version and the write lock."""
    look = DatabaseFile._version

    def overtaken(self: DatabaseFile, db: sqlite_utils.Database) -> int:
        version = look(self, db)
        monkeypatch.setattr(DatabaseFile, "_version", look)
        other.prepare()
        return version

    monkeypatch.setattr(DatabaseFile, "_version", overtaken)


def test_migration_by_faster_process_is_not_run_twice(file: DatabaseFile, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def second(db: sqlite_utils.Database) -> None:
        # In memory too, to know its definitions.
        runs.extend([1] if db.execute("PRAGMA database_list").fetchone()[2] else [])
        db.table("more").create({"id": int})

    newer = replace(file, schema=schema(2, second))
    overtake(monkeypatch, newer)
    newer.prepare()
    assert runs == [1]


def test_faster_newer_version_is_not_downgraded(file: DatabaseFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(db: sqlite_utils.Database) -> None:
        db.table("more").create({"id": int})

    def third(db: sqlite_utils.Database) -> None:
        db.table("most").create({"id": int})

    newest = replace(file, schema=schema(3, second, third))
    overtake(monkeypatch, newest)
    with pytest.raises(NewerSchemaError):
        replace(file, schema=schema(2, second)).prepare()
    newest.prepare()
    with newest.reading() as db:
        assert {"more", "most"} <= set(db.table_names())


def test_reading_cannot_write(file: DatabaseFile) -> None:
    with pytest.raises(StorageError), file.reading() as db:
        db.table("notes").insert({"text": "a"})
    assert count(file) == 0


def test_a_reader_sees_one_state(file: DatabaseFile) -> None:
    with file.reading() as db:
        assert db.table("notes").count == 0
        with file.writing() as writer:
            writer.table("notes").insert({"text": "a"})
        assert db.table("notes").count == 0
    assert count(file) == 1


def test_full_disk_is_reported_and_old_state_kept(file: DatabaseFile) -> None:
    def write_much() -> None:
        with file.writing() as db:
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {pages + 3}")
            db.table("notes").insert_all({"text": "x" * 4000} for _ in range(100))

    with pytest.raises(StorageFullError):
        write_much()
    assert count(file) == 0


MIGRATES_SLOWLY = """
from storage.database import DatabaseFile
from storage.schema import VAULT_SCHEMA
from dataclasses import replace
@VAULT_SCHEMA.migrations(name="3 slow")
def third(db):
    db.execute("PRAGMA cache_size = 1")
    db.table("extra").create({"text": str})
    print("began", flush=True)
    while True:
        db.table("extra").insert_all({"text": "x" * 4000} for _ in range(20))
        db.execute("DELETE FROM keys")
        print("written", flush=True)
DatabaseFile(home / "vault.sqlite3", replace(VAULT_SCHEMA, version=VAULT_SCHEMA.version + 1)).prepare()
"""


@pytest.mark.fault(53)
def test_migration_killed_from_outside_is_rolled_back(vault: Vault, spawn: Spawn, sql: Sql) -> None:
    key = add_key(vault)
    for rounds in (0, 1, 30):
        child = spawn(MIGRATES_SLOWLY)
        assert child.stdout is not None
        assert child.stdout.readline() == "began\n"
        for _ in range(rounds):
            assert child.stdout.readline() == "written\n"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        again = unlocked(vault.home)
        assert sql("PRAGMA user_version")[0][0] == VAULT_SCHEMA.version
        assert again.keys() == [key]
        assert again.check().ok
