from __future__ import annotations

import math

import pytest

from ui import plot_theme, theme


@pytest.mark.parametrize(("figures", "pages"), [(plot_theme.LIGHT, theme.LIGHT), (plot_theme.DARK, theme.DARK)])
def test_figures_and_pages_have_the_same_colours(figures, pages):
    for name in ("accent", "accent_soft", "null", "ink", "quiet", "line", "paper"):
        assert getattr(figures, name) == getattr(pages, name), name


@pytest.mark.parametrize("colour", [*plot_theme.LIGHT.bands, *plot_theme.DARK.bands, plot_theme.NULL_GREY])
def test_chance_is_grey(colour):
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    assert max(channels) - min(channels) <= 16


def test_text_from_a_file_is_inert():
    hostile = "<a href='x'>\u202egnp</a>\x1b[31m" + "y" * 500
    shown = plot_theme.label(hostile)
    assert "<" not in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert len(plot_theme.label("y" * 500)) <= 60


@pytest.mark.parametrize(
    ("log10", "said"),
    [
        (0.0, "1"),
        (-0.0, "1"),
        (-1e-12, "1"),
        (math.log10(0.0123), "0.0123"),
        (-9.0, "1.00 × 10<sup>−9</sup>"),
        (math.log10(9.999) - 10, "1.00 × 10<sup>−9</sup>"),
        (-4000.5, "3.16 × 10<sup>−4001</sup>"),
        (-math.inf, "0"),
    ],
)
def test_chances_are_written_as_powers_of_ten(log10, said):
    assert plot_theme.power_of_ten(log10) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (1.0, "100 %"), (1.5, "100 %"), (0.99999, "99.9 %"), (0.995, "99.5 %"), (0.99, "99 %"), (0.8799, "87 %"),
        (0.29, "29 %"), (0.004, "0.4 %"), (1e-9, "0.1 %"), (0.0, "0 %"), (-0.2, "0 %"),
    ],
)  # fmt: skip
def test_a_confidence_never_rounds_up_to_certainty(share, said):
    assert plot_theme.sure(share) == said


def test_decimals_have_a_real_minus_and_no_nan():
    assert plot_theme.decimal(-0.1234, 2) == "−0.12"
    assert plot_theme.decimal(math.nan, 2) == "unknown"


def test_ticks_are_few_and_whole_powers():
    for low, high in ((-3.2, 0.2), (-12, 0), (-40, 0), (-600, 0), (0.1, 0.9)):
        ticks = plot_theme.power_ticks(low, high, logarithms=True)
        assert len(ticks["tickvals"]) == len(ticks["ticktext"]) <= 8
        assert all(low <= v <= high for v in ticks["tickvals"])


def test_long_lists_are_shortened_and_say_so():
    assert plot_theme.listed([7]) == "7"
    assert plot_theme.listed([3, 17, 40]) == "3, 17 and 40"
    assert plot_theme.listed(list(range(1, 21))) == "1, 2, 3, 4, 5, 6 and 14 more"
    assert [plot_theme.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th",
    ]  # fmt: skip
