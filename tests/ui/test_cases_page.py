"""Handlers of the page Cases: list, choose, note, export, and refuse."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

import irwm
from storage import RecordName
from tests.ui.handlers import Pages, told, value
from tools.officer import place
from ui.components.icons import icon
from ui.pages.cases import case_lines


def shown(pages: Pages, case: str) -> dict:
    return pages.call("cases-list", "chosen", data={"record": case})


def test_newest_case_is_first_with_counts_and_last_verdict(pages: Pages) -> None:
    first, second = pages.vault.add_case("Leak of January"), pages.vault.add_case("Leak of March")
    pages.vault.add_item(first.id, "leaked", {"a": (1, "ab" * 32)})
    for verdict in ("not found", "found"):
        pages.vault.add_run(first.id, {"a": 1}, "leaked", verdict)
    lines = case_lines(pages.vault)
    assert [(line.title, line.items, line.runs, line.last) for line in lines] == [
        ("Leak of March", 0, 0, ""),
        ("Leak of January", 1, 2, "found"),
    ]
    assert lines[0].id == second.id


def test_a_chosen_case_shows_its_items_runs_notes_and_log(pages: Pages) -> None:
    case, other = pages.vault.add_case("Leak of January"), pages.vault.add_case("Leak of March")
    pages.vault.add_item(case.id, "leaked.gguf", {"a": (1, "ab" * 32)}, added_by="A. Officer")
    pages.vault.add_note(case.id, "The press called", added_by="A. Officer")
    pages.vault.add_note(other.id, "Another matter")
    out = shown(pages, case.id)
    assert "Leak of January" in out["case-head"]
    assert "leaked.gguf" in out["case-items"]
    assert "The press called" in out["case-notes"]
    assert "Another matter" not in out["case-notes"]
    assert [event in out["custody-log"] for event in ("case opened", "item received", "note added")] == [True] * 3
    assert out["custody-log"].count("case opened") == 1


def test_a_damaged_run_is_named_and_the_others_are_shown(pages: Pages) -> None:
    case = pages.vault.add_case("Leak of January")
    lost = pages.vault.add_run(case.id, {"a": 1}, "first.gguf", "found")
    pages.vault.add_run(case.id, {"a": 2}, "second.gguf", "not found")
    with sqlite3.connect(pages.vault.path) as db:
        db.execute("UPDATE runs SET meta = zeroblob(length(meta)) WHERE id = ?", [lost.id])
    out = shown(pages, case.id)
    assert "second.gguf" in out["case-runs"]
    assert "first.gguf" not in out["case-runs"]
    damaged = [part for name, part in out.items() if name.isdigit() and "damaged" in str(value(part))]
    assert RecordName("runs", lost.id).id in str(value(damaged[0]))


def test_empty_case_can_be_opened_and_renamed(pages: Pages) -> None:
    pages.vault.add_case("Earlier")
    out = pages.call("new-case-button", "click", "  A letter came  ")
    assert "A letter came" in out["case-head"]
    case = pages.vault.cases()[-1]
    assert case.title == "A letter came"
    out = pages.call("rename-case-button", "click", "Leak <of> January", case.id)
    assert out["rename-case-title"] == ""
    assert "Leak &lt;of&gt; January" in out["case-head"]
    assert "Leak &lt;of&gt; January" in out["cases-list"]
    assert "case renamed" in out["custody-log"]
    assert [each.title for each in pages.vault.cases()] == ["Earlier", "Leak <of> January"]


def test_a_note_is_kept_with_who_added_the_latest_item(pages: Pages) -> None:
    case = pages.vault.add_case("Leak of January")
    pages.vault.add_item(case.id, "leaked", {"a": (1, "ab" * 32)}, added_by="A. Officer")
    out = pages.call("add-note", "click", "  The press called  ", case.id)
    assert out["note-text"] == ""
    (note,) = pages.vault.case_notes(case.id)
    assert (note.text, note.added_by) == ("The press called", "A. Officer")


def test_exported_case_verifies_and_is_logged(pages: Pages, tmp_path: Path) -> None:
    case = pages.vault.add_case("Leak: <of> January/2024")
    pages.vault.add_run(case.id, {"a": 1}, "leaked", "found", files={"report.pdf": b"%PDF-1.7"})
    out = pages.call("export-case", "click", case.id)
    path = Path(value(out["case-archive"])["path"])
    assert path.name == f"case-Leak---of--January-2024-{case.id[:6]}.zip"
    with zipfile.ZipFile(path) as packed:
        packed.extractall(tmp_path / "case")
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=tmp_path / "case", check=True)
    assert (tmp_path / "case" / "run-1" / "report.pdf").read_bytes() == b"%PDF-1.7"
    assert "case exported" in out["custody-log"]


@pytest.mark.parametrize(
    ("element", "values", "where"),
    [
        ("new-case-button", ("  ",), "new-case-notice"),
        ("rename-case-button", ("  ", "id"), "rename-case-notice"),
        ("add-note", (None, "id"), "note-notice"),
        ("add-note", ("   ", "id"), "note-notice"),
        ("start-item", ("id", "", *[None] * 5), "path-item-note"),
        ("start-item", ("id", "/etc/passwd", *[None] * 5), "path-item-note"),
        ("start-item", ("id", "tiny", None, None, "yesterday", None, None), "item-seen-notice"),
        ("start-dispute", ("id", *[None] * 10), "path-dispute-original-note"),
        ("start-dispute", ("id", "tiny", *[None] * 9), "dispute-key-notice"),
        ("start-dispute", ("id", "tiny", "key", "tiny", " ", *[None] * 6), "dispute-name-notice"),
        (
            "start-dispute",
            ("id", "tiny", "key", "tiny", "Copy Works", "tiny", "broken", *[None] * 4),
            "path-dispute-their-key-note",
        ),
        ("start-dispute", ("id", *["broken"] * 10), "path-dispute-original-note"),
    ],
)
def test_missing_or_forbidden_values_are_refused_at_their_field(
    pages: Pages, tiny_path: Path, element: str, values: tuple[Any, ...], where: str
) -> None:
    case = pages.vault.add_case("Leak of January")
    (pages.root / "broken").write_text("no key", encoding="utf-8")
    paths = {"tiny": place(tiny_path, pages.root, "tiny"), "broken": pages.root / "broken"}
    given = {"id": case.id} | {name: str(path) for name, path in paths.items()}
    before = pages.vault.audit_head
    out = pages.call(element, "click", *(given.get(each, each) for each in values))
    assert told(out) == [where]
    assert pages.vault.audit_head == before
    assert not pages.jobs.recent()


@pytest.mark.parametrize(("state", "folds"), [("done", True), ("failed", False)])
def test_a_finished_dispute_shows_its_outcome_and_folds_its_form(pages: Pages, state: str, folds: bool) -> None:
    case, jobs = pages.vault.add_case("Two claims"), pages.jobs
    run = pages.vault.add_run(case.id, {"a": 1}, "leaked", "decided")
    job = jobs.create("dispute", "Dispute with Copy Works", {"case_id": case.id})
    jobs.start(job.id, os.getpid())
    jobs.finish(job.id, state, result={"run_id": run.id} if folds else None)
    finished = pages.handler("finished", "case-items")
    out = dict(zip(finished.outputs, finished.fn(job.id, case.id, pages.request), strict=True))
    form, run_box = out[pages.find("dispute")], out[pages.find("run")]
    assert out[pages.find("add-item")] == gr.skip(), "the other form stays as it is"
    if folds:
        assert (form.open, run_box.visible) == (False, True)
    else:
        assert form == run_box == gr.skip()


def test_a_damaged_file_is_an_error_at_its_field_and_stops_the_button(pages: Pages, tiny_path: Path) -> None:
    broken = pages.root / "key.irwm-key"
    broken.write_text("no key", encoding="utf-8")
    note, *state = settled(pages, "dispute-their-key", broken)
    assert ("notice-fault" in note, *state) == (True, None, True)
    (stops,) = [
        each for each in pages.blocks.fns.values()
        if [pages.find("start-dispute")] == each.outputs and each.name == "_unless_faulty"
    ]  # fmt: skip
    assert [stops.fn(*faulty).interactive for faulty in ((False, True), (False, False))] == [False, True]
    sound = pages.root / "sound.irwm-key"
    sound.write_bytes(irwm.generate_key(irwm.open_checkpoint(tiny_path)).to_bytes())
    note, *state = settled(pages, "dispute-their-key", sound)
    assert (icon("done") in note, *state) == (True, str(sound), False)
    note, *state = settled(pages, "item", broken)
    assert state == [str(broken), False]
    assert icon("done") not in note, "an item is not opened, so nothing shows that it is sound"


def settled(pages: Pages, purpose: str, path: Path) -> tuple[str, str | None, bool]:
    """The note below a path that was typed, the chosen path, and whether the field is faulty."""
    field, chosen, faulty = f"path-{purpose}", "2", "3"
    out = pages.call(field, "submit", str(path))
    return str(value(out[f"{field}-note"])), out[chosen], out[faulty]
