"""Rows matched by the tokenizers' strings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import irwm
from irwm.alignment.rows_by_name import by_tokenizer
from tests.alignment.test_pipeline import disguised


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [["reorder_tokens"], [("trim_tokens", {"fraction": 0.4})], ["pad_tokens"]])
@pytest.mark.parametrize("model", ["phi3", "minilm"])
def test_each_token_is_followed_to_its_row(
    phi3_path: Path, minilm_path: Path, tmp_path: Path, model: str, steps: list
) -> None:
    path = {"phi3": phi3_path, "minilm": minilm_path}[model]
    suspect, where = disguised(path, tmp_path / "x", steps, seed=1)
    assert np.array_equal(by_tokenizer(suspect, irwm.open_checkpoint(path)), where)


def test_a_missing_or_different_tokenizer_names_no_rows(demo_path: Path, minilm_path: Path, tiny_path: Path) -> None:
    demo = irwm.open_checkpoint(demo_path)
    assert by_tokenizer(irwm.open_checkpoint(tiny_path), demo) is None
    assert by_tokenizer(demo, irwm.open_checkpoint(tiny_path)) is None


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"model": {"vocab": {"a": 10**9, "b": -1, "c": True}}})])
def test_broken_tokenizer_does_not_prevent_alignment(phi3_path: Path, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "x"
    shutil.copytree(phi3_path, folder)
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    alignment = irwm.align(irwm.open_checkpoint(folder), irwm.open_checkpoint(phi3_path))
    assert alignment.aligned


@pytest.mark.slow
def test_a_stale_tokenizer_is_detected(phi3_path: Path, tmp_path: Path) -> None:
    """The rows were moved and the tokenizer was left unchanged: the strings are wrong, the content is not."""
    _, where = disguised(phi3_path, tmp_path / "x", ["reorder_tokens"], seed=2)
    shutil.copyfile(phi3_path / "tokenizer.json", tmp_path / "x" / "tokenizer.json")
    alignment = irwm.align(irwm.open_checkpoint(tmp_path / "x"), irwm.open_checkpoint(phi3_path))
    assert alignment.aligned
    assert (alignment.rows == where).mean() > 0.99
    assert any(step.name == "rows by content" for step in alignment.steps)
