"""Explore: the strength and the cost of a setting, before any file is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.errors import IrwmError
from irwm.evidence.finding import FORMS, MAPS
from irwm.explore.capacity import naming_z
from irwm.explore.planning import plan
from irwm.scheme.parameters import RANGES
from ui import explore_data as data
from ui import explore_model_plots, explore_plots
from ui.components import notices
from ui.components.events import LAST, PRIVATE
from ui.components.explore_values import about_model, answer, protect_values, said_of, settings_of, values_of
from ui.components.glossary import TITLE, glossary_html
from ui.components.guarded import guarded
from ui.components.path_picker import path_picker
from ui.components.setting_words import setting_of
from ui.components.settings_form import positions_for, scale_text
from ui.context import Context
from ui.explore_settings import MOST_CHARACTERS, MOST_NOISE, ExploreSettings, presets
from ui.presets import NOISE_CHOICES, USUAL_HIDDEN_SIZE, noise_choice
from ui.settings import DEMO

INTRO = """
# Explore
Before any file is written, see how strong a mark with your settings is and what it costs. The figures are redrawn
whenever you change a control.
"""
WANTED = """
## Which settings meet both requirements?
Enter the risk that you accept and how reliably the mark must be found. Equations 1 to 3 then give the smallest mark.
"""
MODEL = """
## On your model
Theory compared with trials on some of the model's own rows. The trials use public random numbers. No file is written
and no key is made.
"""
SHARE = """
## Share or use
"""
# Views of a model: name, label.
VIEWS = (
    ("noise", "Robustness to noise"),
    ("positions", "Positions needed"),
    ("entries", "Stored numbers"),
    ("tries", "Condition"),
    ("hiding", "Hiding"),
    ("colluders", "Colluders"),
    ("fingerprint", "Fingerprint"),
    ("answers", "Answers needed"),
)
# The groups of controls, and the settings in each by the library's names. The first also shows errors about no setting.
ODDS, WISH, MODEL_VIEW = "odds", "wish", "model"
CONTROLS = {
    ODDS: ("positions", "required_positions", "rank_threshold", "survival", "recipients"),
    WISH: ("risk", "success"),
    MODEL_VIEW: ("constraints", "scale", "condition_limit", "noise_coordinates", "spread", "noise", "colluders"),
}
# The position of each group's values among those of all controls.
PLACES = {ODDS: (0, 5), WISH: (5, 7), MODEL_VIEW: (7, 17)}
TO_PROTECT = "() => document.getElementById('page-protect-button')?.click()"


def model_figure(view: str | None, path: Path, s: ExploreSettings, dark: bool) -> Any:
    """The figure of one view of the model at `path`.

    Raises:
        IrwmError: the model cannot be used, or not with these settings.
    """
    if view == "positions":
        return explore_model_plots.positions_needed(s, dark=dark)
    of, p = data.sample_of(path, s), s.parameters
    mark = data.rehearsal_of(of, s)
    if view == "answers":
        return explore_model_plots.answers_needed(s, of.hidden_size, dark=dark)
    if view == "entries":
        return explore_model_plots.entry_sizes(data.neighbours_of(of, s), mark, dark=dark)
    if view == "tries":
        found, sizes = data.tries_of(of, p.constraints)
        return explore_model_plots.conditions(found, sizes, p.condition_limit, p.constraints, dark=dark)
    if view == "hiding":
        levels, seen = data.seen_of(mark, p.noise_coordinates, p.noise_size)
        return explore_model_plots.hiding(levels, seen, p.noise_coordinates, p.constraints, dark=dark)
    if view == "colluders":
        case = data.collusion_of(of, s)
        simulated = data.guilty_of(of, p.noise_coordinates, s.noise, p.noise_size) if case else ()
        naming = naming_z(s.risk, s.recipients * len(MAPS) * FORMS)
        return explore_model_plots.colluders(case, naming, s.recipients, simulated, dark=dark)
    if view == "fingerprint":
        case = data.collusion_of(of, s)
        return explore_model_plots.fingerprint(
            case, naming_z(s.risk, s.recipients * len(MAPS) * FORMS), s.recipients, dark=dark
        )
    return explore_model_plots.ranks_under_noise(s, data.shares_of(mark, p.rank_threshold), dark=dark)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    Explore(context, Layout(context)).connect()


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        usual = presets(USUAL_HIDDEN_SIZE)["Standard"]
        gr.Markdown(INTRO)
        with gr.Accordion(TITLE, open=False, elem_id="explore-glossary"):
            gr.HTML(glossary_html())
        self.now = gr.State(values_of(usual))  # the values of `controls`
        with gr.Row(elem_id="explore-presets"):
            self.presets = [
                gr.Button(name, elem_id=f"explore-preset-{i}", size="sm", min_width=120)
                for i, name in enumerate(presets(USUAL_HIDDEN_SIZE))
            ]
        self._odds(usual)
        gr.Markdown(WANTED)
        self._wanted(usual)
        gr.Markdown(MODEL)
        self._model(context, usual)
        gr.Markdown(SHARE)
        self._share(usual, send=context.settings_form is not None)
        # The components whose values `settings_of` takes, in order.
        self.controls: list[Any] = [*self.rule, *self.wish, *self.solved, self.permutations, *self.added]

    def _odds(self, usual: ExploreSettings) -> None:
        """How reliably a mark is found, and how rarely by accident."""
        p = usual.parameters
        with gr.Row():
            with gr.Column(scale=3, min_width=280):
                positions = _number(p.positions, "Positions (l)", "Rows of the model that carry the mark", "l")
                required = _number(
                    p.required_positions, "Required positions (ρ)", "Number of positions that must count", "rho"
                )
                threshold = _slider(
                    0.01, 0.5, p.rank_threshold, "Rank threshold (β)", "Probability that an unmarked row counts", "beta"
                )
                survival = _slider(
                    0.01,
                    0.99,
                    usual.survival,
                    "Survival rate (p)",
                    "Share of positions that count after an attack",
                    "p",
                )
                keys = _number(usual.recipients, "Recipients (num_u)", "Number of recipients with a key", "recipients")
            with gr.Column(scale=7, min_width=480):
                self.said = gr.HTML(elem_id="explore-said")
                self.along = gr.Radio(
                    [(f"{axis.title} ({axis.symbol})", axis.name) for axis in explore_plots.AXES],
                    value=explore_plots.AXES[0].name,
                    label="Horizontal axis",
                    elem_id="explore-axis",
                )
                self.odds = gr.Plot(show_label=False, elem_id="explore-odds")
        self.rule = positions, required, threshold, survival, keys

    def _wanted(self, usual: ExploreSettings) -> None:
        """The smallest mark that meets two demands."""
        with gr.Row():
            with gr.Column(scale=3, min_width=280):
                risk = _text(
                    f"{usual.risk:g}", "Accepted risk", "Probability that any key leads to a false accusation", "risk"
                )
                success = _text(
                    f"{usual.success!r}",
                    "Required success",
                    "Probability that a mark is found after the attack",
                    "success",
                )
                gr.Markdown(
                    "Survival rate (p), rank threshold (β) and recipients are as set above.", elem_classes="caption"
                )
                self.take = gr.Button("Use the smallest mark", elem_id="explore-take")
            with gr.Column(scale=7, min_width=480):
                self.answer = gr.HTML(elem_id="explore-answer")
                self.region = gr.Plot(show_label=False, elem_id="explore-region")
        self.wish = risk, success

    def _model(self, context: Context, usual: ExploreSettings) -> None:
        """Theory compared with trials on a model."""
        self.picker = path_picker(
            context,
            label="Model (optional)",
            info="The model’s folder, or one weights file. The demo model is shown until you choose one",
            purpose="explored",
        )
        with gr.Row():
            with gr.Column(scale=3, min_width=280):
                self._model_controls(usual)
            with gr.Column(scale=7, min_width=480):
                views = [(label, name) for name, label in VIEWS]
                self.view = gr.Radio(views, value=VIEWS[0][0], label="Show", elem_id="explore-view")
                self.note = gr.HTML(elem_id="explore-model-note")
                self.figure = gr.Plot(show_label=False, elem_id="explore-model")

    def _model_controls(self, usual: ExploreSettings) -> None:
        p = usual.parameters
        constraints = _number(p.constraints, "Constraints (t)", "Number of values changed in each marked row", "t")
        scale = _text(
            scale_text(p.scale), "Scale (scale_wm)", "Divisor for the changed values; “auto” hides them best", "scale"
        )
        limit = _number(
            p.condition_limit,
            "Condition limit (τ)",
            "A lower limit makes the solution more stable, but takes longer to meet",
            "tau",
        )
        coordinates = _number(
            p.noise_coordinates,
            "Noise coordinates (num_noise)",
            "Per row, for the copy’s own noise; 0 means none",
            "num-noise",
        )
        how, size = noise_choice(p)
        choice = gr.Dropdown(
            NOISE_CHOICES,
            value=how,
            label="Noise",
            info="Overwriting harms the model far more than adding",
            elem_id="explore-level",
        )
        spread = _slider(
            0.01,
            RANGES["spread"][1],
            size,
            "Size of the fingerprint (α)",
            "For added noise only, in units of a row’s root mean square",
            "spread",
        )
        hidden = gr.Checkbox(
            p.hidden, label="In secret coordinates (B_i)", info="Required for noise", elem_id="explore-hidden"
        )
        noise = _slider(
            0,
            MOST_NOISE,
            usual.noise,
            "Attack (noise, σ)",
            "White noise, in units of a row’s standard deviation",
            "noise",
        )
        self.survive = gr.Button("Use the positions that survive the attack", elem_id="explore-survive")
        colluders = _number(usual.colluders, "Colluders (c)", "Number of averaged copies", "colluders")
        self.solved = constraints, scale, limit  # of a marked row's equations
        self.added = hidden, coordinates, choice, spread, noise, colluders

    def _share(self, usual: ExploreSettings, *, send: bool) -> None:
        """All settings as JSON, and the way to Protect, if it has a form to `send` the settings to."""
        # No figure here depends on it, but it is passed on with the rest.
        self.permutations = gr.State(usual.parameters.permutations)
        self.text = gr.Textbox(
            label="All settings as JSON",
            info="Send the settings to a colleague, or paste a colleague’s settings and load them",
            value=usual.to_json(),
            lines=6,
            max_lines=12,
            max_length=MOST_CHARACTERS,
            buttons=["copy"],
            elem_id="explore-json",
            elem_classes="mono",
        )
        with gr.Row():
            self.load = gr.Button("Load these settings", elem_id="explore-load", scale=0, min_width=190)
            self.send = gr.Button(
                "Use these settings in Protect",
                variant="primary",
                elem_id="explore-send",
                scale=0,
                min_width=200,
                visible=send,
            )
        self.loaded = gr.HTML(elem_id="explore-loaded")


@dataclass(frozen=True, slots=True)
class Explore:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self) -> None:
        """Connects each event to its handler."""
        context, page, controls, now = self.context, self.page, self.page.controls, self.page.now
        chosen, rule = page.picker.chosen, [*page.rule[:2]]
        for index, button in enumerate(page.presets):
            button.click(self.chooser(index), chosen, controls, **PRIVATE)
        # All controls go through one state, which changes once even if several of them moved together.
        gr.on([part.change for part in controls], lambda *values: values, controls, now, **LAST)
        shown = [now.change, context.opened.change, context.dark.change]
        along = [context.dark, page.along, now]
        gr.on([*shown, page.along.change], self.draw_odds, along, [page.said, page.odds], **LAST)
        gr.on(shown, self.draw_room, [context.dark, now], [page.answer, page.region, page.take], **LAST)
        changed = [*shown, chosen.change, page.view.change]
        looked_at = [context.dark, chosen, page.view, now]
        gr.on(changed, self.draw_model, looked_at, [page.note, page.figure], **LAST)
        now.change(self.write_json, now, page.text, **LAST)
        page.text.input(lambda: "", None, page.loaded, **PRIVATE)
        page.take.click(guarded(self.take_over), controls, rule, **PRIVATE)
        page.survive.click(guarded(self.take_surviving), controls, [*rule, page.view], **PRIVATE)
        page.load.click(guarded(self.read_json), page.text, [*controls, page.loaded], **PRIVATE)
        if context.settings_form is not None:
            filled = list(context.settings_form.inputs)
            sent = page.send.click(guarded(self.to_protect), controls, filled, **PRIVATE)
            sent.success(None, js=TO_PROTECT)

    def draw_odds(self, dark: bool, along: str, values: Sequence[Any], request: gr.Request) -> Any:
        if not self.context.is_open(request):
            return gr.skip(), gr.skip()
        try:
            s = settings_for(ODDS, values)
        except IrwmError as error:
            return said_at(ODDS, error), None
        return said_of(s), explore_plots.odds_over(s, explore_plots.axis_of(along), dark=dark)

    def draw_room(self, dark: bool, values: Sequence[Any], request: gr.Request) -> Any:
        if not self.context.is_open(request):
            return gr.skip(), gr.skip(), gr.skip()
        try:
            s = settings_for(WISH, values, ODDS)
        except IrwmError as error:
            return said_at(WISH, error), None, gr.Button(interactive=False)
        text, found = answer(s)
        figure = explore_plots.region(s, found, dark=dark)
        return text, figure, gr.Button(interactive=found is not None)

    def draw_model(self, dark: bool, chosen: str | None, view: str, values: Sequence[Any], request: gr.Request) -> Any:
        if not self.context.is_open(request):
            return gr.skip(), gr.skip()
        try:
            s = settings_for(MODEL_VIEW, values, ODDS, *([WISH] if view in ("colluders", "fingerprint") else []))
        except IrwmError as error:
            return said_at(MODEL_VIEW, error), None
        picker = self.page.picker
        try:
            path = picker.check(chosen) if chosen else DEMO
            figure = model_figure(view, path, s, dark)
            if chosen:
                self.context.recent.add(picker.purpose, path)
            return about_model(path, data.sample_of(path, s)), figure
        except IrwmError as error:
            return notices.error_html(error), None

    def write_json(self, values: Sequence[Any], request: gr.Request) -> Any:
        if not self.context.is_open(request):
            return gr.skip()
        try:
            return settings_of(*values).to_json()
        except IrwmError:  # shown next to the controls; the earlier text here no longer matches them
            return ""

    def chooser(self, index: int) -> Any:
        """The handler that fills in the preset with this number."""

        @guarded
        def of_index(chosen: str | None, request: gr.Request) -> Any:
            self.context.require(request)
            width = irwm.open_checkpoint(self.page.picker.check(chosen)).hidden_size if chosen else USUAL_HIDDEN_SIZE
            return values_of(list(presets(width).values())[index])

        return of_index

    def take_over(self, request: gr.Request, *values: Any) -> Any:
        self.context.require(request)
        found = plan(settings_of(*values).wish)
        return found.range.positions, found.required

    def take_surviving(self, request: gr.Request, *values: Any) -> Any:
        self.context.require(request)
        s = settings_of(*values)
        return *positions_for(s.noise, s.parameters, s.recipients), "positions"

    def read_json(self, text: str | None, request: gr.Request) -> Any:
        self.context.require(request)
        try:
            s = ExploreSettings.from_json(text or "")
        except IrwmError as error:
            return *(gr.skip(),) * len(self.page.controls), notices.error_html(error)
        return *values_of(s), notices.note_html("Settings loaded", good=True)

    def to_protect(self, request: gr.Request, *values: Any) -> Any:
        self.context.require(request)
        s = settings_of(*values)
        said = self.context.said
        gr.Info(said("These settings are now in the “How” step of Protect."), title=said("Info"))
        return protect_values(s)


def group_of(error: IrwmError) -> str:
    """The group of the control that an error is about."""
    name = setting_of(error.problem)
    return next((each for each, names in CONTROLS.items() if name in names), ODDS)


def said_at(group: str, error: IrwmError) -> str:
    """The error, for the group of controls that it is about; "" for the other groups."""
    return notices.error_html(error) if group_of(error) == group else ""


def settings_for(group: str, values: Sequence[Any], *others: str) -> ExploreSettings:
    """The settings that a figure depends on; errors in groups that it does not depend on are ignored.

    Args:
        group: the figure's own group of controls.
        values: of all controls.
        others: the other groups that it depends on.

    Raises:
        ParameterError: a value of the group or of one of the others is missing or outside its range.
    """
    try:
        return settings_of(*values)
    except IrwmError as error:
        wrong = group_of(error)
        if wrong in (group, *others):
            raise
        usual, (first, last) = values_of(ExploreSettings()), PLACES[wrong]
        return settings_for(group, [*values[:first], *usual[first:last], *values[last:]], *others)


def _number(value: float, label: str, info: str, name: str) -> gr.Number:
    return gr.Number(value, label=label, info=info, elem_id=f"explore-{name}", min_width=120)


def _slider(low: float, high: float, value: float, label: str, info: str, name: str) -> gr.Slider:
    return gr.Slider(low, high, value=value, step=0.01, label=label, info=info, elem_id=f"explore-{name}")


def _text(value: str, label: str, info: str, name: str) -> gr.Textbox:
    return gr.Textbox(value, label=label, info=info, max_length=40, max_lines=1, elem_id=f"explore-{name}")
