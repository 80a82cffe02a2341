"""Presets as cards: their purpose, survival and cost, for the chosen model."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from irwm import Parameters
from irwm.scheme.parameters import HEAD_SHARE, many_recipients, one_owner
from tests.ui.handlers import Pages
from ui.components.preset_cards import card_choices, card_text
from ui.preset_names import MANY, PAPER, STANDARD
from ui.presets import PRESETS


def test_there_is_a_card_for_each_preset_and_its_value_is_the_presets_name() -> None:
    assert [name for _, name in card_choices(256)] == list(PRESETS)
    for card, name in card_choices(256):
        first, *said = card.splitlines()
        assert first.startswith(name)
        assert [line.partition(":")[0] for line in said] == ["Use when", "Survives", "Costs"]


@pytest.mark.parametrize(("copies", "usual"), [(1, STANDARD), (5, MANY)])
def test_only_the_default_card_is_marked(copies: int, usual: str) -> None:
    marked = [name for card, name in card_choices(256, 5, copies) if "(recommended)" in card.splitlines()[0]]
    assert marked == [usual]


@pytest.mark.parametrize("d", [64, 256, 4096])
@pytest.mark.parametrize(("preset", "params"), [(STANDARD, one_owner), (MANY, many_recipients)])
def test_a_card_says_how_much_every_row_changes_in_each_place(
    d: int, preset: str, params: Callable[[int], Parameters]
) -> None:
    p = params(d)
    change = 100 * p.spread * math.sqrt(p.noise_coordinates / d)
    costs = card_text(preset, d).splitlines()[-1]
    assert f"{change:.1f}% of its length in the embedding and in some MLP layers" in costs
    assert f"{HEAD_SHARE * change:.1f}% in an untied output head" in costs


def test_more_keys_survive_less_noise_and_card_without_model_has_no_numbers() -> None:
    survives = [card_text(STANDARD, 4096, keys).splitlines()[2] for keys in (1, 100_000)]
    assert survives[0] != survives[1]
    assert "choose the original to see how much" in card_text(STANDARD, None)
    assert "in each of 50 rows of the embedding, 10 numbers change; the other rows do not change" in card_text(
        PAPER, 256
    )


def test_the_cards_are_drawn_for_the_model_that_was_chosen_and_the_choice_stays(pages: Pages) -> None:
    draw = pages.handler("cards")
    drawn = draw.fn(64, (1, 1), pages.request)
    assert drawn.choices == card_choices(64, 1, 1)
    assert "value" not in drawn._constructor_args[0]
