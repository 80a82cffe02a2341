"""A vault is made once and never overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Vault, VaultExistsError, VaultMissingError
from tests.storage.conftest import CHEAP, PASSPHRASE, Spawn, add_key, answer, begin_together, unlocked


def test_a_vault_is_never_overwritten(vault: Vault) -> None:
    key = add_key(vault)
    with pytest.raises(VaultExistsError):
        Vault.create(vault.home, "another passphrase")
    again = unlocked(vault.home, PASSPHRASE)
    assert again.keys() == [key]


CREATE = """
from storage import Cost, Vault, VaultExistsError
print("ready", flush=True); sys.stdin.readline()
try:
    Vault.create(home, sys.argv[2], Cost(8, 1, 1)); print("1")
except VaultExistsError:
    print("0")
"""


def test_one_of_two_concurrent_creators_succeeds(home: Path, spawn: Spawn) -> None:
    children = {name: spawn(CREATE, name) for name in ("first", "second")}
    begin_together(*children.values())
    won = [name for name, child in children.items() if answer(child)]
    assert len(won) == 1
    Vault.open(home).unlock(won[0])
    assert sorted(path.name for path in home.iterdir()) == ["vault.sqlite3", "vault.witness.json"]


def test_missing_vault_is_reported(home: Path) -> None:
    assert not Vault.exists(home)
    with pytest.raises(VaultMissingError):
        Vault.open(home)


def test_new_vault_logs_the_deleted_earlier_one(vault: Vault) -> None:
    assert vault.audit_log()[0].details == {"vault": vault.id, "previous vault": None}
    before = {"vault": vault.id, "count": 1, "head": vault.audit_head}
    (vault.home / "vault.sqlite3").unlink()
    again = Vault.create(vault.home, PASSPHRASE, CHEAP)
    assert again.audit_log()[0].details == {"vault": again.id, "previous vault": before}
