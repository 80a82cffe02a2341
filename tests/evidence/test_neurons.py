"""The match of MLP neurons: of descendants after any surgery, and of unrelated models."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from benchmarks.peers.rows import random_model
from irwm.attacks.equivalence import Step, disguise
from irwm.attacks.rewrite import rewrite
from irwm.evidence.neurons import MOST_UNRELATED, NeuronMatch, match_neurons
from irwm.inference.loading import open_model
from irwm.inference.text import default_text
from tests.evidence.replaced import with_negated_gates
from tools.copies import write_embedding

ROTATED = ["rotate", "regain", "map_vo", "reorder_heads", "add_neurons", "reorder_neurons"]
WIDER: Step = ("widen", {"share": 1.0, "size": 10.0})


def match(suspect: Path, model: Path) -> NeuronMatch:
    found = match_neurons(irwm.open_checkpoint(suspect), irwm.open_checkpoint(model))
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["gemma", "phi3", "gpt2"])
def test_neurons_are_found_in_any_coordinates_and_order(trained: dict[str, Path], tmp_path: Path, name: str) -> None:
    found = match(disguise(trained[name], tmp_path / "x", ROTATED, seed=1, dtype="float32"), trained[name])
    assert found.derived
    assert found.agreement > 0.999
    assert (found.ours, round(found.theirs, 3), found.layers) == (1.0, 1.0, ((0, 0), (1, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("step", ["as_llama", "as_mixtral", WIDER])
def test_neurons_are_found_in_another_family_and_width(phi3_path: Path, tmp_path: Path, step: Step) -> None:
    steps = ["rotate", "as_llama", "reorder_neurons", *([step] if step != "as_llama" else [])]
    found = match(disguise(phi3_path, tmp_path / "x", steps, seed=1), phi3_path)
    assert found.derived
    assert found.agreement > 0.99


@pytest.mark.parametrize("name", ["demo", "phi3"])
def test_neurons_are_found_in_a_gguf_file(trained: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Its names are llama.cpp's; phi3 has one tensor for both matrices."""
    rotated = disguise(trained[name], tmp_path / "rotated", ["rotate", "reorder_neurons"], seed=1)
    found = match(irwm.attacks.to_gguf(rotated, tmp_path / "file", "Q4_0"), trained[name])
    assert found.derived
    assert found.agreement > 0.98


@pytest.mark.parametrize("order", [[1, 2, 3], [0, 1], [0, 0, 1, 1], [0, 1, 2, 1, 2, 3], [3, 2, 1, 0]])
def test_dropped_repeated_and_moved_layers_are_found(demo_path: Path, tmp_path: Path, order: list[int]) -> None:
    rotated = disguise(demo_path, tmp_path / "rotated", ["rotate", "reorder_neurons"], seed=1)
    found = match(irwm.attacks.stack_layers(rotated, tmp_path / "x", order), demo_path)
    assert found.derived
    assert found.agreement > 0.99
    assert all(order[theirs] == ours for ours, theirs in found.layers)
    assert {ours for ours, _ in found.layers} == set(order)


WIDTHS = (0.75, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("share", WIDTHS)
@pytest.mark.parametrize("name", ["demo", "gemma", "phi3"])
def test_neurons_are_found_in_a_narrower_stream(
    trained: dict[str, Path], tmp_path: Path, name: str, share: float
) -> None:
    found = match(irwm.attacks.cut_width(trained[name], tmp_path / "x", share, default_text()), trained[name])
    assert found.derived
    assert found.agreement > 0.85


DAMAGE: dict[str, Callable[[Path, Path], Path]] = {
    "noise of one deviation": lambda source, out: irwm.attacks.add_noise(source, out, 1.0, seed=7),
    "3 bits": lambda source, out: irwm.attacks.quantize(source, out, 3),
    "70 % pruned": lambda source, out: irwm.attacks.prune(source, out, 0.7),
    "half of the neurons": lambda source, out: irwm.attacks.prune_neurons(source, out, 0.5),
    "fine-tuned": lambda source, out: irwm.attacks.finetune(source, out, default_text(), 40, 1e-3, length=64),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["demo", "gemma", "phi3", "gpt2"])
def test_neurons_are_found_after_damage(trained: dict[str, Path], tmp_path: Path, name: str, damage: str) -> None:
    found = match(DAMAGE[damage](trained[name], tmp_path / "x"), trained[name])
    assert found.derived
    assert found.agreement > 0.5


def test_neurons_of_unrelated_models_do_not_agree(trained: dict[str, Path]) -> None:
    models = {name: irwm.open_checkpoint(path) for name, path in trained.items()}
    for one, other in permutations(models.values(), 2):
        found = match_neurons(one, other)
        assert found is not None
        assert found.agreement < MOST_UNRELATED / 3
        assert not found.alike
        assert (found.ours, found.theirs, found.layers) == (0.0, 0.0, ())


@pytest.mark.slow
def test_neurons_of_random_models_do_not_agree(gemma_path: Path, tmp_path: Path) -> None:
    """The calibration: 60 models of the original's own shape."""
    model = irwm.open_checkpoint(gemma_path)
    for seed in range(60):
        found = match_neurons(irwm.open_checkpoint(random_model(gemma_path, tmp_path / str(seed), seed)), model)
        assert found is not None
        assert found.agreement < MOST_UNRELATED / 2


def test_neurons_that_compute_nothing_do_not_show_descent(gemma_path: Path, tmp_path: Path) -> None:
    """An attacker writes half of the original's neurons into another model, with outputs that are nearly 0."""
    ours, out = load_file(gemma_path / "model.safetensors"), random_model(gemma_path, tmp_path / "x", 1)
    file = out / "model.safetensors"
    tensors = load_file(file)
    half = ours["model.layers.0.mlp.gate_proj.weight"].shape[0] // 2
    for name in tensors:
        if "gate_proj" in name or "up_proj" in name:
            tensors[name][:half] = ours[name][:half]
        elif "down_proj" in name:
            tensors[name][:, :half] = 1e-4 * ours[name][:, :half]
    save_file(tensors, file, metadata={"format": "pt"})
    found = match(out, gemma_path)
    assert found.alike
    assert found.theirs < 0.1
    assert not found.derived


def test_negated_gates_do_not_hide_the_other_neurons(phi3_path: Path, tmp_path: Path) -> None:
    """Most of the suspect's neurons are then new, so lineage cannot tell; but it does not clear."""
    out = with_negated_gates(phi3_path, tmp_path / "x")
    ids = torch.arange(5, 60)[None]
    with torch.no_grad():
        logits = [open_model(folder).model(input_ids=ids).logits.float() for folder in (phi3_path, out)]
    assert (logits[0] - logits[1]).abs().max() < 0.03 * logits[0].abs().max()
    found = match(disguise(out, tmp_path / "y", ["rotate", "regain"], seed=1), phi3_path)
    assert found.alike
    assert found.agreement > 0.9
    assert found.ours > 0.6
    assert not found.derived


def test_new_embedding_in_the_old_layers_is_derived(gemma_path: Path, tmp_path: Path) -> None:
    """Even if the layers are rotated and their neurons exchanged, which costs the attacker nothing."""
    model = irwm.open_checkpoint(gemma_path)
    drawn = torch.randn(model.vocab_size, model.hidden_size, generator=torch.Generator().manual_seed(1))
    path = write_embedding(model, drawn * model.embedding().std(), tmp_path / "new").path
    for file in gemma_path.glob("tokenizer*"):
        (path / file.name).write_bytes(file.read_bytes())
    rotated = disguise(path, tmp_path / "rotated", ROTATED, seed=2, dtype="float32")
    for suspect in (path, rotated):
        kin = irwm.Examination(irwm.open_checkpoint(suspect), model).aligned[0].lineage()
        assert kin.status == "derived"
        assert "neurons of the MLP layers" in kin.reason
        assert kin.neurons is not None
        assert kin.neurons.agreement > 0.99


def changed(source: Path, out: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> Path:
    return rewrite(source, out, lambda name, x: change(name, x.float()) if ".mlp." in name else x)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, 3e38])
def test_planted_numbers_in_some_neurons_do_not_hide_the_others(
    gemma_path: Path, tmp_path: Path, number: float
) -> None:
    """The attacker's own loader removes them."""

    def plant(name: str, x: torch.Tensor) -> torch.Tensor:
        x[:, :3] = number if "down" in name else x[:, :3]
        x[:3] = number if "down" not in name else x[:3]
        return x

    rotated = disguise(gemma_path, tmp_path / "rotated", ROTATED, seed=1)
    found = match(changed(rotated, tmp_path / "x", plant), gemma_path)
    assert found.derived
    assert found.ours > 0.98


def test_enormous_neurons_that_are_never_active_clear_nobody(gemma_path: Path, tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(1)

    def enlarge(name: str, x: torch.Tensor) -> torch.Tensor:
        part = x[:, :38] if "down" in name else x[:38]
        part.copy_(1e3 * torch.randn(part.shape, generator=draw))
        return x

    found = match(changed(gemma_path, tmp_path / "x", enlarge), gemma_path)
    assert found.alike
    assert not found.derived


def test_coordinates_that_are_large_in_every_row_do_not_make_models_alike(gemma_path: Path, tmp_path: Path) -> None:
    """As in large models: all rows share a few directions, with sizes of their own."""
    models = []
    for seed in (1, 2):
        made, draw = random_model(gemma_path, tmp_path / f"random-{seed}", seed), torch.Generator().manual_seed(seed)

        def enlarge(name: str, x: torch.Tensor, draw: torch.Generator = draw) -> torch.Tensor:
            rows = x.T if "down" in name else x
            rows[:, 5] += 20 * x.std() * (1 + 0.2 * torch.randn(len(rows), generator=draw))
            return x

        models.append(changed(made, tmp_path / str(seed), enlarge))
    assert not match(*models).alike
