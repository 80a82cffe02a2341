from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from storage.encryption import Cost
from storage.errors import TooManyTriesError, VaultExistsError, VaultMissingError, WrongPassphraseError
from ui import sessions as module
from ui.sessions import SessionLockedError, Sessions, cookie_name, new_session_id, session_of

PASSPHRASE = "four unrelated plain words"
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(tmp_path: Path, clock: Clock) -> Sessions:
    return Sessions(tmp_path / "home", cost=CHEAP, monotonic=clock)


@pytest.mark.fault(54)
def test_idle_browser_is_locked_despite_polling(sessions: Sessions, clock: Clock) -> None:
    sessions.create("a", PASSPHRASE)
    sessions.unlock("b", PASSPHRASE)
    for _ in range(20):
        clock.now += 60
        sessions.is_open("a")
        if sessions.is_open("b"):
            sessions.vault("b").keys()
    assert (sessions.is_open("a"), sessions.is_open("b")) == (False, True)


@pytest.mark.parametrize("before", [900, 60])
def test_idle_time_applies_to_open_and_new_browsers_and_reopens_none(
    sessions: Sessions, clock: Clock, before: int
) -> None:
    sessions.set_idle(before)
    sessions.create("first", PASSPHRASE)
    clock.now = 61  # without a request since then
    sessions.set_idle(60 if before == 900 else 900)
    assert not sessions.is_open("first")
    sessions.unlock("second", PASSPHRASE)
    clock.now += 61
    assert sessions.is_open("second") == (before == 60)


def test_session_without_identity_is_refused(sessions: Sessions) -> None:
    with pytest.raises(SessionLockedError):
        sessions.create(None, PASSPHRASE)
    assert not sessions.vault_exists()
    with pytest.raises(SessionLockedError):
        sessions.unlock(None, PASSPHRASE)
    assert not sessions.is_open(None)


def test_sessions_share_one_vault(sessions: Sessions) -> None:
    with pytest.raises(VaultMissingError):
        sessions.unlock("a", PASSPHRASE)
    sessions.create("a", PASSPHRASE)
    with pytest.raises(VaultExistsError):
        sessions.create("b", "another good passphrase")
    assert not sessions.is_open("b")


@pytest.mark.fault(79, 96)
def test_wrong_passphrases_count_together_and_delay_each_browser(sessions: Sessions, clock: Clock) -> None:
    sessions.create("a", PASSPHRASE)
    for _ in range(3):
        with pytest.raises(WrongPassphraseError):
            sessions.unlock("attacker", "wrong")
    with pytest.raises(TooManyTriesError):
        sessions.unlock("attacker", PASSPHRASE)
    sessions.renew("attacker", "attacker with a new cookie")
    with pytest.raises(TooManyTriesError):
        sessions.unlock("attacker with a new cookie", PASSPHRASE)
    assert sessions.is_open("a")
    sessions.unlock("another", PASSPHRASE)
    assert sessions.vault("another").audit_log()[-1].details == {"failed tries before": 3, "tries not looked at": 2}


def test_wrong_passphrases_do_not_count_for_a_new_vault(sessions: Sessions) -> None:
    """There is no backup: its folder was emptied, and a new vault is created."""
    sessions.create("a", PASSPHRASE)
    for _ in range(2):
        with pytest.raises(WrongPassphraseError):
            sessions.unlock("b", "wrong")
    sessions.forget()
    for file in sessions.home.glob("vault*"):
        file.unlink()
    sessions.create("a", PASSPHRASE)
    for _ in range(2):
        with pytest.raises(WrongPassphraseError):
            sessions.unlock("b", "wrong")
    sessions.unlock("b", PASSPHRASE)


def test_wrong_passphrases_from_many_lock_no_one_out(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 4)
    sessions.create("a", PASSPHRASE)
    for n in range(10):
        with pytest.raises(WrongPassphraseError):
            sessions.unlock(f"caller {n}", "wrong")
        clock.now += 70
    assert sessions.is_open("a")
    assert len(sessions._views) == 4


def request(cookies: dict[str, str] | None, session_hash: str | None) -> SimpleNamespace:
    web = None if cookies is None else SimpleNamespace(cookies=cookies)
    return SimpleNamespace(request=web, session_hash=session_hash)


def test_a_browser_is_known_by_its_cookie_and_a_program_by_its_session() -> None:
    name = cookie_name(7860)
    assert session_of(request({name: "x"}, "h"), 7860) == "cookie:x"
    assert session_of(request({name: "x"}, "h"), 7861) == "hash:h", "another port's cookie is not ours"
    assert session_of(request({}, "h"), 7860) == "hash:h"
    assert session_of(request({}, "cookie:x"), 7860) == "hash:cookie:x", "one cannot pass for the other"
    assert session_of(request(None, None), 7860) is None
    assert session_of(None, 7860) is None


def test_identifiers_cannot_be_guessed() -> None:
    assert len({new_session_id() for _ in range(100)}) == 100
    assert len(new_session_id()) >= 43
