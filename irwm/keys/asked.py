"""Which tokens a served model is asked for, where they are not all of the vocabulary (docs/answers.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, special_token_ids
from irwm.keys.key import Key

# Of other tokens so many times the width, which is enough to find the map into the original's coordinates.
OTHERS_OF_WIDTH = 4
# And so many for each marked one, so that the choice tells a server little about which are marked.
OTHERS_OF_MARKED = 9


def tokens_asked(keys: Sequence[Key], original: Checkpoint) -> NDArray[np.int64]:
    """The marked rows' tokens of these keys among many others, in random order.

    The same keys give the same tokens in the same order: whoever is asked twice could tell the marked ones by the
    others' changing. The others follow from the keys' secrets, so nobody else can draw them.

    Args:
        keys: of this original.

    Returns:
        (v,) int64, each once; all of the vocabulary but special tokens where that is not more.
    """
    # In a model whose head is its embedding the embedding's mark is read, in others the head's own.
    heads = [key.head or key for key in keys]
    marked = np.unique(np.concatenate([key.rows_read()[2] for key in heads]))
    usable = np.setdiff1d(np.arange(original.vocab_size), sorted(special_token_ids(original)))
    secret = hashlib.sha256(b"irwm/collect/tokens" + b"".join(sorted(key.to_bytes() for key in keys))).digest()
    rng = np.random.default_rng(int.from_bytes(secret, "big"))
    others = rng.permutation(np.setdiff1d(usable, marked))
    count = max(OTHERS_OF_WIDTH * original.hidden_size, OTHERS_OF_MARKED * len(marked))
    return rng.permutation(np.concatenate([marked, others[:count]])).astype(np.int64)
