"""The settings of a mark: a preset, and a folded list of all parameters with the paper's symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm import Parameters
from irwm.errors import IrwmError, ParameterError
from irwm.explore.survival import Survival
from irwm.report.numbers import number, power_html, why_capped
from irwm.report.plots import detection
from irwm.scheme.parameters import AUTO_SCALE
from irwm.scheme.probabilities import log10_random_user, log10_wrong_user, success_probability
from ui.components import notices
from ui.components.events import LAST, PRIVATE
from ui.components.guarded import guarded
from ui.components.preset_cards import change_text, drawn, preset_cards
from ui.context import Context
from ui.preset_names import MANY, PAPER, STANDARD
from ui.presets import (
    NOISE_CHOICES,
    check_memory,
    chosen_noise,
    memory_needed,
    memory_there,
    noise_choice,
    preset_parameters,
)
from ui.units import size_text

# The paper's example: each position still counts after an attack with these odds (its section 5.4).
USUAL_SHARE = 0.8
# The noise levels that Protect offers to survive, in deviations of a row. The paper's rule then needs this share of the
# positions, which are rounded up to tens.
SURVIVES = [
    ("Half as large as the weights: 0.5 σ", 0.5),
    ("As large as the weights: 1 σ", 1.0),
    ("One and a half times as large: 1.5 σ", 1.5),
    ("Twice as large: 2 σ", 2.0),
]
USUAL_REQUIRED, ROUND_POSITIONS = 0.6, 10
# Share of the computer's memory from which the page shows a warning.
_MUCH = 0.25


@dataclass(frozen=True, slots=True)
class SettingsForm:
    """The parts of the form that a page uses.

    Attributes:
        inputs: for its handlers; `parameters` reads their values.
        chosen: preset and the fields that a preset fills; `choose` gives their values.
        drawn: the event in which the odds are redrawn after any change of the form; for handlers of changes.
    """

    context: Context
    inputs: tuple[Any, ...]
    chosen: tuple[Any, ...]
    drawn: Any = None

    @staticmethod
    def parameters(_preset: str, *values: Any) -> Parameters:
        """The parameters for the form's values.

        Raises:
            ParameterError: a value is outside its range or missing.
        """
        positions, constraints, threshold, required, scale, hidden, limit, permutations, noise, choice, spread = values
        return Parameters(
            positions=whole(positions),
            constraints=whole(constraints),
            rank_threshold=threshold,
            required_positions=whole(required),
            scale=scale_of(scale),
            hidden=bool(hidden),
            condition_limit=limit,
            permutations=whole(permutations),
            noise_coordinates=whole(noise),
            **chosen_noise(choice, spread),
        )

    @staticmethod
    def choose(preset: str, hidden_size: int | None) -> tuple[Any, ...]:
        """The preset, and the values that it fills in for a model of this hidden size, in the order of `chosen`."""
        p = preset_parameters(preset, hidden_size)
        filled = p.constraints, scale_text(p.scale), p.hidden, p.noise_coordinates, *noise_choice(p)
        return gr.Radio(value=preset), *filled

    @classmethod
    def refilled(cls, before: int | None, d: int | None, preset: str, *values: Any) -> tuple[Any, ...] | None:
        """The fields of `chosen` for another model; None if they stay.

        They stay if they differ from what the preset filled in for a model of hidden size `before`: then the user set
        them manually, or sent them from Explore.
        """
        if not d or preset == PAPER or values != cls.choose(preset, before)[1:]:
            return None
        return cls.choose(preset, d)

    def connect(
        self, hidden_size: gr.State, keys: gr.State, survives: gr.Dropdown, odds: Sequence[gr.Component]
    ) -> SettingsForm:
        """Connects the form's events.

        Args:
            survives: chooses the positions.
            odds: the components that `draw` gives values for.
        """
        context, preset, inputs = self.context, self.inputs[0], self.inputs
        gr.on([hidden_size.change, keys.change], guarded(self.cards), [hidden_size, keys], preset, **LAST)
        positions, required = inputs[1], inputs[4]
        survives.input(guarded(self.survive), [survives, keys, *inputs], [positions, required], **PRIVATE)
        preset.input(guarded(self.fill), [preset, hidden_size], list(self.chosen[1:]), **PRIVATE)
        around = [hidden_size.change, keys.change, context.dark.change, context.opened.change]
        read = [context.dark, hidden_size, keys, *inputs]
        changed = [*(part.change for part in inputs), *around]
        return replace(self, drawn=gr.on(changed, guarded(self.draw), read, list(odds), **LAST))

    def draw(self, request: gr.Request, dark: bool, d: int | None, keys: Sequence[int], *values: Any) -> Any:
        if not self.context.is_open(request):
            return (gr.skip(),) * 3
        total, copies = keys
        try:
            params = self.parameters(*values)
            check_memory(params, d)
        except IrwmError as error:
            return notices.error_html(error), "", None
        told = [odds_sentence(params, total), survival_sentence(params, total), *consequences(params, d, copies)]
        said, about = ("".join(map(notices.note_html, notes)) for notes in (cautions(params, d, copies), told))
        return said, about, detection.odds(params, recipients=total, dark=dark)

    def fill(self, preset: str, d: int | None, request: gr.Request) -> Any:
        self.context.require(request)
        return self.choose(preset, d)[1:]

    def survive(self, noise: float | None, keys: Sequence[int], request: gr.Request, *values: Any) -> Any:
        """Positions and required positions for the noise that the mark must survive."""
        self.context.require(request)
        if noise is None:
            return gr.skip(), gr.skip()
        return positions_for(noise, self.parameters(*values), keys[0])

    def cards(self, d: int | None, keys: Sequence[int], request: gr.Request) -> Any:
        return drawn(d, keys) if self.context.is_open(request) else gr.skip()


def settings_form(context: Context, hidden_size: gr.State, keys: gr.State) -> SettingsForm:
    """Builds preset and advanced settings; those have the odds, which are redrawn when a setting changes.

    Args:
        hidden_size: d of the model to be marked, None before one is chosen.
        keys: (number of keys that the model will have, number of copies requested now).
    """
    usual = preset_parameters(STANDARD, None)
    preset = preset_cards()
    with gr.Accordion("Advanced settings", open=False, elem_id="advanced"):
        survives = gr.Dropdown(
            SURVIVES,
            value=None,
            label="Choose the number of positions based on the noise that the mark must survive",
            info="White noise on the embedding, in units of a row’s standard deviation σ. The text below shows what a "
            "mark with your settings survives",
            elem_id="survives",
        )
        positions, constraints, required, threshold = _rule(usual)
        scale, limit, permutations, hidden = _equations(usual)
        noise, choice, spread = _noise(usual)
        about = gr.HTML(elem_id="odds-said")
        figure = gr.Plot(show_label=False, elem_id="odds-figure")
    said = gr.HTML(elem_id="setting-said")  # not folded: errors, and what a preset cannot do
    rule = preset, positions, constraints, threshold, required
    inputs = *rule, scale, hidden, limit, permutations, noise, choice, spread
    form = SettingsForm(context, inputs, (preset, constraints, scale, hidden, noise, choice, spread))
    return form.connect(hidden_size, keys, survives, [said, about, figure])


def _rule(usual: Parameters) -> tuple[Any, ...]:
    """Fields of the paper's rule: positions, constraints, required positions, rank threshold."""
    with gr.Row():
        return (
            gr.Number(usual.positions, label="Positions (l)", info="Rows that carry the mark"),
            gr.Number(usual.constraints, label="Constraints (t)", info="Numbers changed per row"),
            gr.Number(
                usual.required_positions,
                label="Required positions (ρ)",
                info="Number of positions that must count under the paper's rule",
            ),
            gr.Number(usual.rank_threshold, label="Rank threshold (β)", info="Ranks below this value count", step=0.01),
        )


def _equations(usual: Parameters) -> tuple[Any, ...]:
    """Fields of how a marked row is solved and read: scale, condition limit, permutations, secret coordinates."""
    with gr.Row():
        return (
            gr.Textbox(
                scale_text(usual.scale), label="Scale (scale_wm)", info="A divisor; auto hides the mark best",
                max_length=40, max_lines=1,
            ),
            gr.Number(
                usual.condition_limit, label="Condition limit (τ)",
                info="A lower limit makes the solution more stable, but takes longer to meet",
            ),
            gr.Number(
                usual.permutations, label="Permutations (numit)", info="Number of random orders for each rank"
            ),
            gr.Checkbox(
                usual.hidden, label="In secret coordinates (B_i)", info="Without them, the mark can be seen and removed"
            ),
        )  # fmt: skip


def _noise(usual: Parameters) -> tuple[Any, ...]:
    """Fields of the copy's own noise: coordinates, kind, size."""
    how, size = noise_choice(usual)
    with gr.Row():
        return (
            gr.Number(
                usual.noise_coordinates,
                label="Noise coordinates (num_noise)",
                info="Per row, for the copy’s own noise; 0 means none",
                elem_id="noise-coordinates",
            ),
            gr.Dropdown(
                NOISE_CHOICES,
                value=how,
                label="Noise",
                info="Overwriting harms the model far more than adding",
                elem_id="noise-level",
            ),
            gr.Number(
                size,
                label="Size of the fingerprint (α)",
                info="For added noise only, in units of a row’s root mean square",
                step=0.01,
                elem_id="spread",
            ),
        )


def odds_sentence(params: Parameters, keys: int = 1) -> Markup:
    """The odds of a setting by equations 1 to 3; `keys` is the number of keys that this model will have."""
    l, rho, beta = params.positions, params.required_positions, params.rank_threshold
    hit = 100 * success_probability(l, rho, USUAL_SHARE)
    text = Markup(
        "If each position survives an attack with a probability of {}%, the mark meets the paper's rule (at least {} "
        "of {} positions count) in {:.2f}% of cases. A key that was never inserted meets it with a probability of {}"
    ).format(round(100 * USUAL_SHARE), rho, l, hit, power_html(log10_random_user(l, rho, beta)))
    if keys > 1:
        text += Markup("; the probability that any of this model’s {} keys meets it by chance is {}").format(
            number(keys), power_html(log10_wrong_user(l, rho, beta, keys))
        )
    why = why_capped(text)
    return Markup("{}. {}").format(text, why) if why else text + "."


def consequences(params: Parameters, hidden_size: int | None, copies: int) -> list[str]:
    """Other consequences of a setting, each in one or two sentences.

    Args:
        hidden_size: d; None while unknown.
        copies: number of recipients who get a copy now.
    """
    m, t, notes = params.noise_coordinates, params.constraints, []
    if params.spread and hidden_size:
        text = (
            f"Fingerprint: every row changes by about {change_text(params, hidden_size)} (α·√({m}/{hidden_size}), and "
            "half that in the head). The fingerprint distinguishes this copy from every other copy, so a leaked copy "
            "identifies its recipient."
        )
        if copies > 1:
            text += (
                " Recipients who compare their copies can see which rows are marked. To hide these rows, let the noise "
                "overwrite the rows’ numbers (see Noise above); this harms the model far more than adding it does."
            )
        notes.append(text)
    elif m and hidden_size:
        cost = 100 * math.sqrt(2 * m / hidden_size)
        hides = abs(m - t) <= max(1, t // 5) and params.scale == AUTO_SCALE
        notes.append(
            f"Noise: every row of the embedding changes by about {cost:.0f}% of its length (√(2·{m}/{hidden_size})). "
            "Measure the cost to your model before you distribute the copies. "
            + (
                "Marked rows and all other rows change in the same way, so two recipients who compare their copies "
                "cannot tell them apart. Each copy's noise identifies its recipient, even in a mixture of several "
                "copies."
                if hides
                else f"The noise hides the marks only if there are about as many noise coordinates as constraints "
                f"(t = {t}) and the scale is automatic. With these settings, marked rows can be distinguished from "
                f"other rows."
            )
        )
    return notes


def cautions(params: Parameters, hidden_size: int | None, copies: int) -> list[str]:
    """Consequences of a setting that a user must know who chose it without the advanced settings.

    Args:
        hidden_size, copies: as for `consequences`.
    """
    notes = []
    if copies > 1 and not params.noise_coordinates:
        notes.append(
            f"The copies for {number(copies)} recipients have no noise. Two recipients who compare their copies see "
            f"every mark, and no one can be named from a mixture of copies. Choose “{MANY}” to prevent this."
        )
    needed = memory_needed(params, hidden_size)
    if needed > _MUCH * memory_there():
        notes.append(f"This number of permutations needs about {size_text(needed)} of memory for each copy.")
    return notes


def positions_for(noise: float, params: Parameters, keys: int = 1) -> tuple[int, int]:
    """Positions and required positions with which the mark survives white noise of `noise` row deviations.

    Args:
        keys: number of keys that this model will have.

    Raises:
        ParameterError: no mark of this kind survives it.
    """
    needed = Survival(params.constraints, params.permutations, max(1, keys)).positions(noise)
    if needed is None:
        raise ParameterError(
            f"with these settings, no number of positions is enough to survive noise of {noise:g} σ",
            advice="Use more constraints (t), or choose a lower noise level",
        )
    positions = max(preset_parameters(STANDARD, None).positions, -(-needed // ROUND_POSITIONS) * ROUND_POSITIONS)
    return positions, round(USUAL_REQUIRED * positions)


def survival_sentence(params: Parameters, keys: int = 1) -> str:
    """The damage that the mark of this setting survives; `keys` is the number of keys that this model will have."""
    survival = Survival(params.constraints, params.permutations, max(1, keys))
    noise = survival.noise(params.positions)
    if not noise:
        return (
            f"A mark with {number(params.positions)} positions is too small for a verdict, even on an undamaged copy."
        )
    return (
        f"Damage: after white noise of up to {noise:.1f} σ on the embedding, the mark alone is still found in 99 of "
        "100 cases. Here, σ is the standard deviation of a row’s numbers. For comparison, rounding to 4 bits amounts "
        "to noise of about 0.1 σ, zeroing the smallest half of the numbers to about 0.3 σ, and zeroing the "
        "smallest nine tenths to about 0.7 σ. A mark with more positions survives more damage, but each "
        "additional position changes one more row."
    )


def scale_text(scale: float | str) -> str:
    """A scale as text for its field."""
    return scale if isinstance(scale, str) else f"{scale:g}"


def scale_of(text: Any) -> Any:
    """The inverse of `scale_text`; other text is passed to `Parameters`, which refuses it."""
    if str(text).strip().lower() == AUTO_SCALE:
        return AUTO_SCALE
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def whole(value: Any) -> Any:
    """A number field's value as an int if it is whole; other values are passed to `Parameters`, which refuses them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
