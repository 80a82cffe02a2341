"""Answers of Explore's handlers, as its page gets them, without a browser."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import plotly.graph_objects as go
import pytest

from irwm import Parameters
from irwm.errors import IrwmError, ParameterError
from irwm.explore.planning import plan
from tests.ui.handlers import SESSION, Pages
from ui import explore_data as data
from ui import explore_plots
from ui.components.explore_values import answer, percents, protect_values, said_of, settings_of, values_of
from ui.components.settings_form import SettingsForm
from ui.explore_settings import FORMAT, ExploreSettings, SettingsTextError, presets
from ui.pages import explore
from ui.settings import DEMO

EVERY = {**presets(256), "usual": ExploreSettings()}


def texts(fig: go.Figure) -> str:
    """All readable text of a figure: its title, and every hover."""
    hovers = [text for trace in fig.data for text in (trace.hovertext or ()) if text]
    return "\n".join([fig.layout.title.text, fig.layout.title.subtitle.text, *hovers])


@pytest.mark.parametrize(
    ("name", "success", "risk", "dark"),
    [
        ("Paper: p = 0.8, ρ = 30", "0.99968", "6.94 × 10<sup>−5</sup>", False),
        ("Paper: p = 0.7, ρ = 28", "0.98772", "0.00216", True),
    ],
)
def test_the_papers_worked_examples_are_on_every_axis(name: str, success: str, risk: str, dark: bool) -> None:
    s = EVERY[name]
    for axis in explore_plots.AXES:
        fig = explore_plots.odds_over(s, axis, dark=dark)
        assert success in fig.layout.title.text
        assert risk in fig.layout.title.text
        chosen = next(trace for trace in fig.data if trace.mode == "markers")
        assert chosen.x[0] == axis.value(s)
        assert success in chosen.hovertext[0]


def test_curves_go_through_the_chosen_point_and_hold_the_exact_numbers() -> None:
    s = EVERY["Paper: p = 0.8, ρ = 30"]
    fig = explore_plots.odds_over(s, explore_plots.axis_of("recipients"))
    risk = next(trace for trace in fig.data if "eq. 3" in (trace.name or ""))
    assert 10 ** risk.y[risk.x.index(100_000)] == pytest.approx(6.94e-5, rel=0.001)
    assert "num_u = 100\u00a0000" in texts(fig)
    assert fig.layout.xaxis.type == fig.layout.xaxis2.type == "log"
    region = explore_plots.region(s, plan(s.wish))
    assert "smallest: l = 56, ρ = 35" in texts(region)
    assert (region.data[-1].x[0], region.data[-1].y[0]) == (50, 0.6)
    text = said_of(s)
    assert "at least 30 of 50 positions count in 99.968% of cases" in text
    assert "any of 100\u00a0000 such keys reaches it is 6.94 × 10⁻⁵" in text
    assert percents(1.0) == "more than 99.999%"


@pytest.mark.parametrize("s", [
    ExploreSettings(parameters=Parameters(positions=1, required_positions=1)),
    ExploreSettings(parameters=Parameters(positions=10_000, required_positions=6_000), recipients=10**12),
    ExploreSettings(parameters=Parameters(rank_threshold=0.001), survival=0.999),
    ExploreSettings(survival=0.15),
    ExploreSettings(parameters=Parameters(rank_threshold=0.5), survival=0.001, risk=1e-300, success=1 - 1e-15),
])  # fmt: skip
def test_the_ends_of_every_range_are_drawn(s: ExploreSettings) -> None:
    for axis in explore_plots.AXES:
        fig = explore_plots.odds_over(s, axis)
        assert any(trace.y is not None and len(trace.y) for trace in fig.data)
        json.loads(fig.to_json())
    text, found = answer(s)
    assert text
    assert found is None or s.survival != 0.15, "an impossible request"
    json.loads(explore_plots.region(s, found).to_json())


@pytest.mark.parametrize("name", EVERY)
def test_controls_and_json_keep_every_setting(name: str) -> None:
    s = EVERY[name]
    assert settings_of(*values_of(s)) == s
    assert ExploreSettings.from_json(s.to_json()) == s
    assert SettingsForm.parameters(*protect_values(s)) == s.parameters, "Protect gets the same mark"


def document(**values: Any) -> str:
    return json.dumps({"format": FORMAT, "version": 1, **values})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[" * 3000, "null", "[]", '{"format": "x"}', "{" + "x" * 5000,
        json.dumps({"format": FORMAT, "version": 2}), json.dumps({"format": FORMAT, "version": True}),
        document(risk=1e-6)[:-1] + ', "risk": 0.5}', document(recipients=0)[:-2] + "9" * 3000 + "}",
        *(document(**{name: value}) for name, value in (
            ("risk", float("nan")), ("survival", float("inf")), ("risk", 0), ("success", 1), ("recipients", 2.5),
            ("recipients", True), ("colluders", 1001), ("survival", "<script>alert(1)</script>"),
            ("path", "/etc/passwd"), ("parameters", []), ("parameters", {"__class__": 1}),
            ("parameters", {"positions": 10, "required_positions": 11}), ("parameters", {"scale": "a lot"}),
            ("parameters", {"noise_level": {"row": 1}}),
        )),
    ],
)  # fmt: skip
def test_hostile_settings_json_is_refused(text: str) -> None:
    with pytest.raises(SettingsTextError):
        ExploreSettings.from_json(text)


@pytest.mark.parametrize("values", [{"survival": "much"}, {"noise": -0.1}, {"recipients": None}, {"risk": 2.0}])
def test_a_setting_outside_its_range_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        replace(ExploreSettings(), **values)


@pytest.mark.parametrize("view", [name for name, _ in explore.VIEWS])
def test_every_view_of_a_model_holds_data(view: str) -> None:
    fig = explore.model_figure(view, DEMO, EVERY["Many recipients"], len(view) % 2 == 0)
    assert sum(len(trace.x) for trace in fig.data if trace.x is not None) > 5
    assert fig.layout.title.text
    assert fig.layout.xaxis.title.text
    assert fig.layout.yaxis.title.text
    assert len([line for line in texts(fig).splitlines() if line]) > 5
    json.loads(fig.to_json())


def test_noise_view_compares_trials_with_theory() -> None:
    fig = explore.model_figure("noise", DEMO, ExploreSettings(), False)
    trials = [trace for trace in fig.data if "simulated" in (trace.name or "")]
    assert len(trials) == 2
    for trace in trials:
        theory = next(
            line for line in fig.data if line.mode == "lines" and trace.name.startswith(line.name.split(",")[0])
        )
        assert np.interp(trace.x, theory.x, theory.y) == pytest.approx(trace.y, abs=0.13)


def test_unreachable_limit_is_reported() -> None:
    s = ExploreSettings(parameters=Parameters(condition_limit=1.01))
    with pytest.raises(IrwmError):
        explore.model_figure("noise", DEMO, s, False)
    assert "0 of 100 attempts" in explore.model_figure("tries", DEMO, s, False).layout.title.text


def test_a_sample_is_read_again_only_when_the_files_change(demo_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in demo_path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    first = data.sample_of(copy, ExploreSettings())
    assert data.sample_of(copy, replace(ExploreSettings(), survival=0.5)) is first
    (copy / "note.txt").write_text("new")
    assert data.sample_of(copy, ExploreSettings()) is not first


@pytest.fixture
def handlers(pages: Pages) -> dict[str, Callable[..., Any]]:
    """The pages' handlers by name; those of Explore have names of their own."""
    return {each.name: inspect.unwrap(each.fn) for each in pages.blocks.fns.values() if each.fn}


OPEN = gr.Request(session_hash=SESSION.removeprefix("hash:"))


@pytest.mark.parametrize(
    ("place", "value", "notice", "said", "gone"),
    [
        (0, 0, "draw_odds", "Positions (l) is out of range", {"draw_odds", "draw_room", "draw_model"}),
        (1, None, "draw_odds", "Required positions (ρ) is out of range", {"draw_odds", "draw_room", "draw_model"}),
        (5, "much", "draw_room", "Accepted risk is out of range", {"draw_room"}),
        (7, 0, "draw_model", "Constraints (t) is out of range", {"draw_model"}),
        (12, 10_000_000, "draw_model", "Noise coordinates (num_noise) is out of range", {"draw_model"}),
        (15, -1, "draw_model", "Attack (noise, σ) is out of range", {"draw_model"}),
    ],
)
def test_error_appears_at_its_controls_and_clears_dependent_figures(
    handlers: dict[str, Callable[..., Any]], place: int, value: Any, notice: str, said: str, gone: set[str]
) -> None:
    values = list(values_of(ExploreSettings()))
    values[place] = value
    shown = {
        "draw_odds": handlers["draw_odds"](False, "required", values, OPEN),
        "draw_room": handlers["draw_room"](False, values, OPEN),
        "draw_model": handlers["draw_model"](False, None, "noise", values, OPEN),
    }
    assert [name for name, (text, *_) in shown.items() if "notice-fault" in text] == [notice]
    assert said in shown[notice][0]
    assert {name for name, (_, figure, *_) in shown.items() if figure is None} == gone
    assert handlers["write_json"](values, OPEN) == ""
    assert not re.search(r"None|[a-z]_[a-z]{4}|True|False", re.sub(r"<[^>]*>|\(\w+\)", "", shown[notice][0]))
    assert (handlers["draw_model"](False, None, "colluders", values, OPEN)[1] is None) == (place != 3)


def test_smallest_mark_is_applied_and_json_is_loaded(handlers: dict[str, Callable[..., Any]]) -> None:
    s = EVERY["Paper: p = 0.8, ρ = 30"]
    said, figure = handlers["draw_odds"](False, "required", values_of(s), OPEN)
    assert "99.968" in said
    assert isinstance(figure, go.Figure)
    assert "notice-fault" in handlers["draw_model"](False, "/etc", "noise", values_of(s), OPEN)[0]
    assert json.loads(handlers["write_json"](values_of(s), OPEN))["format"] == FORMAT
    assert handlers["take_over"](OPEN, *values_of(s)) == (56, 35)
    *values, note = handlers["read_json"](s.to_json(), OPEN)
    assert tuple(values) == values_of(s)
    *values, note = handlers["read_json"]('{"format": "<img src=x>"}', OPEN)
    assert all(value == gr.skip() for value in values)
    assert "notice-fault" in note
    assert "<img" not in note
