"""Jobs: all jobs of this home folder, finished, running or waiting, including those from the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.job_list import LIST_SCRIPT, UNDONE, jobs_html, where_text
from ui.components.next_steps import OUTCOME, RECEIPT
from ui.context import Context
from ui.jobs import runner

INTRO = """
# Jobs
Long tasks run in the background and continue after you close this page. Each device runs one job at a time. The other
jobs wait in a queue, oldest first.
"""
PAGE_SIZE = 10
# Interval after which a page that shows an unfinished job refreshes; the chosen job is refreshed every second.
LOOK_SECONDS = 3.0
# The card is below the list, so that the list does not move under the pointer.
INTO_VIEW = "() => setTimeout(() => document.getElementById('chosen-job')?.scrollIntoView({block: 'nearest'}), 250)"
# Opens the page that shows jobs of the chosen one's kind, as a click on its tab does.
OPEN_PAGE = """
() => {
  const kind = document.querySelector('#chosen-job .job-head')?.dataset.kind;
  const page = PAGES[kind];
  // These results are scrolled into view when they are ready; others are shown below the job.
  const result = RESULTS[kind];
  if (page === 'investigate') window.irwmAwaitVerdict?.();
  else if (result) window.irwmAwaitResult?.(result);
  else setTimeout(() => document.querySelector(`#page-${page} .job`)?.scrollIntoView({block: 'start'}), 400);
  document.getElementById(`page-${page}-button`)?.click();
}
"""
UNITS = {"investigate": "keys", "sweep": "keys", "lab": "rows", "watch": "suspects", "descent": "models"}


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    with gr.Row(elem_classes="list-row"):
        where = gr.HTML(elem_id="jobs-where")
        back = gr.Button("Previous", elem_id="jobs-back", size="sm", scale=0, min_width=96, visible=False)
        forth = gr.Button("Next", elem_id="jobs-forth", size="sm", scale=0, min_width=96, visible=False)
        refresh = gr.Button("Refresh", elem_id="jobs-refresh", size="sm", scale=0, min_width=96)
    listed = gr.HTML(js_on_load=LIST_SCRIPT, elem_id="jobs-list")
    with gr.Column(elem_id="chosen-job"):
        # A kind that does not exist, so that the card stays empty until a job is chosen.
        card = job_card(context, ("chosen",), unit=UNITS, log_open=True)
        with gr.Row():
            again = gr.Button("Run again", visible=False, elem_id="run-again", scale=0, min_width=160)
            result = gr.Button("Open the result", visible=False, elem_id="open-result", scale=0, min_width=180)
    page, timer = gr.State(0), gr.Timer(LOOK_SECONDS, active=False)
    # The card of this page shows jobs of every kind, so "Open the result" never leads to it.
    cards = {kind: each for kind, each in context.cards.items() if each[0] != context.page}
    outputs = [listed, where, back, forth, page, timer, again, result]
    handlers = Handlers(context, cards, outputs)

    about = [page, card.job_id]
    listing = in_turn("jobs")
    # The tab is also selected when it is in front and the vault is opened.
    looks = [tab.select, refresh.click, card.ended.change, timer.tick]
    gr.on(looks, guarded(handlers.fill), about, outputs, trigger_mode="always_last", **listing)
    chosen = listed.chosen(guarded(handlers.choose), page, [card.job_id, *outputs], **listing)
    chosen.success(None, js=INTO_VIEW, **PRIVATE)
    again.click(guarded(handlers.run_again), card.job_id, [card.job_id, *outputs], **listing)
    opened = result.click(guarded(handlers.open_result), card.job_id, handlers.shown_by, **listing)
    places, results = {kind: place for kind, (place, _) in cards.items()}, {"protect": RECEIPT, "dispute": OUTCOME}
    there = OPEN_PAGE.replace("PAGES", json.dumps(places)).replace("RESULTS", json.dumps(results))
    opened.success(None, js=there, **PRIVATE)
    back.click(handlers.turn(-1), about, outputs, **listing)
    forth.click(handlers.turn(+1), about, outputs, **listing)


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of the page's events.

    Attributes:
        cards: by kind of job, the other page that shows it and the `gr.State` of that page's card with the job shown.
        outputs: the components that `shown` gives values for.
    """

    context: Context
    cards: Mapping[str, tuple[str, gr.State]]
    outputs: Sequence[Any]

    @property
    def shown_by(self) -> list[gr.State]:
        """The states of all those cards, without duplicates."""
        return list(dict.fromkeys(state for _, state in self.cards.values()))

    def shown(self, wanted: int, chosen: str | None, request: gr.Request) -> tuple[Any, ...]:
        """The values of `outputs`, with this page of the list, or with the last page if there are fewer."""
        total = self.context.jobs.count()
        last = max(0, (total - 1) // PAGE_SIZE)
        at = max(0, min(wanted, last))
        jobs = self.context.jobs_of(request).recent(PAGE_SIZE, at * PAGE_SIZE)
        line = self.context.jobs.line(chosen) if chosen is not None else None
        return (
            jobs_html(jobs, chosen, datetime.now(UTC)),
            str(Markup('<p class="note" role="status">{}</p>').format(where_text(at, PAGE_SIZE, total))),
            gr.Button(visible=last > 0, interactive=at > 0),
            gr.Button(visible=last > 0, interactive=at < last),
            at,
            gr.Timer(active=any(not job.is_over for job in jobs)),
            gr.Button(visible=line is not None and line.state in UNDONE),
            gr.Button(visible=line is not None and line.state == "done" and line.kind in self.cards),
        )

    def fill(self, at: int, chosen: str | None, request: gr.Request) -> Any:
        if not self.context.is_open(request):
            return (gr.skip(),) * len(self.outputs)
        return self.shown(at, chosen, request)

    def choose(self, event: gr.EventData, at: int, request: gr.Request) -> Any:
        self.context.require(request)
        id = self.context.jobs.line(str(event.record)).id
        return id, *self.shown(at, id, request)

    def run_again(self, chosen: str | None, request: gr.Request) -> Any:
        context = self.context
        vault = context.require(request)
        if chosen is None:
            raise IrwmError("no job was chosen", advice="choose one from the list first")
        job = context.jobs_of(request).get(chosen)
        if job.state not in UNDONE:
            raise IrwmError(
                "this job has finished or is still running",
                advice="To repeat it, start it from its own page",
            )
        today = {"device": context.settings.device, "scheduler": context.settings.scheduler}
        started = runner.again(job, vault, context.jobs, today).id
        return started, *self.shown(0, started, request)

    def open_result(self, chosen: str | None, request: gr.Request) -> Any:
        """The chosen job, for the page that shows its kind; the other pages do not change."""
        self.context.require(request)
        if chosen is None:
            raise IrwmError("no job was chosen", advice="choose one from the list first")
        job = self.context.jobs_of(request).get(chosen)
        if job.state != "done" or job.kind not in self.context.cards:
            raise IrwmError("this job has no result to open", advice="The job’s log shows how it ended")
        of_kind = self.context.cards[job.kind][1]
        return [chosen if state is of_kind else gr.skip() for state in self.shown_by]

    def turn(self, by: int) -> Any:
        """The handler that shows another page of the list."""

        @guarded
        def to(at: int, chosen: str | None, request: gr.Request) -> Any:
            self.context.require(request)
            return self.shown(at + by, chosen, request)

        return to
