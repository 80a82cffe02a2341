"""A lab's results on the page: outcome, downloads, table and figures, filled in row by row while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import gradio as gr

from irwm.errors import IrwmError, printable
from irwm.report import schema
from irwm.report.lab import LAB_HTML, LAB_JSON, NAME
from irwm.report.lab_rows import MODES, TOP, WAY_WORDS, all_rows
from irwm.report.numbers import percent
from irwm.report.plots import lab as lab_plots
from irwm.report.signature_file import ENDING
from storage.job_files import JobFiles
from storage.job_table import Job
from ui.components import notices
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import STATES, JobCard
from ui.components.lab_table import summary_html, table_html
from ui.components.uploads import download, download_of
from ui.context import Context
from ui.services.stored_results import lab_of

KIND = "lab"
# Rows come every few seconds; a table that is redrawn more often only flickers.
POLL_SECONDS = 2.0
LOOK_BACK = 200
_WAYS = {f"{statistic} {invariant}": (statistic, invariant) for statistic, invariant in WAY_WORDS}
_COUNTING = "counting"
_SHARES = [
    ("that count (rank below β)", _COUNTING),
    *((f"in the top {percent(level)}", f"{level:g}") for level in TOP),
]
_USUAL = [name for name, way in _WAYS.items() if way in lab_plots.USUAL_WAYS]


class LabView:
    """The view, its timer and their handlers; shows the job of a card while it runs.

    Attributes:
        shown: a `gr.State` with the id of the lab that is shown, or None.
        go_on: the button that continues a lab that ended early; the page connects it.
        seen: a `gr.State` that distinguishes the results that are shown from later ones.
        figures: mode, attack and both figures.
        outputs: the components that `look` gives values for.
    """

    def __init__(self, context: Context, job: JobCard) -> None:
        self.context = context
        self.shown, self.seen = gr.State(None), gr.State(None)
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        with gr.Column(visible=False, elem_id="lab") as box:
            summary = gr.HTML(elem_id="lab-summary")
            with gr.Row():
                self.go_on = gr.Button("Continue", visible=False, elem_id="lab-go-on", scale=0, min_width=120)
                file: dict[str, Any] = {"scale": 0, "min_width": 180, "visible": False}
                html_file = gr.DownloadButton("Report (HTML)", elem_id="lab-html", **file)
                signature = gr.DownloadButton("Signature", elem_id="lab-signature", **file)
                json_file = gr.DownloadButton("Numbers (JSON)", elem_id="lab-json", **file)
            table = gr.HTML(elem_id="lab-table")
            mode = gr.Radio([], label="Figures for", visible=False, elem_id="lab-mode")
            trials = gr.Plot(show_label=False, elem_id="lab-trials")
            with gr.Row(visible=False, elem_id="lab-curve-choice") as about_curve:
                attack = gr.Dropdown([], label="One attack at every strength", elem_id="lab-curve-of", min_width=280)
                self.top = gr.Dropdown(
                    _SHARES, value=_COUNTING, label="Share of positions", elem_id="lab-top", min_width=220
                )
                self.ways = gr.CheckboxGroup(
                    [(WAY_WORDS[way][0], name) for name, way in _WAYS.items()],
                    value=_USUAL,
                    label="Ways of reading the mark (statistic and source of attention scores)",
                    elem_id="lab-ways",
                )
            curve = gr.Plot(show_label=False, elem_id="lab-curve")
        self.history = gr.Dropdown(
            [], label="Earlier Lab runs", info="Choose one to see it again", visible=False, elem_id="lab-history"
        )
        self.figures: list[Any] = [mode, attack, trials, about_curve, curve]
        files = html_file, signature, json_file
        self.outputs: list[Any] = [box, summary, self.go_on, *files, table, *self.figures, self.timer, self.seen]
        self.connect(job)

    def connect(self, job: JobCard) -> None:
        """Connects each event to its handler."""
        context, shown, history = self.context, self.shown, self.history
        mode, attack, *_ = self.figures
        drawing = [context.dark, mode, attack, self.top, self.ways]
        reading = [shown, self.seen, *drawing]
        job.job_id.change(self.follow, job.job_id, [shown, self.timer], **PRIVATE)
        last = {"trigger_mode": "always_last", **in_turn("lab")}
        shown.change(self.look, reading, self.outputs, **last)
        self.timer.tick(self.look, reading, self.outputs, **last)
        ended = job.ended.change(self.look, reading, self.outputs, **last)
        offer_history = self.offer_history  # bound once: Gradio gives each function its own queue
        ended.then(offer_history, None, history, **PRIVATE)
        context.opened.change(offer_history, None, history, **PRIVATE)
        chosen = [context.dark.change, mode.input, attack.input, self.top.input, self.ways.input]
        gr.on(chosen, guarded(self.again), [shown, *drawing], self.figures, **last)
        history.input(guarded(self.choose), history, shown, **PRIVATE)

    def look(
        self, id: str | None, before: Any, dark: bool, mode: str | None, attack: str | None, top: str | None,
        ways: list[str] | None, request: gr.Request,
    ) -> Any:  # fmt: skip
        """The current values of a lab, unless they are already shown."""
        if id is None or not self.context.is_open(request):
            return self._nothing()
        try:
            jobs = self.context.jobs_of(request)
            current, files = jobs.get(id), jobs.files(id)
            # A task writes its first line once it has read the model; errors before that are on the job's card.
            if before is None and LAB_JSON not in files:
                return self._nothing()
            document = lab_of(files)
        except IrwmError as error:
            return self._only(notices.error_html(error))
        now = [id, len(all_rows(document)), document["complete"], current.state, dark]
        if now == before:
            return (gr.skip(),) * len(self.outputs)
        over = current.is_over
        try:
            with notices.damaged("the results of this Lab run are damaged"):
                return (
                    gr.Column(visible=True),
                    summary_html(document, running=not over),
                    gr.Button(visible=over and not document["complete"]),
                    *_files(files, complete=document["complete"]),
                    table_html(document),
                    *_figures(document, dark, mode, attack, top, ways),
                    gr.Timer(active=not over),
                    now,
                )
        except IrwmError as error:
            return self._only(notices.error_html(error))

    def _nothing(self) -> tuple[Any, ...]:
        """The values while there are no results yet."""
        return gr.Column(visible=False), *(gr.skip(),) * (len(self.outputs) - 2), None

    def _only(self, said: str) -> tuple[Any, ...]:
        gone = (gr.Button(visible=False), *(gr.DownloadButton(visible=False),) * 3)
        return gr.Column(visible=True), said, *gone, "", *(gr.skip(),) * (len(self.figures) + 1), None

    def again(
        self, id: str | None, dark: bool, mode: str | None, attack: str | None, top: str | None,
        ways: list[str] | None, request: gr.Request,
    ) -> Any:  # fmt: skip
        """Only the figures, after another choice."""
        if id is None or not self.context.is_open(request):
            return (gr.skip(),) * len(self.figures)
        return _figures(lab_of(self.context.jobs_of(request).files(id)), dark, mode, attack, top, ways)

    @staticmethod
    def follow(id: str | None) -> Any:
        return id, gr.Timer(active=id is not None)

    def offer_history(self, request: gr.Request) -> Any:
        # A locked browser cannot open any of them.
        recent = self.context.jobs_of(request).recent(LOOK_BACK)
        labs = [each for each in recent if each.kind == KIND and isinstance(each, Job)]
        return gr.Dropdown(choices=[(_line(each), each.id) for each in labs], value=None, visible=bool(labs))

    def choose(self, id: str | None, request: gr.Request) -> Any:
        self.context.require(request)
        if id is not None and self.context.jobs.line(id).kind != KIND:
            raise IrwmError("this job is not a Lab run")
        return id


def _files(files: JobFiles, *, complete: bool) -> tuple[Any, ...]:
    """The buttons for the signed files; before signing there are only the unsigned numbers."""
    signed = (download_of(files, name) if complete else download(None, name) for name in (LAB_HTML, f"{NAME}{ENDING}"))
    return *signed, download_of(files, LAB_JSON)


def _figures(
    document: schema.Lab,
    dark: bool,
    mode: str | None,
    attack: str | None,
    top: str | None,
    ways: Sequence[str] | None,
) -> tuple[Any, ...]:
    """Values for mode, attack, both figures and the row above the second; chosen values stay if they still exist. A
    figure without data is not shown."""
    marks = {mark["mode"]: mark for mark in document["marks"]}
    if not any(row["ways"] for mark in marks.values() for row in mark["rows"]):
        return gr.Radio(visible=False), gr.Dropdown(choices=[], value=None), None, gr.Row(visible=False), None
    mode = mode if mode in marks else next(iter(marks))
    mark = marks[mode]
    names = {row["attack"]: row["label"] for row in mark["rows"] if row["role"] == "attack" and row["ways"]}
    curved = lab_plots.curved(mark["rows"])
    offered = curved or list(names)
    attack = attack if attack in offered else next(iter(offered), None)
    chosen = [_WAYS[name] for name in ways or () if name in _WAYS] or [lab_plots.VERDICT_WAY]
    level = next((level for level in TOP if top == f"{level:g}"), None)
    curve = lab_plots.curve(mark, attack, ways=chosen, top=level, dark=dark) if attack is not None else None
    return (
        gr.Radio(choices=[(MODES[name], name) for name in marks], value=mode, visible=len(marks) > 1),
        gr.Dropdown(choices=[(names[name], name) for name in offered], value=attack),
        lab_plots.trials(mark, dark=dark),
        gr.Row(visible=attack is not None),
        curve,
    )


def _line(job: Job) -> str:
    when = datetime.fromisoformat(job.created).strftime("%Y-%m-%d %H:%M UTC")
    result = job.result or {}
    said = result.get("outcome") or STATES[job.state].lower()
    return f"{printable(job.title, 80)} · {when} · {printable(str(said), 40)}"
