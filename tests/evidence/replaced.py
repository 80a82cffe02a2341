"""Suspects whose embedding and output head were replaced, or whose neurons were written in another way."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks.equivalence import read_state, write_state
from irwm.attacks.equivalence.draft import Draft, generator
from irwm.attacks.equivalence.structure import structure_of


def without_matrices(source: Path, out: Path) -> Path:
    """The model with random numbers instead of its embedding and output head."""
    shutil.copytree(source, out)
    layout, random = irwm.open_checkpoint(source).layout, torch.Generator().manual_seed(1)
    names = {layout.embedding.name, *([] if layout.head is None else [layout.head.name])}
    for file in out.glob("*.safetensors"):
        tensors = load_file(file)
        for name in names & set(tensors):
            old = tensors[name]
            tensors[name] = (torch.randn(old.shape, generator=random) * old.float().std()).to(old.dtype)
        save_file(tensors, file, metadata={"format": "pt"})
    return out


def with_negated_gates(source: Path, out: Path) -> Path:
    """The same function, with half of the gated neurons written as three each.

    act(a) = a + act(-a) for SiLU and GELU, so act(g) u d = act(-g) u d + act(u) g d - act(-u) g d.
    """
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
