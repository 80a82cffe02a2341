"""Which token a server means, where it names tokens by their text.

Several tokens may be written alike: bytes that are no character, or a word with and without the space before it where
the server leaves spaces out. Such a text names no token, and the token counts as not told.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from irwm.running.opened import open_tokenizer

# How vLLM spells a token where it is asked for ids (`return_tokens_as_token_ids`).
_BY_ID = re.compile(r"token_id:(\d{1,9})")
_SPACE_MARKS = ("▁", "Ġ")


class Names:
    """The tokens of an original by what servers call them.

    Args:
        original: the model's folder, whose tokenizer is opened when a text is first met.
        vocab_size: tokens from this number on do not count.
    """

    def __init__(self, original: Path, vocab_size: int) -> None:
        self._original, self._size = original, vocab_size

    def token(self, name: str) -> int | None:
        """The token of this name; None where it names none, or several.

        Raises:
            UnsupportedCheckpointError: a text has to be looked up, and there is no tokenizer beside the original.
        """
        by_id = _BY_ID.fullmatch(name)
        if by_id is not None:
            return int(by_id[1])
        raw, written = self._tables
        return raw.get(name) if any(mark in name for mark in _SPACE_MARKS) else written.get(name)

    def sayable(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(v,) which tokens this server can name: all of them, unless it names them by text."""
        if "_tables" not in self.__dict__:
            return np.ones(len(tokens), dtype=np.bool_)
        return np.isin(tokens, list(set(self._tables[1].values())))

    @functools.cached_property
    def _tables(self) -> tuple[dict[str, int], dict[str, int]]:
        """Tokens as the vocabulary spells them, and as a reader would see them."""
        tokenizer = open_tokenizer(self._original)
        spelt = tokenizer.convert_ids_to_tokens(list(range(min(self._size, len(tokenizer)))))
        raw = {token: i for i, token in enumerate(spelt) if isinstance(token, str)}
        pairs = [(text, i) for token, i in raw.items() for text in _written(token, str(tokenizer.decode([i])))]
        often = Counter(text for text, _ in pairs)
        return raw, {text: i for text, i in pairs if often[text] == 1}


def _written(token: str, decoded: str) -> Iterator[str]:
    """The ways in which servers write a token as text."""
    yield from {decoded, token.replace("▁", " ")} if "▁" in token else {decoded}
