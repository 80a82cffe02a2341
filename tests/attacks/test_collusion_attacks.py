"""Collusion and noise as attacks on folders: combined tensors, copied files, and refused inputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks import add_noise, collude, collusion
from irwm.errors import ParameterError
from tests.attacks.models import edited
from tests.checkpoint.builders import split
from tools.small_models import write_llama

EMBEDDING = "model.embed_tokens.weight"


def changed(folder: Path, out: Path, change) -> Path:
    """A copy of a model folder whose tensors went through `change(name, tensor)`."""
    shutil.copytree(folder, out)
    for shard in sorted(out.glob("*.safetensors")):
        tensors = {name: change(name, tensor).contiguous() for name, tensor in load_file(shard).items()}
        save_file(tensors, shard, metadata={"format": "pt"})
    return out


def blurred(seed: int):
    def change(_name: str, tensor: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))
        return tensor + 0.1 * noise.to(tensor.dtype) if tensor.ndim == 2 else tensor

    return change


def all_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for shard in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(shard).items()}


@pytest.fixture(scope="module")
def copies(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four models of equal shapes with different matrices and the same norms."""
    root = tmp_path_factory.mktemp("copies")
    return [changed(tiny_path, root / str(seed), blurred(seed)) for seed in range(4)]


def expected(how: str, values: np.ndarray) -> np.ndarray:
    if how == "min-max":
        return (values.min(axis=0) + values.max(axis=0)) / 2
    return {"mean": np.mean, "median": np.median, "max": np.max}[how](values, axis=0)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("how", ["mean", "median", "max", "min-max"])
def test_every_tensor_is_combined_entry_by_entry(copies: list[Path], tmp_path: Path, how: str, count: int) -> None:
    out = collude(copies[:count], tmp_path / "out", how)
    parts, result = [all_tensors(folder) for folder in copies[:count]], all_tensors(out)
    assert result.keys() == parts[0].keys()
    for name, tensor in result.items():
        values = np.stack([part[name].double().numpy() for part in parts])
        assert np.abs(tensor.double().numpy() - expected(how, values)).max() < 1e-6, name
        assert tensor.dtype == parts[0][name].dtype


def test_copy_paste_takes_entries_equally_from_all_copies(copies: list[Path], tmp_path: Path) -> None:
    out = collude(copies, tmp_path / "out", "copy-paste", seed=3)
    values = torch.stack([all_tensors(folder)[EMBEDDING] for folder in copies])
    taken = values == all_tensors(out)[EMBEDDING]
    assert taken.any(dim=0).all()
    shares = taken.double().mean(dim=(1, 2))
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.02)
    for axis in (0, 1):  # neither whole columns nor whole rows
        parts = taken[0].double().mean(dim=axis)
        assert 0.02 < parts.min() < parts.max() < 0.6
    again = collude(copies, tmp_path / "again", "copy-paste", seed=3)
    other = collude(copies, tmp_path / "other", "copy-paste", seed=4)
    assert torch.equal(all_tensors(again)[EMBEDDING], all_tensors(out)[EMBEDDING])
    assert not torch.equal(all_tensors(other)[EMBEDDING], all_tensors(out)[EMBEDDING])


def test_a_weighted_mean_divides_by_the_sum_of_the_weights(copies: list[Path], tmp_path: Path) -> None:
    out = collude(copies[:3], tmp_path / "out", weights=[1, 0, 3])
    one, _, three = (all_tensors(folder)[EMBEDDING] for folder in copies[:3])
    assert torch.allclose(all_tensors(out)[EMBEDDING], (one + 3 * three) / 4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("how", collusion.STRATEGIES)
def test_equal_tensors_are_copied_bit_for_bit(tmp_path: Path, dtype: torch.dtype, how: str) -> None:
    plain = write_llama(tmp_path / "plain", dtype=dtype)
    others = [changed(plain, tmp_path / str(i), lambda n, x: x * 1.5 if n == EMBEDDING else x) for i in range(2)]
    before, after = all_tensors(plain), all_tensors(collude([plain, *others], tmp_path / "out", how))
    for name in before.keys() - {EMBEDDING}:
        assert torch.equal(before[name], after[name])
        assert after[name].dtype == before[name].dtype
    assert after[EMBEDDING].dtype == dtype


def test_copies_may_be_sharded_differently_and_config_comes_along(copies: list[Path], tmp_path: Path) -> None:
    sharded = split(copies[0], tmp_path / "sharded", 3)
    out = collude([sharded, copies[1]], tmp_path / "out")
    whole = collude(copies[:2], tmp_path / "whole")
    one, other = all_tensors(out), all_tensors(whole)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert len(list(out.glob("*.safetensors"))) == 3
    assert irwm.open_checkpoint(out).family == "llama"
    assert (out / "config.json").read_bytes() == (sharded / "config.json").read_bytes()


def test_a_stored_head_stays_equal_to_its_embedding(copies: list[Path], tmp_path: Path) -> None:
    tied = [
        edited(folder, tmp_path / folder.name, lambda tensors: tensors["lm_head.weight"].copy_(tensors[EMBEDDING]))
        for folder in copies[:2]
    ]
    mixed = all_tensors(collude(tied, tmp_path / "out", "copy-paste"))
    assert torch.equal(mixed["lm_head.weight"], mixed[EMBEDDING])


def test_integers_and_scalars_survive(copies: list[Path], tmp_path: Path) -> None:
    added = ({"steps": torch.tensor([1, 2, 3 + n]), "gain": torch.tensor(1.0 + n)} for n in range(2))
    extended = [
        edited(folder, tmp_path / folder.name, lambda tensors, more=more: tensors.update(more))
        for folder, more in zip(copies, added, strict=False)
    ]
    mixed = all_tensors(collude(extended, tmp_path / "out"))
    assert mixed["steps"].tolist() == [1, 2, 3]
    assert mixed["gain"].item() == 1.5


def test_models_of_other_shapes_are_refused_by_the_tensors_name(copies: list[Path], tmp_path: Path) -> None:
    for changes, named in (({"vocab_size": 601}, "lm_head"), ({"num_hidden_layers": 2}, "layers.1")):
        other = write_llama(tmp_path / named, **changes)
        with pytest.raises(ParameterError) as caught:
            collude([copies[0], other], tmp_path / "out")
        assert named in str(caught.value.tensor)
    assert not (tmp_path / "out").exists()


def test_noise_scales_with_matrix_deviation_and_skips_vectors(tiny_path: Path, tmp_path: Path) -> None:
    before, after = all_tensors(tiny_path), all_tensors(add_noise(tiny_path, tmp_path / "out", 0.3, seed=1))
    for name, tensor in before.items():
        change = (after[name] - tensor).double()
        if tensor.ndim < 2:
            assert not change.any()
        else:
            ratio = float(change.std() / tensor.double().std())
            assert ratio == pytest.approx(0.3, abs=5 * 0.3 / np.sqrt(2 * tensor.numel())), name
    for share, seed, same in ((0.3, 1, after), (0.3, 2, None), (0.0, 1, before)):
        again = all_tensors(add_noise(tiny_path, tmp_path / f"{share} {seed}", share, seed=seed))
        assert torch.equal(again[EMBEDDING], (same or after)[EMBEDDING]) == (same is not None)
