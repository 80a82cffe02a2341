"""Disguises that try to defeat alignment itself: planted rows, chosen trimming, damaged decoys, extreme factors.

Each keeps the model's function (planted rows get no probability, trimmed tokens are removed on purpose) or needs the
attacker's own loader.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from benchmarks.disguises import RENAMED
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.attacks.equivalence.draft import Draft
from irwm.attacks.equivalence.structure import structure_of
from irwm.evidence.lineage import lineage
from tests.attacks.models import edited
from tests.conftest import Marked
from tests.test_disguises import check

DROPPED = ("reorder_tokens", {"tokenizer": "drop"})


@pytest.fixture(scope="module", params=["gemma", "phi3"])
def marked(request: pytest.FixtureRequest, release_of: Callable[[str], Marked]) -> Marked:
    return release_of(request.param)


def one_direction(rows: torch.Tensor, count: int) -> torch.Tensor:
    direction = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=rows.dtype)
    signs = torch.tensor([1.0, -1.0], dtype=rows.dtype).repeat(count // 2)
    return 19 * rows.norm(dim=1).median() * signs[:, None] * direction / direction.norm()


def scattered(size: float) -> Callable[[torch.Tensor, int], torch.Tensor]:
    def rows_of(rows: torch.Tensor, count: int) -> torch.Tensor:
        x = torch.randn(count, rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=rows.dtype)
        return size * rows.norm(dim=1).median() * x / x.norm(dim=1, keepdim=True)

    return rows_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "count"), [(one_direction, 8), (scattered(15), 300), (scattered(1), 2000), (scattered(0.3), 1000)]
)
def test_planted_rows_do_not_choose_the_coordinates(marked: Marked, tmp_path: Path, plant, count: int) -> None:
    model, _, release = marked
    state = apply(read_state(release), ["rotate", ("pad_tokens", {"count": count, "tokenizer": "drop"})])
    draft, embedding = Draft(state), structure_of(state).embedding
    rows = draft.read(embedding).clone()
    rows[model.vocab_size :] = plant(rows[: model.vocab_size], count)
    draft.write(embedding, rows)
    write_state(apply(draft.done(), [DROPPED], seed=2), tmp_path / "x")
    assert check(marked, tmp_path / "x").alignment.lost <= 2


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["rarest", "commonest", "shortest", "longest"])
def test_trimming_a_kind_of_tokens_is_undone(marked: Marked, tmp_path: Path, kind: str) -> None:
    model, _, release = marked
    by_length = model.embedding().norm(dim=1).argsort().tolist()
    ids, cut = list(range(model.vocab_size)), int(0.4 * model.vocab_size)
    keep = {"rarest": ids[:-cut], "commonest": ids[cut:], "shortest": by_length[cut:], "longest": by_length[:-cut]}
    steps = [("trim_tokens", {"keep": keep[kind], "tokenizer": "drop"}), "rotate", DROPPED]
    write_state(apply(read_state(release), steps, seed=9), tmp_path / "x")
    assert abs(check(marked, tmp_path / "x").alignment.lost - cut) < 0.01 * model.vocab_size


@pytest.mark.sweep
@pytest.mark.parametrize("damage", ["signs", "noise"])
def test_a_damaged_copy_planted_as_a_decoy_does_not_hide_the_real_one(
    marked: Marked, tmp_path: Path, damage: str
) -> None:
    """Both tensors align; the one that aligns first and most cheaply no longer carries a mark."""
    _, _, release = marked
    rows = irwm.open_checkpoint(release).embedding()
    noise = 2 * rows.std() * torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))
    decoy = rows.sign() * rows.std() if damage == "signs" else rows + noise
    write_state(apply(read_state(release), ["rotate", RENAMED], seed=3), tmp_path / "x")
    shard = tmp_path / "x" / "model.safetensors"
    save_file(load_file(shard) | {"a_decoy": decoy.bfloat16()}, shard, metadata={"format": "pt"})
    result = check(marked, tmp_path / "x")
    assert result.keys_tried == 1
    assert result.tensors_read > 1
    assert result.warnings
    assert result.log10_p < -12  # the double correction leaves enough evidence


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("factor", [1e-12, 1e-7, 1e3, 1e6])
def test_extreme_scale_factors_are_undone(marked: Marked, tmp_path: Path, factor: float) -> None:
    steps = [("cast", {"dtype": "float32"}), ("rescale", {"factor": factor}), DROPPED]
    write_state(apply(read_state(marked[2]), steps, seed=2), tmp_path / "x")
    alignment = check(marked, tmp_path / "x").alignment
    assert alignment.scale == pytest.approx(factor, rel=0.01)


@pytest.mark.sweep
@pytest.mark.parametrize("count", [10, 50])
def test_exchanging_only_the_marked_rows_is_noticed(marked: Marked, tmp_path: Path, count: int) -> None:
    """As for two colluders who know the rows from the difference of their copies; no sample of rows shows it."""
    model, key, release = marked
    order = np.arange(model.vocab_size)
    rows = key.marked_rows[:count]
    order[rows] = np.roll(rows, 1)

    def exchange(tensors: dict[str, torch.Tensor]) -> None:
        for name, value in tensors.items():
            if value.shape[0] == model.vocab_size:
                tensors[name] = value[torch.from_numpy(order)].contiguous()

    edited(release, tmp_path / "x", exchange)
    (tmp_path / "x" / "SHA256SUMS").unlink()
    result = check(marked, tmp_path / "x")
    assert result.count == result.present >= 49
    assert any("token IDs were changed" in said for said in result.alignment.undone)


def test_a_widened_residual_stream_is_narrowed_again(marked: Marked, tmp_path: Path) -> None:
    """Widens only what detection reads: the embedding through orthonormal rows, under unknown names."""
    rows = irwm.open_checkpoint(marked[2]).embedding().double()
    d = rows.shape[1]
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(d + 64, d + 64, generator=generator, dtype=torch.float64)).Q[:d]
    (tmp_path / "x").mkdir()
    save_file({"t0": (rows @ turn).float()}, tmp_path / "x" / "model.safetensors")
    (tmp_path / "x" / "config.json").write_text('{"model_type": "custom"}', encoding="utf-8")
    assert check(marked, tmp_path / "x").alignment.rotation.shape == (d + 64, d)


@pytest.mark.slow
def test_failed_matching_by_content_is_inconclusive(marked: Marked, tmp_path: Path) -> None:
    """Trimmed to a fifth, rotated and reordered, too little is left to pair; that is no evidence of innocence."""
    model, key, release = marked
    keep = list(range(300, 300 + model.vocab_size // 5))
    steps = [("trim_tokens", {"keep": keep, "tokenizer": "drop"}), "rotate", DROPPED]
    write_state(apply(read_state(release), steps, seed=4), tmp_path / "x")
    result = irwm.detect(irwm.open_checkpoint(tmp_path / "x"), model, key)
    assert result.lineage.status in ("derived", "cannot tell")
    assert result.verdict in ("found", "inconclusive")


@pytest.mark.slow
def test_unrelated_model_with_pasted_rows_is_not_cleared(gemma_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(gemma_path)
    name = model.layout.embedding.name
    rows = torch.randn(model.vocab_size, model.hidden_size, generator=torch.Generator().manual_seed(0))
    ours = model.embedding()
    rows = rows * ours.std()
    rows[: model.vocab_size * 3 // 10] = ours[: model.vocab_size * 3 // 10]
    path = irwm.attacks.rewrite.rewrite(gemma_path, tmp_path / "x", lambda n, x: rows if n == name else x)
    kin = lineage(irwm.align(irwm.open_checkpoint(path), model))
    assert kin.status == "cannot tell"
    assert kin.reason
