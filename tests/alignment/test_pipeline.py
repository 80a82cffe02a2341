"""The cheapest explanation that fits, its sentences, and those for suspects that cannot be aligned."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.alignment import align
from irwm.alignment.rows import Rows
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.attacks.rewrite import rewrite
from irwm.evidence.lineage import lineage
from tools.copies import with_noise, write_embedding
from tools.small_models import write_llama


def disguised(source: Path, out: Path, steps: Sequence, seed: int = 3) -> tuple[irwm.Checkpoint, np.ndarray]:
    """The disguised model and the new position of each token's row."""
    state = apply(read_state(source), steps, seed=seed)
    write_state(state, out)
    suspect = irwm.open_checkpoint(out)
    ids = np.arange(irwm.open_checkpoint(source).vocab_size)
    return suspect, ids if state.token_ids is None else np.asarray(state.token_ids)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([], []),
        (["map_qk", "reorder_heads", "regain"], []),
        (["permute_residual"], ["columns"]),
        (["flip_signs"], ["signs"]),
        (["rotate"], ["rotation"]),
        ([("rescale", {"factor": 0.2})], ["scale"]),
        (["reorder_tokens"], ["rows by tokenizer"]),
        ([("reorder_tokens", {"tokenizer": "drop"})], ["rows by content"]),
        ([("pad_tokens", {"count": 40})], ["rows"]),
        ([("rename_tensors", {"scheme": "scrambled"})], ["embedding"]),
        (["rotate", ("trim_tokens", {"fraction": 0.3})], ["rows by tokenizer", "rows", "rotation"]),
        (["rotate", ("reorder_tokens", {"tokenizer": "drop"})], ["rows by content", "rotation"]),
        # Its head has the same shape, so that only the content tells which is the embedding.
        (["rotate", ("rename_tensors", {"scheme": "scrambled"})], ["embedding", "rotation"]),
    ],
)
def test_only_the_undone_disguises_are_reported(phi3_path: Path, tmp_path: Path, steps: list, names: list) -> None:
    suspect, where = disguised(phi3_path, tmp_path / "x", steps)
    alignment = irwm.align(suspect, irwm.open_checkpoint(phi3_path))
    assert alignment.aligned
    assert [step.name for step in alignment.steps] == names
    assert all(0.9 < step.confidence <= 1 for step in alignment.steps if step.name != "rows")
    assert np.array_equal(alignment.rows, where)
    assert alignment.lost == (where < 0).sum()
    model, ids = irwm.open_checkpoint(phi3_path), np.flatnonzero(where >= 0)[500:700]
    originals = model.embedding(ids).double().numpy()
    restored = alignment.restore(suspect.read(alignment.embedding, where[ids]).double().numpy(), originals)
    assert np.abs(restored / alignment.scale - originals).max() < 0.02 * np.abs(originals).max()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [["flip_signs", "shift_rows", "shift_tables"], [("rescale", {"factor": 3.0})]])
def test_changes_that_a_layernorm_ignores_are_undone(minilm_path: Path, tmp_path: Path, steps: list) -> None:
    suspect, _ = disguised(minilm_path, tmp_path / "x", steps)
    model = irwm.open_checkpoint(minilm_path)
    alignment = irwm.align(suspect, model)
    assert alignment.aligned
    ids = np.arange(2000, 2200)
    originals = model.embedding(ids).double().numpy()
    restored = alignment.restore(suspect.embedding(ids).double().numpy(), originals)
    assert np.abs(restored / alignment.scale - originals).max() < 0.02
    said = {step.name for step in alignment.steps}
    assert said == ({"scale"} if len(steps) == 1 else {"signs", "offsets", "row constants"})


@pytest.mark.slow
def test_all_rows_are_found_if_only_some_were_moved(phi3_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(phi3_path)
    rng = np.random.default_rng(0)
    moved = rng.choice(np.arange(300, 4096), 600, replace=False)
    order = np.arange(4096)
    order[moved] = np.roll(moved, 1)
    name = model.layout.embedding.name
    path = rewrite(phi3_path, tmp_path / "x", lambda n, x: x[torch.from_numpy(order)] if n == name else x)
    alignment = irwm.align(irwm.open_checkpoint(path), model)
    assert alignment.aligned
    assert (order[alignment.rows] == np.arange(4096)).mean() > 0.999


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("shapes", [[(5000, 128)], [(9000, 128), (5000, 128), (9000, 64), (4096, 128)]])
def test_a_taller_decoy_tensor_does_not_hide_the_embedding(phi3_path: Path, tmp_path: Path, shapes: list) -> None:
    model = irwm.open_checkpoint(phi3_path)
    suspect, _ = disguised(phi3_path, tmp_path / "x", ["rotate", ("rename_tensors", {"scheme": "scrambled"})])
    tensors = load_file(suspect.shards[0])
    generator = torch.Generator().manual_seed(0)
    for i, shape in enumerate(shapes):
        tensors[f"a{i}"] = torch.randn(shape, generator=generator).bfloat16()
    save_file(tensors, suspect.shards[0])
    alignment = irwm.align(irwm.open_checkpoint(suspect.path), model)
    assert alignment.aligned
    assert alignment.rows.tolist() == list(range(4096))


@pytest.mark.slow
@pytest.mark.parametrize("names", [("gemma", "phi3"), ("phi3", "gemma"), ("demo", "phi3"), ("few rows", "phi3")])
def test_unrelated_models_cannot_be_aligned(
    request: pytest.FixtureRequest, tmp_path: Path, names: tuple[str, str]
) -> None:
    """Models trained on one text, of two widths, or with 100 rows in 128 coordinates, which can be rotated anywhere."""
    suspect, model = (
        write_llama(tmp_path / name, vocab_size=200, hidden_size=128)
        if name == "few rows"
        else request.getfixturevalue(f"{name}_path")
        for name in names
    )
    alignment = irwm.align(irwm.open_checkpoint(suspect), irwm.open_checkpoint(model))
    assert not alignment.aligned
    if names[0] == "few rows":
        assert not alignment.exhausted
    if {*names} == {"gemma", "phi3"}:
        assert alignment.exhausted  # the tokenizers name the rows
        assert alignment.steps == ()


@pytest.mark.slow
@pytest.mark.usefixtures("as_if_large")
def test_unrelated_models_are_not_aligned_by_large_model_search(gemma_path: Path, phi3_path: Path) -> None:
    assert not irwm.align(irwm.open_checkpoint(gemma_path), irwm.open_checkpoint(phi3_path)).aligned


def test_a_heavily_pruned_embedding_leaves_lineage_open(phi3_path: Path, tmp_path: Path) -> None:
    suspect, _ = disguised(phi3_path, tmp_path / "x", ["rotate", ("reorder_tokens", {"tokenizer": "drop"})])
    ruined = irwm.attacks.prune(suspect.path, tmp_path / "y", 0.97)
    shutil.rmtree(suspect.path)
    alignment = irwm.align(irwm.open_checkpoint(ruined), irwm.open_checkpoint(phi3_path))
    assert not alignment.aligned
    assert lineage(alignment).status == "cannot tell"


@pytest.fixture
def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods for an 8B model, on a small one: cached coordinates, Newton's polar factor, certain pairs."""
    from irwm.alignment import places, rotation, rows, rows_by_content

    monkeypatch.setattr(rows, "MOST_HELD", 1000)
    monkeypatch.setattr(rows, "HELD_COORDINATES", 96)
    monkeypatch.setattr(rows, "MOST_PRECISE_COLUMNS", 16)
    monkeypatch.setattr(rotation, "MOST_BY_SVD", 16)
    monkeypatch.setattr(places, "MOST_COMPARED", 1)
    monkeypatch.setattr(rows_by_content, "MOST_MULTIPLICATIONS", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.usefixtures("as_if_large")
def test_the_methods_for_large_models_give_the_same_result(phi3_path: Path, tmp_path: Path, noise: float) -> None:
    steps = ["rotate", ("rescale", {"factor": 1.7}), ("reorder_tokens", {"tokenizer": "drop"})]
    suspect, where = disguised(phi3_path, tmp_path / "x", steps)
    if noise:
        suspect = write_embedding(suspect, with_noise(suspect.embedding(), noise), tmp_path / "noisy")
    model = irwm.open_checkpoint(phi3_path)
    alignment = irwm.align(suspect, model)
    assert alignment.aligned
    assert alignment.rotation is not None
    assert {"rows by content", "rotation", "scale"} <= {step.name for step in alignment.steps}
    found = alignment.rows >= 0
    assert found.mean() > 0.99
    assert (alignment.rows[found] == where[found]).mean() > 0.999
    drawn = np.flatnonzero(found)[:500]
    ids = drawn[model.embedding(drawn).double().norm(dim=1).numpy() > 0]  # unused tokens have zero rows
    assert len(ids) > 400
    restored = alignment.restore(suspect.embedding(alignment.rows[ids]).double().numpy()) / alignment.scale
    ours = model.embedding(ids).double().numpy()
    apart = np.linalg.norm(restored - ours, axis=1) / np.linalg.norm(ours, axis=1)
    assert np.median(apart) < 0.02 + 1.2 * noise


@pytest.mark.slow
@pytest.mark.usefixtures("as_if_large")
def test_a_planted_row_whose_sums_overflow_does_not_stop_alignment(phi3_path: Path, tmp_path: Path) -> None:
    """Each of its numbers is finite, but the projection of the row is not."""
    suspect, where = disguised(phi3_path, tmp_path / "x", ["rotate", ("reorder_tokens", {"tokenizer": "drop"})])
    model = irwm.open_checkpoint(phi3_path)
    clean = irwm.align(suspect, model)
    assert clean.rotation is not None
    leading = Rows.of(model, clean.row_constants).principal_components[:, 0].double().numpy()
    table = suspect.embedding()
    table[7] = 3e38 * min(1.0, float(table.norm(dim=1).median())) * torch.as_tensor(np.sign(clean.rotation @ leading))
    assert table[7].isfinite().all()
    alignment = irwm.align(write_embedding(suspect, table, tmp_path / "planted"), model)
    assert alignment.aligned
    found = alignment.rows >= 0
    assert found.mean() > 0.98
    assert (alignment.rows[found] == where[found]).mean() > 0.998


@pytest.mark.parametrize("noise", [1.0, 2.0, 2.5, 3.0])
def test_rows_of_few_coordinates_stay_in_place_under_heavy_noise(tiny_path: Path, tmp_path: Path, noise: float) -> None:
    """In 64 coordinates chance makes wrong rows as similar as a noisy row in place, so content must not move rows."""
    model = irwm.open_checkpoint(tiny_path)
    suspect = write_embedding(model, with_noise(model.embedding(), noise), tmp_path / "noisy")
    alignment = align(suspect, model)
    assert np.array_equal(alignment.rows, np.arange(model.vocab_size))
    assert not [step for step in alignment.steps if "content" in step.name]
