"""Which token a server means if it names tokens by their text.

Several tokens may have the same text: bytes that are not a character, or a word with and without the space before it if
the server leaves spaces out. Such texts name no token, and the token counts as missing from the answer.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from irwm.inference.loading import open_tokenizer

# How vLLM spells a token when ids are requested (`return_tokens_as_token_ids`).
_BY_ID = re.compile(r"token_id:(\d{1,9})")
_SPACE_MARKS = ("▁", "Ġ")


class Names:
    """The tokens of an original by the names that servers use.

    Args:
        original: the model's folder, whose tokenizer is opened at the first text.
        vocab_size: tokens from this number on are ignored.
    """

    def __init__(self, original: Path, vocab_size: int) -> None:
        self._original, self._size = original, vocab_size

    def token(self, name: str) -> int | None:
        """The token of this name; None if it names none, or several.

        Raises:
            UnsupportedCheckpointError: the tokenizer is needed for a text, and the original has none.
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
        """Tokens as the vocabulary spells them, and as decoded text."""
        tokenizer = open_tokenizer(self._original)
        spelt = tokenizer.convert_ids_to_tokens(list(range(min(self._size, len(tokenizer)))))
        raw = {token: i for i, token in enumerate(spelt) if isinstance(token, str)}
        pairs = [(text, i) for token, i in raw.items() for text in _written(token, str(tokenizer.decode([i])))]
        often = Counter(text for text, _ in pairs)
        return raw, {text: i for text, i in pairs if often[text] == 1}


def _written(token: str, decoded: str) -> Iterator[str]:
    """The texts that servers use for a token."""
    yield from {decoded, token.replace("▁", " ")} if "▁" in token else {decoded}
