"""Attacks by someone who has read the manual: each does what it states, only to embedding and output head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.attacks import adaptive
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS, COMPOSITIONS, composed
from tests.checkpoint.builders import read_index, split
from tests.conftest import Marked

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
CHANGES = {
    "drop_components": lambda folder, out: adaptive.drop_components(folder, out, 0.5),
    "redraw_small": lambda folder, out: adaptive.redraw_small(folder, out, 0.2),
    "flatten_seldom": lambda folder, out: adaptive.flatten_seldom(folder, out, 0.5),
    "redraw_outliers": lambda folder, out: adaptive.redraw_outliers(folder, out, 0.01),
    "rebuild_rows": lambda folder, out: adaptive.rebuild_rows(folder, out, 16),
    "store_otherwise": lambda folder, out: adaptive.store_otherwise(folder, out, 0.75),
}


@pytest.fixture(scope="module")
def tiny_marked(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Marked:
    model = irwm.open_checkpoint(tiny_path)
    key = irwm.generate_key(model, secret=bytes(32))
    return Marked(model, key, irwm.insert(model, key, tmp_path_factory.mktemp("marked") / "release").path)


@pytest.mark.parametrize("attack", CHANGES)
def test_only_embedding_and_head_change(tiny_path: Path, tmp_path: Path, attack: str) -> None:
    CHANGES[attack](tiny_path, tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_path, tmp_path / "out"))
    assert [name for name in before if not torch.equal(before[name], after[name])] == [HEAD, EMBEDDING]
    assert all(torch.isfinite(after[name]).all() for name in (HEAD, EMBEDDING))


@pytest.mark.parametrize("how", adaptive.CONFUSIONS)
def test_mark_is_found_when_comparisons_are_confused(tiny_marked: Marked, tmp_path: Path, how: str) -> None:
    model, key, release = tiny_marked
    adaptive.confuse(release, tmp_path / "out", how)
    before, after = (load_file(folder / "model.safetensors") for folder in (release, tmp_path / "out"))
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert (changed, len(after) - len(before)) == (([], 9) if how == "more-tensors" else ([HEAD, EMBEDDING], 0))
    assert irwm.detect(irwm.open_checkpoint(tmp_path / "out"), model, key).verdict == "found"


def test_added_tensors_are_listed_in_the_index_of_shards(tiny_path: Path, tmp_path: Path) -> None:
    sharded = split(tiny_path, tmp_path / "shards")
    adaptive.confuse(sharded, tmp_path / "out", "more-tensors")
    before, after = read_index(sharded), read_index(tmp_path / "out")
    added = set(after) - set(before)
    assert len(added) == 9
    assert added <= set(irwm.open_checkpoint(tmp_path / "out").tensors)
    assert {after[name] for name in added} == {before[EMBEDDING]}


def test_attack_removes_components_of_all_rows_or_of_those_used_least(tiny_path: Path, tmp_path: Path) -> None:
    before = irwm.open_checkpoint(tiny_path).embedding().double()
    mean, first = before.mean(dim=0), len(before) // 4

    def components(rows: torch.Tensor) -> int:
        sizes = torch.linalg.svdvals(rows - mean)
        return int((sizes > 1e-3 * sizes[0]).sum())

    half = adaptive.drop_components(tiny_path, tmp_path / "half", 0.5)
    assert components(irwm.open_checkpoint(half).embedding().double()) == 32
    flat = irwm.open_checkpoint(adaptive.flatten_seldom(tiny_path, tmp_path / "flat", 0.75)).embedding().double()
    assert torch.equal(before[:first], flat[:first])
    assert components(flat[first:]) == 6


def test_a_rebuilt_row_is_a_combination_of_that_many_other_rows(tiny_path: Path, tmp_path: Path) -> None:
    before = irwm.open_checkpoint(tiny_path).embedding().double()
    one = irwm.open_checkpoint(adaptive.rebuild_rows(tiny_path, tmp_path / "one", 1)).embedding().double()
    units = torch.nn.functional.normalize(before, dim=1)
    cosines = (torch.nn.functional.normalize(one, dim=1) @ units.T).abs()
    nearest = (units @ units.T).abs().fill_diagonal_(0).max(dim=1).values
    own = cosines.diagonal().clone()
    torch.testing.assert_close(
        cosines.fill_diagonal_(0).max(dim=1).values, torch.ones(len(before)).double(), atol=1e-2, rtol=0
    )
    torch.testing.assert_close(own, nearest, atol=1e-2, rtol=0)
    errors = [
        float(
            (
                irwm.open_checkpoint(adaptive.rebuild_rows(tiny_path, tmp_path / str(count), count)).embedding()
                - before
            ).norm()
        )
        for count in (4, 16)
    ]
    assert errors[1] < errors[0] < float((one - before).norm())


def test_redraw_small_removes_visible_marks_but_not_hidden_ones(tiny_marked: Marked, tmp_path: Path) -> None:
    """Why marks are hidden by default: the paper's mark, not hidden at scale 1000, is redrawn without the key."""
    model = tiny_marked.original
    visible = irwm.generate_key(model, irwm.Parameters.paper(), secret=bytes(32))
    paper = Marked(model, visible, irwm.insert(model, visible, tmp_path / "release").path)
    for marked, verdict in ((paper, "not found"), (tiny_marked, "found")):
        out = adaptive.redraw_small(marked.release, tmp_path / verdict, 0.2)
        assert irwm.detect(irwm.open_checkpoint(out), model, marked.key).verdict == verdict


def test_embedding_in_another_basis_is_read_through_the_fitted_map(
    release_of: Callable[[str], Marked], tmp_path: Path
) -> None:
    model, key, release = release_of("gemma")
    adaptive.store_otherwise(release, tmp_path / "out", 0.75)
    found = irwm.detect(irwm.open_checkpoint(tmp_path / "out"), model, key)
    assert (found.verdict, found.reading.by) == ("found", "least squares")
    assert found.log10_p < -50


@pytest.mark.slow
def test_composed_attacks_chain_outputs_and_clean_up(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    model, key, release = release_of("gemma")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    setup = Setup(model.path, release, key, "", scratch)
    attacked = composed(setup, COMPOSITIONS["components"], tmp_path / "out")
    assert attacked.path == tmp_path / "out"
    assert attacked.runnable is None
    assert list(scratch.iterdir()) == []
    found = irwm.detect(irwm.open_checkpoint(attacked.path), model, key)
    assert found.verdict == "found"
    assert found.lineage.status != "not derived"
    once = ATTACKS["small-entries"].carry_out(setup, 0.2, tmp_path / "once").path
    alone = composed(setup, [("small-entries", 0.2)], tmp_path / "alone").path
    assert (once / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def test_composition_that_cannot_run_names_a_runnable_folder(tiny_marked: Marked, tmp_path: Path) -> None:
    setup = Setup(tiny_marked.original.path, tiny_marked.release, tiny_marked.key, "", tmp_path)
    attacked = composed(setup, [("stored-otherwise", 0.5), ("rescale", 1)], tmp_path / "out")
    assert attacked.runnable == tiny_marked.release
