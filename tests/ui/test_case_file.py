"""A case as HTML: items, runs, notes and the log; names in it are inert."""

from __future__ import annotations

from storage.audit import AuditEntry
from storage.records import CaseRecord, FileDigest, ItemRecord, NoteRecord, RunEntry
from ui.components.case_file import (
    MOST_FILES,
    CaseLine,
    case_head_html,
    cases_html,
    custody_html,
    items_html,
    notes_html,
    runs_html,
)

NASTY = "<img src=x onerror=alert(1)>\u202e"
TIME = "2024-01-29T08:30:00.000000Z"


def item(**changes: object) -> ItemRecord:
    values = {
        "id": "i1",
        "sequence": 1,
        "created": TIME,
        "case_id": "c1",
        "name": "leaked.gguf",
        "received_from": "the press office",
        "note": "by mail",
        "added_by": "A. Officer",
        "seen_utc": "2024-01-28T00:00:00+00:00",
        "files": {"leaked.gguf": FileDigest(4_000_000, "ab" * 32)},
    }
    return ItemRecord(**{**values, **changes})  # type: ignore[arg-type]


def run(**changes: object) -> RunEntry:
    values = {"id": "r1", "sequence": 1, "created": TIME, "case_id": "c1", "suspect": "/models/leaked.gguf"}
    return RunEntry(**{**values, "verdict": "found", "note": "", **changes})  # type: ignore[arg-type]


def test_item_shows_hash_author_and_times() -> None:
    html = items_html([item()])
    for part in ("ab" * 32, "A. Officer", "2024-01-29 08:30", "the press office", "since 2024-01-28", "4.0 MB"):
        assert part in html


def test_files_of_a_large_item_are_counted() -> None:
    files = {f"part-{n:03d}": FileDigest(1, "cd" * 32) for n in range(MOST_FILES + 7)}
    html = items_html([item(files=files)])
    assert html.count("data-copy") == MOST_FILES
    assert "and 7 more" in html


def test_a_verdict_has_a_sign_and_a_word() -> None:
    html = runs_html([run()])
    assert "<svg" in html
    assert ">Found<" in html


def test_a_case_and_a_run_are_opened_by_buttons() -> None:
    line = CaseLine("c1", "Leak", TIME, 2, 1, "found")
    assert '<button type="button" class="place" data-record="c1" aria-current="true">' in cases_html([line], "c1")
    assert 'data-record="r1"' in runs_html([run()])


def test_empty_case_says_what_to_do_first() -> None:
    assert "No cases yet" in cases_html([], None)
    assert "No items yet" in items_html([])
    assert "No runs yet" in runs_html([])
    assert "No notes yet" in notes_html([])


def test_untrusted_names_are_inert() -> None:
    pages = (
        cases_html([CaseLine("c1", NASTY, TIME, 0, 0, NASTY)], None),
        case_head_html(CaseRecord("c1", 1, TIME, NASTY, NASTY)),
        items_html([item(name=NASTY, received_from=NASTY, note=NASTY, files={NASTY: FileDigest(1, NASTY)})]),
        runs_html([run(suspect=NASTY, verdict=NASTY, note=NASTY)]),
        notes_html([NoteRecord("n1", 1, TIME, "c1", NASTY, NASTY)]),
        custody_html([AuditEntry(1, TIME, NASTY, {}, "ab" * 16, "0" * 64, "1" * 64, 1, "2" * 64)]),
    )
    for html in pages:
        assert "<img" not in html
        assert "\u202e" not in html
