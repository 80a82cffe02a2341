"""The match of MLP neurons: of descendants after any surgery, and of unrelated models."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from benchmarks.peers.rows import random_model
from irwm.attacks.equivalence import Step, disguise
from irwm.attacks.equivalence.draft import generator
from irwm.attacks.rewrite import rewrite
from irwm.evidence.neurons import MOST_UNRELATED, NeuronMatch, match_neurons
from irwm.inference.loading import open_model
from irwm.inference.text import default_text
from tests.evidence.rewritten import (
    WIDER,
    negated,
    opposed,
    split_at_random,
    with_negated_gates,
    with_powers_of_two,
    with_tensors,
)
from tools.copies import write_embedding

ROTATED = ["rotate", "regain", "map_vo", "reorder_heads", "add_neurons", "reorder_neurons"]


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
    assert found.agreement > 0.8


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
    assert found.agreement > 0.45


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


def require_all(found: NeuronMatch) -> None:
    assert found.derived
    assert found.agreement > 0.99
    assert (found.ours, round(found.theirs, 2)) == (1.0, 1.0)


def require_same_function(one: Path, other: Path) -> None:
    ids = torch.arange(5, 60)[None]
    with torch.no_grad():
        logits = [open_model(folder).model(input_ids=ids).logits.float() for folder in (one, other)]
    assert (logits[0] - logits[1]).abs().max() < 0.03 * logits[0].abs().max()


@pytest.mark.parametrize(
    ("name", "rewrite"),
    [
        ("gemma", opposed),
        ("gemma", with_powers_of_two),
        ("phi3", split_at_random),
        ("gpt2", opposed),
        ("gpt2", split_at_random),
    ],
)
def test_neurons_that_are_written_in_another_way_are_found(
    trained: dict[str, Path], tmp_path: Path, name: str, rewrite: Callable[[Path, Path], Path]
) -> None:
    out = rewrite(trained[name], tmp_path / "x")
    require_same_function(trained[name], out)
    found = match(disguise(out, tmp_path / "y", ["reorder_neurons", "rotate"], seed=1, dtype="float32"), trained[name])
    require_all(found)


@pytest.mark.parametrize(
    ("name", "rewrite"), [("phi3", with_negated_gates), ("gemma", with_negated_gates), ("gpt2", negated)]
)
def test_negated_neurons_do_not_clear(
    trained: dict[str, Path], tmp_path: Path, name: str, rewrite: Callable[[Path, Path], Path]
) -> None:
    """Most of the suspect's neurons are then new, so lineage cannot tell."""
    out = rewrite(trained[name], tmp_path / "x")
    require_same_function(trained[name], out)
    found = match(disguise(out, tmp_path / "y", ["rotate"], seed=1, dtype="float32"), trained[name])
    assert found.alike
    assert found.agreement > 0.9
    assert found.ours > 0.6
    assert not found.derived


UNUSED: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "a norm of another family": ("gemma", "model.layers.{}.ffn_norm.weight", (128,)),
    "a norm after the MLP": ("phi3", "model.layers.{}.post_feedforward_layernorm.weight", (128,)),
    "a norm, GPT-2": ("gpt2", "transformer.h.{}.mlp_norm.weight", (128,)),
    "a bias of experts": ("phi3", "model.layers.{}.mlp.gate_up_proj_bias", (768,)),
}


@pytest.mark.parametrize("what", UNUSED)
def test_tensors_that_the_model_does_not_have_change_nothing(
    trained: dict[str, Path], tmp_path: Path, what: str
) -> None:
    name, tensor, shape = UNUSED[what]
    drawn = {tensor.format(layer): 5 * torch.randn(shape, generator=generator(layer)) for layer in range(2)}
    out = with_tensors(trained[name], tmp_path / "x", drawn)
    require_same_function(trained[name], out)
    require_all(match(out, trained[name]))


def test_matrices_outside_the_layers_change_nothing(gemma_path: Path, tmp_path: Path) -> None:
    shapes = {"gate_proj": (64, 128), "up_proj": (64, 128), "down_proj": (128, 64)}
    drawn = {
        f"model.{layer}.mlp.{role}.weight": torch.randn(shape, generator=generator(layer))
        for layer in range(9)
        for role, shape in shapes.items()
    }
    out = with_tensors(gemma_path, tmp_path / "x", drawn)
    require_all(match(out, gemma_path))


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_unrelated_models_whose_rows_resemble_their_own_g_do_not_agree(
    gemma_path: Path, tmp_path: Path, share: float
) -> None:
    """u and d of each neuron are its g, or near to it: a rotation that was fitted to g turns them as well."""
    models = []
    for seed in (1, 2):
        file = random_model(gemma_path, tmp_path / str(seed), seed) / "model.safetensors"
        tensors, random = load_file(file), generator(seed)
        for name in [name for name in tensors if "gate_proj" in name]:
            g = torch.nn.functional.normalize(tensors[name].float())
            for role in ("up_proj", "down_proj"):
                other = torch.nn.functional.normalize(torch.randn(g.shape, generator=random))
                rows = share * g + (1 - share**2) ** 0.5 * other
                tensors[name.replace("gate_proj", role)] = (rows if role == "up_proj" else rows.T).contiguous()
        save_file(tensors, file, metadata={"format": "pt"})
        models.append(file.parent)
    assert not match(models[0], models[1]).alike


def test_neurons_that_cancel_are_not_compared(gemma_path: Path, tmp_path: Path) -> None:
    """The original's neurons in an unrelated model, twice, with outputs of opposite signs: they have no effect."""
    ours, out = load_file(gemma_path / "model.safetensors"), random_model(gemma_path, tmp_path / "x", 1)
    file = out / "model.safetensors"
    tensors = load_file(file)
    for name in list(tensors):
        if ".mlp." in name:
            columns = name.endswith("down_proj.weight")
            planted = [ours[name], -ours[name] if columns else ours[name]]
            tensors[name] = torch.cat([tensors[name], *planted], dim=int(columns)).contiguous()
        elif "post_attention_layernorm" in name:
            tensors[name] = ours[name]
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config["intermediate_size"] *= 3
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, file, metadata={"format": "pt"})
    assert not match(out, gemma_path).alike


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
