"""The tensors of each layer's OV circuit: the map W_o W_v by which an attention layer moves what it reads.

The name is from Elhage et al., "A Mathematical Framework for Transformer Circuits" (2021). `Layout` names layer 0's
tensors; those of the other layers have the same names with another number. GGUF files have their own names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from irwm.families.family import families
from irwm.families.schema import Layout, TensorRef

_GGUF_LAYER = re.compile(r"blk\.(\d{1,4})\.attn_output\.weight")


@dataclass(frozen=True, slots=True)
class OVCircuit:
    """One layer's values and output.

    Attributes:
        v: (kv_heads * n, width), n being the entries of a value in one head.
        o: (width, heads * n).
        gain: (width,), of the norm whose output v reads; None without one.
        offset: added to the stored gain.
    """

    v: TensorRef
    o: TensorRef
    gain: TensorRef | None
    offset: float


def ov_circuits(layout: Layout, names: Iterable[str]) -> tuple[OVCircuit, ...]:
    """The OV circuits of a checkpoint, from the first layer that has one to the last.

    Args:
        layout: of the checkpoint.
        names: of its tensors.

    Returns:
        () if layer 0's q and k are not known, or the files do not hold v and o as separate roles.
    """
    family = next((family for family in families() if family.name == layout.family), None)
    if family is None or layout.q is None:
        return ()
    present = frozenset(names)
    norm = layout.input_norm
    gains = norm.weights[:1] if norm is not None else ()
    if layout.v is None or layout.o is None:
        return _gguf(layout, present)
    body, _, _ = layout.o.name.rpartition(family.layer)
    path, first = body + family.layer.removesuffix("0."), body + family.layer
    numbered = re.compile(re.escape(path) + r"(\d{1,4})\." + re.escape(layout.o.name.removeprefix(first)))
    found = []
    for number in sorted(int(match[1]) for match in map(numbered.fullmatch, present) if match):
        v, o, *own = (
            replace(ref, name=ref.name.replace(first, f"{path}{number}.", 1)) for ref in (layout.v, layout.o, *gains)
        )
        if {v.name, *(each.name for each in own)} <= present:
            found.append(OVCircuit(v, o, own[0] if own else None, norm.offset if norm is not None else 0.0))
    return tuple(found)


def _gguf(layout: Layout, present: frozenset[str]) -> tuple[OVCircuit, ...]:
    """Under llama.cpp's names, where the gain of a norm is complete. A fused tensor has all of q, then k, then v; that
    of layer 0 was rearranged when the file was opened, and is left out."""
    found, norm = [], layout.input_norm
    before, rows = (layout.heads + layout.kv_heads) * layout.head_dim, layout.kv_heads * layout.head_dim
    for number in sorted(int(match[1]) for match in map(_GGUF_LAYER.fullmatch, present) if match):
        layer = f"blk.{number}."
        v, fused = TensorRef(layer + "attn_v.weight"), TensorRef(layer + "attn_qkv.weight", (before, before + rows))
        v = fused if fused.name in present else v
        gain, offset = TensorRef(layer + "attn_norm.weight"), 0.0
        if gain.name not in present:
            if number or norm is None or not norm.weights:
                continue
            gain, offset = norm.weights[0], norm.offset  # renamed when the file was opened
        if v.name in present:
            found.append(OVCircuit(v, TensorRef(layer + "attn_output.weight"), gain, offset))
    return tuple(found)
