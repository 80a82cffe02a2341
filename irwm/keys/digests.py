"""Digests of a key's inputs in its original: the rows that it reads, and everything else that the invariant uses.

The rows' digest detects a wrong original before all of it is read. The digest of layer 0 is part of every derivation.
If a key were bound only to the embedding, a false accuser could make a key, publish its commitment, and only then
rewrite layer 0's q and k of the "original" he shows, until A satisfies the key's equations on the rows of an unrelated
model: a dozen rows of A, each with d unknowns, against fifty equations.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.families import TensorRef
from irwm.families.schema import Norm
from irwm.scheme.derivation import canonical

if TYPE_CHECKING:
    from _hashlib import HASH as Digest

# Rows that are read and hashed at a time; the rows of a large model's key take 130 MB as float32.
_ROWS_HASHED = 512


def rows_digest(
    model: Checkpoint, query: NDArray[np.int64], reference: NDArray[np.int64], marked: NDArray[np.int64]
) -> str:
    """Hex SHA-256 over the float32 values of the given rows, in this order (docs/key-format.md); the tokens' rows are
    those of the embedding, the marked ones those of `model`, which may be an output head."""
    tokens = np.concatenate((query, reference)).astype(np.int64)
    return _with_rows(_of_tokens(model.body, tokens.tobytes()).copy(), model, marked).hexdigest()


@lru_cache(maxsize=4)  # all recipients of an owner share the tokens, which are nearly all the rows
def _of_tokens(model: Checkpoint, tokens: bytes) -> Digest:
    return _with_rows(hashlib.sha256(b"irwm/v3/rows\0"), model, np.frombuffer(tokens, dtype=np.int64))


def _with_rows(digest: Digest, model: Checkpoint, numbers: NDArray[np.int64]) -> Digest:
    for start in range(0, len(numbers), _ROWS_HASHED):
        values = model.embedding(numbers[start : start + _ROWS_HASHED]).contiguous().numpy()
        digest.update(values.astype("<f4", copy=False).data)
    return digest


@lru_cache(maxsize=4)  # the same for all keys of an original
def layer0_digest(model: Checkpoint) -> str:
    """Hex SHA-256 over the float32 values of layer 0's q and k with their biases, of the norms before and on them, of
    the first row of position and token type tables and of W_in, and over the numbers that define how they are combined
    (docs/key-format.md).

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    layout = model.layout
    facts: dict[str, object] = {"scores": layout.scores}
    if layout.scores == "attention":
        facts |= {
            "heads": layout.heads,
            "kv_heads": layout.kv_heads,
            "head_dim": layout.head_dim,
            "embedding_scale": float(layout.embedding_scale),
            "clip": None if layout.clip is None else float(layout.clip),
        }
        for name in ("q", "k", "q_bias", "k_bias", "embedding_projection"):
            facts[name] = _tensor(model, getattr(layout, name))
        if layout.embedding_projection_bias is not None:
            facts["embedding_projection_bias"] = _tensor(model, layout.embedding_projection_bias)
        for name in ("position", "token_type"):
            facts[name] = _tensor(model, getattr(layout, name), first_row=True)
        for name in ("embedding_norm", "input_norm", "q_norm", "k_norm"):
            facts[name] = _norm(model, getattr(layout, name))
    return hashlib.sha256(b"irwm/v3/layer0\0" + canonical(facts)).hexdigest()


def _norm(model: Checkpoint, norm: Norm | None) -> dict[str, object] | None:
    if norm is None:
        return None
    return {
        "kind": norm.kind,
        "over": norm.over,
        "eps": float(norm.eps),
        "offset": float(norm.offset),
        "weights": [_tensor(model, ref) for ref in norm.weights],
        "bias": _tensor(model, norm.bias),
    }


def _tensor(model: Checkpoint, ref: TensorRef | None, *, first_row: bool = False) -> str | None:
    if ref is None:
        return None
    if first_row:
        start = ref.rows[0] if ref.rows is not None else 0
        ref = replace(ref, rows=(start, start + 1))
    values = model.read(ref).contiguous().numpy()
    digest = hashlib.sha256(b"".join(size.to_bytes(8, "little") for size in values.shape))
    digest.update(values.astype("<f4", copy=False).data)
    return digest.hexdigest()


def check_sha256(name: str, text: str) -> None:
    """Raise ValueError or TypeError unless `text` is a SHA-256 in lower-case hex; the message gives its `name`."""
    if len(text) != 64 or bytes.fromhex(text).hex() != text:
        raise ValueError(f"{name} is not a SHA-256")
