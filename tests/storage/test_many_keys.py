"""Many keys added at once: all or none; each tampered key is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import (
    DamagedRecordError,
    KeyRecord,
    NewKey,
    RecordName,
    RecordNotFoundError,
    RecordValueError,
    Vault,
    VaultLockedError,
)
from storage.vault import KEYS_PER_ENTRY, KEYS_PER_QUERY
from tests.storage.conftest import Flip, Sql, add_key, new_keys, put_into, taken_over, unlocked

# Three entries of the log, the last one not full.
ENOUGH = 2 * KEYS_PER_ENTRY + 5


def named(records: list[KeyRecord], *places: int) -> tuple[RecordName, ...]:
    return tuple(RecordName("keys", records[at].id) for at in places)


def test_many_keys_come_back_as_if_they_had_been_added_one_by_one(vault: Vault) -> None:
    first = add_key(vault, "first")
    records = vault.add_keys(new_keys(7))
    head = vault.audit_head
    assert vault.add_keys([]) == []
    assert vault.audit_head == head
    last = add_key(vault, "last")
    again = unlocked(vault.home)
    assert again.keys() == [first, *records, last]
    assert [key.sequence for key in again.keys()] == list(range(1, 10))
    assert [record.recipient for record in records] == [f"Recipient {n}" for n in range(1, 8)]
    assert again.key_bytes(records[2].id) == b"SECRET-KEY-Recipient 3"
    assert len({key.id for key in again.keys()}) == 9
    assert (again.check().ok, again.check().records) == (True, 9)


def test_the_log_gets_bounded_entries_that_hold_each_records_digest(vault: Vault, sql: Sql) -> None:
    records = vault.add_keys(new_keys(ENOUGH))
    entries = [entry for entry in vault.audit_log() if entry.event == "keys added"]
    held = [entry.details["records"] for entry in entries if entry.details]
    assert [len(part) for part in held] == [KEYS_PER_ENTRY, KEYS_PER_ENTRY, 5]
    assert {id for part in held for id in part} == {record.id for record in records}
    assert max(size for (size,) in sql("SELECT LENGTH(details) FROM audit")) < 100_000
    assert vault.verify_audit().ok
    assert vault.check().ok
    assert vault.check().records == ENOUGH


def test_one_invalid_key_rejects_the_whole_batch(vault: Vault) -> None:
    head, keys = vault.audit_head, new_keys(5)
    bad = NewKey(b"k", "o", "r", "m", "f", "llama", "c", {"scale": float("nan")})
    with pytest.raises(RecordValueError, match="key 4"):
        vault.add_keys([*keys[:3], bad, *keys[3:]])
    assert vault.keys() == []
    assert vault.audit_head == head


def test_key_generation_holds_no_lock_and_its_failure_adds_no_key(vault: Vault) -> None:
    other = unlocked(vault.home)

    def slowly() -> Iterator[NewKey]:
        yield from new_keys(2)
        other.add_case("written meanwhile")
        raise RuntimeError("the third could not be made")

    with pytest.raises(RuntimeError, match="third"):
        vault.add_keys(slowly())
    assert vault.keys() == []
    assert len(vault.cases()) == 1


# Tampering


@pytest.fixture
def added(vault: Vault) -> list[KeyRecord]:
    """The keys of a vault in which one was added alone before the batch, and one after."""
    return [add_key(vault, "before"), *vault.add_keys(new_keys(30)), add_key(vault, "after")]


def test_removed_records_are_named(vault: Vault, added: list[KeyRecord], sql: Sql) -> None:
    for at in (1, 17, 30):
        sql("DELETE FROM keys WHERE id = ?", added[at].id)
    check = vault.check()
    assert set(check.missing) == set(named(added, 1, 17, 30))
    assert not check.ok
    assert check.audit.ok


def test_the_entry_of_many_keys_cannot_be_changed(vault: Vault, added: list[KeyRecord], flip: Flip) -> None:
    number = next(entry.sequence for entry in vault.audit_log() if entry.event == "keys added")
    flip("audit", "details", "seq", number)
    check = vault.check()
    assert (check.audit.ok, check.audit.broken) == (False, number)
    assert set(check.unlogged) == set(named(added, *range(1, 31)))


def test_records_whose_entries_were_cut_off_are_named(vault: Vault, added: list[KeyRecord], sql: Sql) -> None:
    number = next(entry.sequence for entry in vault.audit_log() if entry.event == "keys added")
    sql("DELETE FROM audit WHERE seq >= ?", number)
    sql("UPDATE audit_state SET count = ?, head = (SELECT hash FROM audit WHERE seq = ?)", number - 1, number - 1)
    check = vault.check()
    assert check.audit.broken == number
    assert set(check.unlogged) == set(named(added, *range(1, 32)))
    assert check.damaged == check.missing == ()


def test_older_log_with_newer_records_is_detected(vault: Vault, tmp_path: Path) -> None:
    """This log passes its check: only the records show that it was longer."""
    vault.add_keys(new_keys(3, name="old"))
    older = vault.backup(tmp_path / "older.sqlite3")
    new = vault.add_keys(new_keys(4, name="new"))
    put_into(vault.path, older, *taken_over("audit"), *taken_over("audit_state"))
    check = vault.check()
    assert check.audit.ok
    assert check.unlogged == named(new, *range(4))
    assert not check.ok


# The bytes of many keys


def test_the_bytes_of_many_keys_come_in_the_order_asked_for(vault: Vault) -> None:
    count = 2 * KEYS_PER_QUERY + 3
    keys = vault.add_keys(new_keys(count))
    ids = [key.id for key in reversed(keys)]
    assert list(vault.keys_bytes(iter(ids))) == [
        (key.id, f"SECRET-KEY-{key.recipient}".encode()) for key in reversed(keys)
    ]
    assert [id for id, _ in vault.keys_bytes([ids[3], ids[3]])] == [ids[3], ids[3]]
    assert list(vault.keys_bytes([])) == []


def test_an_unknown_or_damaged_one_among_many_is_named(vault: Vault, flip: Flip) -> None:
    keys = vault.add_keys(new_keys(5))
    ids = [key.id for key in keys]
    flip("keys", "body", "id", ids[2])
    with pytest.raises(RecordNotFoundError, match="no such"):
        list(vault.keys_bytes([*ids[:2], "no such"]))
    reading = vault.keys_bytes(ids)
    assert [next(reading)[0], next(reading)[0]] == ids[:2]
    with pytest.raises(DamagedRecordError, match=ids[2]):
        next(reading)
    damaged: list[RecordName] = []
    assert [id for id, _ in vault.keys_bytes(ids, damaged=damaged)] == [ids[0], ids[1], ids[3], ids[4]]
    assert damaged == [RecordName("keys", ids[2])]


def test_reading_key_bytes_allows_writes_and_ends_at_lock(vault: Vault) -> None:
    keys = vault.add_keys(new_keys(KEYS_PER_QUERY + 1))
    reading = vault.keys_bytes(key.id for key in keys)
    next(reading)
    unlocked(vault.home).add_case("meanwhile")
    vault.lock()
    with pytest.raises(VaultLockedError):
        list(reading)
