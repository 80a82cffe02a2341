"""Models that compute what another does, with their neurons or layers written in a way that is hard to compare."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from irwm.attacks.equivalence import Step, read_state, write_state
from irwm.attacks.equivalence.draft import Draft, generator, orthogonal
from irwm.attacks.equivalence.structure import structure_of

# Twice the stream's width, read by numbers that are large compared with those of the model.
WIDER: Step = ("widen", {"share": 1.0, "size": 10.0})


def _random_like(rows: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Random rows of the same lengths."""
    drawn = torch.randn(rows.shape, generator=source, dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True) * rows.norm(dim=1, keepdim=True)


def opposed(source: Path, out: Path) -> Path:
    """Each neuron as two with the same g, whose outputs are -1 times and twice the old one."""
    return _split(source, out, None)


def split_at_random(source: Path, out: Path, size: float = 20.0) -> Path:
    """Each neuron as two with the same g: (g, u + r, d) and (g, r, -d), or (g, d / 2 + r) and (g, d / 2 - r), with
    random r that are `size` times as long as u or d."""
    return _split(source, out, size)


def _split(source: Path, out: Path, size: float | None) -> Path:
    state = read_state(source)
    structure, draft, random = structure_of(state), Draft(state), generator(0)
    for layer in structure.layers:
        d = draft.read(layer.down.weight)
        count = d.shape[1]
        order = torch.randperm(2 * count, generator=random)
        twice = order % count
        new, columns = {}, torch.cat([-d, 2 * d], dim=1)
        if size is not None and layer.gate is not None:
            u = draft.read(layer.up.weight)
            r = size * _random_like(u, random)
            new[layer.up.weight], columns = torch.cat([u + r, r])[order], torch.cat([d, -d], dim=1)
        elif size is not None:
            r = size * _random_like(d.T, random).T
            columns = torch.cat([d / 2 + r, d / 2 - r], dim=1)
        for linear in (layer.up, *([] if layer.gate is None else [layer.gate])):
            for ref in linear.refs:
                draft.write(ref, new.get(ref, draft.read(ref)[twice]))
        draft.write(layer.down.weight, columns[:, order])
    draft.config[structure.anatomy.neuron_count] = 2 * count
    return write_state(draft.done(), out, "float32")


def with_negated_gates(source: Path, out: Path) -> Path:
    """Half of the gated neurons as three each: act(g) u d = act(-g) u d + act(u) g d - act(-u) g d, since act(a) = a +
    act(-a) for SiLU and GELU."""
    state = read_state(source)
    structure, draft, random = structure_of(state), Draft(state), generator(0)
    for layer in structure.layers:
        assert layer.gate is not None
        g, u, d = (draft.read(linear.weight) for linear in (layer.gate, layer.up, layer.down))
        half = torch.randperm(len(g), generator=random)[: len(g) // 2]
        order = torch.randperm(len(g) + 2 * len(half), generator=random)
        negated = g.clone()
        negated[half] *= -1
        draft.write(layer.up.weight, torch.cat([u, g[half], -g[half]])[order])
        draft.write(layer.gate.weight, torch.cat([negated, u[half], -u[half]])[order])
        draft.write(layer.down.weight, torch.cat([d, d[:, half], d[:, half]], dim=1)[:, order])
    draft.config[structure.anatomy.neuron_count] = len(order)
    return write_state(draft.done(), out)


def negated(source: Path, out: Path) -> Path:
    """All plain neurons with the other sign of g, and pairs of neurons for the difference, which is linear."""
    state = read_state(source)
    structure, draft, random = structure_of(state), Draft(state), generator(0)
    for layer in structure.layers:
        assert layer.gate is None
        assert layer.up.bias is not None
        assert layer.down.bias is not None
        g, b, d = (draft.read(ref).double() for ref in (layer.up.weight, layer.up.bias, layer.down.weight))
        v = orthogonal(g.shape[1], random) * g.norm(dim=1).mean()
        linear = d @ g @ torch.linalg.inv(v)
        order = torch.randperm(len(g) + 2 * len(v), generator=random)
        draft.write(layer.up.weight, torch.cat([-g, v, -v])[order])
        draft.write(layer.up.bias, torch.cat([-b, torch.zeros(2 * len(v), dtype=torch.float64)])[order])
        draft.write(layer.down.weight, torch.cat([d, linear, -linear], dim=1)[:, order])
        draft.write(layer.down.bias, draft.read(layer.down.bias).double() + d @ b)
    draft.config[structure.anatomy.neuron_count] = len(order)
    return write_state(draft.done(), out, "float32")


def with_powers_of_two(source: Path, out: Path) -> Path:
    """u times 2^-60, and d times 2^60."""
    state = read_state(source)
    structure, draft = structure_of(state), Draft(state)
    for layer in structure.layers:
        assert layer.gate is not None
        draft.change([layer.up.weight], lambda w: w * 2.0**-60)
        draft.change([layer.down.weight], lambda w: w * 2.0**60)
    return write_state(draft.done(), out)


def with_tensors(source: Path, out: Path, tensors: Mapping[str, torch.Tensor]) -> Path:
    """With further tensors, which transformers ignores."""
    shutil.copytree(source, out)
    file = out / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})
    return out


def with_idle_layers(source: Path, out: Path) -> Path:
    """Gemma with a layer before each that writes next to nothing, whose OV circuit has the singular values of the next.

    The next layer's have some noise, so that the idle one's are nearer to the original's.
    """
    shutil.copytree(source, out)
    tensors, random = load_file(out / "model.safetensors"), generator(0)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    width = config["hidden_size"]
    found = {name: value.float() for name, value in tensors.items() if ".layers." not in name}
    for number in range(config["num_hidden_layers"]):
        start = f"model.layers.{number}."
        layer = {name.removeprefix(start): tensors[name].double() for name in tensors if name.startswith(start)}
        v, o, gain = (layer[name] for name in (_V, _O, "input_layernorm.weight"))
        # Gemma's norms add 1 to the gain.
        idle = {
            **layer,
            _V: v * (1 + gain) @ orthogonal(width, random),
            _O: 1e-10 * orthogonal(width, random) @ o,
            "input_layernorm.weight": torch.zeros_like(gain),
            _DOWN: 1e-10 * torch.randn(layer[_DOWN].shape, generator=random, dtype=torch.float64),
        }
        noise = torch.randn(o.shape, generator=random, dtype=torch.float64)
        real = {**layer, _O: o + 3e-3 * o.std() * noise}
        for place, each in ((2 * number, idle), (2 * number + 1, real)):
            found |= {f"model.layers.{place}.{name}": value.float().contiguous() for name, value in each.items()}
    config |= {"num_hidden_layers": 2 * config["num_hidden_layers"], "dtype": "float32"}
    config.pop("layer_types", None)
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(found, out / "model.safetensors", metadata={"format": "pt"})
    return out


_V, _O, _DOWN = "self_attn.v_proj.weight", "self_attn.o_proj.weight", "mlp.down_proj.weight"
