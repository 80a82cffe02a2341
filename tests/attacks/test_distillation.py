"""Removal by distillation: what moves, and what it leaves of a mark."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import irwm
from irwm.attacks import Schedule, learn_again, push_away
from irwm.errors import ParameterError
from tests.attacks.test_collusion_attacks import all_tensors
from tests.conftest import Marked

TEXT = inspect.getsource(json.decoder)
TABLES = {"model.embed_tokens.weight", "lm_head.weight"}
SHORT = Schedule(steps=3, learning_rate=1e-3, batch=2, length=32)


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], name: str) -> float:
    """The change of a table's numbers, in their deviation from the mean row."""
    rows = before[name].double()
    return float((after[name].double() - rows).square().mean().sqrt() / (rows - rows.mean(0)).square().mean().sqrt())


@pytest.mark.slow
def test_embedding_is_moved_or_made_random_and_only_learning_again_leaves_the_body(
    release_of: Callable[[str], Marked], tmp_path: Path
) -> None:
    original, key, release = release_of("demo")
    pushed = push_away(release, tmp_path / "pushed", TEXT, 1e-4, SHORT)
    half = learn_again(release, tmp_path / "half", TEXT, 0.5, SHORT)
    whole = learn_again(release, tmp_path / "whole", TEXT, 1.0, SHORT)
    before, *others = (all_tensors(folder) for folder in (release, pushed, half, whole))
    changed = [{name for name in before if not torch.equal(before[name], after[name])} for after in others]
    assert changed[0] > TABLES
    assert changed[1] == changed[2] == TABLES
    for name in TABLES:
        sizes = [moved(before, after, name) for after in others]
        assert sizes[0] > 0.01
        assert sizes[1] == pytest.approx(0.5**0.5, abs=0.1)
        assert sizes[2] == pytest.approx(2**0.5, abs=0.1)
    verdicts = [irwm.detect(irwm.open_checkpoint(folder), original, key).verdict for folder in (pushed, half)]
    assert verdicts == ["found", "found"]
    # Nothing of the rows is left, and an embedding without any trace of the original clears nobody.
    assert irwm.detect(irwm.open_checkpoint(whole), original, key).verdict == "inconclusive"


def test_numbers_out_of_range_are_refused_before_any_work(tiny_path: Path, tmp_path: Path) -> None:
    for wrong in (0.0, float("nan")):
        with pytest.raises(ParameterError):
            push_away(tiny_path, tmp_path / "out", TEXT, wrong, SHORT)
        with pytest.raises(ParameterError):
            learn_again(tiny_path, tmp_path / "out", TEXT, wrong, SHORT)
    with pytest.raises(ParameterError):
        Schedule(steps=0, learning_rate=1e-3)
    assert not (tmp_path / "out").exists()
