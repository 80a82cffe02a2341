"""Faults with the vault (FAULTS 45, 50, 53, 55, 70, 71, and 40 and 42 for its file), tried on real files and by real
processes.

Tests that need the running app, such as a page that stays responsive, are in test_web; faults that `tests/storage`
tests fully are marked there.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage import (
    DamagedRecordError,
    DatabaseDamagedError,
    KeyRecord,
    StorageBusyError,
    StorageError,
    StorageFullError,
    Vault,
    VaultChangedError,
    WrongPassphraseError,
    back_up,
    latest_backup,
    restore,
)
from storage.schema import RECORD_TABLES, VAULT_SCHEMA
from storage.witness import WITNESS_NAME
from tests.faults.helpers import empty, fill_up
from tests.storage.conftest import (
    CHEAP,
    ROOT,
    add,
    filled,
    home,
    many,
    passphrase,
    reopened,
    spawn,
    unlocked,
    vault,
)
from tools.waiting import PATIENCE

__all__ = [
    "add",
    "filled",
    "home",
    "many",
    "passphrase",
    "reopened",
    "spawn",
    "vault",
]

Add = Callable[..., KeyRecord]
Spawn = Callable[..., subprocess.Popen[str]]
PAGE = 4096
NEW = "another four plain words"

HOLDS_THE_LOCK = """
from storage import Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
with vault._file.writing() as db:
    db.execute("DELETE FROM keys")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_fault_45_second_process_is_refused_and_a_killed_one_leaves_no_lock(
    vault: Vault, add: Add, spawn: Spawn
) -> None:
    kept = add(vault, "before")
    child = spawn(HOLDS_THE_LOCK)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    patient, vault._file = vault._file, replace(vault._file, busy_seconds=0.2)
    with pytest.raises(StorageBusyError):
        add(vault, "refused")
    assert vault.keys() == [kept], "readers do not wait, and see no unfinished change"
    vault._file = patient
    child.kill()
    child.wait()
    after = add(vault, "after")
    assert vault.keys() == [kept, after]
    assert vault.check().ok


def test_fault_40_vault_on_a_full_disk_loses_nothing(small_disk: Path, passphrase: str) -> None:
    kind = StorageFullError if os.path.ismount(small_disk) else StorageError
    vault = Vault.create(small_disk / "home", passphrase, CHEAP)
    kept = vault.add_case("kept")
    backup = vault.backup(small_disk / "copy.sqlite3")
    refusals = []
    for left in range(0, 40 * PAGE, PAGE):
        with nearly_full(small_disk, left):
            try:
                vault.add_case("large", "x" * 60_000)
                break
            except kind as error:
                refusals.append(str(error))
        assert vault.cases() == [kept]
    assert len(refusals) > 3
    if os.path.ismount(small_disk):
        assert all("free some space" in refusal for refusal in refusals)
    assert [case.title for case in vault.cases()] == ["kept", "large"]
    assert vault.check().ok
    with nearly_full(small_disk, 0), pytest.raises(StorageError):
        vault.backup(small_disk / "second.sqlite3")
    names = {path.name for path in small_disk.iterdir()}
    assert names == {"home", backup.name}, "no partial file is left"
    assert not [path.name for path in (small_disk / "home").iterdir() if "partial" in path.name]


def test_fault_40_a_change_of_passphrase_on_a_full_disk_changes_nothing(
    small_disk: Path, many: Callable[..., Any], passphrase: str
) -> None:
    kind = StorageFullError if os.path.ismount(small_disk) else StorageError
    vault = Vault.create(small_disk / "home", passphrase, CHEAP)
    vault.add_keys(many(100, size=4000))
    log = vault.audit_log()
    with nearly_full(small_disk, 40 * PAGE), pytest.raises(kind):
        vault.change_passphrase(passphrase, NEW)
    assert vault.audit_log() == log
    again = Vault.open(vault.home)
    with pytest.raises(WrongPassphraseError):
        again.unlock(NEW)
    again.unlock(passphrase)
    assert again.check().ok
    again.change_passphrase(passphrase, NEW)
    assert again.check().ok


@contextlib.contextmanager
def nearly_full(place: Path, left: int) -> Iterator[None]:
    """A disk with `left` bytes free, until the block ends."""
    fill_up(place, left)
    try:
        yield
    finally:
        empty(place)


@pytest.mark.sweep
@pytest.mark.parametrize("call", ["fsync", "link", "replace", "rename", "unlink"])
@pytest.mark.parametrize("after", [False, True])
def test_fault_42_a_failure_at_each_step_of_making_copying_and_restoring_loses_no_vault(
    vault: Vault, home: Path, passphrase: str, monkeypatch: pytest.MonkeyPatch, call: str, after: bool
) -> None:
    vault.add_case("kept")
    good = vault.backup(home.parent / "good.sqlite3")
    vault.add_case("newer")
    new = home.parent / "new"
    works = {
        "create": lambda: Vault.create(new, passphrase, CHEAP),
        "backup": lambda: vault.backup(home.parent / "copy.sqlite3"),
        "restore": lambda: restore(good, home),
    }
    original, failures = getattr(os, call), 0
    for name, work in works.items():
        for count in range(1, 20):
            seen = iter(range(1, 1000))

            def failing(*values: object, seen: Any = seen, count: int = count, **named: object) -> object:
                number = next(seen)
                result = original(*values, **named) if after or number != count else None
                if number == count:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return result

            monkeypatch.setattr(os, call, failing)
            with contextlib.suppress(OSError, StorageError):
                work()
            monkeypatch.undo()
            reached = next(seen) > count
            failures += reached
            again = unlocked(home, passphrase)
            assert [case.title for case in again.cases()][:1] == ["kept"], (name, count)
            assert again.check().ok
            if new.exists() and Vault.exists(new):
                Vault.open(new).unlock(passphrase)
            shutil.rmtree(new, ignore_errors=True)
            (home.parent / "copy.sqlite3").unlink(missing_ok=True)
            for aside in home.glob("*replaced*"):
                aside.unlink()
            if not reached:
                break
    assert failures or call == "rename", "at least one of the three uses each of these"


@pytest.mark.parametrize("damage", ["random", "zeros", "another page", "cut off"])
def test_fault_50_each_damaged_or_cut_page_is_detected_and_the_backup_restores(
    filled: Vault, home: Path, passphrase: str, damage: str
) -> None:
    good = filled.backup()
    known = filled.audit_head
    keys = filled.keys()
    whole = filled.path.read_bytes()
    assert latest_backup(home) == good
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
            again = unlocked(home, passphrase)
            if again.check().ok and again.verify_audit(known).ok and not again.warnings:
                undetected.append(page)
        except StorageError:
            pass  # noticed
        filled.path.write_bytes(whole)
    unused = int(_pragma(filled.path, "freelist_count"))
    assert len(undetected) <= unused, f"pages {undetected} of {pages}"
    half = whole[: len(whole) // 2]
    filled.path.write_bytes(half)
    for use in (lambda: Vault.open(home).unlock(passphrase), lambda: back_up(home)):
        with pytest.raises(DatabaseDamagedError):
            use()
    assert latest_backup(home) == good
    aside = restore(good, home)
    assert aside is not None
    assert aside.read_bytes() == half, "the damaged file is kept"
    back = unlocked(home, passphrase)
    assert back.keys() == keys
    assert back.check().ok


def _pragma(path: Path, name: str) -> Any:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        return conn.execute(f"PRAGMA {name}").fetchone()[0]


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


def test_fault_53_a_migration_killed_from_outside_is_rolled_back(
    vault: Vault, add: Add, spawn: Spawn, reopened: Callable[[], Vault]
) -> None:
    key = add(vault)
    for rounds in (0, 1, 30):
        child = spawn(MIGRATES_SLOWLY)
        assert child.stdout is not None
        assert child.stdout.readline() == "began\n"
        for _ in range(rounds):
            assert child.stdout.readline() == "written\n"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        again = reopened()
        assert _pragma(vault.path, "user_version") == VAULT_SCHEMA.version
        assert again.keys() == [key]
        assert again.check().ok


def starts(home: Path, temp: Path) -> subprocess.CompletedProcess[str]:
    """`python app.py` on this home and on an unavailable port: it refuses a bad home before it tries the port."""
    environment = {**os.environ, "IRWM_HOME": str(home), "IRWM_PORT": "1", "TMPDIR": str(temp), "IRWM_DEVICE": "cpu"}
    return subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.mark.slow
def test_fault_55_the_app_does_not_start_on_a_linked_home(tmp_path: Path, passphrase: str) -> None:
    real, temp = tmp_path / "real", tmp_path / "tmp"
    temp.mkdir()
    Vault.create(real, passphrase, CHEAP)
    (tmp_path / "link").symlink_to(real)
    refused = starts(tmp_path / "link", temp)
    assert refused.returncode == 2
    assert "is a link" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture
def changed(filled: Vault, home: Path, add: Add, passphrase: str) -> Path:
    """A copy of the home's files from before the passphrase was changed; one more key was added after that."""
    old = home.parent / "old"
    shutil.copytree(home, old)
    filled.change_passphrase(passphrase, NEW)
    add(filled, "added later")
    assert filled.check().ok
    return old


def put_into(target: Path, source: Path, *statements: str) -> None:
    """Runs SQL on a vault's file, with another file attached as `other`."""
    with contextlib.closing(sqlite3.connect(target)) as conn, conn:
        conn.execute("ATTACH ? AS other", [str(source)])
        for statement in statements:
            conn.execute(statement)


def taken_over(table: str, where: str = "") -> tuple[str, str]:
    """Statements that replace a table's rows with those of the other file."""
    return f"DELETE FROM main.{table} {where}", f"INSERT INTO main.{table} SELECT * FROM other.{table} {where}"


def test_fault_70_old_copy_and_passphrase_do_not_open_later_records(
    filled: Vault, changed: Path, passphrase: str
) -> None:
    before = unlocked(changed, passphrase)
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
def test_fault_70_restored_old_header_is_refused(
    filled: Vault, home: Path, changed: Path, passphrase: str, statements: tuple[str, ...], with_witness: bool
) -> None:
    put_into(filled.path, changed / "vault.sqlite3", *statements)
    if with_witness:
        shutil.copy(changed / WITNESS_NAME, home / WITNESS_NAME)
    again = Vault.open(home)
    assert again.warnings or with_witness, "the witness names the key that the header does not"
    with pytest.raises(DatabaseDamagedError, match="does not belong to the rest of the vault"):
        again.unlock(passphrase)
    assert not again.is_unlocked
    with pytest.raises(WrongPassphraseError):
        again.unlock(NEW)
    with pytest.raises(VaultChangedError, match="replaced"):  # a process that had it open
        filled.keys()


def test_fault_70_a_whole_old_log_with_its_header_opens_no_record_and_is_noticed(
    filled: Vault, home: Path, changed: Path, passphrase: str
) -> None:
    tables = ("vault", "audit_state", "audit")
    put_into(filled.path, changed / "vault.sqlite3", *itertools.chain(*map(taken_over, tables)))
    again = Vault.open(home)
    assert "older state" in again.warnings[0]
    again.unlock(passphrase)
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


@pytest.mark.parametrize("moment", KILLED)
def test_fault_70_killed_passphrase_change_is_complete_or_absent(
    filled: Vault, home: Path, spawn: Spawn, passphrase: str, moment: str
) -> None:
    child = spawn(CHANGES.format(how=KILLED[moment]), passphrase, NEW)
    out, err = child.communicate("go\n", timeout=PATIENCE)
    assert (child.returncode, out) == (-signal.SIGKILL, "ready\n"), err
    which, vault = opened_by_one_of(home, (passphrase, NEW))
    assert which == (NEW if moment == "after the commit" else passphrase)
    assert len(vault.keys()) == 2
    vault.change_passphrase(which, "and once more")
    assert vault.check().ok


KILLS, SLACK = 50, 1.5


@pytest.mark.slow
def test_fault_70_after_kill_9_at_50_random_moments_exactly_one_passphrase_opens_everything(
    filled: Vault, home: Path, many: Callable[..., Any], spawn: Spawn, passphrase: str, seed: int
) -> None:
    random = Random(seed)
    filled.add_keys(many(1500, size=2000))
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

    child = prepared(passphrase, NEW)
    started = time.monotonic()
    begin(child)
    until_changed(child)
    whole = time.monotonic() - started
    child.wait()
    present, other = NEW, passphrase
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
        which, vault = opened_by_one_of(home, (present, other))
        assert dict(vault.keys_bytes(vault.key_ids())) == contents
        assert vault.verify_audit(known_head=printed).ok
        assert vault.identity().public_key == public
        vault.lock()
        outcomes.append(which == other)
        present, other = (other, present) if which == other else (present, other)
    assert set(outcomes) == {False, True}, "some were killed before the change, some after it"


def forged(home: Path, **changes: Any) -> None:
    """The witness, edited by someone who has no key."""
    path = home / WITNESS_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_fault_71_older_vault_without_witness_gives_a_warning(
    vault: Vault, home: Path, add: Add, passphrase: str
) -> None:
    older = vault.path.read_bytes()
    add(vault, "lost")
    vault.lock()
    vault.path.write_bytes(older)
    (home / WITNESS_NAME).unlink()
    again = Vault.open(home)
    (warning,) = again.warnings
    assert f"{WITNESS_NAME} is missing" in warning
    again.unlock(passphrase)
    assert again.warnings == (warning,)
    missed, unlocked = again.audit_log()[-2:]
    assert (missed.event, missed.details) == ("witness missing", {"warning": warning})
    assert unlocked.event == "vault unlocked"
    assert Vault.open(home).warnings == (), "shown once, then in the log"


@pytest.mark.parametrize("locked_before", [False, True])
def test_fault_71_a_witness_forged_to_fit_an_older_vault_is_noticed(
    vault: Vault, home: Path, add: Add, passphrase: str, locked_before: bool
) -> None:
    older, count, head = vault.path.read_bytes(), vault.audit_count, vault.audit_head
    add(vault, "lost")
    if locked_before:
        vault.lock()
    vault.path.write_bytes(older)
    forged(home, count=count, head=head)
    again = vault
    if locked_before:
        again = Vault.open(home)
        assert again.warnings == (), "it cannot be noticed without the passphrase"
        again.unlock(passphrase)
    else:
        again.add_case("next")
    (warning,) = again.warnings
    assert "not written by this vault" in warning
    assert "witness not authentic" in [entry.event for entry in again.audit_log()]
    assert Vault.open(home).warnings == ()


@pytest.mark.parametrize("tags", [{}, {"ab" * 16: "cd" * 32}, {"": ""}])
def test_fault_71_a_witness_without_this_vaults_code_is_noticed_before_and_after_unlocking(
    vault: Vault, home: Path, passphrase: str, tags: dict[str, str]
) -> None:
    forged(home, tags=tags)
    again = Vault.open(home)
    (warning,) = again.warnings
    assert "another data key" in warning
    again.unlock(passphrase)
    assert again.audit_log()[-2].details == {"warning": warning}


def test_fault_71_intact_vault_and_witness_give_no_warning(
    filled: Vault, reopened: Callable[[], Vault], passphrase: str
) -> None:
    for _ in range(3):
        assert reopened().warnings == ()
    filled.change_passphrase(passphrase, NEW)
    filled.change_passphrase(NEW, passphrase)
    assert reopened().warnings == ()
    events = {entry.event for entry in filled.audit_log()}
    assert events.isdisjoint({"exchange noticed", "witness missing", "witness not authentic"})
