"""Jobs: everything that ran, runs or waits in this home folder, also what the command line started."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.job_list import LIST_SCRIPT, UNDONE, jobs_html, where_text
from ui.context import Context
from ui.jobs import runner

INTRO = """
# Jobs
What takes longer than a moment runs beside the pages and goes on when you close them. On each device one job runs at a
time; the others wait, the oldest first.
"""
PAGE_SIZE = 10
# A page that shows a job which is not over looks again after so long; the chosen one is looked at every second.
LOOK_SECONDS = 3.0
# The card stands below the list, so that the list does not move under the pointer.
INTO_VIEW = "() => setTimeout(() => document.getElementById('chosen-job')?.scrollIntoView({block: 'nearest'}), 250)"
UNITS = {"investigate": "keys", "sweep": "keys", "lab": "rows"}


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
        # Of no kind that exists, so that nothing is shown until somebody chooses.
        card = job_card(context, ("chosen",), unit=UNITS, log_open=True)
        again = gr.Button("Run again", visible=False, elem_id="run-again", scale=0, min_width=160)
    page, timer = gr.State(0), gr.Timer(LOOK_SECONDS, active=False)
    outputs = [listed, where, back, forth, page, timer, again]

    def shown(wanted: int, chosen: str | None) -> tuple[Any, ...]:
        """Everything of `outputs`, with this page of the list or the last one there is."""
        total = context.jobs.count()
        last = max(0, (total - 1) // PAGE_SIZE)
        at = max(0, min(wanted, last))
        jobs = context.jobs.recent(PAGE_SIZE, at * PAGE_SIZE)
        return (
            jobs_html(jobs, chosen, datetime.now(UTC)),
            str(Markup('<p class="note" role="status">{}</p>').format(where_text(at, PAGE_SIZE, total))),
            gr.Button(visible=last > 0, interactive=at > 0),
            gr.Button(visible=last > 0, interactive=at < last),
            at,
            gr.Timer(active=any(not job.is_over for job in jobs)),
            gr.Button(visible=chosen is not None and context.jobs.get(chosen).state in UNDONE),
        )

    @guarded
    def fill(at: int, chosen: str | None, request: gr.Request) -> Any:
        if not context.is_open(request):
            return (gr.skip(),) * len(outputs)
        return shown(at, chosen)

    @guarded
    def choose(event: gr.EventData, at: int, request: gr.Request) -> Any:
        context.require(request)
        id = context.jobs.get(str(event.record)).id
        return id, *shown(at, id)

    @guarded
    def run_again(chosen: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        if chosen is None:
            raise IrwmError("no job is chosen", advice="choose one in the list first")
        job = context.jobs.get(chosen)
        if job.state not in UNDONE:
            raise IrwmError(
                "this job did what was asked, or still does", advice="Set it up anew on its own page to do it once more"
            )
        today = {"device": context.settings.device, "scheduler": context.settings.scheduler}
        started = runner.again(job, vault, context.jobs, today).id
        return started, *shown(0, started)

    def turn(by: int) -> Any:
        @guarded
        def to(at: int, chosen: str | None, request: gr.Request) -> Any:
            context.require(request)
            return shown(at + by, chosen)

        return to

    about = [page, card.job_id]
    listing = in_turn("jobs")
    # It is selected too when it is in front and the vault is opened.
    looks = [tab.select, refresh.click, card.ended.change, timer.tick]
    gr.on(looks, fill, about, outputs, trigger_mode="always_last", **listing)
    listed.chosen(choose, page, [card.job_id, *outputs], **listing).success(None, js=INTO_VIEW, **PRIVATE)
    again.click(run_again, card.job_id, [card.job_id, *outputs], **listing)
    back.click(turn(-1), about, outputs, **listing)
    forth.click(turn(+1), about, outputs, **listing)
