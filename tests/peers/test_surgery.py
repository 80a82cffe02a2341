"""The table of descent after surgery: its statistics, and that every changed release is a model that runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import irwm
from benchmarks import surgery
from benchmarks.surgery import GENERATIONS, LOWEST, SURGERIES, UNRELATED, Scored, area, table, true_positives
from irwm.inference.loading import open_weights


def _ranks(*values: float) -> list[list[float]]:
    return [[0.0, value] for value in values]


def test_area_counts_ties_as_half() -> None:
    assert area(_ranks(2, 1), _ranks(1, 0)) == pytest.approx((2 + 1.5) / 4)
    assert area([LOWEST], [LOWEST]) == 0.5


def test_true_positives_allow_one_percent_of_the_unrelated() -> None:
    unrelated = _ranks(*range(100), *range(100))
    assert true_positives(_ranks(99, 98.5, 98), unrelated) == pytest.approx(2 / 3)
    assert true_positives(_ranks(99), _ranks(*range(100))) == 1.0
    assert true_positives(_ranks(99), _ranks(*range(50), 99)) == 0.0


def test_smaller_p_ranks_higher_than_larger_value() -> None:
    assert area([[-1e-9, 0.1]], [[-0.5, 0.9]]) == 1.0


def test_table_shows_methods_that_cannot_run() -> None:
    name = next(iter(SURGERIES))
    pairs = [
        Scored(name, "a", "a", {"one": [0.0, 1.0], "two": None}, ["one"]),
        Scored(UNRELATED, "a", "b", {"one": [0.0, 0.5], "two": [0.0, 0.3]}, ["two"]),
    ]
    lines = table(pairs).splitlines()
    assert lines[2] == f"| {name} | 1 | 100 % / 1.000 | *cannot run* |"
    assert lines[-3].endswith("| 1 | 0.500 | 0.300 |")
    assert lines[-2].endswith("| 1 | 1 | 0 |")
    assert lines[-1].endswith("| 1 | 0 | 1 |")


def test_a_method_that_cannot_run_on_a_pair_has_its_lowest_score() -> None:
    name = next(iter(SURGERIES))
    pairs = [
        Scored(name, "a", "a", {"one": None}, []),
        Scored(name, "b", "b", {"one": [0.0, 1.0]}, []),
        Scored(UNRELATED, "a", "b", {"one": [0.0, -math.inf]}, []),
    ]
    assert table(pairs).splitlines()[2] == f"| {name} | 2 | 50 % / 0.500 |"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SURGERIES if "number of tokens" not in name])
def test_changed_releases_run(name: str, demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single step of training instead of many; the demo model has 4 layers too."""
    monkeypatch.setattr(surgery, "HEAL", 1)
    monkeypatch.setattr(surgery, "BETWEEN", 1)
    original = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(original, irwm.many_recipients(original.hidden_size), bytes(32))
    release = irwm.insert(original, key, tmp_path / "release").path
    SURGERIES[name](release, tmp_path / "suspect", tmp_path)
    assert open_weights(tmp_path / "suspect").model.num_parameters() > 0
    scores = surgery.ours(demo_path, tmp_path / "suspect", key)
    assert {each.says for each in scores.values()} == {"derived"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo", "gemma", "phi3"])
def test_the_marks_of_all_five_owners_of_a_chain_are_found(name: str, trained: dict[str, Path], tmp_path: Path) -> None:
    """Each owner marks and trains what he got from the one before him."""
    first = irwm.open_checkpoint(trained[name])
    key = irwm.generate_key(first, irwm.many_recipients(first.hidden_size), bytes(32))
    release = irwm.insert(first, key, tmp_path / "release").path
    owners = [(first, key), *surgery.generations(Path(release), tmp_path / "last", tmp_path)]
    assert len(owners) == GENERATIONS
    suspect = irwm.open_checkpoint(tmp_path / "last")
    for original, each in owners:
        found = irwm.detect(suspect, original, each)
        assert (found.verdict, found.lineage.status) == ("found", "derived")
