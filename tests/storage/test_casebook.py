"""The records of a case are returned complete and in order, and each of them is in the audit log."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from storage import DamagedRecordError, FileDigest, RecordName, RecordValueError, Vault
from storage.casebook import LONGEST_NOTE, LONGEST_TITLE, MOST_ITEM_FILES, MOST_RUN_FILE_BYTES, MOST_RUN_FILES
from tests.storage.conftest import Flip, Sql, add_key, unlocked

FINDING = {"verdict": "found", "log10_p": -41.5}
REPORT = {"report.html": b"<p>found</p>", "report.json": b"{}", "report.pdf": bytes(range(256))}
SHARDS = {"a/model-1.safetensors": (2**33, "ab" * 32), "süß.json": (0, "cd" * 32)}


def test_case_round_trips(vault: Vault) -> None:
    case, other = vault.add_case("Leak of January"), vault.add_case("Another")
    item = vault.add_item(
        case.id,
        "the forum's file",
        SHARDS,
        received_from="a journalist",
        note="by courier",
        added_by="R. Weber",
        seen_utc="2026-01-31T12:00+02:00",
    )
    note = vault.add_note(case.id, "Called the customer.\nNo answer.", added_by="R. Weber")
    run = vault.add_run(case.id, FINDING, "suspect.gguf", "found", files=REPORT)
    bare = vault.add_run(case.id, {"ranks": [0.001, None]}, "other.gguf", "not found", note="quantised")
    again = unlocked(vault.home)
    assert again.case_items(case.id) == [item]
    assert again.case_notes(case.id) == [note]
    assert again.case_runs(case.id) == [run, bare]
    assert again.run_files(run.id) == REPORT
    assert again.run_files(bare.id) == {}
    assert (item.name, item.seen_utc) == ("the forum's file", "2026-01-31T10:00:00Z")
    assert (item.received_from, item.note, item.added_by) == ("a journalist", "by courier", "R. Weber")
    assert item.files["a/model-1.safetensors"].bytes == 2**33
    assert item.files == SHARDS, "sizes and digests are pairs, as given"
    assert run.files["report.pdf"] == FileDigest(256, hashlib.sha256(bytes(range(256))).hexdigest())
    for empty in (again.case_items, again.case_notes, again.case_runs, again.runs_of):
        assert empty(other.id) == []
    assert again.check().ok
    assert again.check().records == 2 + 1 + 1 + 2 + 3


def test_a_case_is_renamed_and_its_earlier_titles_stay_in_the_log(vault: Vault) -> None:
    case, other = vault.add_case("suspect-7b"), vault.add_case("Another")
    vault.add_item(case.id, "file", SHARDS)
    for title in ("Leak of January", "Leak of February"):
        vault.rename_case(case.id, title)
    again = unlocked(vault.home)
    assert [each.title for each in again.cases()] == ["Leak of February", "Another"]
    assert again.cases()[0].created == case.created
    file = again.case_file(case.id)
    assert file.case.title == "Leak of February"
    assert [entry.event for entry in file.entries] == ["case opened", "item received", "case renamed", "case renamed"]
    assert (file.damaged, file.missing) == ((), ())
    assert again.check().ok
    assert "case renamed" not in [entry.event for entry in again.case_file(other.id).entries]


@pytest.mark.parametrize("title", ["", "  ", "x" * (LONGEST_TITLE + 1)])
def test_invalid_title_is_refused(vault: Vault, title: str) -> None:
    case = vault.add_case("suspect-7b")
    with pytest.raises(RecordValueError):
        vault.rename_case(case.id, title)
    assert [each.title for each in vault.cases()] == ["suspect-7b"]


def test_damaged_title_is_named(vault: Vault, flip: Flip) -> None:
    case = vault.add_case("suspect-7b")
    vault.rename_case(case.id, "Leak of January")
    flip("labels", "meta", "seq", 1)
    (found,) = vault.cases()
    assert found.title == "suspect-7b"
    assert [name.table for name in vault.cases().damaged] == ["labels"]


def test_list_of_runs_has_everything_but_findings(vault: Vault) -> None:
    case = vault.add_case("a")
    run = vault.add_run(case.id, FINDING, "suspect.gguf", "found", "a note", REPORT)
    (entry,) = vault.runs_of(case.id)
    facts = dataclasses.asdict(run)
    assert facts.pop("finding") == FINDING
    assert dataclasses.asdict(entry) == facts


def test_listing_one_case_opens_no_body_of_another(vault: Vault, flip: Flip) -> None:
    mine, other = vault.add_case("a"), vault.add_case("b")
    own = vault.add_run(mine.id, FINDING, "a.gguf", "found", files=REPORT)
    foreign = vault.add_run(other.id, FINDING, "b.gguf", "found")
    item = vault.add_item(other.id, "b", SHARDS)
    flip("runs", "body", "id", foreign.id)
    flip("items", "body", "id", item.id)
    assert vault.case_runs(mine.id) == [own]
    assert vault.case_runs(mine.id).damaged == vault.case_items(mine.id).damaged == ()
    assert vault.case_runs(other.id).damaged == (RecordName("runs", foreign.id),)
    assert vault.case_items(other.id).damaged == (RecordName("items", item.id),)
    assert [entry.id for entry in vault.runs_of(other.id)] == [foreign.id], "its line needs no body"


def test_each_addition_is_in_the_log_with_its_digests(vault: Vault) -> None:
    case = vault.add_case("a")
    item = vault.add_item(case.id, "x", SHARDS)
    note = vault.add_note(case.id, "y")
    run = vault.add_run(case.id, FINDING, "s", "found", files=REPORT)
    entries = vault.audit_log()[-3:]
    assert [entry.event for entry in entries] == ["item received", "note added", "investigation filed"]
    details = [entry.details or {} for entry in entries]
    assert [found["case"] for found in details] == [case.id] * 3
    assert [found["id"] for found in details] == [item.id, note.id, run.id]
    assert details[2]["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in REPORT.items()}
    assert details[2]["finding"] == hashlib.sha256(b'{"log10_p":-41.5,"verdict":"found"}').hexdigest()
    assert set(details[2]["with"]["records"]) == set(run.file_ids.values())


# Refused


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"": (1, "ab" * 32)},
        *({"a": (size, "ab" * 32)} for size in (-1, True, 1.5)),
        *({"a": (1, digest)} for digest in ("AB" * 32, "ab")),
        {"a": "ab" * 32},
        dict.fromkeys(map(str, range(MOST_ITEM_FILES + 1)), (1, "ab" * 32)),
    ],
)
def test_an_item_needs_files_with_sizes_and_digests(vault: Vault, files: Any) -> None:
    case, head = vault.add_case("a"), vault.audit_head
    with pytest.raises(RecordValueError):
        vault.add_item(case.id, "x", files)
    assert (vault.case_items(case.id), vault.audit_head) == ([], head)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../vault.sqlite3", "/etc/passwd", "a/b", "a\\b", "C:report", ".hidden", "a.", "a b", "a\nb",
        "süß.html", "con", "NUL.html", "a" * 129, "finding.json", "Finding.JSON",
    ],
)  # fmt: skip
def test_filed_file_has_a_plain_name(vault: Vault, name: str) -> None:
    case = vault.add_case("a")
    with pytest.raises(RecordValueError):
        vault.add_run(case.id, FINDING, "s", "found", files={name: b"x"})
    assert vault.case_runs(case.id) == []
    assert vault.check().records == 1


def test_filed_files_and_notes_are_limited(vault: Vault) -> None:
    case = vault.add_case("a")
    for files in (
        {f"f{n}": b"" for n in range(MOST_RUN_FILES + 1)},
        {"a": bytes(MOST_RUN_FILE_BYTES // 2), "b": bytes(MOST_RUN_FILE_BYTES // 2 + 1)},
        {"a": b"", "A": b""},
        {"a": "text"},
    ):
        with pytest.raises(RecordValueError):
            vault.add_run(case.id, FINDING, "s", "found", files=files)  # type: ignore[arg-type]
    for text in ("x" * (LONGEST_NOTE + 1), " "):
        with pytest.raises(RecordValueError):
            vault.add_note(case.id, text)
    assert vault.check().records == 1


# Damaged


@pytest.mark.parametrize("how", ["body", "removed"])
def test_a_lost_file_of_a_run_is_named_and_the_others_stay(vault: Vault, sql: Sql, flip: Flip, how: str) -> None:
    case = vault.add_case("a")
    run = vault.add_run(case.id, FINDING, "s", "found", files=REPORT)
    lost = RecordName("run_files", run.file_ids["report.json"])
    if how == "removed":
        sql("DELETE FROM run_files WHERE id = ?", lost.id)
    else:
        flip("run_files", how, "id", lost.id)
    with pytest.raises(DamagedRecordError, match=lost.id):
        vault.run_files(run.id)
    damaged: list[RecordName] = []
    rest = {name: content for name, content in REPORT.items() if name != "report.json"}
    assert vault.run_files(run.id, damaged=damaged) == rest
    assert damaged == [lost]
    check = vault.check()
    assert (*check.damaged, *check.missing) == (lost,)
    assert vault.case_runs(case.id) == [run]


# Timestamps


def test_timestamps_round_trip_byte_for_byte(vault: Vault) -> None:
    key, other = add_key(vault, "a"), add_key(vault, "b")
    document, response = b'{"commitment":1}', bytes(range(256)) * 20
    stamp = vault.add_timestamp(key.id, document, b"\x30\x00", response, "2026-03-01T12:00:00+00:00", "A. Stamp", True)
    own = vault.add_timestamp(other.id, b"{}", b"q", b"r", "2026-03-01T14:00:00+02:00", "B. Stamp", False)
    again = unlocked(vault.home)
    assert again.timestamps() == [stamp, own]
    assert again.timestamps(key.id) == [stamp]
    assert (stamp.commitment_document, stamp.request, stamp.response) == (document, b"\x30\x00", response)
    assert stamp.digest == hashlib.sha256(document).hexdigest()
    assert (stamp.time_utc, stamp.authority, stamp.trusted) == ("2026-03-01T12:00:00+00:00", "A. Stamp", True)
    assert (own.time_utc, own.trusted) == ("2026-03-01T12:00:00Z", False), "another zone is converted to UTC"
    entry = again.audit_log()[-3]
    assert entry.event == "timestamp added"
    assert (entry.details or {})["digest"] == stamp.digest
    assert again.check().ok
    assert "commitment" not in repr(stamp)[repr(stamp).index("trusted") :]


@pytest.mark.parametrize(
    "change",
    [
        {"response": b""},
        {"request": "text"},
        {"commitment_document": bytes(2**20 + 1)},
        {"time_utc": ""},
        {"time_utc": "2026-03-01"},
        {"authority": ""},
    ],
    ids=lambda change: next(iter(change)),
)
def test_invalid_timestamp_is_refused(vault: Vault, change: dict[str, Any]) -> None:
    values: dict[str, Any] = {"commitment_document": b"d", "request": b"q", "response": b"r", "authority": "A"}
    with pytest.raises(RecordValueError):
        vault.add_timestamp(
            add_key(vault).id, **{**values, "time_utc": "2026-03-01T12:00Z", "trusted": False, **change}
        )
    assert vault.timestamps() == []
