"""The witness file next to the vault reveals an older, another or a diverged vault (FAULTS 52, 71)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from storage import Vault, back_up, restore
from storage.log_witness import WITNESS_NAME
from tests.storage.conftest import PASSPHRASE, add_key, unlocked

NEW = "another four plain words"


def forged(home: Path, **changes: Any) -> None:
    """The witness, edited by someone who has no key."""
    path = home / WITNESS_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.fault(52)
def test_restored_older_state_causes_warning_and_log_entry(vault: Vault) -> None:
    vault.add_case("kept")
    old = back_up(vault.home)
    vault.add_case("lost")
    aside = restore(old, vault.home)
    assert aside is not None
    assert old.exists()
    again = Vault.open(vault.home)
    (warning,) = again.warnings
    assert "older state" in warning
    again.unlock(PASSPHRASE)
    assert [case.title for case in again.cases()] == ["kept"]
    assert [entry.event for entry in again.audit_log()][-2:] == ["exchange noticed", "vault unlocked"]
    assert again.check().ok
    assert Vault.open(vault.home).warnings == (), "one warning, then an entry in the log"
    kept = vault.home / "kept"
    kept.mkdir()
    aside.rename(kept / "vault.sqlite3")
    before = unlocked(kept, PASSPHRASE)
    assert [case.title for case in before.cases()] == ["kept", "lost"]


@pytest.mark.fault(52)
def test_diverged_vault_causes_warning(vault: Vault, tmp_path: Path) -> None:
    restore(back_up(vault.home), tmp_path / "fork")
    fork = unlocked(tmp_path / "fork", PASSPHRASE)
    fork.add_case("there")
    vault.add_case("here")
    vault.add_case("here too")
    shutil.copy(fork.path, vault.path)
    fork.add_case("a longer log")
    shutil.copy(fork.path, vault.path)
    (warning,) = Vault.open(vault.home).warnings
    assert "not the one that was written here" in warning


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 500, b"[1]", b'{"vault": 1, "count": "x", "head": []}', b"[" * 5000]
)
def test_unreadable_witness_causes_warning_and_is_rewritten(vault: Vault, content: bytes) -> None:
    (vault.home / "vault.witness.json").write_bytes(content)
    assert "cannot be read" in Vault.open(vault.home).warnings[0]
    vault.add_case("next")
    assert Vault.open(vault.home).warnings == ()


@pytest.mark.fault(71)
def test_older_vault_without_witness_gives_a_warning(vault: Vault) -> None:
    older = vault.path.read_bytes()
    add_key(vault, "lost")
    vault.lock()
    vault.path.write_bytes(older)
    (vault.home / WITNESS_NAME).unlink()
    again = Vault.open(vault.home)
    (warning,) = again.warnings
    assert f"{WITNESS_NAME} is missing" in warning
    again.unlock(PASSPHRASE)
    assert again.warnings == (warning,)
    missed, unlocked = again.audit_log()[-2:]
    assert (missed.event, missed.details) == ("witness missing", {"warning": warning})
    assert unlocked.event == "vault unlocked"
    assert Vault.open(vault.home).warnings == (), "shown once, then in the log"


@pytest.mark.fault(71)
@pytest.mark.parametrize("locked_before", [False, True])
def test_witness_forged_to_fit_an_older_vault_is_noticed(vault: Vault, locked_before: bool) -> None:
    older, count, head = vault.path.read_bytes(), vault.audit_count, vault.audit_head
    add_key(vault, "lost")
    if locked_before:
        vault.lock()
    vault.path.write_bytes(older)
    forged(vault.home, count=count, head=head)
    again = vault
    if locked_before:
        again = Vault.open(vault.home)
        assert again.warnings == (), "it cannot be noticed without the passphrase"
        again.unlock(PASSPHRASE)
    else:
        again.add_case("next")
    (warning,) = again.warnings
    assert "not written by this vault" in warning
    assert "witness not authentic" in [entry.event for entry in again.audit_log()]
    assert Vault.open(vault.home).warnings == ()


@pytest.mark.fault(71)
@pytest.mark.parametrize("tags", [{}, {"ab" * 16: "cd" * 32}, {"": ""}])
def test_witness_with_another_code_is_noticed_before_and_after_unlocking(vault: Vault, tags: dict[str, str]) -> None:
    forged(vault.home, tags=tags)
    again = Vault.open(vault.home)
    (warning,) = again.warnings
    assert "different data keys" in warning
    again.unlock(PASSPHRASE)
    assert again.audit_log()[-2].details == {"warning": warning}


@pytest.mark.fault(71)
def test_intact_vault_and_witness_give_no_warning(filled: Vault) -> None:
    for _ in range(3):
        assert unlocked(filled.home).warnings == ()
    filled.change_passphrase(PASSPHRASE, NEW)
    filled.change_passphrase(NEW, PASSPHRASE)
    assert unlocked(filled.home).warnings == ()
    events = {entry.event for entry in filled.audit_log()}
    assert events.isdisjoint({"exchange noticed", "witness missing", "witness not authentic"})
