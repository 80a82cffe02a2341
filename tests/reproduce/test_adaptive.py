"""The attacker who has read the manual: how he tunes an attack, and what the page says about the marks left."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import written
from benchmarks.adaptive import attacker as module
from benchmarks.adaptive.__main__ import main
from benchmarks.adaptive.attacker import EXPENSIVE, GROUPS, LADDERS, Attacker, Outcome, Saved
from benchmarks.adaptive.tables import cheapest, curves
from benchmarks.reproduce import __main__ as command
from benchmarks.reproduce import adaptive as experiment
from benchmarks.reproduce.bench import split_text
from benchmarks.reproduce.page import Page

FOUND = Outcome(
    "demo", "one", "listed", "prune 0.3", "prune 0.3", 0.02, False, "found", "mark, aligned", -80.0, -80.0, -40.0,
    "derived", None,
)  # fmt: skip
MISSED = replace(FOUND, attack="noise 1", cost=0.04, verdict="not found", log10_risk=-1.0, mark=-1.0, fingerprint=-0.5)
TUNED = replace(
    FOUND, preset="many", group="tuned", task="noise", attack="noise 2", cost=3.0, named=False, own=-0.5
)  # fmt: skip


class Tuner(Attacker):
    """An attacker whose own marks vanish at a given strength, without any model."""

    def __init__(self, vanish: float) -> None:
        self.vanish, self.tried = vanish, list[float]()

    def _own_after(self, name: str, strength: float, seed: int) -> float:
        self.tried.append(strength)
        return -1.0 if strength >= self.vanish else -50.0

    def carry_out(self, label: str, steps: module.Steps, seed: int) -> Outcome:
        return replace(FOUND, attack=label)


@pytest.mark.parametrize("chosen", range(len(LADDERS["noise"])))
def test_attacker_uses_the_least_strength_that_removes_his_marks(chosen: int) -> None:
    strength = LADDERS["noise"][chosen]
    attacker = Tuner(strength)
    outcome = attacker.tuned("noise", 0)
    assert (outcome.attack, outcome.own) == (f"noise {strength:g}", -1.0)
    assert len(attacker.tried) <= 1 + math.ceil(math.log2(len(LADDERS["noise"])))


def test_attacker_uses_the_greatest_strength_if_his_marks_survive() -> None:
    attacker = Tuner(math.inf)
    assert (attacker.tuned("prune", 0).attack, attacker.tried) == ("prune 0.95", [0.95])
    assert attacker.tuned("prune", 0).own == -50.0


class Searcher(Attacker):
    """An attacker whose own mark weakens with each step of "noise" and of no other attack, at the cost of its size."""

    def __init__(self, tmp_path: Path) -> None:
        self.release, self.text, self.measured, self.tokens = tmp_path, "", "", 0

    def why_not(self, name: str) -> str | None:
        return None

    @property
    def own_marks(self) -> list[Any]:  # type: ignore[override]
        return [(None, None)]

    @contextmanager
    def copy(self, steps: module.Steps, seed: int, source: Path | None = None) -> Iterator[Any]:
        yield steps, True

    def carry_out(self, label: str, steps: module.Steps, seed: int) -> Outcome:
        return replace(FOUND, attack=label)

    def _examined(self, label: str, folder: Path, runs: bool) -> Outcome:
        return replace(FOUND, attack=label)


def total(steps: module.Steps, name: str) -> float:
    return sum(float(value) for each, value in steps if each == name)


@pytest.fixture
def searcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Searcher:
    monkeypatch.setattr(module, "reference", lambda *_: None)
    monkeypatch.setattr(module.irwm, "open_checkpoint", lambda path: path)
    monkeypatch.setattr(module.irwm, "detect", lambda steps, *_: SimpleNamespace(log10_risk=-9 + total(steps, "noise")))
    monkeypatch.setattr(module, "cost_of", lambda _before, steps: total(steps, "noise") + total(steps, "prune"))
    return Searcher(tmp_path)


def test_search_spends_a_part_of_the_bound_at_each_step(searcher: Searcher) -> None:
    found = searcher.searched(1.0, 0)
    assert (found.attack, found.own) == ("noise 0.3 → noise 0.3 → noise 0.3", pytest.approx(-8.1))


def test_search_without_an_affordable_step_leaves_the_release_alone(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cost_of", lambda _before, _steps: math.nan)
    assert searcher.searched(EXPENSIVE, 0).attack == "none within the bound"


def test_outcomes_are_stored_by_group_and_task(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "outcomes")
    for each in (FOUND, TUNED):
        saved.add(each)
    again = Saved(tmp_path / "outcomes")
    assert again.get("demo", "one", "listed", "prune 0.3") == FOUND
    assert again.get("demo", "many", "tuned", "noise") == TUNED
    assert again.get("demo", "many", "listed", "noise") is None
    assert again.get("demo", "one", "tuned", "noise") is None


def test_cheapest_copy_is_named_for_each_form_of_evidence() -> None:
    ruined = replace(MISSED, attack="noise 3", cost=30.0)
    bare = replace(FOUND, attack="outliers 0.1", cost=0.01, mark=-2.0)
    line = cheapest([FOUND, ruined, MISSED, bare, TUNED]).splitlines()[2]
    assert line == "| demo, one | 4 | +1.0 %: outliers 0.1 | +4.0 %: noise 1 | +4.0 %: noise 1 |"
    assert cheapest([FOUND]).splitlines()[2] == "| demo, one | 1 | none | none | none |"


def test_curves_show_the_weakest_evidence_up_to_each_cost() -> None:
    figure = curves([FOUND, replace(FOUND, cost=0.5), replace(MISSED, cost=0.2), replace(FOUND, cost=math.nan)])
    (panel,) = figure.axes
    lines = {line.get_label(): line for line in panel.lines}
    assert list(lines["both"].get_xdata()) == [0.001, 0.02, 0.2, 0.5, 20.0]
    assert list(lines["both"].get_ydata()) == [80, 80, 1, 1, 1]


def test_copy_that_only_the_attackers_loader_opens_costs_nothing() -> None:
    stored = replace(MISSED, attack="stored otherwise", cost=math.nan)
    line = cheapest([MISSED, stored]).splitlines()[2]
    assert line.count("does not run as stored: stored otherwise") == 3


@pytest.mark.parametrize("groups", [["listed"], list(GROUPS)], ids=["one group", "all groups"])
def test_missing_place_for_a_table_is_reported_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, groups: list[str]
) -> None:
    monkeypatch.setattr(written, "DOCS", tmp_path)
    (tmp_path / "adaptive.md").write_text("<!-- literature -->\n<!-- /literature -->\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["adaptive", "--write", "--groups", *groups])
    with pytest.raises(SystemExit, match="no place for measured"):
        main()


def results(*outcomes: Outcome) -> dict[str, Any]:
    return {"outcomes": [asdict(each) for each in outcomes], "left_out": ["MiniLM: no head."]}


def test_adaptive_page_lists_misses_first(tmp_path: Path) -> None:
    made = results(FOUND, MISSED, TUNED)
    page = Page(tmp_path, experiment.NAME, experiment.TITLE)
    experiment.write(page, made, [])
    text = page.write().read_text(encoding="utf-8")
    assert text.index("| noise 1 |") < text.index("| prune 0.3 |")
    assert "of 2 attacked copies at a cost of at most 5 % the mark or the fingerprint is found in 1" in text
    assert "missed in 1 (demo, one, noise 1)" in text
    assert "Of 1 attacks, 1 hid all of the attacker's own marks; after 1 of these 1 our mark is found." in text
    assert "- MiniLM: no head." in text


def test_copy_that_does_not_run_has_no_measured_cost() -> None:
    stored = asdict(FOUND) | {"cost": None}
    endless = asdict(MISSED) | {"cost": "infinite"}
    said = experiment.headline({"outcomes": [stored, endless], "left_out": []})
    assert "of 1 attacked copies at a cost of at most 5 % the mark or the fingerprint is found in 1;" in said


def test_attacker_trains_on_another_text_than_utility_is_measured_on(demo_path: Path, tmp_path: Path) -> None:
    attacker = Attacker("demo", demo_path, "one", tmp_path)
    assert (attacker.text, attacker.measured) == split_text(None)
    assert attacker.text[:500] not in attacker.measured


def test_attack_that_a_model_does_not_allow_is_named_with_its_reason(minilm_path: Path, tmp_path: Path) -> None:
    attacker = Attacker("MiniLM", minilm_path, "one", tmp_path, tokens=256)
    assert attacker.why_not("learn-again") == "An encoder does not predict next tokens."
    assert attacker.why_not("tokenizer") == "The outputs for different tokens cannot be compared."
    assert attacker.why_not("noise") is None


@pytest.mark.slow
def test_the_experiment_runs_on_a_layer_norm_model(gpt2_path: Path, tmp_path: Path) -> None:
    arguments = [f"gpt2={gpt2_path}", "--quick", "--only", "adaptive", "--out", str(tmp_path), "--workers", "1"]
    assert command.main(arguments) == 0
    text = (tmp_path / "adaptive.md").read_text(encoding="utf-8")
    assert "| gpt2, one | Minor components dropped, then rotated: 90% |" in text
    assert "| gpt2, many | components " in text
    assert 'none of 22 called "not derived"' in text
