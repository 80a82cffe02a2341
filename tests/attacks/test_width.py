"""Models of another width: the cut model runs, and marks and fingerprints are read through it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import irwm
from irwm.attacks import cut_width, equivalence
from irwm.errors import NotApplicableError, ParameterError
from tests.conftest import Marked

TEXT = inspect.getsource(json.decoder)


def loss(folder: Path) -> float:
    """Mean negative log-likelihood of the text's first tokens, in nats."""
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"][:256]])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return float(model(input_ids=ids, labels=ids).loss)


@pytest.mark.parametrize("name", ["demo", "gemma"])
def test_mark_is_found_in_a_model_of_another_width(
    release_of: Callable[[str], Marked], tmp_path: Path, name: str
) -> None:
    original, key, release = release_of(name)
    narrow = cut_width(release, tmp_path / "narrow", 0.9, TEXT)
    wide = equivalence.widen(release, tmp_path / "wide")
    for folder, factor in ((narrow, 0.9), (wide, 1.25)):
        suspect = irwm.open_checkpoint(folder)
        assert suspect.hidden_size == pytest.approx(factor * original.hidden_size, abs=8)
        found = irwm.detect(suspect, original, key)
        assert (found.verdict, found.lineage.status) == ("found", "derived")
    before = loss(release)
    assert loss(wide) == pytest.approx(before, abs=1e-2)
    assert loss(narrow) < before + 1


def test_width_that_cannot_be_cut_is_refused(tiny_path: Path, minilm_path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotApplicableError):
        cut_width(minilm_path, tmp_path / "out", 0.9, TEXT)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(ParameterError):
            cut_width(tiny_path, tmp_path / "out", share, TEXT)
    assert not (tmp_path / "out").exists()
