from __future__ import annotations

import itertools
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage import (
    DatabaseDamagedError,
    NewerSchemaError,
    RecordName,
    StorageBusyError,
    StorageError,
    Vault,
    VaultChangedError,
    VaultExistsError,
    VaultMissingError,
    WrongPassphraseError,
    back_up,
    latest_backup,
    restore,
)
from storage.backup import inspect
from storage.schema import RECORD_TABLES
from tests.storage.conftest import PASSPHRASE, Spawn, Sql, add_key, unlocked
from tools.waiting import PATIENCE


def test_backup_is_complete_private_and_logged(filled: Vault, tmp_path: Path) -> None:
    path = filled.backup(tmp_path / "copy.sqlite3")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert filled.audit_log()[-1].event == "backup made"
    assert restore(path, tmp_path / "elsewhere") is None
    other = unlocked(tmp_path / "elsewhere", PASSPHRASE)
    check = other.check()
    assert (check.ok, check.records) == (True, 2 * len(RECORD_TABLES))
    assert other.keys() == filled.keys()
    for case in filled.cases():
        assert other.case_items(case.id) == filled.case_items(case.id)
        assert other.case_notes(case.id) == filled.case_notes(case.id)
        (run,) = filled.case_runs(case.id)
        assert other.run_files(run.id) == {"report.html": b"<p>SEALED"}
    assert other.timestamps() == filled.timestamps()
    assert other.identities() == filled.identities()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.sqlite3", "elsewhere", "home"]


def test_a_locked_vault_can_be_backed_up_and_the_newest_backup_is_found(vault: Vault, clock: Any) -> None:
    vault.lock()
    assert latest_backup(vault.home) is None
    first = back_up(vault.home, now=clock.now)
    vault.unlock("correct horse battery staple")
    vault.add_case("more")
    clock.later(days=-400)
    second = back_up(vault.home, now=clock.now)
    assert first.parent == second.parent == vault.home / "backups"
    assert latest_backup(vault.home) == second
    assert stat.S_IMODE((vault.home / "backups").stat().st_mode) == 0o700


def test_a_backup_overwrites_nothing(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("precious")
    with pytest.raises(VaultExistsError):
        vault.backup(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "taken"]


def test_backup_without_vault_is_reported(home: Path, tmp_path: Path) -> None:
    with pytest.raises(VaultMissingError):
        back_up(home)
    with pytest.raises(VaultMissingError):
        restore(tmp_path / "absent", home)


@pytest.mark.fault(50)
def test_a_lost_vault_names_the_backup(vault: Vault) -> None:
    good = back_up(vault.home)
    vault.path.unlink()
    with pytest.raises(VaultMissingError, match=good.name):
        Vault.open(vault.home)
    restore(good, vault.home)
    assert Vault.open(vault.home).warnings == ()


LOG_LEFT_BEHIND = """
from storage import Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
with vault._file.reading() as db:            # an open reader keeps the log from being folded in
    db.execute("SELECT * FROM keys").fetchall()
    vault.add_case("only in the log")
    print(vault.audit_head, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.fault(50)
@pytest.mark.parametrize("deleted", [False, True])
def test_a_deleted_write_ahead_log_is_noticed(vault: Vault, spawn: Spawn, deleted: bool) -> None:
    child = spawn(LOG_LEFT_BEHIND)
    head = child.communicate(timeout=PATIENCE)[0].strip()
    assert len(head) == 64
    assert (vault.home / "vault.sqlite3-wal").stat().st_size > 0
    if deleted:
        (vault.home / "vault.sqlite3-wal").unlink()
        (vault.home / "vault.sqlite3-shm").unlink()
    again = unlocked(vault.home, PASSPHRASE)
    assert [case.title for case in again.cases()] == ([] if deleted else ["only in the log"])
    assert len(again.warnings) == deleted
    assert not deleted or "older state" in again.warnings[0]
    assert again.verify_audit(known_head=head).ok is not deleted


PAGE = 4096


def edited(good: Path, bad: Path, statement: str) -> Path:
    shutil.copy(good, bad)
    with closing(sqlite3.connect(bad)) as conn, conn:
        conn.execute(statement)
    return bad


def test_altered_or_newer_backup_is_refused_and_nothing_changes(vault: Vault, tmp_path: Path) -> None:
    add_key(vault)
    good, before = vault.backup(tmp_path / "copy.sqlite3"), vault.path.read_bytes()
    (tmp_path / "text").write_bytes(b"no database")
    with pytest.raises(DatabaseDamagedError):
        restore(tmp_path / "text", vault.home)
    for statement, error in (
        ("DELETE FROM audit WHERE seq = 1", DatabaseDamagedError),
        ("DROP TABLE audit", DatabaseDamagedError),
        ("PRAGMA application_id = 1", DatabaseDamagedError),
        ("PRAGMA user_version = 99", NewerSchemaError),
    ):
        with pytest.raises(error):
            restore(edited(good, tmp_path / "bad.sqlite3", statement), vault.home)
    assert vault.path.read_bytes() == before
    assert sorted(p.name for p in vault.home.iterdir()) == ["vault.sqlite3", "vault.witness.json"]


def knotted(path: Path, table: str) -> Path:
    """Makes the table's tree of pages one with 200 branches on each level, all of them the same: to read it never ends.

    The table has one page so far, which becomes the leaf.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        (size,) = conn.execute("PRAGMA page_size").fetchone()
        (root,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (last,) = conn.execute("PRAGMA page_count").fetchone()
        # Spare pages for the tree, from a table that is read last.
        while conn.execute("PRAGMA page_count").fetchone()[0] < last + 24:
            conn.execute("INSERT INTO notes (body) VALUES (zeroblob(3000))")
    whole = bytearray(path.read_bytes())
    pages = [root, *range(last + 8, last + 24)]
    leaf = bytes(whole[(root - 1) * size : root * size])
    for page, below in itertools.pairwise(pages):
        # Cells of an interior page: the page below, and a key.
        cells = (below.to_bytes(4, "big") + b"\x01") * 200
        start = size - len(cells)
        counted = bytes(2) + (200).to_bytes(2, "big") + start.to_bytes(2, "big") + b"\0"
        places = b"".join((start + 5 * n).to_bytes(2, "big") for n in range(200))
        content = b"\x05" + counted + below.to_bytes(4, "big") + places
        whole[(page - 1) * size : page * size] = content + bytes(start - len(content)) + cells
    whole[(pages[-1] - 1) * size : pages[-1] * size] = leaf
    path.write_bytes(whole)
    return path


def test_endless_backup_is_interrupted(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.backup.CHECK_SECONDS", 0.2)
    header, log = vault.backup(tmp_path / "header.sqlite3"), vault.backup(tmp_path / "log.sqlite3")
    before = vault.path.read_bytes()
    with closing(sqlite3.connect(header)) as conn:  # without an integer key, the row must be searched for
        conn.executescript("CREATE TABLE other AS SELECT * FROM vault; DROP TABLE vault; UPDATE other SET one = 2")
        conn.execute("ALTER TABLE other RENAME TO vault")
    with pytest.raises(DatabaseDamagedError):
        inspect(knotted(header, "vault"), PASSPHRASE)
    with pytest.raises(DatabaseDamagedError, match="interrupted"):
        restore(knotted(log, "audit"), vault.home)
    assert vault.path.read_bytes() == before


def test_record_missing_from_backup_is_named_after_unlock(vault: Vault, tmp_path: Path) -> None:
    key = add_key(vault)
    restore(edited(vault.backup(tmp_path / "copy.sqlite3"), tmp_path / "bad.sqlite3", "DELETE FROM keys"), vault.home)
    assert unlocked(vault.home).check().missing == (RecordName("keys", key.id),)


@pytest.mark.parametrize("use", ["reading", "writing"])
def test_vault_in_use_is_not_replaced(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    monkeypatch.setattr("storage.backup.BUSY_SECONDS", 0.1)
    path = vault.backup(tmp_path / "copy.sqlite3")
    with getattr(vault._file, use)(), pytest.raises(StorageBusyError):
        restore(path, vault.home)
    assert sorted(p.name for p in vault.home.iterdir()) == ["vault.sqlite3", "vault.witness.json"]
    assert vault.check().ok


def test_restored_backup_has_its_old_passphrase(vault: Vault, tmp_path: Path) -> None:
    path = vault.backup(tmp_path / "copy.sqlite3")
    vault.change_passphrase(PASSPHRASE, "new words")
    restore(path, vault.home)
    again = Vault.open(vault.home)
    with pytest.raises(WrongPassphraseError):
        again.unlock("new words")
    again.unlock(PASSPHRASE)
    assert "older state" in again.warnings[0]
    assert "exchange noticed" in [entry.event for entry in again.audit_log()]
    with pytest.raises(VaultChangedError):
        vault.cases()
    assert not vault.is_unlocked, "the key of the vault that was set aside opens nothing here"


def test_backup_opens_only_with_its_own_passphrase(vault: Vault, tmp_path: Path) -> None:
    before = vault.backup(tmp_path / "before.sqlite3")
    vault.change_passphrase(PASSPHRASE, "new words")
    after = vault.backup(tmp_path / "after.sqlite3")
    for path, its, other in ((before, PASSPHRASE, "new words"), (after, "new words", PASSPHRASE)):
        with pytest.raises(WrongPassphraseError):
            inspect(path, other)
        assert inspect(path, its).vault == vault.id


def test_backup_with_header_of_another_state_is_refused(vault: Vault, tmp_path: Path) -> None:
    before = vault.backup(tmp_path / "before.sqlite3")
    vault.change_passphrase(PASSPHRASE, "new words")
    path = vault.backup(tmp_path / "after.sqlite3")
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("ATTACH ? AS older", [str(before)])
        conn.execute("DELETE FROM vault")
        conn.execute("INSERT INTO vault SELECT * FROM older.vault")
    with pytest.raises(DatabaseDamagedError, match="the header does not match"):
        inspect(path, PASSPHRASE)


@pytest.mark.fault(50)
@pytest.mark.parametrize("damage", ["random", "zeros", "another page", "cut off"])
def test_each_damaged_or_cut_page_is_detected_and_the_backup_restores(filled: Vault, damage: str, sql: Sql) -> None:
    good = filled.backup()
    known = filled.audit_head
    keys = filled.keys()
    whole = filled.path.read_bytes()
    assert latest_backup(filled.home) == good
    undetected = []
    pages = len(whole) // PAGE
    for page in range(pages):
        start = page * PAGE
        put = {
            "random": Random(page).randbytes(PAGE),
            "zeros": bytes(PAGE),
            "another page": whole[(start or PAGE) :][:PAGE],
            "cut off": b"",
        }[damage]
        rest = b"" if damage == "cut off" else whole[start + PAGE :]
        broken = whole[:start] + put + rest
        if broken == whole:
            continue
        filled.path.write_bytes(broken)
        try:
            again = unlocked(filled.home, PASSPHRASE)
            if again.check().ok and again.verify_audit(known).ok and not again.warnings:
                undetected.append(page)
        except StorageError:
            pass  # noticed
        filled.path.write_bytes(whole)
    unused = sql("PRAGMA freelist_count")[0][0]
    assert len(undetected) <= unused, f"pages {undetected} of {pages}"
    half = whole[: len(whole) // 2]
    filled.path.write_bytes(half)
    for use in (lambda: Vault.open(filled.home).unlock(PASSPHRASE), lambda: back_up(filled.home)):
        with pytest.raises(DatabaseDamagedError):
            use()
    assert latest_backup(filled.home) == good
    aside = restore(good, filled.home)
    assert aside is not None
    assert aside.read_bytes() == half, "the damaged file is kept"
    back = unlocked(filled.home, PASSPHRASE)
    assert back.keys() == keys
    assert back.check().ok
