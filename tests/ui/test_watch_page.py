"""Handlers of the page Watch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from irwm.errors import IrwmError
from storage.job_table import Job
from tests.checkpoint.hub import Hub
from tests.jobs.recipients import protect_request, run_here, succeeded
from tests.ui.handlers import Pages, value
from tools.small_models import write_llama
from ui.components.watch_list import ALL, FAILURES, FINDINGS, chosen_rows, id_of
from ui.jobs import runner
from ui.pages.watch import GIB
from ui.preferences import Preferences
from ui.services.results import WatchRow
from ui.services.stored_results import WATCH_ROWS

FOUND: Any = {
    "part": "", "word": "found", "whose": ["Ada"], "reason": "the suspect carries this key's mark",
    "original": "/m/base", "likeness": 0.9, "lineage": "derived", "log10_risk": -40.0, "bytes": 5_000_000,
    "seconds": 1.25,
}  # fmt: skip
NO_MATCH = FOUND | {"word": "no match", "whose": [], "lineage": "", "log10_risk": None, "likeness": None}
ERROR = {"type": "RemoteError", "problem": "the server denied access", "file": "hf://acme/c@3"}
SOURCE = {"source": "hf://acme", "listed": 4, "left": 1, "error": ERROR}


def row(name: str, result: Any = None, utc: str = "2026-01-01T00:00:00+00:00", **changes: Any) -> WatchRow:
    made: Any = {
        "source": "hf://acme", "name": name, "address": f"hf://acme/{name}@1", "version": "1", "utc": utc,
        "compared": "a", "keys": "b", "tries": 2, "result": result, "error": None if result else ERROR,
    } | changes  # fmt: skip
    return made  # type: ignore[no-any-return]


ROWS = [
    row("unrelated", NO_MATCH),
    row("copy", FOUND),
    row("refused"),
    row("unmarked", FOUND | {"word": "not found", "whose": [], "log10_risk": 0.0}),
]


def watched(pages: Pages, rows: list[WatchRow], done: bool = True) -> Job:
    """A watch in the list with these results."""
    jobs = pages.jobs
    job = jobs.create("watch", "Watch hf://acme", {"sources": ["hf://acme"]})
    jobs.start(job.id, os.getpid())
    jobs.files(job.id).append(WATCH_ROWS, "".join(json.dumps(each) + "\n" for each in rows))
    if done:
        result = {
            "sources": [SOURCE], "counts": {"found": 1, "no match": 1, "failed": 1, "not found": 1}, "known": 4,
            "failed": 1, "keys": 3, "originals": 2, "originals_left_out": ["old"], "rows": [], "file": WATCH_ROWS,
        }  # fmt: skip
        jobs.finish(job.id, "done", result=result)
    return jobs.get(job.id)


def test_rows_are_chosen_and_ordered() -> None:
    assert [each["name"] for each in chosen_rows(ROWS, FINDINGS)] == ["copy", "unmarked"]
    assert [each["name"] for each in chosen_rows(ROWS, FAILURES)] == ["refused"]
    assert [each["name"] for each in chosen_rows(ROWS, ALL)] == ["copy", "unmarked", "refused", "unrelated"]
    again = row("refused", FOUND, utc="2026-02-01T00:00:00+00:00")
    assert [each["name"] for each in chosen_rows([*ROWS, again], FINDINGS)] == ["refused", "copy", "unmarked"]
    assert not chosen_rows([*ROWS, again], FAILURES), "the latest result of a version counts"


def test_findings_are_listed_and_shown_in_full(pages: Pages) -> None:
    watched(pages, ROWS)
    page = pages.call("watch-shown", "change", FINDINGS, 0, None, None)
    assert "copy" in page["watch-list"]
    assert "Ada" in page["watch-list"]
    assert "unrelated" not in page["watch-list"]
    assert page["watch-where"].count("2 suspects") == 1
    summary = str(value(page["watch-summary"]))
    for said in ("4 new suspects", "1 with a mark", "2 originals", "3 keys", "old", "denied access", "1 are left"):
        assert said in summary.replace("\u00a0", " "), said
    chosen = pages.call("watch-list", "chosen", FINDINGS, 0, None, None, data={"record": id_of(ROWS[1])})
    detail = str(value(chosen["watch-detail"]))
    for said in ("hf://acme/copy@1", "Ada", "0.90 of 1", "/m/base", "5.0 MB", "carries this key"):
        assert said in detail, said
    assert chosen["watch-investigate"].visible
    failed = pages.call("watch-list", "chosen", FAILURES, 0, None, None, data={"record": id_of(ROWS[2])})
    assert "denied access" in str(value(failed["watch-detail"]))
    unknown = pages.call("watch-list", "chosen", ALL, 0, None, None, data={"record": "0" * 16})
    assert not unknown["watch-investigate"].visible


def test_results_of_a_running_watch_and_an_empty_page(pages: Pages) -> None:
    empty = pages.call("watch-shown", "change", FINDINGS, 0, None, None)
    assert "No suspects yet" in empty["watch-list"]
    job = watched(pages, ROWS, done=False)
    page = pages.call("watch-shown", "change", ALL, 0, None, job.id)
    assert "unrelated" in page["watch-list"]
    assert not page["watch-summary"].visible
    assert (
        "No findings"
        in pages.call("watch-shown", "change", FINDINGS, 0, None, watched(pages, ROWS[:1]).id)["watch-list"]
    )
    pages.jobs.finish(job.id, "stopped")


def test_long_lists_have_pages(pages: Pages) -> None:
    watched(pages, [row(f"m{number:02}", NO_MATCH) for number in range(45)])
    first = pages.call("watch-shown", "change", ALL, 0, None, None)
    assert "1 to 20 of 45 suspects" in first["watch-where"]
    assert (first["watch-back"].interactive, first["watch-forth"].interactive) == (False, True)
    last = pages.call("watch-forth", "click", ALL, 1, None, None)
    assert "41 to 45 of 45 suspects" in last["watch-where"]
    assert (last["watch-back"].interactive, last["watch-forth"].interactive) == (True, False)


def test_hostile_names_are_inert(pages: Pages) -> None:
    nasty = "<script>alert(1)</script>\u202e"
    result = FOUND | {"whose": [nasty], "original": nasty, "reason": nasty, "part": nasty}
    hostile = row(nasty, result, source=nasty, address=nasty, version=nasty)
    watched(pages, [hostile])
    page = pages.call("watch-list", "chosen", FINDINGS, 0, None, None, data={"record": id_of(hostile)})
    for text in (page["watch-list"], str(value(page["watch-detail"]))):
        assert "<script" not in text
        assert "\u202e" not in text


def begin(pages: Pages, typed: str, most: float | None = 5) -> dict[str, Any]:
    return pages.call("start-watch", "click", typed, "", most, 2, 60)


def test_wrong_sources_are_shown_at_the_field(pages: Pages) -> None:
    for typed, said in (("", "no sources"), ("hf://?sort=x", "not a source"), ("/nowhere/at/all", "nowhere")):
        shown = begin(pages, typed)["watch-sources-notice"]
        assert shown.visible, typed
        assert said in str(value(shown)), typed
    assert not pages.jobs.recent()


def test_watch_is_started_with_the_vaults_originals(pages: Pages, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    original = write_llama(pages.root / "original", vocab_size=1200)
    vault, jobs = pages.vault, pages.jobs
    succeeded(run_here("protect", protect_request(original, pages.root / "copy", "Ada"), vault, jobs))
    pages.context.prefer(Preferences(servers=("127.0.0.1",)))
    asked: list[Any] = []
    monkeypatch.setattr(
        runner, "start", lambda kind, title, request, *rest: asked.append((kind, request)) or jobs.recent()[0]
    )
    begin(pages, f"{pages.root}\n\nhf://acme")
    ((kind, request),) = asked
    assert kind == "watch"
    assert request["sources"] == [str(pages.root), "hf://acme"]
    assert request["originals"] == [str(original)]
    assert (request["most"], request["most_bytes"], request["seconds"]) == (5, 2 * GIB, 60)
    assert begin(pages, "hf://acme", most=0)["watch-sources-notice"].visible
    assert "1 original" in pages.blocks.fns[
        next(n for n, f in pages.blocks.fns.items() if f.name == "about_originals")
    ].fn(pages.request).replace("\u00a0", " ")


def test_suspect_is_handed_to_investigate(pages: Pages, tmp_path: Path) -> None:
    suspect, original = (write_llama(pages.root / name, vocab_size=600) for name in ("suspect", "original"))
    found = row("suspect", FOUND | {"original": str(original)}, address=str(suspect))
    job = watched(pages, [found])
    filled = pages.call("watch-investigate", "click", id_of(found), job.id)
    assert (filled["path-suspect"], filled["path-original-of"]) == (str(suspect), str(original))
    with pytest.raises(Exception, match="No suspect"):
        pages.call("watch-investigate", "click", "0" * 16, job.id)
    outside = row("outside", FOUND, address=str(tmp_path / "home"))
    with pytest.raises(Exception, match="outside"):
        pages.call("watch-investigate", "click", id_of(outside), watched(pages, [outside]).id)


def test_locked_browser_sees_nothing(pages: Pages) -> None:
    watched(pages, ROWS)
    pages.lock()
    page = pages.call("watch-shown", "change", ALL, 0, None, None)
    assert "copy" not in str(page)
    with pytest.raises((IrwmError, Exception), match="locked"):
        pages.call("watch-list", "chosen", ALL, 0, None, None, data={"record": id_of(ROWS[1])})
