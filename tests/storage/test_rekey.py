"""A change of passphrase: all is sealed again, every session notices it, and damaged records stay named."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from random import Random

import pytest

from storage import (
    AuditBrokenError,
    Cost,
    DamagedRecordError,
    DatabaseDamagedError,
    PassphraseError,
    RecordName,
    Vault,
    VaultChangedError,
    VaultLockedError,
    WrongPassphraseError,
)
from storage.encryption import Sealer
from storage.integrity import check_records
from storage.log_witness import WITNESS_NAME
from storage.rekey import STEP
from storage.schema import RECORD_TABLES
from tests.faults.conftest import seed
from tests.storage.conftest import PASSPHRASE, Flip, Spawn, Sql, add_key, new_keys, put_into, taken_over, unlocked
from tools.waiting import PATIENCE

__all__ = ["seed"]
NEW = "another four plain words"


def test_every_record_comes_back_and_no_hash_changes(filled: Vault) -> None:
    filled.sign(b"report")
    before = filled.audit_log()
    everything = [filled.keys(), filled.releases(), filled.cases(), filled.timestamps(), filled.identities()]
    contents = dict(filled.keys_bytes(filled.key_ids()))
    with pytest.raises(WrongPassphraseError):
        filled.change_passphrase("wrong", NEW)
    with pytest.raises(PassphraseError):
        filled.change_passphrase(PASSPHRASE, "")
    done = filled.change_passphrase(PASSPHRASE, NEW, Cost(16, 1, 1))
    assert (done.records, done.damaged, done.entries) == (2 * len(RECORD_TABLES), (), ())
    assert filled.keys() == everything[0], "an unlocked session continues"
    again = Vault.open(filled.home)
    with pytest.raises(WrongPassphraseError):
        again.unlock(PASSPHRASE)
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


def test_the_old_key_opens_no_part_of_anything(filled: Vault) -> None:
    old = Sealer(filled.hand_over(), filled.id)
    filled.change_passphrase(PASSPHRASE, NEW)
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


def test_damaged_records_stay_named_after_rekey(filled: Vault, flip: Flip) -> None:
    (lost, kept) = filled.keys()
    half, other = filled.cases()
    flip("keys", "body", "id", lost.id)
    flip("cases", "meta", "id", half.id)
    flip("audit", "details", "seq", 3)
    done = filled.change_passphrase(PASSPHRASE, NEW)
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


def test_rekey_progress_reaches_the_end(vault: Vault) -> None:
    vault.add_keys(new_keys(2 * STEP))
    told: list[tuple[int, int]] = []
    vault.change_passphrase(PASSPHRASE, NEW, progress=lambda done, total: told.append((done, total)))
    total = 2 * STEP + len(vault.audit_log()) - 1
    assert told == [(STEP, total), (2 * STEP, total), (total, total)]


def test_failed_rekey_changes_nothing(filled: Vault) -> None:
    before, log = filled.path.read_bytes(), filled.audit_log()

    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        filled.change_passphrase(PASSPHRASE, NEW, progress=fail)
    assert filled.path.read_bytes() == before
    assert filled.audit_log() == log
    assert len(filled.keys()) == 2
    again = unlocked(filled.home, PASSPHRASE)
    assert again.check().ok
    assert again.warnings == ()


def test_rekey_locks_other_sessions_and_tasks(filled: Vault) -> None:
    idle, reader, writer = (Vault.open(filled.home) for _ in range(3))
    for each in (idle, reader, writer):
        each.unlock(PASSPHRASE)
    task = Vault.take_over(filled.home, filled.hand_over())
    assert len(reader.keys()) == 2, "its cached records were opened with the old key"
    filled.change_passphrase(PASSPHRASE, NEW)
    for each, use in (
        (reader, reader.keys),
        (writer, lambda: writer.add_case("late")),
        (task, lambda: task.find_keys("")),
    ):
        with pytest.raises(VaultChangedError):
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
        Vault.take_over(filled.home, idle._use().data_key)


def test_session_locked_during_rekey_stays_locked(filled: Vault) -> None:
    filled.change_passphrase(PASSPHRASE, NEW, progress=lambda done, total: filled.lock())
    assert not filled.is_unlocked
    filled.change_passphrase(NEW, PASSPHRASE)
    assert not filled.is_unlocked
    filled.unlock(PASSPHRASE)
    assert filled.check().ok


def test_session_can_be_read_during_its_own_rekey(vault: Vault) -> None:
    vault.add_keys(new_keys(50))
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
    for old, new in itertools.islice(itertools.pairwise(itertools.cycle([PASSPHRASE, NEW])), 6):
        vault.change_passphrase(old, new)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert vault.check().ok


def test_an_edited_header_is_noticed_at_unlock_and_not_written_to(vault: Vault, sql: Sql) -> None:
    case = vault.add_case("a")
    sql("UPDATE vault SET created = '1999-01-01T00:00:00.000Z'")
    again = unlocked(vault.home, PASSPHRASE)
    assert again.cases() == [case], "a log that cannot be written does not prevent unlocking"
    assert any("header, was altered" in warning for warning in again.warnings)
    for use in (lambda: again.add_case("on top"), lambda: again.change_passphrase(PASSPHRASE, NEW)):
        with pytest.raises(AuditBrokenError):
            use()
    assert not again.verify_audit().ok


@pytest.fixture
def changed(filled: Vault) -> Path:
    """A copy of the home's files from before the passphrase was changed; one more key was added after that."""
    old = filled.home.parent / "old"
    shutil.copytree(filled.home, old)
    filled.change_passphrase(PASSPHRASE, NEW)
    add_key(filled, "added later")
    assert filled.check().ok
    return old


@pytest.mark.fault(70)
def test_old_copy_and_passphrase_do_not_open_later_records(filled: Vault, changed: Path) -> None:
    before = unlocked(changed, PASSPHRASE)
    assert len(before.keys()) == 2, "the copy still opens what it holds, which cannot be revoked"
    with pytest.raises(WrongPassphraseError):
        before.unlock(NEW)
    # New records into the old file, which keeps its own header.
    put_into(before.path, filled.path, *itertools.chain(*map(taken_over, RECORD_TABLES)))
    check = before.check()
    assert check.records == 0
    assert len(check.damaged) == 2 * len(RECORD_TABLES) + 1
    assert before.keys() == []
    for key in filled.keys():
        with pytest.raises(DamagedRecordError):
            before.key_bytes(key.id)
    # And the new log with them.
    put_into(before.path, filled.path, *taken_over("audit"))
    assert not [entry for entry in before.audit_log() if entry.details is not None]


@pytest.mark.fault(70)
@pytest.mark.parametrize(
    "statements",
    [
        taken_over("vault"),
        (*taken_over("vault"), *taken_over("audit_state")),
        (
            *taken_over("vault"),
            *taken_over("audit_state"),
            "DELETE FROM main.audit WHERE seq > (SELECT MAX(seq) FROM other.audit)",
        ),
    ],
    ids=["header", "header and end", "header and end, and the log cut there"],
)
@pytest.mark.parametrize("with_witness", [False, True])
def test_old_header_is_refused(filled: Vault, changed: Path, statements: tuple[str, ...], with_witness: bool) -> None:
    put_into(filled.path, changed / "vault.sqlite3", *statements)
    if with_witness:
        shutil.copy(changed / WITNESS_NAME, filled.home / WITNESS_NAME)
    again = Vault.open(filled.home)
    assert again.warnings or with_witness, "the witness names the key that the header does not"
    with pytest.raises(DatabaseDamagedError):
        again.unlock(PASSPHRASE)
    assert not again.is_unlocked
    with pytest.raises(WrongPassphraseError):
        again.unlock(NEW)
    with pytest.raises(VaultChangedError):  # a process that had it open
        filled.keys()


@pytest.mark.fault(70)
def test_whole_old_log_with_its_header_opens_no_record_and_is_noticed(filled: Vault, changed: Path) -> None:
    tables = ("vault", "audit_state", "audit")
    put_into(filled.path, changed / "vault.sqlite3", *itertools.chain(*map(taken_over, tables)))
    again = Vault.open(filled.home)
    assert "older state" in again.warnings[0]
    again.unlock(PASSPHRASE)
    check = again.check()
    assert check.records == 0
    assert len(check.damaged) == 2 * len(RECORD_TABLES) + 1


# Each kills the process where it says; the second write of the witness follows the commit.
KILLED = {
    "amid the records": "progress = lambda done, total: os.kill(os.getpid(), signal.SIGKILL)",
    "before the commit": "kill_at = 1",
    "after the commit": "kill_at = 2",
}
CHANGES = """
from storage import Vault, rekey
rekey.STEP, progress, kill_at, calls = 10, None, 0, []
{how}
remember = Vault._remember
def remembered(*arguments, **named):
    calls.append(arguments)
    if len(calls) != 2 or kill_at != 2:
        remember(*arguments, **named)
    if len(calls) == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
Vault._remember = remembered
vault = Vault.open(home)
print("ready", flush=True); sys.stdin.readline()
vault.change_passphrase(sys.argv[2], sys.argv[3], progress=progress)
print("changed", flush=True)
"""


def opened_by_one_of(home: Path, passphrases: tuple[str, str]) -> tuple[str, Vault]:
    """The one passphrase that opens the vault, after a check of every record and the log."""
    opens = []
    for each in passphrases:
        vault = Vault.open(home)
        with contextlib.suppress(WrongPassphraseError):
            vault.unlock(each)
            opens.append((each, vault))
    ((which, vault),) = opens
    check = vault.check()
    assert check.ok, check
    assert vault.verify_audit().ok
    assert vault.warnings == (), "a killed change is no reason for a warning"
    return which, vault


@pytest.mark.fault(70)
@pytest.mark.parametrize("moment", KILLED)
def test_killed_passphrase_change_is_complete_or_absent(filled: Vault, spawn: Spawn, moment: str) -> None:
    child = spawn(CHANGES.format(how=KILLED[moment]), PASSPHRASE, NEW)
    out, err = child.communicate("go\n", timeout=PATIENCE)
    assert (child.returncode, out) == (-signal.SIGKILL, "ready\n"), err
    which, vault = opened_by_one_of(filled.home, (PASSPHRASE, NEW))
    assert which == (NEW if moment == "after the commit" else PASSPHRASE)
    assert len(vault.keys()) == 2
    vault.change_passphrase(which, "and once more")
    assert vault.check().ok


KILLS, SLACK = 50, 1.5


@pytest.mark.fault(70)
@pytest.mark.slow
def test_after_a_kill_at_50_random_moments_one_passphrase_opens_everything(
    filled: Vault, spawn: Spawn, seed: int
) -> None:
    random = Random(seed)
    filled.add_keys(new_keys(1500, size=2000))
    contents = dict(filled.keys_bytes(filled.key_ids()))
    printed = filled.audit_head
    public = filled.identity().public_key
    filled.lock()

    def prepared(old: str, new: str) -> subprocess.Popen[str]:
        child = spawn(CHANGES.format(how=""), old, new)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    def begin(child: subprocess.Popen[str]) -> None:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()

    def until_changed(child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        assert child.stdout.readline() == "changed\n"

    child = prepared(PASSPHRASE, NEW)
    started = time.monotonic()
    begin(child)
    until_changed(child)
    whole = time.monotonic() - started
    child.wait()
    present, other = NEW, PASSPHRASE
    outcomes = []
    for turn in range(KILLS):
        child = prepared(present, other)
        if turn > 0:  # the first is killed before it begins
            begin(child)
        if turn == KILLS - 1:
            until_changed(child)
        elif turn > 0:
            # A time decides when to kill, because no output of the process would reach moments inside SQLite. The
            # moments spread over a little more than a whole change; no check below depends on them.
            time.sleep(whole * SLACK * (turn + random.random()) / KILLS)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        which, vault = opened_by_one_of(filled.home, (present, other))
        assert dict(vault.keys_bytes(vault.key_ids())) == contents
        assert vault.verify_audit(known_head=printed).ok
        assert vault.identity().public_key == public
        vault.lock()
        outcomes.append(which == other)
        present, other = (other, present) if which == other else (present, other)
    assert set(outcomes) == {False, True}, "some were killed before the change, some after it"
