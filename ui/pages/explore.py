"""Explore: what a setting buys and costs, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.errors import IrwmError
from irwm.evidence.examination import MAPS
from irwm.explore.capacity import naming_z
from irwm.explore.planning import plan
from irwm.scheme.parameters import RANGES
from ui import explore_data as data
from ui import explore_model_plots, explore_plots
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.explore_values import about_model, answer, protect_values, said_of, settings_of, values_of
from ui.components.guarded import guarded
from ui.components.path_picker import path_picker
from ui.components.settings_form import positions_for, scale_text
from ui.context import Context
from ui.explore_settings import MOST_CHARACTERS, MOST_NOISE, ExploreSettings, presets
from ui.presets import NOISE_CHOICES, USUAL_HIDDEN_SIZE, noise_choice
from ui.settings import DEMO

LAST: dict[str, Any] = {**PRIVATE, "trigger_mode": "always_last"}
INTRO = """
# Explore
What a setting buys, and what it costs, before anything is written. Every control redraws the figures at once.
"""
WANTED = """
## Which setting keeps both promises?
Say what may go wrong and how seldom; the smallest mark that keeps to it is worked out from equations 1 to 3.
"""
MODEL = """
## On your model
Theory beside trials on some of the model's own rows, with public draws. Nothing is written, and no key is made.
"""
SHARE = """
## Share or use
"""
# Views of a model: name, label.
VIEWS = (
    ("noise", "Survives noise"),
    ("positions", "Positions needed"),
    ("entries", "Stored numbers"),
    ("tries", "Condition"),
    ("hiding", "Hiding"),
    ("colluders", "Colluders"),
    ("fingerprint", "Fingerprint"),
)
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
        naming = naming_z(s.risk, s.recipients * len(MAPS))
        return explore_model_plots.colluders(case, naming, s.recipients, simulated, dark=dark)
    if view == "fingerprint":
        case = data.collusion_of(of, s)
        return explore_model_plots.fingerprint(
            case, naming_z(s.risk, s.recipients * len(MAPS)), s.recipients, dark=dark
        )
    return explore_model_plots.ranks_under_noise(s, data.shares_of(mark, p.rank_threshold), dark=dark)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    usual = presets(USUAL_HIDDEN_SIZE)["Standard"]
    p = usual.parameters
    gr.Markdown(INTRO)
    now = gr.State(values_of(usual))
    with gr.Row(elem_id="explore-presets"):
        buttons = [
            gr.Button(name, elem_id=f"explore-preset-{i}", size="sm", min_width=120)
            for i, name in enumerate(presets(USUAL_HIDDEN_SIZE))
        ]
    with gr.Row():
        with gr.Column(scale=3, min_width=280):
            positions = _number(p.positions, "Positions (l)", "Rows of the model that carry the mark", "l")
            required = _number(
                p.required_positions, "Required positions (ρ)", "So many must count before the mark is found", "rho"
            )
            threshold = _slider(
                0.01, 0.5, p.rank_threshold, "Rank threshold (β)", "Chance that an unmarked row counts", "beta"
            )
            survival = _slider(0.01, 0.99, usual.survival, "Survival (p)", "Share that counts after an attack", "p")
            recipients = _number(usual.recipients, "Recipients (num_u)", "Keys that could be accused", "recipients")
        with gr.Column(scale=7, min_width=480):
            said = gr.HTML(elem_id="explore-said")
            along = gr.Radio(
                [(f"{axis.title} ({axis.symbol})", axis.name) for axis in explore_plots.AXES],
                value=explore_plots.AXES[0].name,
                label="Draw over",
                elem_id="explore-axis",
            )
            odds_figure = gr.Plot(show_label=False, elem_id="explore-odds")
    gr.Markdown(WANTED)
    with gr.Row():
        with gr.Column(scale=3, min_width=280):
            risk = _text(f"{usual.risk:g}", "Risk accepted", "That any key at all is accused falsely", "risk")
            success = _text(f"{usual.success!r}", "Success wanted", "That a mark is found after the attack", "success")
            gr.Markdown("Survival (p), rank threshold (β) and recipients are those above.", elem_classes="caption")
            take = gr.Button("Take over the smallest", elem_id="explore-take")
        with gr.Column(scale=7, min_width=480):
            answered = gr.HTML(elem_id="explore-answer")
            room_figure = gr.Plot(show_label=False, elem_id="explore-room")
    gr.Markdown(MODEL)
    model = path_picker(
        context,
        label="Model (optional)",
        info="Its folder, or one weights file; the demo model is shown until you choose",
        purpose="explored",
    )
    with gr.Row():
        with gr.Column(scale=3, min_width=280):
            fewest = int(RANGES["constraints"][0])
            constraints = _number(
                p.constraints, "Constraints (t)", "Numbers that are changed per marked row", "t", least=fewest
            )
            scale = _text(scale_text(p.scale), "Scale (scale_wm)", "Divides them; auto hides them best", "scale")
            limit = _number(p.condition_limit, "Condition limit (τ)", "Lower is steadier, slower to find", "tau", None)
            coordinates = _number(
                p.noise_coordinates,
                "Noise coordinates (num_noise)",
                "Of each row, for the copy’s own noise; 0 is none",
                "num-noise",
                least=0,
            )
            how, size = noise_choice(p)
            choice = gr.Dropdown(
                NOISE_CHOICES,
                value=how,
                label="Noise",
                info="Written over, it costs the model far more",
                elem_id="explore-level",
            )
            spread = _slider(
                0.01,
                RANGES["spread"][1],
                size,
                "Size of the fingerprint (β)",
                "Where it is added",
                "spread",
            )
            hidden = gr.Checkbox(
                p.hidden, label="In secret coordinates (B_i)", info="Noise needs them", elem_id="explore-hidden"
            )
            noise = _slider(0, MOST_NOISE, usual.noise, "Attack (noise, σ)", "White noise in row deviations", "noise")
            survive = gr.Button("Take the positions that survive it", elem_id="explore-survive")
            colluders = _number(usual.colluders, "Colluders (c)", "Copies that are averaged", "colluders")
        with gr.Column(scale=7, min_width=480):
            view = gr.Radio(
                [(label, name) for name, label in VIEWS], value=VIEWS[0][0], label="Show", elem_id="explore-view"
            )
            model_note = gr.HTML(elem_id="explore-model-note")
            model_plot = gr.Plot(show_label=False, elem_id="explore-model")
    gr.Markdown(SHARE)
    # Of the mark, but nothing that is drawn here depends on it; it travels with the rest.
    permutations = gr.State(p.permutations)
    shared = gr.Textbox(
        label="All settings as JSON",
        info="Copy it to a colleague, or paste theirs and load it",
        value=usual.to_json(),
        lines=6,
        max_lines=12,
        max_length=MOST_CHARACTERS,
        buttons=["copy"],
        elem_id="explore-json",
        elem_classes="mono",
    )
    with gr.Row():
        load = gr.Button("Load these settings", elem_id="explore-load", scale=0, min_width=190)
        send = gr.Button(
            "Use these in Protect", variant="primary", elem_id="explore-send", scale=0, min_width=200,
            visible=context.settings_form is not None,
        )  # fmt: skip
    loaded = gr.HTML(elem_id="explore-loaded")

    controls: list[Any] = [positions, required, threshold, survival, recipients, risk, success, constraints, scale]
    controls += [limit, permutations, hidden, coordinates, choice, spread, noise, colluders]

    def draw_odds(dark: bool, along: str, values: Sequence[Any], request: gr.Request) -> Any:
        if not context.is_open(request):
            return gr.skip(), gr.skip()
        try:
            s = settings_of(*values)
        except IrwmError as error:
            return notices.error_html(error), gr.skip()
        return said_of(s), explore_plots.odds_over(s, explore_plots.axis_of(along), dark=dark)

    def draw_room(dark: bool, values: Sequence[Any], request: gr.Request) -> Any:
        if not context.is_open(request):
            return gr.skip(), gr.skip(), gr.skip()
        try:
            s = settings_of(*values)
        except IrwmError:  # said beside the controls
            return gr.skip(), gr.skip(), gr.Button(interactive=False)
        text, found = answer(s)
        figure = explore_plots.room(s, found, dark=dark)
        return text, figure, gr.Button(interactive=found is not None)

    def draw_model(dark: bool, chosen: str | None, view: str, values: Sequence[Any], request: gr.Request) -> Any:
        if not context.is_open(request):
            return gr.skip(), gr.skip()
        try:
            path = model.check(chosen) if chosen else DEMO
            s = settings_of(*values)
            figure = model_figure(view, path, s, dark)
            if chosen:
                context.recent.add(model.purpose, path)
            return about_model(path, data.sample_of(path, s)), figure
        except IrwmError as error:
            return notices.error_html(error), gr.skip()

    def write_json(values: Sequence[Any], request: gr.Request) -> Any:
        if not context.is_open(request):
            return gr.skip()
        try:
            return settings_of(*values).to_json()
        except IrwmError:  # said beside the controls
            return gr.skip()

    @guarded
    def choose(index: int, chosen: str | None, request: gr.Request) -> Any:
        context.require(request)
        width = irwm.open_checkpoint(model.check(chosen)).hidden_size if chosen else USUAL_HIDDEN_SIZE
        return values_of(list(presets(width).values())[index])

    def take_over(request: gr.Request, *values: Any) -> Any:
        context.require(request)
        found = plan(settings_of(*values).wish)
        return found.range.positions, found.required

    def take_surviving(request: gr.Request, *values: Any) -> Any:
        context.require(request)
        s = settings_of(*values)
        return *positions_for(s.noise, s.parameters, s.recipients), "positions"

    @guarded
    def read_json(text: str | None, request: gr.Request) -> Any:
        context.require(request)
        try:
            s = ExploreSettings.from_json(text or "")
        except IrwmError as error:
            return *(gr.skip(),) * len(controls), notices.error_html(error)
        return *values_of(s), notices.note_html("These settings are loaded", good=True)

    def to_protect(request: gr.Request, *values: Any) -> Any:
        context.require(request)
        s = settings_of(*values)
        gr.Info("Protect has these settings now, in its step “How”.")
        return protect_values(s)

    for index, button in enumerate(buttons):
        button.click(_of(choose, index), model.chosen, controls, **PRIVATE)
    # What the controls say goes through one state: its change comes once, however many of them moved together.
    gr.on([part.change for part in controls], lambda *values: values, controls, now, **LAST)
    shown = [now.change, context.opened.change]
    gr.on([*shown, along.change], draw_odds, [context.dark, along, now], [said, odds_figure], **LAST)
    gr.on(shown, draw_room, [context.dark, now], [answered, room_figure, take], **LAST)
    looked_at = [context.dark, model.chosen, view, now]
    gr.on([*shown, model.chosen.change, view.change], draw_model, looked_at, [model_note, model_plot], **LAST)
    now.change(write_json, now, shared, **LAST)
    shared.input(lambda: "", None, loaded, **PRIVATE)
    take.click(guarded(take_over), controls, [positions, required], **PRIVATE)
    survive.click(guarded(take_surviving), controls, [positions, required, view], **PRIVATE)
    load.click(read_json, shared, [*controls, loaded], **PRIVATE)
    if context.settings_form is not None:
        sent = send.click(guarded(to_protect), controls, list(context.settings_form.inputs), **PRIVATE)
        sent.success(None, js=TO_PROTECT)


def _of(choose: Any, index: int) -> Any:
    def of_index(chosen: str | None, request: gr.Request) -> Any:
        return choose(index, chosen, request)

    return of_index


def _number(value: float, label: str, info: str, name: str, precision: int | None = 0, least: int = 1) -> gr.Number:
    return gr.Number(
        value, label=label, info=info, precision=precision, minimum=least, elem_id=f"explore-{name}", min_width=120
    )


def _slider(low: float, high: float, value: float, label: str, info: str, name: str) -> gr.Slider:
    return gr.Slider(low, high, value=value, step=0.01, label=label, info=info, elem_id=f"explore-{name}")


def _text(value: str, label: str, info: str, name: str) -> gr.Textbox:
    return gr.Textbox(value, label=label, info=info, max_length=40, max_lines=1, elem_id=f"explore-{name}")
