"""The agreement of layers: of descendants under changes that cost nothing or little, and of unrelated models."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import kstest

import irwm
from benchmarks.peers.rows import random_model
from irwm.attacks.equivalence import Step, disguise
from irwm.attacks.rewrite import rewrite
from irwm.evidence.circuits import MOST_UNRELATED, circuits
from irwm.inference.text import default_text
from tests.evidence.rewritten import WIDER, with_idle_layers
from tests.jobs.test_investigate_adapter import saved_adapter

TURNED = ["rotate", "regain", "map_vo", "reorder_heads", "reorder_neurons", "reorder_tokens"]


def agreement(suspect: Path, model: Path) -> float:
    found = circuits(irwm.open_checkpoint(suspect), irwm.open_checkpoint(model))
    assert found is not None
    assert found.alike == (found.agreement > max(MOST_UNRELATED, found.largest_decoy))
    return found.agreement


@pytest.mark.parametrize("name", ["gemma", "phi3", "gpt2"])
def test_layers_agree_in_any_coordinates(trained: dict[str, Path], tmp_path: Path, name: str) -> None:
    out = irwm.attacks.equivalence.disguise(trained[name], tmp_path / "x", TURNED, seed=1, dtype="float32")
    assert agreement(out, trained[name]) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("step", ["as_llama", "as_mixtral", WIDER])
def test_layers_agree_in_another_family_and_width(phi3_path: Path, tmp_path: Path, step: Step) -> None:
    steps = ["as_llama", *([step] if step != "as_llama" else [])]
    out = disguise(phi3_path, tmp_path / "x", steps, seed=1)
    assert agreement(out, phi3_path) > 0.99


@pytest.mark.parametrize("order", [[1, 2, 3], [0, 0, 1, 1], [0, 1, 2, 1, 2, 3]])
def test_layers_agree_after_others_were_dropped_or_repeated(demo_path: Path, tmp_path: Path, order: list[int]) -> None:
    assert agreement(irwm.attacks.stack_layers(demo_path, tmp_path / "x", order), demo_path) > 0.99


def test_layers_agree_although_others_write_nothing(gemma_path: Path, tmp_path: Path) -> None:
    """Their singular values are nearer to the original's than those of the real layers."""
    assert agreement(with_idle_layers(gemma_path, tmp_path / "x"), gemma_path) > 0.9


def test_layers_agree_although_some_heads_hold_any_numbers(demo_path: Path, tmp_path: Path) -> None:
    """The leading singular vectors of each layer are then the attacker's."""

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        if "v_proj" not in name:
            return x
        half = len(x) // 2
        drawn = torch.randn(half, x.shape[1], generator=torch.Generator().manual_seed(1))
        return torch.cat([drawn, x[half:].float()])

    assert agreement(rewrite(demo_path, tmp_path / "x", change), demo_path) > 0.3


def test_enormous_numbers_in_one_head_do_not_hide_the_others(demo_path: Path, tmp_path: Path) -> None:
    """They leave a few singular values of the layer and of this head, in which any two orders are alike."""

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        if "v_proj" not in name:
            return x
        changed = x.float().clone()
        changed[:2] *= 1e9
        return changed

    assert agreement(rewrite(demo_path, tmp_path / "x", change), demo_path) > 0.3


DAMAGE: dict[str, Callable[[Path, Path], Path]] = {
    "noise of 0.3 deviations": lambda source, out: irwm.attacks.add_noise(source, out, 0.3, seed=7),
    "4 bits": lambda source, out: irwm.attacks.quantize(source, out, 4),
    "3 bits": lambda source, out: irwm.attacks.quantize(source, out, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["demo", "minilm", "gemma", "phi3", "gpt2"])
def test_layers_agree_after_damage(trained: dict[str, Path], tmp_path: Path, name: str, damage: str) -> None:
    assert agreement(DAMAGE[damage](trained[name], tmp_path / "x"), trained[name]) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("demo", 0.8), ("gemma", 0.7)])
def test_layers_agree_after_the_width_was_cut(
    trained: dict[str, Path], tmp_path: Path, name: str, least: float
) -> None:
    out = irwm.attacks.cut_width(trained[name], tmp_path / "x", 0.75, default_text())
    assert agreement(out, trained[name]) > least


def test_layers_of_unrelated_models_do_not_agree(trained: dict[str, Path]) -> None:
    models = {name: irwm.open_checkpoint(path) for name, path in trained.items()}
    for one, other in permutations(models.values(), 2):
        found = circuits(one, other)
        assert found is not None
        assert found.agreement < 0.09
        assert not found.alike


@pytest.mark.slow
def test_models_from_one_random_start_agree_less_than_descendants(gemma_path: Path, tmp_path: Path) -> None:
    """Trained separately for 40 steps: alike, but below a descendant at 4 bits."""
    start, text = random_model(gemma_path, tmp_path / "start", 1), default_text()
    for side, half in enumerate((text[: len(text) // 2], text[len(text) // 2 :])):
        irwm.attacks.finetune(start, tmp_path / str(side), half, 40, 1e-3, length=64, seed=side + 1)
    assert 0.1 < agreement(tmp_path / "0", tmp_path / "1") < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("wider", [False, True])
def test_rank_among_the_decoys_is_uniform_for_unrelated_models(gemma_path: Path, tmp_path: Path, wider: bool) -> None:
    """The calibration: random weights are exchangeable with their own singular vectors in another order."""
    model, ranks = irwm.open_checkpoint(gemma_path), []
    for seed in range(60):
        suspect = random_model(gemma_path, tmp_path / str(seed), seed)
        if wider:
            suspect = disguise(suspect, tmp_path / f"{seed}-wider", [WIDER], seed=seed)
        found = circuits(irwm.open_checkpoint(suspect), model)
        assert found is not None
        ranks.append(float((found.decoys < found.agreement).mean()))
    assert kstest(ranks, "uniform").pvalue > 1e-3


def test_layers_of_the_base_under_an_adapter_are_not_compared(gemma_path: Path, tmp_path: Path) -> None:
    """The examiner chose that base, which may be the original itself."""
    original = irwm.open_checkpoint(gemma_path)
    settings = {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}
    adapter = saved_adapter(gemma_path, tmp_path / "adapter", init_lora_weights=False, **settings)
    assert circuits(irwm.open_checkpoint(adapter, base=original), original) is None
    assert circuits(original, original) is not None


def test_a_second_model_in_the_files_is_compared_too(demo_path: Path, tmp_path: Path) -> None:
    """Under the usual names is an unrelated model, under a wrapper's the original."""
    tensors = load_file(demo_path / "model.safetensors")
    other = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    generator = torch.Generator().manual_seed(1)
    drawn = {n: torch.randn(x.shape, generator=generator).to(x.dtype) * x.float().std() for n, x in tensors.items()}
    folder = shutil.copytree(demo_path, tmp_path / "both")
    save_file({**drawn, **other}, folder / "model.safetensors")
    assert agreement(folder, demo_path) > 0.99


def test_layers_that_cannot_be_compared_give_nothing(gemma_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(gemma_path)
    one = irwm.open_checkpoint(irwm.attacks.drop_layers(gemma_path, tmp_path / "one", [1]))
    assert circuits(one, model) is None, "a single layer has no neighbour"
    assert circuits(replace(model, layout=replace(model.layout, v=None, o=None)), model) is None
    for number in (float("nan"), 0.0):

        def change(name: str, x: torch.Tensor, by: float = number) -> torch.Tensor:
            return x * by if "o_proj" in name else x

        changed = rewrite(gemma_path, tmp_path / str(number), change)
        assert circuits(irwm.open_checkpoint(changed), model) is None
