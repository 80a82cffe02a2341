"""Inline elements inside a message: one character for each tag, so that messages are compared as plain text."""

from __future__ import annotations

import re
from typing import Final

INLINE: Final = (
    "a", "abbr", "b", "br", "code", "em", "i", "kbd", "q", "small", "span", "strong", "sub", "sup", "u", "wbr",
)  # fmt: skip
# An element whose content is data, such as `code`. In the catalogue it is written as below.
DATA_WRITTEN: Final = "<code>…</code>"
# From Unicode's private use area: no text of this program has these characters.
_FIRST = 0xE000
OPENS: Final = {name: chr(_FIRST + 2 * number) for number, name in enumerate(INLINE)}
CLOSES: Final = {name: chr(_FIRST + 2 * number + 1) for number, name in enumerate(INLINE)}
# Each element that is data has its own character, so that it stays in its place if a translation has another order.
DATA, MOST_DATA = chr(_FIRST + 2 * len(INLINE)), 200
ANY_DATA: Final = re.compile(f"[{DATA}-{chr(ord(DATA) + MOST_DATA - 1)}]")
ANY_MARK: Final = re.compile(f"[{chr(_FIRST)}-{chr(ord(DATA) + MOST_DATA - 1)}]")
WRITTEN: Final = (
    {mark: f"<{name}>" for name, mark in OPENS.items()}
    | {mark: f"</{name}>" for name, mark in CLOSES.items()}
    | {DATA: DATA_WRITTEN}
)
_MARKS = {written: mark for mark, written in WRITTEN.items()}
_ANY_WRITTEN = re.compile("|".join(map(re.escape, sorted(_MARKS, key=len, reverse=True))))


_PLAIN, _RAISED = "0123456789−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"
_DOWN, _UP = str.maketrans(_RAISED, _PLAIN), str.maketrans(_PLAIN, _RAISED)
_ANY_RAISED = re.compile(f"[{_RAISED}]+")
_SUP = re.compile(f"{OPENS['sup']}([{_PLAIN}]+){CLOSES['sup']}")


def marked(message: str) -> str:
    """A message of the catalogue with characters in place of its tags."""
    return with_sup(_ANY_WRITTEN.sub(lambda tag: _MARKS[tag[0]], message))


def with_sup(text: str) -> str:
    """Raised digits as digits between the characters of `<sup>`, as a page has them."""
    return _ANY_RAISED.sub(lambda digits: f"{OPENS['sup']}{digits[0].translate(_DOWN)}{CLOSES['sup']}", text)


def without_sup(text: str) -> str:
    """The other way round, for texts without tags."""
    return _SUP.sub(lambda digits: digits[1].translate(_UP), text)
