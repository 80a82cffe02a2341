"""Keys and releases found by words and shown in pages, always in the present state of the vault's file."""

from __future__ import annotations

import gc
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage import RecordName, RecordValueError, Vault, index, restore
from tests.storage.conftest import CHEAP, PASSPHRASE, Flip, Spawn, Sql, add_key, answer, new_keys

MANIFEST = {"model.safetensors": "ab" * 32}


def found(vault: Vault, text: str = "", **settings: Any) -> list[str]:
    return [key.recipient for key in vault.find_keys(text, **settings).records]


# Words


@pytest.fixture
def named(vault: Vault) -> Vault:
    """A vault with four keys that differ in every name."""
    (any_key,) = new_keys(1)
    changes: tuple[dict[str, Any], ...] = (
        {"recipient": "Brightwater Labs", "label": "early access", "commitment": "abcdef01" + "0" * 56},
        {"recipient": "Straße & Söhne", "owner": "Südwind AG", "commitment": "12abcdef" + "0" * 56},
        {"recipient": "ALPHA labs", "model_name": "southwind-70B", "label": "", "commitment": "ffff" + "0" * 60},
        {"recipient": "", "label": "our own", "commitment": "deadbeef" + "0" * 56},
    )
    vault.add_keys(replace(any_key, **change) for change in changes)
    return vault


@pytest.mark.parametrize(
    ("text", "recipients"),
    [
        ("brightwater", ["Brightwater Labs"]),
        ("LABS", ["Brightwater Labs", "ALPHA labs"]),
        ("labs early", ["Brightwater Labs"]),
        ("  early\tLabs ", ["Brightwater Labs"]),
        ("labs early nothing", []),
        ("STRASSE", ["Straße & Söhne"]),
        ("so\u0308hne", ["Straße & Söhne"]),
        ("südwind", ["Straße & Söhne"]),
        ("70b", ["ALPHA labs"]),
        ("northwind-7b", ["Brightwater Labs", "Straße & Söhne", ""]),
        ("own", [""]),
        ("abcdef", ["Brightwater Labs"]),
        ("ABCD", ["Brightwater Labs"]),
        ("abc", []),
        ("ffff0000", ["ALPHA labs"]),
        ("%", []),
        ("labs\nearly", ["Brightwater Labs"]),
        ("", ["Brightwater Labs", "Straße & Söhne", "ALPHA labs", ""]),
        ("   ", ["Brightwater Labs", "Straße & Söhne", "ALPHA labs", ""]),
    ],
)
def test_every_word_must_match_a_name_or_commitment_prefix(named: Vault, text: str, recipients: list[str]) -> None:
    page = named.find_keys(text, newest_first=False)
    assert [key.recipient for key in page.records] == recipients
    assert page.total == len(recipients)
    assert named.key_ids(text) == [key.id for key in page.records]


def test_search_is_limited_to_one_model(vault: Vault) -> None:
    vault.add_keys([*new_keys(3, name="ours"), *new_keys(2, name="theirs", model="99" * 32)])
    assert found(vault, model_fingerprint="99" * 32) == ["theirs 2", "theirs 1"]
    assert vault.find_keys(model_fingerprint="77" * 32).total == 0
    assert found(vault, "1", model_fingerprint="99" * 32) == ["theirs 1"]
    assert len(vault.key_ids(model_fingerprint="ab" * 32)) == 3
    assert [key.recipient for key in vault.keys_for("99" * 32)] == ["theirs 1", "theirs 2"]
    assert vault.keys_for("77" * 32) == []


def test_changes_to_a_returned_record_do_not_affect_the_vault(vault: Vault) -> None:
    vault.add_keys(new_keys(2))
    for record in (*vault.find_keys().records, *vault.keys_for("ab" * 32)):
        record.parameters["positions"] = 1
    assert [record.parameters["positions"] for record in vault.find_keys().records] == [50, 50]


# Pages


def test_pages_hold_every_key_once_and_the_newest_first(vault: Vault) -> None:
    vault.add_keys(new_keys(23))
    pages = [vault.find_keys(offset=offset, limit=10) for offset in (0, 10, 20)]
    assert [len(page.records) for page in pages] == [10, 10, 3]
    assert {page.total for page in pages} == {23}
    assert [key.sequence for page in pages for key in page.records] == list(range(23, 0, -1))
    oldest = vault.find_keys(newest_first=False, offset=20, limit=10)
    assert [key.sequence for key in oldest.records] == [21, 22, 23]
    assert len(vault.find_keys().records) == 23


@pytest.mark.parametrize("newest_first", [True, False])
def test_page_after_the_last_is_empty_with_same_total(vault: Vault, newest_first: bool) -> None:
    vault.add_keys(new_keys(3))
    for offset in (3, 10**9):
        page = vault.find_keys(offset=offset, newest_first=newest_first)
        assert (page.records, page.total) == ((), 3)


@pytest.mark.parametrize(
    "bad", [{"offset": -1}, {"limit": 0}, {"limit": -5}, {"offset": 1.0}, {"limit": True}], ids=str
)
def test_invalid_page_is_refused(vault: Vault, bad: dict[str, Any]) -> None:
    for find in (vault.find_keys, vault.find_releases):
        with pytest.raises(RecordValueError):
            find(**bad)


# The file as it is now


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The records that were opened for a search."""
    seen: list[Any] = []
    open_meta = index.open_meta

    def counting(sealer: Any, table: str, row: Any) -> Any:
        seen.append(row["seq"])
        return open_meta(sealer, table, row)

    monkeypatch.setattr(index, "open_meta", counting)
    return seen


def test_records_are_opened_once_and_later_only_what_was_added(vault: Vault, opened: list[Any]) -> None:
    vault.add_keys(new_keys(30))
    assert vault.find_keys().total == 30
    assert len(opened) == 30
    vault.find_keys("recipient 1", offset=5)
    vault.keys_for("ab" * 32)
    assert len(opened) == 30
    vault.log("report exported")
    add_key(vault, "the 31st")
    vault.add_keys(new_keys(2, name="more"))
    assert found(vault)[:3] == ["more 2", "more 1", "the 31st"]
    assert opened[30:] == [31, 32, 33]


ADD = """
from storage import NewKey, Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
vault.add_keys(NewKey(b"k", "o", f"from elsewhere {n}", "m", "f", "llama", "c", {}) for n in range(3))
print("1")
"""


def test_keys_added_by_a_second_process_are_found(vault: Vault, spawn: Spawn, opened: list[Any]) -> None:
    vault.add_keys(new_keys(5))
    assert vault.find_keys("elsewhere").total == 0
    answer(spawn(ADD))
    assert found(vault, "elsewhere") == [f"from elsewhere {n}" for n in (2, 1, 0)]
    assert vault.find_keys().total == 8
    assert opened == list(range(1, 9))


@pytest.mark.parametrize("column", ["meta", "created"])
def test_externally_changed_record_is_named_at_the_next_search(vault: Vault, flip: Flip, sql: Sql, column: str) -> None:
    keys = vault.add_keys(new_keys(6))
    assert vault.find_keys().total == 6
    if column == "meta":
        flip("keys", "meta", "id", keys[2].id, 20)
    else:
        sql("UPDATE keys SET created = '1999-01-01T00:00:00.000Z' WHERE id = ?", keys[2].id)
    page = vault.find_keys("recipient")
    assert page.total == 5
    assert page.damaged == vault.keys_for("ab" * 32).damaged == (RecordName("keys", keys[2].id),)
    these = vault.key_records([keys[4].id, keys[2].id, "no such", keys[0].id])
    assert these == [keys[4], keys[0]]
    assert these.damaged == page.damaged
    assert vault.key_records([keys[0].id]).damaged == ()


def test_releases_are_read_by_their_identifiers(vault: Vault, flip: Flip) -> None:
    key = add_key(vault)
    first, second, third = (vault.add_release(key.id, f"/releases/{n}", MANIFEST, {}) for n in range(3))
    vault.set_label("releases", third.id, "on a disk")
    found = vault.release_records([third.id, "no such", first.id])
    assert [(record.id, record.label) for record in found] == [(first.id, ""), (third.id, "on a disk")]
    flip("releases", "meta", "id", second.id, 20)
    again = vault.release_records([second.id, first.id])
    assert [record.id for record in again] == [first.id]
    assert again.damaged == (RecordName("releases", second.id),)
    assert vault.release_records([first.id]).damaged == ()


def test_removed_record_is_gone_even_if_keys_were_added(vault: Vault, sql: Sql) -> None:
    keys = vault.add_keys(new_keys(6))
    assert vault.find_keys().total == 6
    sql("DELETE FROM keys WHERE id = ?", keys[0].id)
    add_key(vault, "added after")
    assert found(vault, newest_first=False) == [*(f"Recipient {n}" for n in range(2, 7)), "added after"]


@pytest.mark.parametrize("more", [1, 2, 5])
def test_reused_sequence_number_shows_its_new_key(vault: Vault, sql: Sql, more: int) -> None:
    vault.add_keys(new_keys(6))
    assert vault.find_keys().total == 6
    sql("DELETE FROM keys WHERE seq >= 5")
    vault.add_keys(new_keys(more, name="again"))
    expected = [*(f"Recipient {n}" for n in range(1, 5)), *(f"again {n}" for n in range(1, more + 1))]
    assert found(vault, newest_first=False) == expected


def test_restored_older_vault_is_shown(vault: Vault, tmp_path: Path) -> None:
    vault.add_keys(new_keys(2, name="old"))
    copy = vault.backup(tmp_path / "copy.sqlite3")
    vault.add_keys(new_keys(2, name="new"))
    assert vault.find_keys().total == 4
    restore(copy, vault.home)
    assert found(vault) == ["old 2", "old 1"]
    vault.add_keys(new_keys(9, name="newest"))
    assert vault.find_keys("newest").total == 9
    assert vault.find_keys().total == 11


def test_a_broken_log_hides_no_key(vault: Vault, sql: Sql) -> None:
    vault.add_keys(new_keys(3))
    sql("DELETE FROM audit_state")
    for _ in range(2):
        assert vault.find_keys().total == 3
    assert len(vault.keys_for("ab" * 32)) == 3


def test_simultaneous_first_searches_open_records_once(vault: Vault, opened: list[Any]) -> None:
    vault.add_keys(new_keys(2000))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: vault.find_keys(), range(4)))
    assert len(opened) == 2000


def test_threads_find_while_others_add(vault: Vault) -> None:
    vault.add_keys(new_keys(50))
    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(lambda: [vault.find_keys("recipient").total for _ in range(20)]) for _ in range(3)]
        for _ in range(5):
            vault.add_keys(new_keys(10))
    for seen in (each.result() for each in looking):
        assert seen == sorted(seen)
        assert set(seen) <= {50, 60, 70, 80, 90, 100}
    assert vault.find_keys("recipient").total == 100


# Locking


def texts_within(root: object) -> set[str]:
    """All texts reachable from an object, except code and objects of the interpreter."""
    seen: set[int] = set()
    texts: set[str] = set()
    left = [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, (types.ModuleType, types.FunctionType, type)):
            continue
        seen.add(id(thing))
        if isinstance(thing, str):
            texts.add(thing)
        left += gc.get_referents(thing)
    return texts


@pytest.mark.parametrize("how", ["locked", "idle"])
def test_lock_clears_the_search_cache(home: Path, clock: Any, how: str) -> None:
    vault = Vault.create(home, PASSPHRASE, CHEAP, idle_seconds=60, monotonic=clock.monotonic)
    keys = vault.add_keys(new_keys(3, name="Brightwater"))
    vault.add_release(keys[0].id, "/srv/brightwater", MANIFEST, {})
    clock.ticks += 59
    vault.find_keys("brightwater")
    vault.find_releases("brightwater")
    assert any("Brightwater" in text for text in texts_within(vault)), "the search would have found it"
    if how == "locked":
        vault.lock()
    clock.ticks += 59
    assert vault.is_unlocked is (how == "idle"), "a search counts as use"
    clock.ticks += 1
    assert not vault.is_unlocked
    assert not [text for text in texts_within(vault) if "brightwater" in text.lower() or "abab" in text]
    vault.unlock(PASSPHRASE)
    assert vault.find_keys("brightwater").total == 3


def test_read_in_progress_during_lock_is_not_cached(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.add_keys(new_keys(3, name="Brightwater"))
    open_meta = index.open_meta

    def locked_meanwhile(*arguments: Any) -> Any:
        vault.lock()
        return open_meta(*arguments)

    monkeypatch.setattr(index, "open_meta", locked_meanwhile)
    assert vault.find_keys().total == 3, "a read in progress still finishes"
    assert not [text for text in texts_within(vault) if "brightwater" in text.lower()]


# Releases


@pytest.fixture
def released(vault: Vault) -> Vault:
    """Twelve recipients, each with a release."""
    for key in vault.add_keys(new_keys(12)):
        receipt = {"release_fingerprint": f"{key.sequence:064x}"}
        vault.add_release(key.id, f"/srv/Releases/copy-{key.sequence:02}", MANIFEST, receipt)
    return vault


def test_releases_come_in_pages_and_are_found_by_path_and_recipient(released: Vault) -> None:
    page = released.find_releases(offset=10, limit=10)
    assert [record.path[-2:] for record in page.records] == ["02", "01"]
    assert page.total == 12
    assert released.find_releases(newest_first=False).records == tuple(released.releases())
    assert [r.path for r in released.find_releases("copy-07").records] == ["/srv/Releases/copy-07"]
    assert [r.path[-2:] for r in released.find_releases("recipient releases 12").records] == ["12"]
    assert released.find_releases("nobody").total == 0
    assert released.find_releases(offset=99).records == ()


@pytest.mark.parametrize("own_writes", [False, True])
def test_a_damaged_release_is_named(released: Vault, flip: Flip, own_writes: bool) -> None:
    third = released.releases()[2]
    assert released.find_releases().total == 12
    flip("releases", "meta", "id", third.id, 20)
    if own_writes:
        released.log("something else")
    page = released.find_releases()
    assert (len(page.records), page.damaged) == (11, (RecordName("releases", third.id),))
    assert own_writes or page.total == 11
    assert third.path not in {record.path for record in page.records}
