"""Chooses the tokens that a served model is queried for, if not the whole vocabulary (docs/answers.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, special_token_ids
from irwm.keys.key import Key

# Number of other tokens in multiples of the width, enough to find the map to the original's coordinates.
OTHERS_OF_WIDTH = 4
# Other tokens for each marked one, so that the choice reveals little about the marked ones.
OTHERS_OF_MARKED = 9


def tokens_asked(keys: Sequence[Key], original: Checkpoint) -> NDArray[np.int64]:
    """The marked rows' tokens of these keys among many other tokens, in random order.

    The same keys give the same tokens in the same order: if the other tokens changed between two recordings, the server
    could identify the marked ones. The others are derived from the keys' secrets, so only their holder can draw them.

    Args:
        keys: of this original.

    Returns:
        (v,) int64, each once; the whole vocabulary except special tokens, if that is not more.
    """
    # If the head is the embedding, the embedding's mark is read; otherwise the head's own mark.
    heads = [key.head or key for key in keys]
    marked = np.unique(np.concatenate([key.rows_read()[2] for key in heads]))
    usable = np.setdiff1d(np.arange(original.vocab_size), sorted(special_token_ids(original)))
    secret = hashlib.sha256(b"irwm/collect/tokens" + b"".join(sorted(key.to_bytes() for key in keys))).digest()
    rng = np.random.default_rng(int.from_bytes(secret, "big"))
    others = rng.permutation(np.setdiff1d(usable, marked))
    count = max(OTHERS_OF_WIDTH * original.hidden_size, OTHERS_OF_MARKED * len(marked))
    return rng.permutation(np.concatenate([marked, others[:count]])).astype(np.int64)
