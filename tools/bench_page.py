"""The app with an additional page that contains every component; the browser tests run `python -m tools.bench_page`."""

from __future__ import annotations

import sys
from typing import Any

import gradio as gr

import app
from irwm.errors import CheckpointError
from ui import frame
from ui.components import notices
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.path_picker import path_picker
from ui.components.verdict_card import Figure, VerdictCard, verdict_html
from ui.context import Context
from ui.jobs import runner

NASTY = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
FIGURES = (
    Figure("48 of 50", "Positions that rank in the top 20%", "By chance 10 would; 30 are needed. ρ = 0.2"),
    Figure("2 in 10⁷⁷", "Chance of this without the mark", "After correction for 300 keys. p"),
    Figure("10⁶² : 1", "How much likelier with the mark", "Very strong support. LR"),
)


def build(context: Context, tab: gr.Tab) -> None:
    gr.Markdown("# Bench")
    suspect = path_picker(
        context, label="Suspect", info="A model's folder, or one weights file", purpose="suspect", kind="model"
    )
    path_picker(context, label="Write to", info="An existing folder", purpose="target", kind="folder")
    chosen = gr.Textbox(label="Chosen", elem_id="chosen", interactive=False)
    suspect.chosen.change(lambda path: path or "", suspect.chosen, chosen)
    start = gr.Button("Start", variant="primary", elem_id="start")
    job = job_card(context, ("protect",))
    result = gr.Textbox(label="Result", elem_id="result", interactive=False)
    open_now = gr.Textbox(label="Open", elem_id="open-count", interactive=False)

    @guarded
    def begin(request: gr.Request) -> Any:
        jobs = context.jobs.opened(context.require(request).jobs_keys_to_seal())
        return runner.start("protect", f"Protect {NASTY}", {"do": "work"}, {"key": "k" * 32}, jobs).id

    def show(id: str | None) -> str:
        return context.jobs.line(id).state if id else ""

    start.click(begin, None, job.job_id)
    job.ended.change(show, job.ended, result)
    context.opened.change(str, context.opened, open_now)
    gr.HTML(
        verdict_html(VerdictCard("found", f"The suspect carries your mark {NASTY}.", FIGURES, ("Because.",), NASTY))
    )
    gr.HTML(notices.error_html(CheckpointError(NASTY, file=f"/models/{NASTY}", tensor=NASTY, advice=NASTY)))
    gr.HTML(notices.empty_html("No cases yet", "Investigate a suspect first."))


if __name__ == "__main__":
    page = type(sys)("bench")
    page.build = build  # type: ignore[attr-defined]
    frame.PAGES = (*frame.PAGES, ("bench", "Bench", page))
    sys.exit(app.main())
