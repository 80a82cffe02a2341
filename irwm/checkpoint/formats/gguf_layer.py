"""Layer 0's q and k out of a GGUF file, in the arrangement of the family's own checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch

from irwm.checkpoint.formats.gguf_settings import Settings
from irwm.checkpoint.tensors import PackedTensor, Tensor, TensorEntry, parameters_of
from irwm.errors import CorruptCheckpointError
from irwm.families.family import Projections

_PAIRS = "the rows of q and k, which llama.cpp pairs for its rotary embedding"
_ORDER = "the order of q, k and v in their common matrix"
# Rows of q, k and v together; the largest real models have some 50 000.
_MAX_ROWS = 1 << 22
_TURNED = "the transposition of q's, k's and v's common matrix"


def less(offset: float, entry: TensorEntry, name: str) -> PackedTensor:
    """The gain of a norm to which the converter added `offset`."""
    decode, parameters = partial(_less, offset=offset), parameters_of(offset=offset)
    return PackedTensor(name, entry.dtype, entry.shape, {"gain": entry}, frozenset({"gain"}), decode, parameters)


def _less(values: Mapping[str, torch.Tensor], *, offset: float) -> torch.Tensor:
    return values["gain"].to(torch.float32) - offset


def projections(
    settings: Settings, spec: Projections, *, paired: bool
) -> Iterator[tuple[str, Tensor, tuple[str, ...]]]:
    """Name, tensor and what was undone for each of the family's tensors that hold q and k, weights and biases.

    Args:
        spec: how the family stores them.
        paired: whether llama.cpp stores each head's rows i and i + head_dim / 2 of q and k side by side.

    Raises:
        CorruptCheckpointError: the rows are not those of so many heads.
    """
    for kind, q, k in (("weight", spec.q, spec.k), ("bias", spec.q_bias, spec.k_bias)):
        stored = _stored(settings, kind)
        if not stored or q is None or k is None:
            continue
        rows = _Rows.of(settings, stored)
        if spec.fused:
            yield _fused(stored, rows, spec, q, paired=paired, matrix=kind == "weight")
        else:
            yield _single(stored, rows, "q", q, paired=paired)
            yield _single(stored, rows, "k", k, paired=paired)


def _stored(settings: Settings, kind: str) -> dict[str, TensorEntry]:
    """q, k and v, or the one tensor they are fused in as "qkv"; {} where not all are there."""
    found = {part: settings.stored.get(f"{settings.layer}attn_{part}.{kind}") for part in ("q", "k", "v", "qkv")}
    entries = {part: entry for part, entry in found.items() if entry is not None and entry.shape}
    if "qkv" in entries and "q" not in entries:
        return {"qkv": entries["qkv"]}
    entries.pop("qkv", None)
    return entries if {"q", "k"} <= entries.keys() else {}


class _Rows:
    """How many rows q, k and v have, and in which order a family wants them."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None:
        self.heads = {"q": heads, "k": kv_heads, "v": kv_heads}
        self.head_dim = head_dim

    @classmethod
    def of(cls, settings: Settings, stored: Mapping[str, TensorEntry]) -> _Rows:
        heads, kv_heads = settings.heads or 0, settings.kv_heads or 0
        first = next(iter(stored.values()))
        if heads < 1 or kv_heads < 1:
            raise _misfit(first, "at least one head", f"{heads} and {kv_heads}")
        if sum(entry.shape[0] for entry in stored.values()) > _MAX_ROWS:
            raise _misfit(first, f"at most {_MAX_ROWS} rows", f"{first.shape[0]} rows")
        every = heads + 2 * kv_heads if "qkv" in stored else heads
        found = cls(heads, kv_heads, first.shape[0] // every)
        for part, entry in stored.items():
            expected = (every if part == "qkv" else found.heads[part]) * found.head_dim
            if entry.shape[0] != expected or found.head_dim < 1:
                raise _misfit(entry, f"{heads} query and {kv_heads} key heads of one size", f"{entry.shape[0]} rows")
        return found

    def count(self, part: str) -> int:
        return self.heads[part] * self.head_dim

    def start(self, part: str) -> int:
        """The part's first row where q, k and v stand one after the other."""
        return sum(self.count(before) for before in "qkv"[: "qkv".index(part)])

    def order(self, part: str, *, paired: bool) -> torch.Tensor:
        """(count,) int64: the stored row, counted within the part, of each of the part's own rows."""
        rows = torch.arange(self.count(part))
        if not paired or part == "v":
            return rows
        return rows.view(self.heads[part], -1, 2).transpose(1, 2).reshape(-1)


def _single(
    stored: Mapping[str, TensorEntry], rows: _Rows, part: str, name: str, *, paired: bool
) -> tuple[str, Tensor, tuple[str, ...]]:
    """q or k as a tensor of its own, perhaps cut out of a fused one."""
    entry = stored[part] if part in stored else _cut(stored["qkv"], rows.start(part), rows.count(part))
    if not paired:
        return name, entry, () if part in stored else (_ORDER,)
    if rows.head_dim % 2:
        raise _misfit(entry, "an even number of rows per head", f"{rows.head_dim}")
    decode = partial(_rearranged, order=rows.order(part, paired=True), turned=False)
    parameters = parameters_of(heads=rows.heads, head_dim=rows.head_dim, part=part)
    return name, PackedTensor(name, entry.dtype, entry.shape, {part: entry}, frozenset(), decode, parameters), (_PAIRS,)


def _fused(
    stored: Mapping[str, TensorEntry], rows: _Rows, spec: Projections, name: str, *, paired: bool, matrix: bool
) -> tuple[str, Tensor, tuple[str, ...]]:
    """q, k and v in one tensor, group by group."""
    groups = rows.heads["k"] if spec.groups == "kv_heads" else spec.groups
    entries = {part: stored[part] for part in ("qkv", "q", "k", "v") if part in stored}
    one = next(iter(entries.values()))
    if paired and rows.head_dim % 2:
        raise _misfit(one, "an even number of rows per head", f"{rows.head_dim}")
    if "qkv" not in entries and "v" not in entries:
        raise _misfit(one, "q, k and v", "q and k alone")
    if any(count % groups for count in rows.heads.values()):
        raise _misfit(one, f"heads that divide into {groups} groups", f"{rows.heads['q']} and {rows.heads['k']}")
    blocks = [(rows.start(part) + rows.order(part, paired=paired)).view(groups, -1) for part in spec.fused]
    order = torch.cat(blocks, dim=1).reshape(-1)
    turned = spec.transposed and matrix
    moved = not torch.equal(order, torch.arange(order.numel()))
    undone = ((_PAIRS,) if paired else ()) + ((_ORDER,) if moved or len(entries) > 1 else ())
    undone += (_TURNED,) if turned else ()
    if not undone:
        return name, one, ()
    shape = (order.numel(), *one.shape[1:])
    dtype = " and ".join(dict.fromkeys(entry.dtype for entry in entries.values()))
    decode = partial(_rearranged, order=order, turned=turned)
    shape = shape[::-1] if turned else shape
    parameters = parameters_of(
        heads=rows.heads, head_dim=rows.head_dim, fused=spec.fused, groups=groups, paired=paired, turned=turned
    )
    return name, PackedTensor(name, dtype, shape, entries, frozenset(), decode, parameters), undone


def _rearranged(values: Mapping[str, torch.Tensor], *, order: torch.Tensor, turned: bool) -> torch.Tensor:
    """The stored rows, q before k before v, in the given order, float32."""
    parts = [values[part] for part in ("qkv", "q", "k", "v") if part in values]
    whole = torch.cat([part.to(torch.float32) for part in parts])[order]
    return whole.T.contiguous() if turned else whole


def _cut(entry: TensorEntry, first: int, count: int) -> TensorEntry:
    """Some neighbouring rows of a stored tensor."""
    row = entry.nbytes // entry.shape[0]
    start = entry.start + first * row
    return replace(entry, shape=(count, *entry.shape[1:]), start=start, stop=start + count * row)


def _misfit(entry: TensorEntry, expected: str, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "Layer 0's q and k do not fit the head counts of the file's settings",
        file=entry.file,
        tensor=entry.name,
        expected=expected,
        found=found,
        advice="Compare the file with the one the model was published as",
    )
