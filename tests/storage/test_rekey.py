"""A change of passphrase: all is sealed again, every session notices it, and damaged records stay named."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import (
    AuditBrokenError,
    Cost,
    PassphraseError,
    RecordName,
    Vault,
    VaultChangedError,
    VaultLockedError,
    WrongPassphraseError,
)
from storage.checks import check_records
from storage.encryption import Sealer
from storage.rekey import STEP
from storage.schema import RECORD_TABLES
from tests.storage.conftest import unlocked
from tools.waiting import PATIENCE

Sql = Callable[..., list[Any]]
NEW = "another four plain words"


def test_every_record_comes_back_and_no_hash_changes(filled: Vault, home: Path, passphrase: str) -> None:
    filled.sign(b"report")
    before = filled.audit_log()
    everything = [filled.keys(), filled.releases(), filled.cases(), filled.timestamps(), filled.identities()]
    contents = dict(filled.keys_bytes(filled.key_ids()))
    with pytest.raises(WrongPassphraseError):
        filled.change_passphrase("wrong", NEW)
    with pytest.raises(PassphraseError):
        filled.change_passphrase(passphrase, "")
    done = filled.change_passphrase(passphrase, NEW, Cost(16, 1, 1))
    assert (done.records, done.damaged, done.entries) == (2 * len(RECORD_TABLES), (), ())
    assert filled.keys() == everything[0], "an unlocked session continues"
    again = Vault.open(home)
    with pytest.raises(WrongPassphraseError):
        again.unlock(passphrase)
    again.unlock(NEW)
    assert dict(again.keys_bytes(again.key_ids())) == contents
    assert [again.keys(), again.releases(), again.cases(), again.timestamps(), again.identities()] == everything
    for case in again.cases():
        (run,) = again.case_runs(case.id)
        assert again.run_files(run.id) == {"report.html": b"<p>SEALED"}
    assert again.audit_log()[: len(before)] == before
    assert again.verify_audit(known_head=before[-1].hash).ok
    assert again.check().ok
    assert again.sign(b"report").public_key == before[-1].details["public_key"]
    changed = again.audit_log()[len(before)]
    assert (changed.event, changed.details) == (
        "passphrase changed",
        {"records sealed again": 2 * len(RECORD_TABLES), "damaged records": [], "damaged entries": []},
    )


def test_the_old_key_opens_no_part_of_anything(filled: Vault, passphrase: str) -> None:
    old = Sealer(filled.hand_over(), filled.id)
    filled.change_passphrase(passphrase, NEW)
    with filled._file.reading() as db:
        blobs = {
            (table.name, column.name)
            for table in db.tables
            for column in table.columns
            if column.type.upper() in ("BLOB", "")
        }
        check = check_records(db, old)
    known = {(table, part) for table in RECORD_TABLES for part in ("meta", "body")} | {("audit", "details")}
    known |= {("vault", "salt"), ("vault", "wrapped_key"), ("audit_state", "tag")}
    assert blobs == known, "a new column of sealed bytes has to be sealed again too"
    assert check.records == 0
    assert len(check.damaged) == 2 * len(RECORD_TABLES)
    assert (check.audit.ok, check.audit.broken) == (False, 1)


def test_damaged_records_stay_named_after_rekey(filled: Vault, flip: Callable[..., None], passphrase: str) -> None:
    (lost, kept) = filled.keys()
    half, other = filled.cases()
    flip("keys", "body", "id", lost.id)
    flip("cases", "meta", "id", half.id)
    flip("audit", "details", "seq", 3)
    done = filled.change_passphrase(passphrase, NEW)
    names = (RecordName("keys", lost.id), RecordName("cases", half.id))
    assert (done.damaged, done.entries) == (names, (3,))
    assert filled.keys() == [lost, kept], "its other part still opens"
    assert filled.cases() == [other]
    check = filled.check()
    assert set(check.damaged) == set(names)
    assert check.audit.broken == 3
    details = next(entry.details for entry in filled.audit_log() if entry.event == "passphrase changed")
    assert details is not None
    assert [each["id"] for each in details["damaged records"]] == [lost.id, half.id]


def test_rekey_progress_reaches_the_end(vault: Vault, many: Callable[..., Any], passphrase: str) -> None:
    vault.add_keys(many(2 * STEP))
    told: list[tuple[int, int]] = []
    vault.change_passphrase(passphrase, NEW, progress=lambda done, total: told.append((done, total)))
    total = 2 * STEP + len(vault.audit_log()) - 1
    assert told == [(STEP, total), (2 * STEP, total), (total, total)]


def test_failed_rekey_changes_nothing(filled: Vault, passphrase: str) -> None:
    before, log = filled.path.read_bytes(), filled.audit_log()

    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        filled.change_passphrase(passphrase, NEW, progress=fail)
    assert filled.path.read_bytes() == before
    assert filled.audit_log() == log
    assert len(filled.keys()) == 2
    again = unlocked(filled.home, passphrase)
    assert again.check().ok
    assert again.warnings == ()


def test_rekey_locks_other_sessions_and_tasks(filled: Vault, home: Path, passphrase: str) -> None:
    idle, reader, writer = (Vault.open(home) for _ in range(3))
    for each in (idle, reader, writer):
        each.unlock(passphrase)
    task = Vault.take_over(home, filled.hand_over())
    assert len(reader.keys()) == 2, "its cached records were opened with the old key"
    filled.change_passphrase(passphrase, NEW)
    for each, use in (
        (reader, reader.keys),
        (writer, lambda: writer.add_case("late")),
        (task, lambda: task.find_keys("")),
    ):
        with pytest.raises(VaultChangedError, match="passphrase was changed elsewhere"):
            use()
        with pytest.raises(VaultLockedError):
            each.keys()
        each.unlock(NEW)
        assert len(each.find_keys("").records) == 2
    assert idle.audit_log()[0].details is None
    assert idle.verify_audit().ok
    assert not idle.verify_audit().authenticated
    assert "late" not in [case.title for case in filled.cases()]
    with pytest.raises(VaultChangedError):
        Vault.take_over(home, idle._use().data_key)


def test_session_locked_during_rekey_stays_locked(filled: Vault, passphrase: str) -> None:
    filled.change_passphrase(passphrase, NEW, progress=lambda done, total: filled.lock())
    assert not filled.is_unlocked
    filled.change_passphrase(NEW, passphrase)
    assert not filled.is_unlocked
    filled.unlock(passphrase)
    assert filled.check().ok


def test_session_can_be_read_during_its_own_rekey(vault: Vault, many: Callable[..., Any], passphrase: str) -> None:
    vault.add_keys(many(50))
    stop, errors = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                assert vault.find_keys("").total == 50
                assert not vault.keys().damaged
            except Exception as error:  # of any kind: the test names it
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for old, new in itertools.islice(itertools.pairwise(itertools.cycle([passphrase, NEW])), 6):
        vault.change_passphrase(old, new)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert vault.check().ok


def test_an_edited_header_is_noticed_at_unlock_and_not_written_to(
    vault: Vault, home: Path, sql: Sql, passphrase: str
) -> None:
    case = vault.add_case("a")
    sql("UPDATE vault SET created = '1999-01-01T00:00:00.000Z'")
    again = unlocked(home, passphrase)
    assert again.cases() == [case], "a log that cannot be written does not prevent unlocking"
    assert any("header, was altered" in warning for warning in again.warnings)
    with pytest.raises(AuditBrokenError, match="header"):
        again.add_case("on top")
    with pytest.raises(AuditBrokenError, match="header"):
        again.change_passphrase(passphrase, NEW)
    check = again.verify_audit()
    assert not check.ok
    assert "header" in check.reason
