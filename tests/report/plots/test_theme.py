from __future__ import annotations

import pytest

from irwm.report.plots import theme as plot_theme
from irwm.scheme.stated_odds import LEAST_LOG10
from ui import theme


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


def test_ticks_are_few_and_whole_powers():
    for low, high in ((-3.2, 0.2), (-12, 0), (-40, 0), (-600, 0), (0.1, 0.9)):
        ticks = plot_theme.power_ticks(low, high, logarithms=True)
        assert len(ticks["tickvals"]) == len(ticks["ticktext"]) <= 8
        assert all(low <= v <= high for v in ticks["tickvals"])
        beyond = [v for v in ticks["tickvals"] if v < LEAST_LOG10]
        assert len(beyond) <= 1
        assert [text.startswith("&lt; ") for v, text in zip(*ticks.values(), strict=True)] == [
            v in beyond for v in ticks["tickvals"]
        ], "odds that are not stated have no label but that they are smaller"
    least = "10<sup>−30</sup>"
    assert plot_theme.power_ticks(-88, 0, logarithms=True)["ticktext"][-2:] == [least, f"&lt; {least}"]
