"""Which of several models were made from which: a form, its job and the drawn map."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gradio as gr
from markupsafe import Markup

import irwm
from irwm.checkpoint.remote.address import is_address
from irwm.errors import printable, shown_path
from irwm.evidence.descent import Branch, Descent, Drawn, drawn
from irwm.report.numbers import counted
from ui.components import notices
from ui.components.browsing import BrowsingLimits, use_path
from ui.components.events import PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import JobCard, job_card
from ui.components.markup import own
from ui.components.places import Places, at
from ui.context import Context
from ui.jobs import requests
from ui.services.results import Mapped

INTRO = """
## Which was made from which?
Joins each model to the one that it was most likely made from. The map is not evidence of ownership: no key is used.
"""
KIND = "descent"
NAMES_OF_REASONS = {
    "original": "from a known original",
    "one parent": "away from a known original",
    "rounded weights": "its weights are rounded",
    "removed weights": "some of its weights were removed",
    "continued from rounded weights": "trained further from rounded weights",
    "continued from removed weights": "trained further from weights of which some were removed",
}
UNKNOWN = "which of the two came first is not known"


class DescentMap:
    """The components, at this place of the page."""

    def __init__(self, context: Context) -> None:
        self.context = context
        gr.Markdown(INTRO)
        self.models = gr.Textbox(
            label="Models",
            info="One on each line: a folder with models, one model, or an address",
            lines=2,
            max_lines=10,
            max_length=20_000,
            elem_id="map-models",
        )
        self.originals = gr.Textbox(
            label="Known originals (optional)",
            info="Models that were made from none of the others. All branches lead away from them",
            lines=1,
            max_lines=5,
            max_length=20_000,
            elem_id="map-originals",
        )
        told = gr.HTML(visible=False, elem_id="map-notice")
        with gr.Row():
            self.findings = gr.Button("Enter the findings above", elem_id="map-findings", scale=0, min_width=220)
            self.start = gr.Button("Draw the map", variant="primary", elem_id="start-map")
        self.job: JobCard = job_card(context, (KIND,), unit="models")
        self.shown = gr.HTML(elem_id="map-shown")
        self.places = Places(form=told)

    def connect(self, tab: gr.Tab) -> None:
        """Connects each event to its handler."""
        self.start.click(
            self.places.told(self.begin, 1),
            [self.models, self.originals],
            [self.job.job_id, *self.places.outputs],
            **PRIVATE,
        )
        gr.on([tab.select, self.job.ended.change], guarded(self.fill), self.job.job_id, self.shown, **in_turn(KIND))

    def begin(self, request: gr.Request, models: str | None, originals: str | None) -> str:
        """Starts the job; returns its id."""
        vault, limits = self.context.require(request), BrowsingLimits.of(self.context.settings)
        with at("form"):
            asked = requests.descent(
                _given(models, limits), _given(originals, limits), device=self.context.settings.device
            )
        return self.context.start(asked, vault).id

    def fill(self, id: str | None, request: gr.Request) -> Any:
        """The map of the shown job."""
        if not self.context.is_open(request):
            return ""
        result = self.context.jobs_of(request).get(id).result if id else None
        return map_html(result) if result else ""


def _given(typed: str | None, limits: BrowsingLimits) -> list[str]:
    lines = filter(None, map(str.strip, (typed or "").splitlines()))
    return [line if is_address(line) else shown_path(use_path(line, limits, kind="model")) for line in lines]


def map_html(result: Mapped) -> str:
    """The map as nested lists, with lines drawn between the models."""
    found = irwm.Descent(
        tuple(result["names"]),
        tuple(map(tuple, result["families"])),
        tuple(Branch(**each) for each in result["branches"]),
    )
    trees = Markup("").join(_tree(found, tree, result) for tree in drawn(found))
    sizes = Counter(len(family) > 1 for family in found.families)
    counts = [counted(sum(map(len, found.families)), "model"), counted(sizes[True], "family", "families")]
    if sizes[False]:
        counts.append(f"{counted(sizes[False], 'model')} without a relative")
    said = Markup(", ").join(Markup("<span>{}</span>").format(each) for each in counts)
    errors = ({**each["error"], "file": each["error"].get("file") or each["name"]} for each in result["unread"])
    problems = Markup("").join(Markup(notices.error_html(error)) for error in errors)
    return str(Markup('<p role="status">{}.</p><div class="descent">{}</div>{}').format(said, trees, problems))


def _tree(found: Descent, tree: Drawn, result: Mapped) -> Markup:
    return Markup('<ul aria-label="Family">{}</ul>').format(_model(found, tree, None, result))


def _model(found: Descent, model: Drawn, above: int | None, result: Mapped) -> Markup:
    below = Markup("").join(_model(found, each, model.place, result) for each in model.below)
    kind = " sure" if model.branch is None or model.branch.direction else ""
    mark = Markup('<span class="tag">{}</span>').format("original") if model.place in result["originals"] else ""
    why = Markup("<small>{}</small>").format(_why(model.branch, above)) if model.branch else ""
    title = result["addresses"][model.place]
    return Markup('<li class="descent-model{}"><div title="{}"><b>{}</b> {}{}</div>{}</li>').format(
        kind, printable(title, 500), own(found.names[model.place], 80), mark, why,
        Markup("<ul>{}</ul>").format(below) if below else "",
    )  # fmt: skip


def _why(branch: Branch, above: int | None) -> Markup:
    distance = f"{branch.distance:.2g}"
    said = [
        f"the geometry of their embeddings differs by {distance}"
        if branch.by_embedding
        else f"their weights differ by {distance}"
    ]
    if not branch.direction:
        said.append(UNKNOWN)
    elif branch.first != above:
        said.append("the model above was made from this one")
    if branch.direction:
        said.append(NAMES_OF_REASONS[branch.direction])
    return Markup("; ").join(Markup("<span>{}</span>").format(each) for each in said)
