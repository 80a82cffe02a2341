"""What each preset is for, what it survives and what it costs, worked out for the model at hand.

Each card is the label of one choice, in lines that the page's style keeps apart, so that mouse, arrow keys and screen
readers meet three ordinary radio buttons.
"""

from __future__ import annotations

import math
from typing import Any

import gradio as gr

from irwm import Parameters
from irwm.explore.survival import Survival
from irwm.report.numbers import number
from ui.preset_names import MANY, PAPER, STANDARD
from ui.presets import PRESETS, preset_parameters

USE_WHEN = {
    STANDARD: "each copy goes to one recipient, or the model is yours alone.",
    MANY: "recipients may mix their copies: each one who did is named.",
    PAPER: "you must repeat the published method exactly.",
}
_ALSO = {
    STANDARD: "Nothing in one copy shows which rows are marked.",
    MANY: "Nothing in one copy shows which rows are marked; the fingerprints survive mixing of copies.",
    PAPER: "Whoever looks for the small numbers in its rows can find and remove it.",
}


def card_choices(hidden_size: int | None, keys: int = 1, copies: int = 1) -> list[tuple[str, str]]:
    """Label and value of each preset.

    Args:
        hidden_size: d of the model that is to be marked; None before one is chosen.
        keys: how many keys of this model there will be.
        copies: how many copies are asked for now.
    """
    usual = MANY if copies > 1 else STANDARD
    return [(card_text(name, hidden_size, keys, usual=name == usual), name) for name in PRESETS]


def card_text(preset: str, hidden_size: int | None, keys: int = 1, *, usual: bool = False) -> str:
    """One card, a line for each thing that is said."""
    params = preset_parameters(preset, hidden_size)
    noise = Survival(params.constraints, params.permutations, max(1, keys)).noise(params.positions)
    return "\n".join(
        (
            f"{preset} (recommended)" if usual else preset,
            f"Use when: {USE_WHEN[preset]}",
            f"Survives: noise up to {noise:.1f} σ; rounding to 4 bits is 0.1 σ. {_ALSO[preset]}",
            f"Costs: {cost_text(params, hidden_size)}",
        )
    )


def cost_text(params: Parameters, hidden_size: int | None) -> str:
    """What a preset changes in the model."""
    if not params.noise_coordinates:
        rows, t = number(params.positions), number(params.constraints)
        return f"{rows} rows of the embedding change, in {t} numbers each; every other row stays as it is."
    if hidden_size is None:
        return "every row changes a little; choose the original to see how much."
    return f"every row changes by about {change_text(params, hidden_size)}."


def change_text(params: Parameters, hidden_size: int) -> str:
    """By how much of its length the fingerprint changes a row, in the embedding and in the output head."""
    in_embedding = percents(params, hidden_size)
    if "head" not in params.places:
        return f"{in_embedding} of its length in the embedding"
    in_head = percents(params.in_head, hidden_size)
    return f"{in_embedding} of its length in the embedding, and by {in_head} in an output head of its own"


def percents(params: Parameters, hidden_size: int) -> str:
    """β·√(m/d), the share of a row's length that its fingerprint has."""
    return f"{100 * params.spread * math.sqrt(params.noise_coordinates / hidden_size):.1f} %"


def preset_cards() -> gr.Radio:
    """Builds the cards, before a model is known."""
    return gr.Radio(card_choices(None), value=STANDARD, label="Preset", elem_id="preset", elem_classes="preset-cards")


def drawn(hidden_size: int | None, keys: Any) -> gr.Radio:
    """The same cards for this model; which of them is chosen stays.

    Args:
        keys: (how many keys of that model there will be, how many copies are asked for now).
    """
    return gr.Radio(choices=card_choices(hidden_size, *keys))
