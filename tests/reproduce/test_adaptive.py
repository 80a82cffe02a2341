"""The attacker who has read the manual: how he tunes an attack, and what the page says about the marks left."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import adaptive
from benchmarks.adaptive import LADDERS, Attacker, Outcome, Saved
from benchmarks.reproduce import __main__ as command
from benchmarks.reproduce import adaptive as experiment
from benchmarks.reproduce.page import Page

FOUND = Outcome("demo", "one", "prune 0.3", 0.02, "found", "mark, aligned", -80.0, -81.0, "derived", None)
MISSED = replace(FOUND, attack="noise 1", change=0.04, verdict="not found", log10_risk=-1.0)
TUNED = replace(FOUND, preset="many", attack="noise 2", change=3.0, named=False, own=-0.5)


class Tuner(Attacker):
    """An attacker whose own marks vanish at a given strength, without any model."""

    def __init__(self, vanish: float) -> None:
        self.vanish, self.tried = vanish, list[float]()

    def _own_after(self, name: str, strength: float, seed: int) -> float:
        self.tried.append(strength)
        return -1.0 if strength >= self.vanish else -50.0

    def carry_out(self, label: str, steps: adaptive.Steps, seed: int) -> Outcome:
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


def test_outcomes_are_stored_by_group_and_tuned_ones_by_attack(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "outcomes")
    published = replace(FOUND, attack="Width cut: 90 %")
    for each in (FOUND, TUNED, published):
        saved.add(each)
    again = Saved(tmp_path / "outcomes")
    assert again.get("demo", "one", "prune 0.3", "listed") == FOUND
    assert again.get("demo", "many", "noise", "tuned") == TUNED
    assert again.get("demo", "one", published.attack, "literature") == published
    assert again.get("demo", "one", published.attack, "listed") is None
    assert again.get("demo", "many", "noise", "listed") is None
    assert again.get("demo", "one", "prune", "tuned") is None


def results(*outcomes: Outcome) -> dict[str, Any]:
    return {"outcomes": [asdict(each) for each in outcomes], "left_out": ["MiniLM: no head."]}


def test_adaptive_page_lists_misses_first(tmp_path: Path) -> None:
    made = results(FOUND, MISSED, TUNED)
    page = Page(tmp_path, experiment.NAME, experiment.TITLE)
    experiment.write(page, made, [])
    text = page.write().read_text(encoding="utf-8")
    assert text.index("| noise 1 |") < text.index("| prune 0.3 |")
    assert "of 2 attacked copies within 5 % of perplexity the mark or the fingerprint is found in 1" in text
    assert "missed in 1 (demo, one, noise 1)" in text
    assert "Of 1 tuned attacks, 1 hid all of the attacker's own marks; after 1 of these 1 our mark is found." in text
    assert "- MiniLM: no head." in text


def test_copy_that_does_not_run_has_no_measured_cost() -> None:
    stored = asdict(FOUND) | {"change": None}
    endless = asdict(MISSED) | {"change": "infinite"}
    said = experiment.headline({"outcomes": [stored, endless], "left_out": []})
    assert "of 1 attacked copies within 5 % of perplexity the mark or the fingerprint is found in 1;" in said


@pytest.mark.slow
def test_the_experiment_runs_on_a_layer_norm_model(gpt2_path: Path, tmp_path: Path) -> None:
    arguments = [f"gpt2={gpt2_path}", "--quick", "--only", "adaptive", "--out", str(tmp_path), "--workers", "1"]
    assert command.main(arguments) == 0
    text = (tmp_path / "adaptive.md").read_text(encoding="utf-8")
    assert "| gpt2, one | Minor components dropped, then rotated: 90% |" in text
    assert "| gpt2, many | components " in text
    assert 'none of 20 called "not derived"' in text
