from __future__ import annotations

from typing import Any

import pytest

from storage import KeyRecord, RecordName, RecordNotFoundError, RecordValueError, Vault
from storage import vault as vault_module
from storage.vault import LONGEST_LABEL
from tests.storage.conftest import Flip, add_key, unlocked


@pytest.fixture
def key(vault: Vault) -> KeyRecord:
    return add_key(vault, "Brightwater Labs")


def labels(vault: Vault) -> list[str]:
    return [record.label for record in vault.find_keys().records]


def test_newest_label_is_shown_and_found_and_record_is_unchanged(vault: Vault, key: KeyRecord) -> None:
    other = unlocked(vault.home)
    assert labels(other) == [key.label]
    assert vault.find_keys(key.label).total == 1
    texts = ["early access, third floor", "left the company in March"]
    for text in texts:
        vault.set_label("keys", key.id, text)
    assert labels(vault) == labels(other) == labels(unlocked(vault.home)) == [texts[-1]]
    assert vault.find_keys("MARCH left").total == 1
    assert vault.find_keys("third floor").total == 0, "replaced words are not found"
    assert vault.key_records([key.id])[0].label == texts[-1]
    assert vault.keys_for(key.model_fingerprint)[0].label == texts[-1]
    assert vault.keys()[0] == key, "the filed record never changes"
    vault.set_label("keys", key.id, "")
    assert labels(vault) == [""]
    assert [each.text for each in vault.labels("keys", key.id)] == [*texts, ""]


def test_release_label_is_shown_and_found(vault: Vault, key: KeyRecord) -> None:
    first = vault.add_release(key.id, "/releases/one", {"model.safetensors": "ab" * 32}, {})
    vault.add_release(key.id, "/releases/two", {"model.safetensors": "cd" * 32}, {})
    vault.set_label("releases", first.id, "shipped on a disk")
    (found,) = vault.find_releases("disk shipped").records
    assert (found.path, found.label) == ("/releases/one", "shipped on a disk")
    assert [each.label for each in vault.find_releases().records] == ["", "shipped on a disk"]
    assert vault.releases()[0] == first


def test_label_changes_are_logged_and_pass_the_check(vault: Vault, key: KeyRecord) -> None:
    vault.set_label("keys", key.id, "moved")
    entry = vault.audit_log()[-1]
    assert entry.event == "note changed"
    assert entry.details is not None
    assert entry.details["about"] == {"table": "keys", "id": key.id}
    assert "moved" not in str(entry.details), "only the record has the words"
    assert vault.check().ok


@pytest.mark.parametrize(
    ("table", "text", "error"),
    [
        ("cases", "x", RecordValueError),
        ("keys; --", "x", RecordValueError),
        ("releases", "x", RecordNotFoundError),
        ("keys", "x" * (LONGEST_LABEL + 1), RecordValueError),
        ("keys", None, RecordValueError),
    ],
)
def test_invalid_label_is_refused(vault: Vault, key: KeyRecord, table: str, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        vault.set_label(table, key.id, text)
    vault.set_label("keys", key.id, "x" * LONGEST_LABEL)
    assert len(vault.labels("keys", key.id)) == 1


def test_damaged_label_is_named_and_keys_are_still_shown(vault: Vault, key: KeyRecord, flip: Flip) -> None:
    label = vault.set_label("keys", key.id, "moved")
    flip("labels", "meta", "id", label.id)
    other = unlocked(vault.home)
    found = other.find_keys()
    assert [record.id for record in found.records] == [key.id]
    assert found.damaged == (RecordName("labels", label.id),)
    assert other.keys_for(key.model_fingerprint).damaged == (), "no key is damaged"
    assert other.check().damaged == (RecordName("labels", label.id),)


def test_a_page_of_many_keys_is_looked_up_once(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [add_key(vault, f"Recipient {n}") for n in range(20)]
    vault.set_label("keys", keys[3].id, "moved")
    vault.find_keys()
    called: list[Any] = []
    real = vault_module.labelled_keys
    monkeypatch.setattr(vault_module, "labelled_keys", lambda *index: called.append(1) or real(*index))
    assert vault.find_keys("moved").records[0].id == keys[3].id
    vault.set_label("keys", keys[4].id, "moved too")
    assert vault.find_keys("moved").total == 2
    assert len(called) == 1, "only after something changed"
