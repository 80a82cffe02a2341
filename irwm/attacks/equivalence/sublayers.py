"""Changes inside a layer: between q and k, between v and o, of the order of heads, and of the MLP's hidden units.

Query head h reads key head h // (heads / kv_heads), so one map per key head serves all the query heads of its group.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from irwm.attacks.equivalence.draft import (
    Draft,
    generator,
    invertible,
    log_uniform,
    require_at_least_one,
    require_share,
)
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import Linear, Structure, structure_of
from irwm.attacks.equivalence.transform import layer_norm, no_head_norms, no_rotary, transform


@transform(no_head_norms)
def map_qk(state: State, seed: int = 0, condition: float = 10.0) -> State:
    """q by M and k by M^-T per key head, so that q . k does not change; M's condition number is at most `condition`.

    If heads are rotated by position, M has to commute with every rotation: in each pair of rotated entries it is a
    rotation times a scale. Entries that are not rotated, and all of BERT's, get a dense M. Not Qwen 3.
    """
    require_at_least_one("the bound on the condition number", condition)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    group = structure.heads // structure.kv_heads
    for layer in structure.layers:
        maps = torch.stack([_commuting(structure, condition, source) for _ in range(structure.kv_heads)])
        inverse = torch.linalg.inv(maps).transpose(1, 2)
        _map_rows(draft, layer.q, maps.repeat_interleave(group, dim=0))
        _map_rows(draft, layer.k, inverse)
    return draft.done()


@transform()
def map_vo(state: State, seed: int = 0, condition: float = 10.0) -> State:
    """v by a dense M per key head, and o by M^-1; M's condition number is at most `condition`."""
    require_at_least_one("the bound on the condition number", condition)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    group, size = structure.heads // structure.kv_heads, structure.head_dim
    for layer in structure.layers:
        maps = torch.stack([invertible(size, condition, source) for _ in range(structure.kv_heads)])
        inverse = torch.linalg.inv(maps).repeat_interleave(group, dim=0)
        _map_rows(draft, layer.v, maps)
        o = draft.read(layer.o.weight).unflatten(1, (structure.heads, size))
        draft.write(layer.o.weight, torch.einsum("dhi,hij->dhj", o, inverse).flatten(1))
    return draft.done()


@transform()
def reorder_heads(state: State, seed: int = 0) -> State:
    """Permutes the key heads with their groups, and the query heads within each group, layer by layer."""
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    group = structure.heads // structure.kv_heads
    for layer in structure.layers:
        keys = torch.randperm(structure.kv_heads, generator=source)
        within = torch.stack([torch.randperm(group, generator=source) for _ in keys])
        queries = (keys[:, None] * group + within).flatten()
        q_rows, kv_rows = (_entries(order, structure.head_dim) for order in (queries, keys))
        draft.change(layer.q.refs, _picker(q_rows))
        draft.change((*layer.k.refs, *layer.v.refs), _picker(kv_rows))
        draft.write(layer.o.weight, draft.read(layer.o.weight)[:, q_rows])
    return draft.done()


@transform(layer_norm, no_rotary)
def shift_key_bias(state: State, seed: int = 0, size: float = 1.0) -> State:
    """Adds a random vector of deviation `size` to each layer's key bias: every score of a query then grows by the
    same number, which the softmax ignores. BERT."""
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    for layer in structure.layers:
        if layer.k.bias is not None:
            bias = draft.read(layer.k.bias)
            shift = size * torch.randn(bias.shape, generator=source, dtype=torch.float64)
            draft.write(layer.k.bias, bias + shift)
    return draft.done()


@transform()
def reorder_neurons(state: State, seed: int = 0, spread: float = 2.0) -> State:
    """Permutes each layer's hidden units. In a gated MLP, act(gate) * up is linear in `up`, so its rows are also
    multiplied by factors of random sign and a size between 1 / spread and spread, and the columns of `down` divided."""
    require_at_least_one("the spread of factors", spread)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    for layer in structure.layers:
        width = draft.read(layer.down.weight).shape[1]
        order = torch.randperm(width, generator=source)
        factors = torch.ones(width, dtype=torch.float64)
        if layer.gate is not None:
            signs = 2 * torch.randint(2, (width,), generator=source) - 1
            factors = log_uniform(width, spread, source) * signs
            for ref in layer.gate.refs:
                draft.write(ref, draft.read(ref)[order])
        for ref in layer.up.refs:
            rows = draft.read(ref)[order]
            draft.write(ref, rows * (factors[:, None] if rows.ndim == 2 else factors))
        draft.write(layer.down.weight, draft.read(layer.down.weight)[:, order] / factors)
    return draft.done()


@transform()
def add_neurons(state: State, seed: int = 0, share: float = 0.25) -> State:
    """Splits a `share` of each layer's hidden units, at least one and at most all. Both parts of a unit read the same,
    and their outputs, often large ones of opposite signs, add up to the old one."""
    require_share("the share of new hidden units", share)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    for layer in structure.layers:
        down = draft.read(layer.down.weight)
        old = down.shape[1]
        split = torch.randperm(old, generator=source)[: max(1, round(share * old))]
        part = torch.randn(len(split), generator=source, dtype=torch.float64)
        units = torch.cat([torch.arange(old), split])
        # In a fused matrix, the rows of `gate` come first; those of `up` must not move before they are read.
        inputs = [linear for linear in (layer.up, layer.gate) if linear is not None]
        draft.change([ref for linear in inputs for ref in linear.refs], _picker(units))
        down = torch.cat([down, down[:, split] * part], dim=1)
        down[:, split] *= 1 - part
        draft.write(layer.down.weight, down)
    draft.config[structure.anatomy.neuron_count] = down.shape[1]
    return draft.done()


def _commuting(structure: Structure, condition: float, source: torch.Generator) -> torch.Tensor:
    """An invertible float64 (head_dim, head_dim) that commutes with the rotation of every position."""
    half = structure.rotary_dim // 2
    scale = log_uniform(half, math.sqrt(condition), source)
    angle = 2 * math.pi * torch.rand(half, generator=source, dtype=torch.float64)
    a, b = torch.diag(scale * angle.cos()), torch.diag(scale * angle.sin())
    rotated = torch.cat([torch.cat([a, -b], dim=1), torch.cat([b, a], dim=1)])
    rest = structure.head_dim - 2 * half
    return torch.block_diag(rotated, invertible(rest, condition, source)) if rest else rotated


def _map_rows(draft: Draft, linear: Linear, maps: torch.Tensor) -> None:
    """Multiplies each head's rows of a projection, bias included, by its map (heads, head_dim, head_dim)."""
    for ref in linear.refs:
        tensor = draft.read(ref)
        heads = tensor.reshape(maps.shape[0], maps.shape[1], -1)
        draft.write(ref, torch.matmul(maps, heads).reshape(tensor.shape))


def _entries(order: torch.Tensor, size: int) -> torch.Tensor:
    return (order[:, None] * size + torch.arange(size)).flatten()


def _picker(rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor[rows]
