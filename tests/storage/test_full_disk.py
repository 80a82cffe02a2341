"""On a full disk, or if a system call fails, the vault keeps all of its records (FAULTS 40, 42)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import StorageError, StorageFullError, Vault, WrongPassphraseError, restore
from tests.faults.conftest import small_disk
from tests.faults.helpers import empty, failing, fill_up
from tests.storage.conftest import CHEAP, PASSPHRASE, new_keys, unlocked

__all__ = ["small_disk"]
PAGE = 4096
NEW = "another four plain words"


@pytest.fixture
def full(small_disk: Path) -> type[StorageError]:
    """The error of a write to the full disk."""
    return StorageFullError if os.path.ismount(small_disk) else StorageError


@contextlib.contextmanager
def nearly_full(place: Path, left: int) -> Iterator[None]:
    """A disk with `left` bytes free, until the block ends."""
    fill_up(place, left)
    try:
        yield
    finally:
        empty(place)


@pytest.mark.fault(40)
def test_vault_on_a_full_disk_loses_nothing(small_disk: Path, full: type[StorageError]) -> None:
    vault = Vault.create(small_disk / "home", PASSPHRASE, CHEAP)
    kept = vault.add_case("kept")
    backup = vault.backup(small_disk / "copy.sqlite3")
    refusals = 0
    for left in range(0, 40 * PAGE, PAGE):
        with nearly_full(small_disk, left):
            try:
                vault.add_case("large", "x" * 60_000)
                break
            except full:
                refusals += 1
        assert vault.cases() == [kept]
    assert refusals > 3
    assert [case.title for case in vault.cases()] == ["kept", "large"]
    assert vault.check().ok
    with nearly_full(small_disk, 0), pytest.raises(StorageError):
        vault.backup(small_disk / "second.sqlite3")
    assert {path.name for path in small_disk.iterdir()} == {"home", backup.name}, "no partial file is left"
    assert not list((small_disk / "home").glob("*partial*"))


@pytest.mark.fault(40)
def test_change_of_passphrase_on_a_full_disk_changes_nothing(small_disk: Path, full: type[StorageError]) -> None:
    vault = Vault.create(small_disk / "home", PASSPHRASE, CHEAP)
    vault.add_keys(new_keys(100, size=4000))
    log = vault.audit_log()
    with nearly_full(small_disk, 40 * PAGE), pytest.raises(full):
        vault.change_passphrase(PASSPHRASE, NEW)
    assert vault.audit_log() == log
    again = Vault.open(vault.home)
    with pytest.raises(WrongPassphraseError):
        again.unlock(NEW)
    again.unlock(PASSPHRASE)
    assert again.check().ok
    again.change_passphrase(PASSPHRASE, NEW)
    assert again.check().ok


@pytest.mark.fault(42)
@pytest.mark.sweep
@pytest.mark.parametrize("call", ["fsync", "link", "replace", "rename", "unlink"])
@pytest.mark.parametrize("after", [False, True])
def test_failure_at_each_step_of_making_copying_and_restoring_loses_no_vault(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, call: str, after: bool
) -> None:
    vault.add_case("kept")
    good = vault.backup(vault.home.parent / "good.sqlite3")
    vault.add_case("newer")
    new, copy, failures = vault.home.parent / "new", vault.home.parent / "copy.sqlite3", 0
    for work in (
        lambda: Vault.create(new, PASSPHRASE, CHEAP),
        lambda: vault.backup(copy),
        lambda: restore(good, vault.home),
    ):
        for number in range(1, 20):
            fail, calls = failing(call, number, after)
            with monkeypatch.context() as patch, contextlib.suppress(OSError, StorageError):
                patch.setattr(os, call, fail)
                work()
            again = unlocked(vault.home)
            assert [case.title for case in again.cases()][:1] == ["kept"], number
            assert again.check().ok
            if new.exists() and Vault.exists(new):
                unlocked(new)
            shutil.rmtree(new, ignore_errors=True)
            copy.unlink(missing_ok=True)
            for aside in vault.home.glob("*replaced*"):
                aside.unlink()
            if len(calls) < number:
                break
            failures += 1
    assert failures or call == "rename", "at least one of the three uses each of these"
