"""The purpose, robustness and cost of each preset, calculated for the current model.

Each card is the label of one choice, in lines that the page's style separates, so that mouse, arrow keys and screen
readers use three ordinary radio buttons.
"""

from __future__ import annotations

import math
from typing import Any

import gradio as gr

from irwm import Parameters
from irwm.explore.survival import Survival
from irwm.report.numbers import number
from irwm.scheme.parameters import NEURONS
from ui.preset_names import MANY, PAPER, STANDARD
from ui.presets import PRESETS, preset_parameters

USE_WHEN = {
    STANDARD: "each copy goes to one recipient, or the model is yours alone.",
    MANY: "recipients may mix their copies, and everyone who does so must be named.",
    PAPER: "you must reproduce the published method exactly.",
}
_ALSO = {
    STANDARD: "A single copy does not reveal which rows are marked.",
    MANY: "A single copy does not reveal which rows are marked; the fingerprints survive when copies are mixed.",
    PAPER: "Anyone who looks for the small numbers in the marked rows can find and remove the mark.",
}


def card_choices(hidden_size: int | None, keys: int = 1, copies: int = 1) -> list[tuple[str, str]]:
    """Label and value of each preset.

    Args:
        hidden_size: d of the model to be marked; None before one is chosen.
        keys: number of keys that this model will have.
        copies: number of copies that are requested now.
    """
    usual = MANY if copies > 1 else STANDARD
    return [(card_text(name, hidden_size, keys, usual=name == usual), name) for name in PRESETS]


def card_text(preset: str, hidden_size: int | None, keys: int = 1, *, usual: bool = False) -> str:
    """One card, with one line for each statement."""
    params = preset_parameters(preset, hidden_size)
    noise = Survival(params.constraints, params.permutations, max(1, keys)).noise(params.positions)
    return "\n".join(
        (
            f"{preset} (recommended)" if usual else preset,
            f"Use when: {USE_WHEN[preset]}",
            f"Survives: noise of up to {noise:.1f} σ (rounding to 4 bits amounts to 0.1 σ). {_ALSO[preset]}",
            f"Costs: {cost_text(params, hidden_size)}",
        )
    )


def cost_text(params: Parameters, hidden_size: int | None) -> str:
    """The changes that a preset makes to the model."""
    if not params.noise_coordinates:
        rows, t = number(params.positions), number(params.constraints)
        return f"in each of {rows} rows of the embedding, {t} numbers change; the other rows do not change."
    if hidden_size is None:
        return "every row changes a little; choose the original to see how much."
    return f"every row changes by about {change_text(params, hidden_size)}."


def change_text(params: Parameters, hidden_size: int) -> str:
    """The share of its length by which the fingerprint changes a row, in each place."""
    in_embedding = percents(params, hidden_size)
    if "head" not in params.places:
        return f"{in_embedding} of its length in the embedding"
    in_head = percents(params.in_head, hidden_size)
    if NEURONS not in params.places:
        return f"{in_embedding} of its length in the embedding, and by {in_head} in an untied output head"
    return (
        f"{in_embedding} of its length in the embedding and in some MLP layers, and by {in_head} in an untied output "
        "head"
    )


def percents(params: Parameters, hidden_size: int) -> str:
    """α·√(m/d), the share of a row's length that its fingerprint has."""
    return f"{100 * params.spread * math.sqrt(params.noise_coordinates / hidden_size):.1f}%"


def preset_cards() -> gr.Radio:
    """Builds the cards, before a model is known."""
    return gr.Radio(card_choices(None), value=STANDARD, label="Preset", elem_id="preset", elem_classes="preset-cards")


def drawn(hidden_size: int | None, keys: Any) -> gr.Radio:
    """The same cards for this model; the chosen one stays.

    Args:
        keys: (number of keys that the model will have, number of copies requested now).
    """
    return gr.Radio(choices=card_choices(hidden_size, *keys))
