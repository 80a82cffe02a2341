"""The examiner's name, and the timestamp that dates a key."""

from __future__ import annotations

import pytest

from storage import NewKey, Vault
from ui.services.filing import CaseFiling, case_lines, earliest_timestamp, examiner_of, known_since, logged_in
from ui.services.request import Filed, InvestigateRequest, SweepRequest


def stamped(vault: Vault, *stamps: tuple[str, bool]) -> str:
    """A key with timestamps; its id."""
    new = NewKey(b"key", "Example Labs", "", "demo", "ab" * 32, "llama", "cd" * 32, {})
    (key,) = vault.add_keys([new])
    for time, trusted in stamps:
        vault.add_timestamp(key.id, b"{}", b"request", b"response", time, "Authority", trusted)
    return key.id


def test_earlier_time_of_an_unknown_authority_is_ignored(vault: Vault) -> None:
    times = ("2023-01-01T00:00:00Z", False), ("2023-09-01T00:00:00Z", True), ("2023-06-01T00:00:00Z", True)
    found = earliest_timestamp(vault, stamped(vault, *times))
    assert found is not None
    assert found.time_utc.startswith("2023-06-01")


def test_without_a_trusted_time_a_key_is_not_dated(vault: Vault) -> None:
    assert earliest_timestamp(vault, stamped(vault, ("2023-01-01T00:00:00Z", False))) is None


def test_examiner_is_named_or_last_item_author_or_login(vault: Vault) -> None:
    case = vault.add_case("Leak of January")
    assert examiner_of(vault, "") == examiner_of(vault, case.id) == logged_in()
    vault.add_item(case.id, "leaked", {"a": (1, "ab" * 32)}, added_by="A. Officer")
    assert examiner_of(vault, case.id) == "A. Officer"
    assert examiner_of(vault, case.id, " B. Officer ") == "B. Officer"
    assert CaseFiling.begin(vault, Filed(case_id=case.id)).examiner == "A. Officer"


def test_report_states_only_known_facts_of_its_case() -> None:
    assert case_lines(Filed(seen_utc="2024-01-28T00:00:00+00:00"), "") == {
        "Case": "No case title given",
        "Suspect known since": "2024-01-28",
        "Note": "",
    }


def test_suspect_is_known_since_the_earliest_stated_day(vault: Vault) -> None:
    case = vault.add_case("Leak of January")
    vault.add_item(case.id, "leaked", {"a": (1, "ab" * 32)}, seen_utc="2024-01-28T00:00:00Z")
    vault.add_item(case.id, "the same", {"b": (1, "ab" * 32)}, seen_utc="2024-01-27T00:00:00Z")
    vault.add_item(case.id, "another", {"a": (1, "cd" * 32)}, seen_utc="2020-01-01T00:00:00Z")
    hashes, later, earlier = {"a": "ab" * 32}, "2025-01-01T00:00:00+00:00", "2023-01-01T00:00:00+00:00"
    assert known_since(vault, case.id, later)(hashes)[:10] == "2024-01-27"
    assert known_since(vault, case.id, earlier)(hashes) == earlier
    assert known_since(vault, case.id, "")(hashes)[:10] == "2024-01-27"
    same_moment = "2024-01-27T00:00:00+00:00"
    assert known_since(vault, case.id, same_moment)(hashes) == same_moment, "so a second run says the same"
    assert known_since(vault, "", later)(hashes) == later
    assert known_since(vault, case.id, "")({"a": "ef" * 32}) == ""


def test_signature_names_the_log_head_after_earlier_entries(vault: Vault) -> None:
    filing = CaseFiling.begin(vault, Filed(case_title="Leak"))
    filing.received("leaked", {"a": (1, "ab" * 32)})
    signer = filing.signer()
    assert (signer.audit_head, signer.audit_count) == (vault.audit_head, vault.audit_count)
    assert signer.identity == vault.identity().first_public_key


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        (InvestigateRequest(original="/o", suspect="/incoming/leaked-q4.gguf"), "leaked-q4.gguf"),
        (SweepRequest(original="/o", folder="/incoming/three suspects"), "three suspects"),
        (InvestigateRequest(original="/o", suspect="/leaked", case_title="Leak of January"), "Leak of January"),
        (InvestigateRequest(original="/o", suspect="/incoming/\u202egpj.x"), "\\u202egpj.x"),
        (Filed(), "Untitled case"),
    ],
)
def test_case_without_a_title_is_named_after_its_suspect_and_new(vault: Vault, asked: Filed, title: str) -> None:
    first, second = CaseFiling.begin(vault, asked), CaseFiling.begin(vault, asked)
    assert {case.title for case in vault.cases()} == {title}
    assert (first.case_id == second.case_id) == bool(asked.case_title), "only a typed title continues a case"
