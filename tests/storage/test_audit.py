from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from storage import AuditBrokenError, RecordValueError, StorageError, Vault, audit
from storage.vault import KEYS_PER_ENTRY
from tests.storage.conftest import Sql, documented_hashes, new_keys

ONE_MORE = (
    "INSERT INTO audit SELECT 7, version, time, event, details, details_sha256, sealed_sha256, hash, hash "
    "FROM audit WHERE seq = 6"
)


@pytest.fixture
def logged(vault: Vault) -> Vault:
    """A vault whose log has six entries."""
    for n in range(5):
        vault.log(f"event {n}", {"number": n})
    return vault


def test_the_chain_can_be_recomputed_from_its_description(logged: Vault) -> None:
    made = logged.log("report exported", {"sha256": "ab" * 32})
    entries = logged.audit_log()
    assert entries[-1] == made
    assert [entry.event for entry in entries] == ["vault created", *(f"event {n}" for n in range(5)), made.event]
    assert [entry.details for entry in entries[1:6]] == [{"number": n} for n in range(5)]
    previous = "0" * 64
    for number, entry in enumerate(entries, start=1):
        assert (entry.sequence, entry.previous) == (number, previous)
        assert (entry.details_sha256, entry.hash) == documented_hashes(logged.id, dataclasses.asdict(entry))
        previous = entry.hash
    assert previous == logged.audit_head
    logged.lock()
    assert [entry.hash for entry in logged.audit_log()] == [entry.hash for entry in entries]
    assert [entry.details_sha256 for entry in logged.audit_log()] == [entry.details_sha256 for entry in entries]


def test_intact_log_verifies_locked_and_unlocked(logged: Vault) -> None:
    check = logged.verify_audit()
    assert (check.ok, check.entries, check.head, check.broken, check.reason) == (True, 6, logged.audit_head, None, "")
    assert check.authenticated
    logged.lock()
    assert logged.verify_audit().ok
    assert not logged.verify_audit().authenticated


@pytest.mark.fault(57)
@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize(
    ("statements", "broken"),
    [
        ("UPDATE audit SET event = 'nothing' WHERE seq = 3", 3),
        ("UPDATE audit SET time = '2001-01-01T00:00:00.000Z' WHERE seq = 1", 1),
        ("UPDATE audit SET details = x'00' WHERE seq = 6", 6),
        ("UPDATE audit SET details = NULL WHERE seq = 2", 2),
        ("UPDATE audit SET version = 1 WHERE seq = 2", 2),
        ("UPDATE audit SET hash = previous WHERE seq = 4", 4),
        ("UPDATE audit SET event = x'ff' WHERE seq = 4", 4),
        ("UPDATE audit SET details_sha256 = hash WHERE seq = 4", 4),
        ("UPDATE audit SET details_sha256 = NULL WHERE seq = 4", 4),
        ("UPDATE audit SET sealed_sha256 = hash WHERE seq = 4", 4),
        ("UPDATE audit SET details = (SELECT details FROM audit WHERE seq = 5) WHERE seq = 4", 4),
        ("DELETE FROM audit WHERE seq = 1", 1),
        ("DELETE FROM audit WHERE seq = 3", 3),
        ("DELETE FROM audit WHERE seq = 6", 6),
        ("DELETE FROM audit WHERE seq > 2", 3),
        ("DELETE FROM audit", 1),
        (ONE_MORE, 7),
        ("UPDATE audit SET seq = CASE seq WHEN 3 THEN -4 ELSE seq END", 1),
        ("UPDATE audit SET seq = -seq WHERE seq IN (3, 4); UPDATE audit SET seq = 7 + seq WHERE seq < 0", 3),
    ],
)
def test_the_first_broken_entry_is_named(logged: Vault, sql: Sql, statements: str, broken: int, locked: bool) -> None:
    for statement in statements.split("; "):
        sql(statement)
    if locked:
        logged.lock()
    check = logged.verify_audit()
    assert not check.ok
    assert check.broken == broken
    assert check.reason


@pytest.mark.parametrize("locked", [False, True])
def test_an_entry_forged_with_a_fitting_hash_breaks_the_next_one(logged: Vault, sql: Sql, locked: bool) -> None:
    version, time, digest, previous = sql("SELECT version, time, details_sha256, previous FROM audit WHERE seq = 3")[0]
    forged = audit.entry_hash(logged.id, version, 3, time, "nothing happened", previous, digest)
    sql("UPDATE audit SET event = 'nothing happened', hash = ? WHERE seq = 3", forged)
    if locked:
        logged.lock()
    assert logged.verify_audit().broken == 4


def test_exchanged_audit_details_are_detected_with_key(logged: Vault, sql: Sql) -> None:
    values = sql("SELECT details, sealed_sha256 FROM audit WHERE seq = 5")[0]
    sql("UPDATE audit SET details = ?, sealed_sha256 = ? WHERE seq = 4", *values)
    assert logged.verify_audit().broken == 4
    assert [entry.details for entry in logged.audit_log()][2:5] == [{"number": 1}, None, {"number": 3}]


def cut_cleverly(sql: Sql) -> None:
    """Removes the last two entries and makes number and head fit the rest."""
    sql("DELETE FROM audit WHERE seq > 4")
    sql("UPDATE audit_state SET count = 4, head = (SELECT hash FROM audit WHERE seq = 4)")


@pytest.mark.fault(57)
def test_cut_tail_with_forged_end_is_detected_with_key(logged: Vault, sql: Sql) -> None:
    cut_cleverly(sql)
    check = logged.verify_audit()
    assert not check.ok
    assert check.broken == 5
    logged.lock()
    assert logged.verify_audit().ok, "only the passphrase reveals it; the check says so"
    assert not logged.verify_audit().authenticated


@pytest.mark.parametrize("alter", [cut_cleverly, lambda sql: sql(ONE_MORE)], ids=["two fewer", "one more"])
def test_altered_log_end_stops_writing(logged: Vault, sql: Sql, alter: Callable[[Sql], Any]) -> None:
    alter(sql)
    before = logged.audit_log()
    with pytest.raises(AuditBrokenError):
        logged.add_case("on top")
    assert logged.cases() == []
    assert logged.audit_log() == before


def test_a_gap_stays_visible_after_more_writing(logged: Vault, sql: Sql) -> None:
    sql("DELETE FROM audit WHERE seq = 6")
    logged.add_case("later")
    check = logged.verify_audit()
    assert [entry.sequence for entry in logged.audit_log()] == [1, 2, 3, 4, 5, 7, 8]
    assert logged.audit_log()[5].event == "exchange noticed"
    assert check.broken == 6


def test_a_lost_end_is_an_error(logged: Vault, sql: Sql) -> None:
    sql("DELETE FROM audit_state")
    with pytest.raises(AuditBrokenError):
        logged.verify_audit()


@pytest.mark.parametrize(
    ("failing", "add"),
    [
        (1, lambda vault, case, many: vault.add_case("half")),
        (1, lambda vault, case, many: vault.add_run(case.id, {}, "s", "found", files={"a": b"1", "b": b"2"})),
        (3, lambda vault, case, many: vault.add_keys(many(2 * KEYS_PER_ENTRY + 5))),
    ],
    ids=["a case", "an investigation with files", "keys with three entries"],
)
def test_change_and_audit_entry_are_one_transaction(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, failing: int, add: Callable[..., Any]
) -> None:
    calls, append = itertools.count(1), audit.append

    def fail(*arguments: Any) -> Any:
        if next(calls) == failing:
            raise OSError("the log failed")
        return append(*arguments)

    case = vault.add_case("whole")
    before = vault.audit_head
    with monkeypatch.context() as patch:
        patch.setattr(audit, "append", fail)
        with pytest.raises(StorageError, match="the log failed"):
            add(vault, case, new_keys)
    assert next(calls) == failing + 1
    assert vault.audit_head == before
    assert (vault.check().ok, vault.check().records) == (True, 1)


def test_failed_logged_action_leaves_no_entry(vault: Vault) -> None:
    with pytest.raises(ZeroDivisionError), vault.logged("case exported", {"case": "a"}):
        raise ZeroDivisionError
    assert [entry.event for entry in vault.audit_log()] == ["vault created"]
    with vault.logged("case exported", {"case": "a"}):
        assert len(vault.audit_log()) == 1, "the entry is invisible until it is committed"
    assert vault.audit_log()[-1].details == {"case": "a"}
    assert vault.verify_audit().ok


def test_known_head_must_occur_in_log(logged: Vault) -> None:
    printed = logged.audit_head
    logged.log("later")
    assert logged.verify_audit(known_head=printed).ok
    assert not logged.verify_audit(known_head="ab" * 32).ok


def test_details_that_are_not_json_are_refused(vault: Vault) -> None:
    with pytest.raises(RecordValueError):
        vault.log("event", {"p": float("nan")})
    with pytest.raises(RecordValueError):
        vault.log("")
    assert len(vault.audit_log()) == 1
