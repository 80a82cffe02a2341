from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from storage import (
    AuditBrokenError,
    Cost,
    CostError,
    DamagedRecordError,
    DatabaseDamagedError,
    KeyRecord,
    PassphraseError,
    RecordName,
    RecordNotFoundError,
    RecordValueError,
    Vault,
    VaultChangedError,
    VaultExistsError,
    VaultLockedError,
    VaultMissingError,
    WrongPassphraseError,
    session,
)
from storage.canonical import json_bytes
from storage.encryption import wrap
from storage.records import open_meta, place

Add = Callable[..., KeyRecord]
Sql = Callable[..., list[Any]]
Spawn = Callable[..., subprocess.Popen[str]]
MANIFEST = {"model.safetensors": "ab" * 32, "config.json": "cd" * 32}
FINDING = {"verdict": "found", "ranks": [0.001, None], "log10_p": -41.5}


def recipients(vault: Vault) -> list[str]:
    keys = vault.keys()
    return [key.recipient for key in keys]


# Records


def test_everything_that_is_filed_comes_back(vault: Vault, add: Add, reopened: Callable[[], Vault]) -> None:
    key = add(vault)
    release = vault.add_release(key.id, Path("/releases/copy-1"), MANIFEST, {"changed_rows": 50})
    case = vault.add_case("Leak of January", "seen on a forum")
    run = vault.add_run(case.id, FINDING, "suspect.gguf", "found", note="quantised")
    other = vault.add_case("Another")
    again = reopened()
    assert again.keys() == [key]
    assert again.key_bytes(key.id) == b"SECRET-KEY-Brightwater Labs"
    assert again.releases() == [release]
    assert again.cases() == [case, other]
    assert again.case_runs(case.id) == [run]
    assert again.case_runs(other.id) == []
    assert (key.owner, key.parameters, key.label) == (
        "Northwind Research AG",
        {"positions": 50, "scale": 1000.0},
        "early access",
    )
    assert (release.key_id, release.path, release.manifest) == (key.id, "/releases/copy-1", MANIFEST)
    assert (run.finding, run.verdict, run.suspect, run.note) == (FINDING, "found", "suspect.gguf", "quantised")
    assert again.check().ok
    assert again.check().records == 5


def test_keys_are_found_by_their_model(vault: Vault, add: Add) -> None:
    ours, _, ours_too = add(vault, "a"), add(vault, "b", model="99" * 32), add(vault, "c")
    assert vault.keys_for("ab" * 32) == [ours, ours_too]
    assert vault.keys_for("77" * 32) == []


def test_nothing_secret_is_in_the_files(vault: Vault, add: Add, home: Path, passphrase: str) -> None:
    key = add(vault)
    vault.add_release(key.id, "/srv/releases/brightwater", MANIFEST, {"receipt": "R-77"})
    case = vault.add_case("Leak of January", "seen on a forum")
    vault.add_run(case.id, FINDING, "suspect.gguf", "inconclusive")
    vault.log("report exported", {"file": "evidence.pdf"})
    with vault._file.writing():  # a connection is open, so log and index lie beside the database
        files = {path.name: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    files |= {"backup": vault.backup().read_bytes()}
    assert {"vault.sqlite3", "vault.sqlite3-wal", "vault.sqlite3-shm", "vault.witness.json"} <= files.keys()
    secrets = ["SECRET-KEY", "Northwind", "Brightwater", "northwind-7b", "ab" * 32, "cd" * 32, "llama", "early access"]
    secrets += ["brightwater", "R-77", "January", "forum", "suspect.gguf", "inconclusive", "41.5", "evidence.pdf"]
    for name, content in files.items():
        for secret in (*secrets, passphrase):
            assert secret.encode() not in content, f"{secret} in {name}"
    assert b"key added" in files["vault.sqlite3"], "the search would have found clear text"


def test_a_later_change_of_the_callers_values_does_not_reach_the_record(vault: Vault) -> None:
    case, finding = vault.add_case("a"), {"ranks": [1]}
    run = vault.add_run(case.id, finding, "s", "found")
    finding["ranks"].append(2)
    assert run.finding == {"ranks": [1]}


@pytest.mark.parametrize(
    "change",
    [
        {"sealed": b""},
        {"sealed": "text"},
        {"owner": " "},
        {"commitment": ""},
        {"model_fingerprint": None},
        {"parameters": {"scale": float("nan")}},
        {"label": b"bytes"},
    ],
    ids=str,
)
def test_a_key_that_is_none_is_refused(vault: Vault, change: dict[str, Any]) -> None:
    values: dict[str, Any] = dict.fromkeys(
        ("owner", "recipient", "model_name", "model_fingerprint", "family", "commitment"), "x"
    )
    values |= {"sealed": b"k", "parameters": {}} | change
    with pytest.raises(RecordValueError):
        vault.add_key(values.pop("sealed"), **values)
    assert vault.keys() == []


def test_values_that_are_not_json_or_not_there_are_refused(vault: Vault, add: Add) -> None:
    case, head = vault.add_case("a"), vault.audit_head
    with pytest.raises(RecordValueError, match="the finding"):
        vault.add_run(case.id, {"ranks": [float("nan")]}, "s", "found")
    with pytest.raises(RecordValueError, match="verdict is missing"):
        vault.add_run(case.id, {}, "s", "")
    with pytest.raises(RecordValueError, match="title is missing"):
        vault.add_case("")
    with pytest.raises(RecordValueError, match="manifest"):
        vault.add_release("x", "/a", {"a": "not a digest"}, {})
    assert vault.audit_head == head


def test_unknown_identifiers_are_refused(vault: Vault) -> None:
    for action in (
        lambda: vault.key_bytes("no such"),
        lambda: vault.add_release("no such", "/a", MANIFEST, {}),
        lambda: vault.add_run("' OR 1=1 --", {}, "s", "found"),
    ):
        with pytest.raises(RecordNotFoundError, match="there is no record"):
            action()
    assert vault.check().records == 0


# Passphrase and lock


def test_a_wrong_passphrase_always_reads_the_same(home: Path, vault: Vault, passphrase: str) -> None:
    locked = Vault.open(home)
    tries = ["wrong", passphrase + " ", passphrase.upper(), "x" * 1024, "語", *(f"guess {n}" for n in range(20))]
    messages = set()
    for attempt in tries:
        with pytest.raises(WrongPassphraseError) as caught:
            locked.unlock(attempt)
        messages.add(str(caught.value))
        assert not locked.is_unlocked
    assert len(messages) == 1
    locked.unlock(passphrase)
    assert locked.audit_log()[-1].details == {"failed tries before": len(tries)}


def test_wrong_passphrases_queue_and_leave_the_app_responsive(home: Path, passphrase: str) -> None:
    Vault.create(home, passphrase, Cost(32 * 1024, 2, 1))
    locked = Vault.open(home)
    errors: list[type] = []

    def guess(n: int) -> None:
        try:
            locked.unlock(f"guess {n}")
        except WrongPassphraseError as error:
            errors.append(type(error))

    threads = [threading.Thread(target=guess, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    longest = 0.0
    while any(thread.is_alive() for thread in threads):
        start = time.perf_counter()
        assert not locked.is_unlocked
        longest = max(longest, time.perf_counter() - start)
        time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert len(errors) == 8
    assert longest < 0.5, "a page that asks for the state must not wait for a derivation"


@pytest.mark.parametrize("bad", ["", "x" * 2**20])
def test_what_cannot_be_a_passphrase_makes_no_vault(home: Path, bad: str) -> None:
    with pytest.raises(PassphraseError):
        Vault.create(home, bad)
    assert not Vault.exists(home)
    assert not home.exists()


@pytest.mark.parametrize("column", ["memory_kib", "passes", "lanes"])
def test_a_tampered_cost_is_refused_at_once(vault: Vault, home: Path, sql: Sql, column: str) -> None:
    for value in (2**31, 2**62, -1, 0, "many", None, b"\x01"):
        sql(f"UPDATE vault SET {column} = ?", value)
        start = time.perf_counter()
        with pytest.raises(CostError):
            Vault.open(home).unlock("guess")
        assert time.perf_counter() - start < 1


@pytest.mark.parametrize("column", ["salt", "wrapped_key", "id"])
def test_a_tampered_header_reads_like_a_wrong_passphrase(
    vault: Vault, home: Path, sql: Sql, column: str, passphrase: str
) -> None:
    sql(f"UPDATE vault SET {column} = ?", "other" if column == "id" else b"\x01" * 60)
    with pytest.raises(WrongPassphraseError):
        Vault.open(home).unlock(passphrase)


def test_a_lost_header_is_damage(vault: Vault, home: Path, sql: Sql) -> None:
    sql("DELETE FROM vault")
    with pytest.raises(DatabaseDamagedError, match="header"):
        Vault.open(home)


def test_a_locked_vault_gives_and_takes_nothing(home: Path, vault: Vault, add: Add) -> None:
    key, case = add(vault), vault.add_case("a")
    vault.lock()
    for action in (
        vault.keys,
        lambda: vault.key_bytes(key.id),
        lambda: add(vault),
        vault.releases,
        lambda: vault.add_release(key.id, "/a", MANIFEST, {}),
        vault.cases,
        lambda: vault.add_case("b"),
        lambda: vault.case_runs(case.id),
        lambda: vault.add_run(case.id, {}, "s", "found"),
        lambda: vault.log("event"),
        vault.check,
    ):
        with pytest.raises(VaultLockedError):
            action()
    assert [entry.details for entry in vault.audit_log()] == [None] * 3
    assert vault.verify_audit().ok
    assert not vault.verify_audit().authenticated


def test_an_idle_vault_locks_itself(home: Path, passphrase: str, cheap: Cost, clock: Any, add: Add) -> None:
    vault = Vault.create(home, passphrase, cheap, idle_seconds=60, monotonic=clock.monotonic)
    for _ in range(3):
        clock.ticks += 59
        add(vault)  # use keeps it open
    clock.ticks += 59
    assert vault.is_unlocked
    clock.ticks += 1  # asking for the state was no use
    assert not vault.is_unlocked
    with pytest.raises(VaultLockedError):
        vault.keys()
    clock.ticks -= 1000  # a clock that goes back opens nothing
    assert not vault.is_unlocked
    vault.unlock(passphrase)
    assert len(vault.keys()) == 3


def test_pages_that_poll_do_not_keep_the_vault_open(home: Path, passphrase: str, cheap: Cost, clock: Any) -> None:
    vault = Vault.create(home, passphrase, cheap, idle_seconds=60, monotonic=clock.monotonic)
    for _ in range(6):
        clock.ticks += 10
        _ = vault.is_unlocked, vault.verify_audit(), vault.audit_log(), vault.warnings, vault.audit_head, vault.id
    assert not vault.is_unlocked


def test_a_second_session_is_locked(home: Path, vault: Vault, passphrase: str) -> None:
    second = Vault.open(home)
    assert vault.is_unlocked
    assert not second.is_unlocked
    second.unlock(passphrase)
    vault.lock()
    assert second.is_unlocked


def test_no_key_hangs_on_a_locked_vault(vault: Vault, add: Add) -> None:
    add(vault)
    vault.lock()
    assert vault._sealer is None
    assert not [value for value in vars(vault).values() if isinstance(value, (bytes, bytearray))]
    assert "SECRET" not in repr(vars(vault))


def test_a_new_passphrase_opens_the_same_records(home: Path, vault: Vault, add: Add, passphrase: str) -> None:
    key = add(vault)
    with pytest.raises(WrongPassphraseError):
        vault.change_passphrase("wrong", "new words")
    with pytest.raises(PassphraseError):
        vault.change_passphrase(passphrase, "")
    vault.change_passphrase(passphrase, "new words", Cost(16, 1, 1))
    assert vault.keys() == [key], "an unlocked session goes on"
    other = Vault.open(home)
    with pytest.raises(WrongPassphraseError):
        other.unlock(passphrase)
    other.unlock("new words")
    assert other.key_bytes(key.id) == vault.key_bytes(key.id)
    assert other.check().ok
    assert [entry.event for entry in other.audit_log()][-2:] == ["passphrase changed", "vault unlocked"]


def test_the_old_wrapped_key_does_not_linger(home: Path, vault: Vault, sql: Sql, passphrase: str) -> None:
    old = sql("SELECT wrapped_key FROM vault")[0][0]
    assert old in (home / "vault.sqlite3").read_bytes()
    vault.change_passphrase(passphrase, "new words")
    assert old not in (home / "vault.sqlite3").read_bytes()


def test_of_two_changes_of_passphrase_at_once_one_is_told(
    vault: Vault, passphrase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*arguments: Any) -> Any:
        wrapped = wrap(*arguments)
        monkeypatch.setattr(session, "wrap", wrap)
        session._DERIVING.release()
        try:
            vault.change_passphrase(passphrase, "theirs")
        finally:
            session._DERIVING.acquire()
        return wrapped

    monkeypatch.setattr(session, "wrap", overtaken)
    with pytest.raises(VaultChangedError, match="changed elsewhere"):
        vault.change_passphrase(passphrase, "ours")
    vault.unlock("theirs")


# Creation


def test_a_vault_is_never_overwritten(home: Path, vault: Vault, add: Add, passphrase: str) -> None:
    key = add(vault)
    with pytest.raises(VaultExistsError):
        Vault.create(home, "another passphrase")
    again = Vault.open(home)
    again.unlock(passphrase)
    assert again.keys() == [key]


CREATE = """
from storage import Cost, Vault, VaultExistsError
print("ready", flush=True); sys.stdin.readline()
try:
    Vault.create(home, sys.argv[2], Cost(8, 1, 1)); print("1")
except VaultExistsError:
    print("0")
"""


def test_of_two_creators_one_wins(home: Path, spawn: Spawn, answer: Callable[..., Any]) -> None:
    children = {name: spawn(CREATE, name) for name in ("first", "second")}
    for child in children.values():
        assert child.stdout is not None
        child.stdout.readline()
    for child in children.values():
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    won = [name for name, child in children.items() if answer(child)]
    assert len(won) == 1
    Vault.open(home).unlock(won[0])
    assert sorted(path.name for path in home.iterdir()) == ["vault.sqlite3", "vault.witness.json"]


def test_where_there_is_no_vault_it_is_said(home: Path) -> None:
    assert not Vault.exists(home)
    with pytest.raises(VaultMissingError, match="create one"):
        Vault.open(home)


def test_a_vault_begun_anew_says_so(home: Path, vault: Vault, passphrase: str, cheap: Cost) -> None:
    assert vault.audit_log()[0].details == {"vault": vault.id, "stood here before": None}
    before = {"vault": vault.id, "count": 1, "head": vault.audit_head}
    (home / "vault.sqlite3").unlink()
    anew = Vault.create(home, passphrase, cheap)
    assert anew.audit_log()[0].details == {"vault": anew.id, "stood here before": before}


# Tampering


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
        ("version = 2", None),
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


def test_a_sequence_number_at_the_end_of_numbers_stops_writing(vault: Vault, add: Add, sql: Sql) -> None:
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
    """Only someone who had the key could make one; the audit log still knows the digest of the first."""
    key = add(vault)
    with vault._file.writing() as db:
        row = next(iter(db.query("SELECT * FROM keys")))
        meta = open_meta(vault._use(), "keys", row) | {"owner": "someone else"}
        forged = vault._use().seal(json_bytes(meta), place("keys", row, "meta"))
        db.table("keys").update(1, {"meta": forged})
    assert vault.keys()[0].owner == "someone else"
    assert vault.check().damaged == (RecordName("keys", key.id),)


def test_another_vault_in_this_ones_place_is_not_written_to(
    vault: Vault, home: Path, tmp_path: Path, passphrase: str, cheap: Cost
) -> None:
    other = Vault.create(tmp_path / "other", passphrase, cheap)
    (home / "vault.sqlite3").write_bytes(other.path.read_bytes())
    before = (home / "vault.sqlite3").read_bytes()
    with pytest.raises(VaultChangedError, match="another vault"):
        vault.add_case("for the old one")
    assert (home / "vault.sqlite3").read_bytes() == before
    assert "Another vault stood here before" in Vault.open(home).warnings[0]


# Several at once


WRITE = """
from storage import Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
print("ready", flush=True); sys.stdin.readline()
for number in range(int(sys.argv[3])):
    vault.add_key(b"k", owner="o", recipient=f"{sys.argv[2]}-{number}", model_name="m", model_fingerprint="f",
                  family="llama", commitment="c", parameters={})
    print(number, flush=True)
"""


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_two_processes_writing_at_once_lose_nothing(vault: Vault, spawn: Spawn, answer: Callable[..., Any]) -> None:
    children = [spawn(WRITE, name, "25") for name in ("left", "right")]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        go(child)
    for child in children:
        assert answer(child) == 24
    assert sorted(recipients(vault)) == sorted(f"{name}-{n}" for name in ("left", "right") for n in range(25))
    keys = vault.keys()
    assert [key.sequence for key in keys] == list(range(1, 51))
    check = vault.check()
    assert check.ok
    assert check.audit.entries == 1 + 2 + 50
    assert vault.warnings == ()


def test_threads_writing_at_once_lose_nothing(vault: Vault, add: Add) -> None:
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for n in range(10):
                add(vault, f"{name}-{n}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(set(recipients(vault))) == 40
    assert vault.check().ok
    assert vault.warnings == ()


def test_a_killed_writer_leaves_whole_records_and_a_sound_log(
    vault: Vault, spawn: Spawn, reopened: Callable[[], Vault]
) -> None:
    child = spawn(WRITE, "doomed", "100000")
    assert child.stdout is not None
    child.stdout.readline()
    go(child)
    for _ in range(5):
        child.stdout.readline()
    child.kill()
    said = 4 + sum(1 for line in child.stdout if line.strip())
    again = reopened()
    check = again.check()
    assert check.ok
    assert check.records >= said, "what was confirmed is there"
    assert again.warnings == ()
    assert [path.name for path in again.home.glob("vault.sqlite3*")] == ["vault.sqlite3"]


# Clocks


def test_order_is_by_sequence_whatever_the_clock_says(vault: Vault, add: Add, clock: Any) -> None:
    vault._now = clock.now
    steps = [timedelta(0), timedelta(days=-9000), timedelta(days=36000), timedelta(hours=-1)]
    for name, step in zip("abcd", steps, strict=True):
        clock.wall += step
        add(vault, name)
    clock.wall = clock.wall.replace(year=2099)
    case = vault.add_case("in 2099")
    clock.wall = clock.wall.replace(year=1971)
    runs = [vault.add_run(case.id, {}, suspect, "found") for suspect in ("one", "two")]
    assert recipients(vault) == list("abcd")
    assert vault.cases()[0].created.startswith("2099-")
    assert [run.suspect for run in vault.case_runs(case.id)] == ["one", "two"]
    assert runs[0].created.startswith("1971-")
    keys = vault.keys()
    assert keys[0].created == "2026-03-01T12:00:00.000Z"
    assert all(key.created.endswith("Z") for key in keys)
    assert [entry.sequence for entry in vault.audit_log()] == list(range(1, 9))
    assert vault.check().ok


def test_the_idle_clock_counts_sleep_where_it_can(vault: Vault) -> None:
    if sys.platform == "linux":
        assert vault._monotonic() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1)
    first = vault._monotonic()
    assert vault._monotonic() >= first


def test_a_log_that_cannot_be_written_does_not_shut_the_owner_out(
    home: Path, vault: Vault, add: Add, sql: Sql, passphrase: str
) -> None:
    key = add(vault)
    sql("UPDATE audit_state SET count = 1")
    again = Vault.open(home)
    again.unlock(passphrase)
    assert again.key_bytes(key.id) == b"SECRET-KEY-Brightwater Labs"
    assert any("could not be written to the audit log" in warning for warning in again.warnings)
    with pytest.raises(AuditBrokenError):
        add(again)
