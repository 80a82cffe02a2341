"""The proof that an attack preserves the function: transforms pass, the lightest real damage does not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from irwm.attacks import add_noise, prune
from irwm.attacks.equivalence import TRANSFORMS, apply, read_state, write_state
from irwm.attacks.rewrite import rewrite
from irwm.inference import Reference, default_text, reference, same_function
from irwm.inference.same_function import SLACK, rounding

MODELS = ("demo_path", "gemma_path", "phi3_path")
# Its own test: transformers does not know the names.
RUNNABLE = sorted(set(TRANSFORMS) - {"rename_tensors"})
TOKENS = 130


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> tuple[Path, Reference]:
    folder = request.getfixturevalue(request.param)
    return folder, reference(folder, default_text(), TOKENS)


@pytest.mark.sweep
@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [None, "float32"], ids=["as stored", "float32"])
@pytest.mark.parametrize("transform", RUNNABLE)
def test_a_transform_is_the_same_function(
    model: tuple[Path, Reference], tmp_path: Path, transform: str, dtype: str | None
) -> None:
    folder, made = model
    state = read_state(folder)
    if TRANSFORMS[transform].obstacle(state) is not None:
        return
    changed = apply(state, [transform], seed=1)
    found = same_function(made, write_state(changed, tmp_path / "out", dtype=dtype), changed.token_ids)
    assert found.same, found
    if dtype:
        assert found.dtype == dtype
        assert found.tolerance < 1e-4 < 0.01 < found.scale


@pytest.mark.sweep
def test_light_pruning_is_another_function(model: tuple[Path, Reference], tmp_path: Path) -> None:
    folder, made = model
    found = same_function(made, prune(folder, tmp_path / "out", 0.1))
    assert not found.same
    assert found.typical > 1.5 * found.typical_tolerance


def test_a_little_noise_is_another_function(model: tuple[Path, Reference], tmp_path: Path) -> None:
    folder, made = model
    assert not same_function(made, add_noise(folder, tmp_path / "out", 0.02)).same


@pytest.mark.slow
def test_tolerance_equals_measured_rounding(demo_path: Path, tmp_path: Path) -> None:
    """Numbers of full precision, rounded by torch itself, move the logits as much as the drawn errors predict."""
    state = apply(read_state(demo_path), ["regain"], seed=3)
    made = reference(write_state(state, tmp_path / "fine", dtype="float32"), default_text(), TOKENS)
    for dtype in ("float16", "bfloat16"):
        coarse = write_state(state, tmp_path / dtype, dtype=dtype)
        assert next(iter(load_file(coarse / "model.safetensors").values())).dtype == getattr(torch, dtype)
        found = same_function(made, coarse)
        _, typical = rounding(made, getattr(torch, dtype))
        assert found.typical_tolerance == SLACK * typical
        assert found.same
        assert typical / 2 < found.typical < 2 * typical


def test_nan_logits_are_not_the_same_function(demo_path: Path, tmp_path: Path) -> None:
    def broken(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.index_fill(0, torch.tensor([0]), math.nan) if name == "model.norm.weight" else tensor

    made = reference(demo_path, default_text(), TOKENS)
    found = same_function(made, rewrite(demo_path, tmp_path / "out", broken))
    assert not found.same
    assert found.largest == math.inf


@pytest.mark.slow
def test_a_headless_encoder_in_another_order_of_coordinates_is_the_same(
    minilm: Reference, minilm_path: Path, tmp_path: Path
) -> None:
    state = read_state(minilm_path)
    for number, steps in enumerate((["permute_residual"], ["map_qk", "map_vo", "shift_rows", "reorder_tokens"])):
        changed = apply(state, steps, seed=3)
        out = write_state(changed, tmp_path / str(number))
        assert same_function(minilm, out, changed.token_ids).same
    assert not same_function(minilm, prune(minilm_path, tmp_path / "pruned", 0.1)).same
