"""A list of the requested tokens, if it is not the whole vocabulary."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from ui.recording.errors import RecordingError

# A list of all tokens of the largest vocabularies has 2 MB.
MOST_BYTES = 16 << 20
_NUMBER = re.compile(r"[0-9]{1,9}")


def of_text(text: str, original: Checkpoint) -> NDArray[np.int64]:
    """The tokens in a list, in its order: whole numbers with spaces, commas or line ends between them.

    Raises:
        RecordingError: it is not a list of tokens, names a token twice, or one that the original does not have.
    """
    words = text.replace(",", " ").split()
    wrong = next((word for word in words if not _NUMBER.fullmatch(word)), None)
    if wrong is not None or not words:
        raise RecordingError("this is not a list of tokens", expected="token IDs, such as 17 403 2951",
                             found=None if wrong is None else wrong[:100])  # fmt: skip
    tokens = np.array([int(word) for word in words], dtype=np.int64)
    if np.unique(tokens).size != tokens.size:
        raise RecordingError("the list contains a duplicate token", expected="each token only once")
    if tokens.max() >= original.vocab_size:
        raise RecordingError("a token is not in the original's vocabulary", expected=f"0 to {original.vocab_size - 1}",
                             found=str(tokens.max()))  # fmt: skip
    return tokens
