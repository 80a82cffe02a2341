"""Rows found by their own content and by the tokenizers' strings, after rotation, reordering and trimming."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment.neighbours import nearest
from irwm.alignment.rows import Rows, median_row
from irwm.alignment.rows_by_content import candidates
from irwm.alignment.rows_by_name import by_tokenizer
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.evidence.neutral_model import write_neutral
from tests.alignment.test_pipeline import disguised


def test_nearest_neighbours_are_those_of_the_full_table() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = torch.randn(300, 8, generator=generator), torch.randn(200, 8, generator=generator)
    usable = torch.ones(200, dtype=torch.bool)
    usable[7] = False
    near = nearest(theirs, ours, usable, torch.ones(300, dtype=torch.bool))
    table = torch.nn.functional.normalize(ours, dim=1) @ torch.nn.functional.normalize(theirs, dim=1).T
    table[:, 7] = -2
    assert torch.equal(near.best, table.argmax(dim=1))
    top = table.topk(2, dim=1).values
    assert torch.allclose(near.margin, top[:, 0] - top[:, 1], atol=1e-6)
    expected = table.argmax(dim=0)[table.argmax(dim=1)] == torch.arange(300)
    assert torch.equal(near.mutual, expected)
    by_distance = nearest(theirs, ours, usable, torch.ones(300, dtype=torch.bool), by_distance=True)
    distances = torch.cdist(ours, theirs)
    distances[:, 7] = torch.inf
    assert torch.equal(by_distance.best, distances.argmin(dim=1))


def test_equal_rows_are_paired_once() -> None:
    ours = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    usable = torch.ones(3, dtype=torch.bool)
    near = nearest(ours, ours, usable, usable)
    chosen = near.best[near.mutual].tolist()
    assert len(chosen) == len(set(chosen))
    assert near.mutual[2]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [["reorder_tokens"], ["rotate", "rescale", ("trim_tokens", {"fraction": 0.4})]])
def test_moved_rows_are_found_at_their_new_places(phi3_path: Path, tmp_path: Path, steps: list) -> None:
    suspect, where = disguised(phi3_path, tmp_path / "x", steps, seed=5)
    theirs, ours = (Rows.of(each) for each in (suspect, irwm.open_checkpoint(phi3_path)))
    match = next(candidates(theirs, ours))
    found = match >= 0
    assert found.sum() > 0.95 * (where >= 0).sum()
    assert (match[found] == where[found]).mean() > 0.99


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_all_searches_between_unrelated_models_are_abandoned(phi3_path: Path, tmp_path: Path, seed: int) -> None:
    model = irwm.open_checkpoint(phi3_path)
    unrelated = irwm.open_checkpoint(write_neutral(model, tmp_path / "x", seed, most_rows=4096))
    theirs, ours = (Rows.of(each) for each in (unrelated, model))
    assert not list(candidates(theirs, ours))


def test_rows_in_memory_equal_the_rows_of_the_file(phi3_path: Path) -> None:
    rows = Rows.of(irwm.open_checkpoint(phi3_path), row_constants=True)
    held, ids = rows.held(), np.array([5, 3, 3, 4000])
    assert held.kept is not None
    assert torch.equal(held.level(ids), rows.level(ids))
    basis = rows.principal_components[:, :7]
    for ours, theirs in zip(held.project(basis), rows.project(basis), strict=True):
        assert torch.allclose(ours.float(), theirs.float(), atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_the_median_row_is_the_lower_median(n: int) -> None:
    rows = torch.randn(n, 7, generator=torch.Generator().manual_seed(n))
    assert torch.equal(median_row(rows), rows.median(dim=0).values)


def test_a_neighbourhood_does_not_depend_on_coordinates_order_or_length(phi3_path: Path, tmp_path: Path) -> None:
    state = apply(read_state(phi3_path), ["rotate", ("rescale", {"factor": 0.1}), "reorder_tokens"], seed=5)
    write_state(state, tmp_path / "x", dtype="float32")
    theirs, ours = (Rows.of(irwm.open_checkpoint(path)).neighbourhoods[0] for path in (tmp_path / "x", phi3_path))
    assert torch.allclose(theirs[torch.as_tensor(np.asarray(state.token_ids))], ours, atol=2e-3)


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
