"""Matches rows to tokens by the tokenizers' strings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, token_ids
from irwm.errors import CheckpointError

# With a smaller share of common strings, the tokenizers are unrelated, and ids or content are more reliable.
LEAST_COMMON = 0.05


def by_tokenizer(suspect: Checkpoint, model: Checkpoint) -> NDArray[np.int64] | None:
    """(s,) int64, the suspect's row for every row of the original, -1 if its tokenizer lacks the token.

    None if either has no readable tokenizer file, or the two share almost no tokens. Rows that the original's tokenizer
    does not name (padding) keep their id if no token of the suspect has it.

    Raises:
        CheckpointError: the original's tokenizer file cannot be read.
    """
    ours = token_ids(model)
    try:
        theirs = token_ids(suspect)
    except CheckpointError:  # a broken file must not protect a suspect, whose rows can be paired by content
        return None
    common = [token for token in ours if token in theirs]
    if not common or len(common) < LEAST_COMMON * len(ours):
        return None
    rows = np.full(model.vocab_size, -1)
    rows[[ours[token] for token in common]] = [theirs[token] for token in common]
    taken, named = set(theirs.values()), set(ours.values())
    for i in range(min(model.vocab_size, suspect.vocab_size)):
        if i not in named and i not in taken:
            rows[i] = i
    return rows
