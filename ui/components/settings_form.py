"""The settings of a mark: a preset, and folded below it every parameter with the paper's symbol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from irwm import Parameters
from irwm.errors import IrwmError
from irwm.parameters import AUTO_SCALE
from irwm.probability import log10_random_user, success_probability
from ui import plots
from ui.components import notices
from ui.components.guarded import guarded
from ui.context import Context
from ui.plot_theme import power_text

ROBUST, HIDDEN = "Robust", "Hidden"
PRESETS = {
    ROBUST: "the paper's setting: stored numbers a thousand times smaller than solved; its own test reads it best",
    HIDDEN: "stored numbers as large as their neighbours, so that nothing in a row stands out",
}
# The paper's example: four positions in five still count after an attack (its section 5.4).
USUAL_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class SettingsForm:
    """What a page gets: `inputs` for its handlers, and `parameters` to read their values."""

    inputs: tuple[Any, ...]

    @staticmethod
    def parameters(preset: str, *values: Any) -> Parameters:
        """The parameters that the form's values stand for.

        Raises:
            ParameterError: a value is outside its range or missing.
        """
        positions, constraints, threshold, required, scale, limit, permutations = values
        hidden = preset == HIDDEN
        return Parameters(
            positions=_whole(positions),
            constraints=_whole(constraints),
            rank_threshold=threshold,
            required_positions=_whole(required),
            scale=AUTO_SCALE if hidden else scale,
            condition_limit=limit,
            permutations=_whole(permutations),
        )


def settings_form(context: Context) -> SettingsForm:
    """Builds preset, advanced settings and the odds that they buy, drawn as they change."""
    d = Parameters()
    preset = gr.Radio(
        [(f"{name}: {what}", name) for name, what in PRESETS.items()], value=ROBUST, label="Preset", elem_id="preset"
    )
    with gr.Accordion("Advanced settings", open=False, elem_id="advanced"):
        with gr.Row():
            positions = gr.Number(d.positions, label="Positions (l)", info="Rows that carry the mark", precision=0)
            constraints = gr.Number(d.constraints, label="Constraints (t)", info="Changed numbers per row", precision=0)
            required = gr.Number(
                d.required_positions, label="Required positions (ρ)", info="Must count by the paper's rule", precision=0
            )
            threshold = gr.Number(
                d.rank_threshold, label="Rank threshold (β)", info="A rank below it counts", step=0.01
            )
        with gr.Row():
            scale = gr.Number(float(d.scale), label="Scale (scale_wm)", info="Divides the solved numbers; Robust only")
            limit = gr.Number(d.condition_limit, label="Condition limit (τ)", info="Lower is steadier, slower to find")
            permutations = gr.Number(
                d.permutations, label="Permutations (numit)", info="Random orders behind each rank", precision=0
            )
    said = gr.HTML(elem_id="odds-said")
    figure = gr.Plot(show_label=False, elem_id="odds-figure")
    form = SettingsForm((preset, positions, constraints, threshold, required, scale, limit, permutations))

    def draw(dark: bool, *values: Any) -> Any:
        try:
            params = form.parameters(*values)
        except IrwmError as error:
            return notices.error_html(error), gr.skip()
        return odds_sentence(params), plots.odds(params, dark=dark)

    private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    gr.on(
        [*(part.change for part in form.inputs), context.dark.change, context.opened.change],
        guarded(draw),
        [context.dark, *form.inputs],
        [said, figure],
        trigger_mode="always_last",
        **private,
    )
    return form


def odds_sentence(params: Parameters) -> str:
    """What a setting buys, in one line."""
    l, rho, beta = params.positions, params.required_positions, params.rank_threshold
    hit = 100 * success_probability(l, rho, USUAL_SHARE)
    miss = power_text(log10_random_user(l, rho, beta))
    return notices.note_html(
        f"With {round(100 * USUAL_SHARE)} % of the positions surviving an attack the mark is found in {hit:.2f} % of "
        f"cases; a key that was never inserted meets the rule with odds of {miss}."
    )


def _whole(value: Any) -> Any:
    """A number field's value as an int where it is one; anything else goes on to `Parameters`, which refuses it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
