"""The digest of everything but the embedding that the invariant is computed from.

A key must be bound to all of it. Were it bound to the embedding alone, a false accuser could make a key, publish its
commitment, and only then rewrite layer 0's q and k of the "original" he shows, until A satisfies the key's equations
on the rows of a stranger's model: a dozen rows of A, each with d unknowns, against fifty equations.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from typing import Any

from irwm.checkpoint import Checkpoint
from irwm.families import TensorRef
from irwm.families.schema import Norm
from irwm.scheme.derivation import canonical


@lru_cache(maxsize=4)
def layer0_digest(model: Checkpoint) -> str:
    """Hex SHA-256 over the float32 values of layer 0's q and k with their biases, of the norms before and on them, of
    the first row of position and token type tables and of W_in, and over the numbers that say how they are combined
    (docs/key-format.md).

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    layout = model.layout
    facts: dict[str, Any] = {"scores": layout.scores}
    if layout.scores == "attention":
        facts |= {
            "heads": layout.heads,
            "kv_heads": layout.kv_heads,
            "head_dim": layout.head_dim,
            "embedding_scale": float(layout.embedding_scale),
            "clip": None if layout.clip is None else float(layout.clip),
        }
        for name in ("q", "k", "q_bias", "k_bias", "embedding_projection"):
            facts[name] = _digest(model, getattr(layout, name))
        for name in ("position", "token_type"):
            facts[name] = _digest(model, getattr(layout, name), first_row=True)
        for name in ("embedding_norm", "input_norm", "q_norm", "k_norm"):
            facts[name] = _norm(model, getattr(layout, name))
    return hashlib.sha256(b"irwm/v2/layer0\0" + canonical(facts)).hexdigest()


def _norm(model: Checkpoint, norm: Norm | None) -> dict[str, Any] | None:
    if norm is None:
        return None
    return {
        "kind": norm.kind,
        "over": norm.over,
        "eps": float(norm.eps),
        "offset": float(norm.offset),
        "weights": [_digest(model, ref) for ref in norm.weights],
        "bias": _digest(model, norm.bias),
    }


def _digest(model: Checkpoint, ref: TensorRef | None, *, first_row: bool = False) -> str | None:
    if ref is None:
        return None
    if first_row:
        start = ref.rows[0] if ref.rows is not None else 0
        ref = replace(ref, rows=(start, start + 1))
    values = model.read(ref).contiguous().numpy()
    shape = b"".join(size.to_bytes(8, "little") for size in values.shape)
    digest = hashlib.sha256(shape)
    digest.update(values.astype("<f4", copy=False).data)
    return digest.hexdigest()
