"""The prompts: short texts drawn from a seed. They contain nothing of a key or of a model.

Among thousands of prompts, two may be equal; the caller leaves the second one out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

# Characters of a prompt. Long enough that prompts differ, short enough that they cost almost nothing.
SHORTEST, LONGEST = 24, 120
# Every second prompt is words in random order, which reach other states of a model than prose does.
_MOST_WORDS = 16


@dataclass(frozen=True, slots=True)
class Prompts:
    """All prompts of a seed, without a limit: the same seed and text give the same prompts.

    Attributes:
        seed: 0 or more.
        text: prose; passages and words are taken from it. Line ends and indentation are ignored.
    """

    seed: int
    text: str
    _words: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _prose: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_words", tuple(self.text.split()))
        object.__setattr__(self, "_prose", " ".join(self._words))

    def prompt(self, number: int) -> str:
        """The prompt of this number, from 0 on: a passage if it is even, else words in random order."""
        draw = _numbers(f"irwm prompt {self.seed} {number}")
        length = SHORTEST + next(draw) % (LONGEST - SHORTEST + 1)
        if number % 2 == 0:
            start = next(draw) % max(1, len(self._prose) - length)
            return self._prose[start : start + length].strip()
        return " ".join(self._words[next(draw) % len(self._words)] for _ in range(_MOST_WORDS))[:length].rstrip()


def _numbers(name: str) -> Iterator[int]:
    """Numbers below 2^64 derived from a name, the same on every machine and in every version of Python."""
    block = 0
    while True:
        digest = hashlib.sha256(f"{name} {block}".encode()).digest()
        yield from (int.from_bytes(digest[i : i + 8], "big") for i in range(0, 32, 8))
        block += 1
