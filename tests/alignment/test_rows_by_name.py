"""Rows matched by the tokenizers' strings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import irwm
from irwm.alignment.rows_by_name import by_tokenizer
from irwm.attacks.equivalence import apply, read_state, write_state


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [["reorder_tokens"], [("trim_tokens", {"fraction": 0.4})], ["pad_tokens"]])
@pytest.mark.parametrize("model", ["phi3", "minilm"])
def test_each_token_is_followed_to_its_row(
    phi3_path: Path, minilm_path: Path, tmp_path: Path, model: str, steps: list
) -> None:
    path = {"phi3": phi3_path, "minilm": minilm_path}[model]
    state = apply(read_state(path), steps, seed=1)
    write_state(state, tmp_path / "x")
    original = irwm.open_checkpoint(path)
    where = np.arange(original.vocab_size) if state.token_ids is None else np.asarray(state.token_ids)
    assert np.array_equal(by_tokenizer(irwm.open_checkpoint(tmp_path / "x"), original), where)


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
    state = apply(read_state(phi3_path), ["reorder_tokens"], seed=2)
    write_state(state, tmp_path / "x")
    shutil.copyfile(phi3_path / "tokenizer.json", tmp_path / "x" / "tokenizer.json")
    alignment = irwm.align(irwm.open_checkpoint(tmp_path / "x"), irwm.open_checkpoint(phi3_path))
    assert alignment.aligned
    assert (alignment.rows == np.asarray(state.token_ids)).mean() > 0.99
    assert any(step.name == "rows by content" for step in alignment.steps)
