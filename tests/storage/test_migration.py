"""A vault that version 1 of the schema wrote, brought up to date; made by that version's code (`vault-version-1`)."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storage import DatabaseDamagedError, RecordName, StorageError, Vault, latest_backup, restore
from storage.schema import RECORD_TABLES, VAULT_SCHEMA_VERSION
from tools.waiting import PATIENCE

WRITTEN_BY_VERSION_1 = Path(__file__).parent / "data" / "vault-version-1.sqlite3"
# As that version printed it.
HEAD = "675b20fb75342f836df951ed44b012cce4bdbee909c02f5a56f0f5265322a922"
WRITTEN_BY_VERSION_2 = WRITTEN_BY_VERSION_1.with_name("vault-version-2.sqlite3")
HEAD_2 = "609ed6bca3ac4f58067cb8056c722013d1b9e8388344c34ed28adbf0cce07661"

Sql = Callable[..., list[Any]]


@pytest.fixture
def old(home: Path) -> Path:
    """The old vault in a home of its own."""
    home.mkdir(mode=0o700)
    path = home / "vault.sqlite3"
    shutil.copy(WRITTEN_BY_VERSION_1, path)
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA journal_mode=WAL").fetchall()
    return path


def tables(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as conn:
        return dict(conn.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%sqlite%'").fetchall())


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as conn:
        return int(conn.execute("PRAGMA user_version").fetchone()[0])


def test_what_version_1_sealed_still_opens(old: Path, home: Path, reopened: Callable[[], Vault]) -> None:
    assert version(old) == 1
    vault = reopened()
    assert version(old) == VAULT_SCHEMA_VERSION == 3
    assert [key.recipient for key in vault.keys()] == ["Brightwater Labs", "Recipient 2", "Recipient 3", "Recipient 4"]
    assert vault.key_bytes(vault.keys()[0].id) == b"SECRET-KEY-one"
    assert [release.path for release in vault.releases()] == ["/releases/copy-1"]
    (case,) = vault.cases()
    (run,) = vault.case_runs(case.id)
    assert (run.finding, run.files) == ({"verdict": "found", "log10_p": -41.5}, {})
    assert vault.runs_of(case.id)[0].id == run.id
    assert vault.run_files(run.id) == {}
    assert vault.warnings == ()
    check = vault.check()
    assert (check.ok, check.records) == (True, 7)
    assert vault.verify_audit(known_head=HEAD).ok


def test_new_records_stand_beside_the_old_ones(old: Path, sql: Sql, reopened: Callable[[], Vault]) -> None:
    vault = reopened()
    (case,) = vault.cases()
    key = vault.keys()[0]
    run = vault.add_run(case.id, {"verdict": "found"}, "again.gguf", "found", files={"report.html": b"<p>"})
    vault.add_item(case.id, "again.gguf", {"again.gguf": (3, "ab" * 32)})
    vault.add_timestamp(key.id, b"commitment", b"request", b"response", "2026-03-01T12:00:00Z", "An authority", True)
    first = vault.identity()
    assert sql("SELECT version FROM runs ORDER BY seq") == [(1,), (3,)]
    again = reopened()
    assert [found.suspect for found in again.case_runs(case.id)] == ["suspect.gguf", "again.gguf"]
    assert again.run_files(run.id) == {"report.html": b"<p>"}
    assert again.identity() == first
    assert again.check().ok
    assert again.verify_audit(known_head=HEAD).ok


def test_a_migrated_vault_has_the_tables_of_a_new_one(
    old: Path, home: Path, tmp_path: Path, passphrase: str, cheap: Any
) -> None:
    before = tables(old)
    Vault.open(home)
    new = Vault.create(tmp_path / "new", passphrase, cheap)
    assert tables(old) == tables(new.path)
    assert {name: tables(old)[name] for name in before} == before, "the first migration never changes"
    assert set(RECORD_TABLES) <= tables(old).keys()


def test_an_old_record_does_not_pass_for_a_new_one(old: Path, sql: Sql, reopened: Callable[[], Vault]) -> None:
    vault = reopened()
    (case,) = vault.cases()
    sql("UPDATE runs SET version = 2")
    assert vault.check().damaged == vault.case_runs(case.id).damaged
    assert [name.table for name in vault.check().damaged] == ["runs"]


def test_migrating_twice_changes_nothing(old: Path, home: Path, sql: Sql) -> None:
    Vault.open(home)
    rows = sql("SELECT * FROM _sqlite_migrations")
    Vault.open(home)
    assert sql("SELECT * FROM _sqlite_migrations") == rows
    assert len(rows) == 3


KILLED_MIDWAY = """
import sqlite_utils
from storage import Vault
create = sqlite_utils.db.Table.create
def killed(table, *arguments, **options):
    if table.name == sys.argv[2]:
        print(json.dumps([table.db.table_names(), (home / "vault.sqlite3-wal").stat().st_size]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return create(table, *arguments, **options)
sqlite_utils.db.Table.create = killed
connect = sqlite_utils.Database.__init__
def small_cache(db, *arguments, **options):
    connect(db, *arguments, **options)
    db.execute("PRAGMA cache_size = 1")   # so that SQLite writes pages to the log before the end comes
sqlite_utils.Database.__init__ = small_cache
Vault.open(home)
"""


@pytest.mark.fault(53)
@pytest.mark.parametrize("at", ["timestamps", "run_files", "labels"])
def test_the_migration_killed_midway_is_rolled_back(
    old: Path, home: Path, spawn: Callable[..., subprocess.Popen[str]], reopened: Callable[[], Vault], at: str
) -> None:
    before = tables(old)
    child = spawn(KILLED_MIDWAY, at)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == -9, err
    names, logged = json.loads(out)
    assert "identities" in names, "the first of the new tables was there"
    assert logged > 0, "and had reached the disk"
    assert tables(old) == before
    assert version(old) == 1
    vault = reopened()
    assert version(old) == VAULT_SCHEMA_VERSION
    assert vault.check().ok
    assert vault.warnings == ()


def test_a_backup_of_version_1_is_restored_and_brought_up_to_date(
    home: Path, tmp_path: Path, reopened: Callable[[], Vault]
) -> None:
    copy = tmp_path / "backup.sqlite3"
    shutil.copy(WRITTEN_BY_VERSION_1, copy)
    assert restore(copy, home) is None
    assert version(copy) == 1, "the backup itself is not changed"
    vault = reopened()
    assert vault.check().ok
    vault.backup()
    assert latest_backup(home) is not None


def test_a_file_that_only_says_it_is_of_version_1_is_damage(old: Path, home: Path, sql: Sql) -> None:
    sql("CREATE TABLE identities (seq INTEGER PRIMARY KEY)")
    with pytest.raises(StorageError):
        Vault.open(home)
    assert version(old) == 1
    sql("DROP TABLE identities")
    sql("PRAGMA application_id = 7")
    with pytest.raises(DatabaseDamagedError):
        Vault.open(home)
    assert version(old) == 1


def test_a_record_of_version_1_that_was_lost_is_named(old: Path, sql: Sql, reopened: Callable[[], Vault]) -> None:
    ((lost,),) = sql("SELECT id FROM keys WHERE seq = 3")
    sql("DELETE FROM keys WHERE seq = 3")
    assert reopened().check().missing == (RecordName("keys", lost),)


def test_what_version_2_sealed_still_opens_and_can_be_labelled(home: Path, reopened: Callable[[], Vault]) -> None:
    home.mkdir(mode=0o700)
    path = home / "vault.sqlite3"
    shutil.copy(WRITTEN_BY_VERSION_2, path)
    path.chmod(0o600)
    vault = reopened()
    assert version(path) == VAULT_SCHEMA_VERSION
    assert [key.label for key in vault.find_keys(newest_first=False).records] == ["words 0", "words 1"]
    vault.set_label("keys", vault.keys()[1].id, "came back from the auditor")
    vault.set_label("releases", vault.releases()[0].id, "shipped on a disk")
    assert [key.label for key in vault.find_keys(newest_first=False).records] == [
        "words 0",
        "came back from the auditor",
    ]
    assert vault.check().ok
    assert vault.verify_audit(known_head=HEAD_2).ok
