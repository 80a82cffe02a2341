"""A case as HTML: items, runs, notes and the log."""

from __future__ import annotations

from storage.records import FileDigest, ItemRecord, RunEntry
from ui.components.case_file import MOST_FILES, CaseLine, cases_html, items_html, runs_html

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


def test_several_files_are_folded_to_one_line_and_a_single_one_is_not() -> None:
    files = {name: FileDigest(2_000_000, "cd" * 32) for name in ("config.json", "model.safetensors")}
    html = items_html([item(files=files)])
    assert "<details><summary>2 files, 4.0 MB</summary>" in html
    assert html.index("</summary>") < html.index("cd" * 32) < html.index("</details>")
    assert "<details>" not in items_html([item()])


def test_cases_and_runs_are_opened_by_buttons_and_a_verdict_has_a_sign_and_a_word() -> None:
    line = CaseLine("c1", "Leak", TIME, 2, 1, "found")
    assert '<button type="button" class="place" data-record="c1" aria-current="true">' in cases_html([line], "c1")
    for part in ('data-record="r1"', "<svg", ">Found<"):
        assert part in runs_html([run()])
