"""The digest of the rows that a key reads, so that a wrong original is told from the right one before all is read."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint

if TYPE_CHECKING:
    from _hashlib import HASH as Digest

# Rows that are read to be hashed at a time; all of a large model's, as float32, are 130 MB.
_ROWS_HASHED = 512


def rows_digest(
    model: Checkpoint, query: NDArray[np.int64], reference: NDArray[np.int64], marked: NDArray[np.int64]
) -> str:
    """Hex SHA-256 over the float32 values of the given rows, in this order (docs/key-format.md)."""
    tokens = np.concatenate((query, reference)).astype(np.int64)
    return _with_rows(_of_tokens(model, tokens.tobytes()).copy(), model, marked).hexdigest()


@lru_cache(maxsize=2)  # all recipients of an owner share their tokens, and those are nearly all the rows
def _of_tokens(model: Checkpoint, tokens: bytes) -> Digest:
    return _with_rows(hashlib.sha256(b"irwm/v2/rows\0"), model, np.frombuffer(tokens, dtype=np.int64))


def _with_rows(digest: Digest, model: Checkpoint, numbers: NDArray[np.int64]) -> Digest:
    for start in range(0, len(numbers), _ROWS_HASHED):
        values = model.embedding(numbers[start : start + _ROWS_HASHED]).contiguous().numpy()
        digest.update(values.astype("<f4", copy=False).data)
    return digest
