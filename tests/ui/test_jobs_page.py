"""Handlers of the page Jobs."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import gradio as gr
import pytest

from storage.job_table import Job
from tests.jobs.recipients import JOB as OF_THE_LIST
from tests.ui.handlers import Pages
from ui.components.job_list import jobs_html, result_text, took_text, where_text
from ui.jobs import KINDS, runner

JOB = replace(
    OF_THE_LIST, state="done", started="2026-01-01T09:00:05.000Z", ended="2026-01-01T09:03:25.000Z", result={}, pid=None
)
NOW = datetime(2026, 1, 1, 9, 0, 15, tzinfo=UTC)


def end(pages: Pages, state: str, title: str = "Verify report.json", **how: Any) -> Job:
    """A job that this process began and that ended this way."""
    jobs = pages.jobs
    job = jobs.create("verify", title, {"report": "/models/report.json", "identity": "", "device": "cpu"})
    jobs.start(job.id, os.getpid())
    jobs.log(job.id, "Reading the report")
    jobs.finish(job.id, state, **how)
    return jobs.get(job.id)


def choose(pages: Pages, id: str) -> dict[str, Any]:
    return pages.call("jobs-list", "chosen", 0, data={"record": id})


def test_the_history_is_newest_first_with_state_time_and_result(pages: Pages) -> None:
    end(pages, "done", "The first", result={"ok": True})
    end(pages, "failed", "The second", error={"problem": "a shard is cut short"})
    page = pages.call("jobs-refresh", "click", 0, None)["jobs-list"]
    assert page.index("The second") < page.index("The first")
    for text in ("Done", "Failed", "Valid", "A shard is cut short", "UTC"):
        assert text in page


def test_history_pages_stop_at_the_last_page(pages: Pages) -> None:
    for n in range(12):
        end(pages, "stopped", f"Job number {n:02}")
    first = pages.call("jobs-refresh", "click", 0, None)
    assert "Job number 11" in first["jobs-list"]
    assert "Job number 01" not in first["jobs-list"]
    assert "1 to 10 of 12 jobs" in first["jobs-where"]
    assert (first["jobs-back"].interactive, first["jobs-forth"].interactive) == (False, True)
    second = pages.call("jobs-forth", "click", 0, None)
    assert "Job number 01" in second["jobs-list"]
    assert "11 to 12 of 12 jobs" in second["jobs-where"]
    assert "Job number 01" in pages.call("jobs-forth", "click", 7, None)["jobs-list"]
    assert "Job number 11" in pages.call("jobs-back", "click", 1, None)["jobs-list"]


@pytest.mark.parametrize("state", ["failed", "stopped", "interrupted"])
def test_unsuccessful_jobs_can_be_run_again(pages: Pages, state: str) -> None:
    job = end(pages, state, error={"problem": "the disk is full"} if state != "stopped" else None)
    chosen = choose(pages, job.id)
    assert chosen["run-again"].visible is True
    assert f'data-record="{job.id}" aria-current="true"' in chosen["jobs-list"]
    out = pages.call("run-again", "click", job.id)
    (started,) = [each for each in pages.jobs.recent() if each.id != job.id]
    assert started.request == job.request
    assert f'data-record="{started.id}" aria-current="true"' in out["jobs-list"]
    runner.stop(started.id, pages.jobs)


def test_jobs_are_run_again_or_opened_only_if_that_is_possible(pages: Pages) -> None:
    done, failed = end(pages, "done", result={"ok": True}), end(pages, "failed", error={"problem": "the disk is full"})
    assert choose(pages, done.id)["run-again"].visible is False
    assert choose(pages, failed.id)["open-result"].visible is False
    for button, job in (("run-again", done), ("open-result", failed)):
        with pytest.raises(gr.Error):
            pages.call(button, "click", job.id)
    for id in ("0" * 16, "../vault", "<img src=x>"):
        with pytest.raises(gr.Error):
            choose(pages, id)
    assert len(pages.jobs.recent()) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_result_opens_only_on_the_page_of_its_kind(pages: Pages, kind: str) -> None:
    jobs = pages.jobs
    job = jobs.create(kind, "Done before", {})
    assert choose(pages, job.id)["open-result"].visible is False
    jobs.start(job.id, os.getpid())
    jobs.finish(job.id, "done", result={})
    assert choose(pages, job.id)["open-result"].visible is True
    function = pages.handler("open_result")
    states = [place for place, output in enumerate(function.outputs) if output is pages.context.cards[kind][1]]
    opened = pages.call("open-result", "click", job.id)
    assert [place for place, value in opened.items() if value == job.id] == [str(place) for place in states]
    assert len(states) == 1


def test_running_job_is_polled_and_offers_no_second_run(pages: Pages) -> None:
    jobs = pages.jobs
    job = jobs.create("verify", "Verify", {"n": 1})
    jobs.start(job.id, os.getpid())
    out = choose(pages, job.id)
    assert out["run-again"].visible is False
    assert any(isinstance(part, gr.Timer) and part.active for part in out.values())
    jobs.finish(job.id, "stopped")
    out = choose(pages, job.id)
    assert not any(isinstance(part, gr.Timer) and part.active for part in out.values())


@pytest.mark.parametrize(
    ("kind", "result", "word"),
    [
        ("protect", {"many": False}, "Released"),
        ("protect", {"many": True, "written": 1200, "failed": 2}, "1\u00a0200 released, 2 failed"),
        ("investigate", {"verdict": "found", "word": "found, not yet proof"}, "Found, not yet proof"),
        ("investigate", {"verdict": "not found", "word": "not found"}, "Not found"),
        ("sweep", {"rows": [{"verdict": "found"}, {"error": {}}]}, "Found in 1 of 2 suspects"),
        ("lab", {"said": "x"}, "Report written"),
        ("dispute", {"outcome": "decided"}, "Decided"),
        ("item", {"added": True}, "Added"),
        ("verify", {"ok": False}, "Not valid"),
    ],
)
def test_job_result_is_one_word(kind: str, result: dict[str, Any], word: str) -> None:
    assert result_text(replace(JOB, kind=kind, result=result)) == word
    assert result_text(replace(JOB, kind=kind, result=result, state="running")) == ""


def test_time_and_count_of_jobs_are_shown() -> None:
    assert took_text(JOB, NOW) == "3 min 20 s"
    assert took_text(replace(JOB, ended=None), NOW) == "10 s"
    assert took_text(replace(JOB, started=None, ended=None), NOW) == ""
    assert where_text(0, 10, 1) == "1 job"
    assert where_text(0, 10, 10) == "10 jobs"
    assert where_text(2, 10, 1234) == "21 to 30 of 1\u00a0234 jobs"
    assert "No jobs yet" in jobs_html([], None, NOW)


def test_chosen_job_is_not_replaced_by_page_defaults(pages: Pages) -> None:
    """Gradio's queue may answer the event of coming into view and a choice at the same time, in any order."""
    request = pages.request
    job = end(pages, "interrupted")
    restores = [each for each in pages.blocks.fns.values() if each.name == "restore"]
    cards = [each.fn for each in restores if each.inputs]
    assert len(cards) == 8
    found = [card(None, request) for card in cards]
    assert found.count(job.id) == 1, "the page Verify shows it again"
    assert all(each in (job.id, gr.skip()) for each in found)
    assert all(card("another", request) == gr.skip() for card in cards)
