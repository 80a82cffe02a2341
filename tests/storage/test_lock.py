"""The passphrase, the lock, and that neither leaks information."""

from __future__ import annotations

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf import argon2

from storage import (
    CostError,
    DatabaseDamagedError,
    PassphraseError,
    Vault,
    VaultChangedError,
    VaultLockedError,
    WrongPassphraseError,
    encryption,
    session,
)
from storage import wrong_passphrases as module
from storage.encryption import wrap
from storage.errors import TooManyTriesError
from storage.wrong_passphrases import FREE, MOST_WAITING, Tries
from tests.storage.conftest import CHEAP, PASSPHRASE, Sql, add_key, new_keys
from tools.waiting import PATIENCE, until

MANIFEST = {"model.safetensors": "ab" * 32, "config.json": "cd" * 32}


@pytest.mark.fault(46)
def test_a_wrong_passphrase_always_reads_the_same(vault: Vault) -> None:
    minutes = itertools.count(step=100.0)  # each try waits until it may be made
    locked = Vault.open(vault.home, monotonic=lambda: next(minutes))
    tries = ["wrong", PASSPHRASE + " ", PASSPHRASE.upper(), "x" * 1024, "語", *(f"guess {n}" for n in range(20))]
    messages, before = set(), vault.path.read_bytes()
    for attempt in tries:
        with pytest.raises(WrongPassphraseError) as caught:
            locked.unlock(attempt)
        messages.add(str(caught.value))
        assert not locked.is_unlocked
    assert len(messages) == 1
    assert vault.path.read_bytes() == before
    locked.unlock(PASSPHRASE)
    assert locked.audit_log()[-1].details == {"failed tries before": len(tries), "tries not looked at": 0}


@pytest.mark.fault(46)
def test_wrong_passphrases_queue_and_leave_the_app_responsive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that reads the state does not wait for a derivation: here the first one ends only after the answer."""
    Vault.create(home, PASSPHRASE, CHEAP)
    locked = Vault.open(home)
    begun, may_end, at_work = threading.Event(), threading.Event(), threading.Lock()

    class Held:
        def __init__(self, **settings: Any) -> None:
            self._real = argon2.Argon2id(**settings)

        def derive(self, text: bytes) -> bytes:
            assert at_work.acquire(blocking=False), "one derivation at a time"
            try:
                begun.set()
                assert may_end.wait(PATIENCE)
                return self._real.derive(text)
            finally:
                at_work.release()

    monkeypatch.setattr(encryption, "Argon2id", Held)
    with ThreadPoolExecutor(2 + MOST_WAITING) as pool:
        guesses = [pool.submit(locked.unlock, f"guess {n}") for n in range(1 + MOST_WAITING)]
        try:
            assert begun.wait(PATIENCE)
            assert pool.submit(lambda: locked.is_unlocked).result(PATIENCE) is False
            assert not any(guess.done() for guess in guesses)
        finally:
            may_end.set()
    errors = [type(guess.exception()) for guess in guesses]
    assert set(errors) == {WrongPassphraseError, TooManyTriesError}
    assert errors.count(WrongPassphraseError) == FREE, "of many tries sent at once by one caller, the first are checked"


@pytest.mark.fault(79, 92)
def test_wrong_passphrases_delay_only_their_caller_and_count_for_the_vault(home: Path) -> None:
    Vault.create(home, PASSPHRASE, CHEAP)
    now = 0.0
    tries = Tries(lambda: now)
    attacker, owner = (Vault.open(home, tries=tries, caller=caller) for caller in ("attacker", "owner"))
    for _ in range(FREE):
        with pytest.raises(WrongPassphraseError):
            attacker.unlock("wrong")
    waits = []
    for _ in range(9):
        with pytest.raises(TooManyTriesError) as caught:
            attacker.unlock(PASSPHRASE)  # the right one is not checked either
        waits.append(caught.value.seconds)
        now += caught.value.seconds
        with pytest.raises(WrongPassphraseError):
            attacker.unlock("wrong")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    for n in range(12):
        with pytest.raises(WrongPassphraseError):
            Vault.open(home, tries=tries, caller=f"session {n}").unlock("wrong")
    for failed, refused in ((FREE + 9 + 12, 9), (0, 0)):  # counted from the beginning again
        owner.unlock(PASSPHRASE)
        assert owner.audit_log()[-1].details == {"failed tries before": failed, "tries not looked at": refused}
    with pytest.raises(TooManyTriesError):
        attacker.unlock("wrong")


@pytest.mark.fault(92)
def test_a_change_of_passphrase_counts_wrong_ones_too(home: Path) -> None:
    """On a page that the owner left open."""
    vault = Vault.create(home, PASSPHRASE, CHEAP)
    for n in range(FREE):
        with pytest.raises(WrongPassphraseError):
            vault.change_passphrase(f"guess {n}", "four other plain words")
    with pytest.raises(TooManyTriesError):
        vault.change_passphrase(PASSPHRASE, "four other plain words")


class Queue:
    """Tries that hold their turn until they are released, in the order in which they got it."""

    def __init__(self) -> None:
        self.tries = Tries(lambda: 0.0)
        self.had_turn: list[str] = []
        self.refused: list[str] = []
        self._may_end = threading.Semaphore(0)

    def start(self, caller: str) -> threading.Thread:
        """A try in a separate thread; returns once it has the turn, waits for it or was refused."""
        before = self._known()

        def run() -> None:
            try:
                with self.tries.one(caller):
                    self.had_turn.append(caller)
                    assert self._may_end.acquire(timeout=PATIENCE)
            except TooManyTriesError:
                self.refused.append(caller)

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: self._known() > before, f"the try of {caller} to arrive")
        return thread

    def end(self, number: int) -> None:
        self._may_end.release(number)

    def _known(self) -> int:
        return len(self.had_turn) + len(self.refused) + len(self.tries._waiting)


@pytest.mark.fault(96)
def test_proved_caller_goes_first_and_is_never_refused() -> None:
    queue = Queue()
    queue.tries.proved("owner")
    threads = [queue.start(f"attacker {n}") for n in range(MOST_WAITING + 3)]
    assert queue.refused == [f"attacker {n}" for n in range(MOST_WAITING + 1, MOST_WAITING + 3)]
    queue.tries.rename("owner", "owner after a reload")
    threads.append(queue.start("owner after a reload"))
    assert "owner after a reload" not in queue.refused
    queue.end(MOST_WAITING + 2)
    for thread in threads:
        thread.join()
    others = [f"attacker {n}" for n in range(MOST_WAITING + 1)]
    assert queue.had_turn == [others[0], "owner after a reload", *others[1:]]


def test_a_new_name_does_not_end_a_wait() -> None:
    tries = Tries(lambda: 0.0)
    for _ in range(FREE):
        with contextlib.suppress(WrongPassphraseError), tries.one("a"):
            raise WrongPassphraseError()
    tries.rename("a", "b")
    with pytest.raises(TooManyTriesError), tries.one("b"):
        pass


def test_proved_callers_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 4)
    tries = Tries(lambda: 0.0)
    tries.proved("owner")
    for n in range(10):
        with tries.one(f"caller {n}"):
            pass
    assert len(tries._callers) == 4
    assert tries._callers["owner"].proved


@pytest.mark.fault(47)
@pytest.mark.parametrize("bad", ["", "x" * 2**20, "\ud800"])
def test_invalid_passphrase_is_refused_everywhere(home: Path, tmp_path: Path, bad: str) -> None:
    with pytest.raises(PassphraseError):
        Vault.create(home, bad)
    assert not home.exists()
    vault = Vault.create(tmp_path / "other", PASSPHRASE, CHEAP)
    before = vault.path.read_bytes()
    for use in (lambda: vault.unlock(bad), lambda: vault.change_passphrase(PASSPHRASE, bad)):
        with pytest.raises(PassphraseError):
            use()
    assert vault.path.read_bytes() == before


@pytest.mark.fault(48)
@pytest.mark.parametrize("column", ["memory_kib", "passes", "lanes"])
def test_tampered_cost_is_refused_before_derivation(vault: Vault, sql: Sql, column: str, derives: list[bytes]) -> None:
    for value in (2**31, 2**62, -1, 0, "many", None, b"\x01"):
        sql(f"UPDATE vault SET {column} = ?", value)
        with pytest.raises(CostError):
            Vault.open(vault.home).unlock("guess")
    assert not derives


@pytest.mark.parametrize("column", ["salt", "wrapped_key", "id"])
def test_tampered_header_gives_wrong_passphrase_error(vault: Vault, sql: Sql, column: str) -> None:
    sql(f"UPDATE vault SET {column} = ?", "other" if column == "id" else b"\x01" * 60)
    with pytest.raises(WrongPassphraseError):
        Vault.open(vault.home).unlock(PASSPHRASE)


def test_missing_header_is_reported_as_damage(vault: Vault, sql: Sql) -> None:
    sql("DELETE FROM vault")
    with pytest.raises(DatabaseDamagedError):
        Vault.open(vault.home)


def test_locked_vault_refuses_reads_and_writes(vault: Vault) -> None:
    key, case = add_key(vault), vault.add_case("a")
    run = vault.add_run(case.id, {}, "s", "found")
    vault.lock()
    new = iter(new_keys(3))
    for names, arguments in (
        ("keys find_keys key_ids releases find_releases timestamps cases check", ()),
        ("case_items case_notes case_runs runs_of case_file", (case.id,)),
        ("key_bytes", (key.id,)),
        ("keys_bytes key_records release_records", ([key.id],)),
        ("keys_for marks_on", ("ab" * 32,)),
        ("labels", ("keys", key.id)),
        ("run_files run_finding", (run.id,)),
        ("add_keys", (new,)),
        ("add_case log", ("text",)),
        ("add_note", (case.id, "text")),
        ("add_item", (case.id, "x", {"a": (1, "ab" * 32)})),
        ("add_run", (case.id, {}, "s", "found")),
        ("add_release", (key.id, "/a", MANIFEST, {})),
        ("set_label", ("keys", key.id, "x")),
    ):
        for name in names.split():
            with pytest.raises(VaultLockedError):
                list(getattr(vault, name)(*arguments))
    with pytest.raises(VaultLockedError):
        add_key(vault)
    assert len(list(new)) == 3, "no key was generated"
    assert [entry.details for entry in vault.audit_log()] == [None] * 4
    assert vault.verify_audit().ok
    assert not vault.verify_audit().authenticated


@pytest.mark.fault(54)
def test_an_idle_vault_locks_itself(home: Path, clock: Any) -> None:
    vault = Vault.create(home, PASSPHRASE, CHEAP, idle_seconds=60, monotonic=clock.monotonic)
    for _ in range(3):
        clock.ticks += 59
        add_key(vault)  # use keeps it open
    clock.ticks += 59
    assert vault.is_unlocked
    clock.ticks += 1  # reading the state did not count as use
    assert not vault.is_unlocked
    with pytest.raises(VaultLockedError):
        vault.keys()
    clock.ticks -= 1000  # a clock that goes back unlocks nothing
    assert not vault.is_unlocked
    vault.unlock(PASSPHRASE)
    assert len(vault.keys()) == 3


def test_pages_that_poll_do_not_keep_the_vault_open(home: Path, clock: Any) -> None:
    vault = Vault.create(home, PASSPHRASE, CHEAP, idle_seconds=60, monotonic=clock.monotonic)
    for _ in range(6):
        clock.ticks += 10
        _ = vault.is_unlocked, vault.verify_audit(), vault.audit_log(), vault.warnings, vault.audit_head, vault.id
    assert not vault.is_unlocked


@pytest.mark.fault(54)
def test_a_second_session_is_locked(vault: Vault) -> None:
    second = Vault.open(vault.home)
    assert vault.is_unlocked
    assert not second.is_unlocked
    second.unlock(PASSPHRASE)
    vault.lock()
    assert second.is_unlocked


@pytest.mark.fault(54)
def test_locked_vault_object_holds_no_key(vault: Vault) -> None:
    add_key(vault)
    vault.lock()
    assert vault._sealer is None
    assert not [value for value in vars(vault).values() if isinstance(value, (bytes, bytearray))]
    assert "SECRET" not in repr(vars(vault))


def test_old_wrapped_key_is_removed_from_file(vault: Vault, sql: Sql) -> None:
    old = sql("SELECT wrapped_key FROM vault")[0][0]
    assert old in (vault.home / "vault.sqlite3").read_bytes()
    vault.change_passphrase(PASSPHRASE, "new words")
    assert old not in (vault.home / "vault.sqlite3").read_bytes()


def test_second_of_two_concurrent_passphrase_changes_fails(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*arguments: Any) -> Any:
        wrapped = wrap(*arguments)
        monkeypatch.setattr(session, "wrap", wrap)
        vault.change_passphrase(PASSPHRASE, "theirs")
        return wrapped

    monkeypatch.setattr(session, "wrap", overtaken)
    with pytest.raises(VaultChangedError):
        vault.change_passphrase(PASSPHRASE, "ours")
    vault.unlock("theirs")
