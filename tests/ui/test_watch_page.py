"""Handlers of the page Watch."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from irwm.errors import IrwmError
from storage.job_table import Job
from tests.jobs.recipients import protect_request, run_here, succeeded
from tests.ui.handlers import Pages, value
from tools.hub import Hub
from tools.small_models import write_llama
from ui.components.descent_map import map_html
from ui.components.job_card import job_html
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


def test_each_model_has_one_row() -> None:
    newer = {"version": "2", "address": "hf://acme/copy@2", "utc": "2026-02-01T00:00:00+00:00"}
    cleaned, broken = row("copy", NO_MATCH, **newer), row("copy", **newer)
    for latest in (cleaned, broken):
        for shown in (FINDINGS, ALL):
            copies = [each for each in chosen_rows([*ROWS, latest], shown) if each["name"] == "copy"]
            assert copies == [ROWS[1]], "a model stays a finding when it is replaced"
    assert {each["name"] for each in chosen_rows([*ROWS, broken], FAILURES)} == {"copy", "refused"}
    assert broken in chosen_rows([*ROWS, broken], FAILURES)
    assert {each["name"] for each in chosen_rows([*ROWS, cleaned], FAILURES)} == {"refused"}
    again = row("copy", FOUND, **newer)
    assert [each for each in chosen_rows([*ROWS, again], FINDINGS) if each["name"] == "copy"] == [again]


def test_findings_are_listed_and_shown_in_full(pages: Pages) -> None:
    watched(pages, ROWS)
    page = pages.call("watch-shown", "change", FINDINGS, 0, None, None)
    assert "copy" in page["watch-list"]
    assert "Ada" in page["watch-list"]
    assert "unrelated" not in page["watch-list"]
    assert page["watch-where"].count("2 suspects") == 1
    summary = str(value(page["watch-summary"]))
    for said in (
        "4 new suspects",
        "1 with a mark",
        "2 originals",
        "3 keys",
        "old",
        "denied access",
        "Left for the next pass: 1",
    ):
        assert said in summary.replace("\u00a0", " "), said
    chosen = pages.call("watch-list", "chosen", FINDINGS, 0, None, None, data={"record": id_of(ROWS[1])})
    detail = str(value(chosen["watch-detail"]))
    for said in ("hf://acme/copy@1", "Ada", "0.90 (1 for equal ones)", "/m/base", "5.0 MB", "carries this key"):
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


def test_watch_that_rests_shows_its_last_pass_and_the_next(pages: Pages) -> None:
    job = watched(pages, ROWS, done=False)
    result = {
        "sources": [], "counts": {"found": 1}, "known": 4, "failed": 1, "keys": 3, "originals": 2,
        "originals_left_out": [], "rows": [], "file": WATCH_ROWS,
    }  # fmt: skip
    pages.jobs.rest(job.id, "Next pass on 2026-01-02 at 03:04 UTC", result)
    page = pages.call("watch-shown", "change", FINDINGS, 0, None, job.id)
    assert "copy" in page["watch-list"]
    assert "1 new suspect" in str(value(page["watch-summary"])).replace("\u00a0", " ")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    card = job_html(pages.jobs.get(job.id), speed=None, unit="suspects", now=now)
    assert "Scheduled" in card
    assert "Next pass on 2026-01-02 at 03:04 UTC" in card
    assert "progressbar" not in card
    pages.jobs.wake(job.id)
    pages.jobs.take_turn(job.id)
    pages.jobs.rest(job.id, "Next pass on 2026-01-02 at 04:04 UTC", error=ERROR)
    card = job_html(pages.jobs.get(job.id), speed=None, unit="suspects", now=now)
    assert "denied access" in card
    assert "04:04" in card
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


def begin(pages: Pages, typed: str, most: float | None = 5, every: float = 0) -> dict[str, Any]:
    return pages.call("start-watch", "click", typed, "", most, 2, 60, every)


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
    assert (request["most"], request["most_bytes"], request["seconds"], request["every"]) == (5, 2 * GIB, 60, 0.0)
    begin(pages, "hf://acme", every=24)
    repeated = asked[-1][1]
    assert (repeated["every"], repeated["originals"]) == (24.0, []), "later originals are compared too"
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


def test_findings_are_entered_for_the_map(pages: Pages) -> None:
    job = watched(pages, ROWS)
    filled = pages.call("map-findings", "click", job.id)
    assert (filled["map-models"], filled["map-originals"]) == ("hf://acme/copy@1\nhf://acme/unmarked@1", "/m/base")
    empty = watched(pages, ROWS[:1])
    with pytest.raises(Exception, match="no findings"):
        pages.call("map-findings", "click", empty.id)


def test_map_is_started_and_drawn(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_llama(pages.root / "models" / "a", vocab_size=600).parent
    asked: list[Any] = []
    monkeypatch.setattr(
        runner, "start", lambda kind, title, request, *rest: asked.append((kind, request)) or watched(pages, ROWS)
    )
    pages.call("start-map", "click", f"{folder}\n", f"{folder / 'a'}")
    assert asked[0][0] == "descent"
    assert (asked[0][1]["models"], asked[0][1]["originals"]) == ([str(folder)], [str(folder / "a")])
    for typed, said in (("", "no models"), ("/nowhere/at/all", "nowhere")):
        shown = pages.call("start-map", "click", typed, "")["map-notice"]
        assert said in str(value(shown)), typed


def test_map_shows_names_reasons_and_what_was_not_read() -> None:
    result: Any = {
        "names": ["base", "tuned", "<b>", "alone"], "addresses": ["/m/base", "/m/tuned", "/m/x", "/m/alone"],
        "families": [[0, 1, 2], [3]], "originals": [0],
        "branches": [
            {"first": 0, "second": 1, "distance": 0.0321, "by_embedding": False, "direction": "original"},
            {"first": 1, "second": 2, "distance": 0.5, "by_embedding": True, "direction": ""},
        ],
        "unread": [{"name": "/m/broken", "error": {"type": "CheckpointError", "problem": "it is damaged"}}],
    }  # fmt: skip
    shown = map_html(result).replace("\u00a0", " ")
    for said in ("4 models", "1 family", "1 model without a relative", "differ by 0.032", "from a known original",
                 "differs by 0.5", "is not known", "&lt;b&gt;", "/m/tuned", "It is damaged"):  # fmt: skip
        assert said in shown, said
    assert "<b><b>" not in shown
    assert shown.count("<li") == 4
    assert shown.index("base") < shown.index("tuned") < shown.index("&lt;b&gt;") < shown.index("alone")


def test_parent_is_drawn_above_the_model_made_from_it() -> None:
    result: Any = {
        "names": ["made", "parent"], "addresses": ["a", "b"], "families": [[0, 1]], "originals": [], "unread": [],
        "branches": [{"first": 1, "second": 0, "distance": 0.1, "by_embedding": False, "direction": "rounded weights"}],
    }  # fmt: skip
    shown = map_html(result)
    assert shown.index("parent") < shown.index("made")


def test_locked_browser_sees_nothing(pages: Pages) -> None:
    watched(pages, ROWS)
    pages.lock()
    page = pages.call("watch-shown", "change", ALL, 0, None, None)
    assert "copy" not in str(page)
    with pytest.raises((IrwmError, Exception), match="locked"):
        pages.call("watch-list", "chosen", ALL, 0, None, None, data={"record": id_of(ROWS[1])})
