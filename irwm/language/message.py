"""A message with places for values, and how the values are read from a finished text."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from irwm.language.tags import ANY_DATA, ANY_MARK, CLOSES, DATA, OPENS

WORD = re.compile(r"[A-Za-z]{2,}")
# A text in quotation marks, while its parts are looked up: it may be a name, in which nothing is looked up.
QUOTED = re.compile(r"“[^“”]*”")
FIRST_QUOTED, LAST_PRIVATE = 0xE200, 0xF8FF
_QUOTED_PLACE = re.compile(r"“(\{\d+(?::t)?\})”")
_SPACE = re.compile(r"[ \t\n]+")  # numbers contain other spaces
_OPTIONAL = re.compile(r"\. ?$| $")
# Words that count as English ones, what separates clauses, and the longest value that is believed to be a name.
_UNITS = frozenset(["kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "UTC", "CPU", "GPU", "ms", "min"])
_ENGLISH, _SEPARATES = re.compile(r"(?<![\w./])[A-Za-z]{2,}(?![\w./])"), re.compile(r"[:;,](?: |$)| \(")
# Words that a sentence has, and few names.
_OF_SENTENCES = re.compile("and|or|of|the|a|are|is|was|were|be|to|for|in|by|on|at|with|that|which|not|no|it|its")
LONGEST_NAME = 6
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
# A message of fewer fixed letters, such as "{0} of {1}", has numbers for values.
_FEW_LETTERS = 8
# A message of so many words fits hardly any other text.
_SPECIFIC = 4
# Numbers of the places for elements that are data; those of values are smaller.
_DATA_PLACES = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a translation.

    Attributes:
        number: that of the value.
        is_message: whether the value is itself a message.
    """

    number: int
    is_message: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message with places, and its translation.

    Attributes:
        pieces: the fixed text before, between and after the places, as `compared`.
        numbers: of the places, in the order of the English message.
        optional: what comes before the last place if that ends the message and may be missing together with it:
            "Not signed. {0}" is also said of nothing.
        other: the translation: texts and places.
        letters, words, size: the numbers of fixed letters, words and characters of the English message.
    """

    pieces: tuple[str, ...]
    numbers: tuple[int, ...]
    optional: str
    other: tuple[str | Place, ...]
    letters: int
    words: int
    size: int

    @classmethod
    def of(cls, english: str, other: str) -> Message:
        """The message of these format strings.

        Raises:
            ValueError: one is no format string with numbered places.
        """
        pieces, numbers = [""], []
        for text, name, _, _ in string.Formatter().parse(_QUOTED_PLACE.sub(r"\1", stopless(english))):
            pieces[-1] += compared(text)
            if name is not None:
                pieces.append("")
                numbers.append(int(name))
        fixed = "".join(pieces)
        pieces[0] = _uncapitalised(pieces[0])
        ends = _OPTIONAL.search(pieces[-2]) if len(pieces) > 1 and not pieces[-1] else None
        return cls(
            tuple(pieces), tuple(numbers), ends[0] if ends else "", _parts(other),
            sum(map(str.isalpha, fixed)), len(WORD.findall(fixed)), len(fixed),
        )  # fmt: skip

    def values(self, text: str, seen: str) -> dict[int, str] | None:
        """The values in a text, by their number; None if it is not this message.

        Each value is as short as the ones before it allow. Takes time proportional to the text's length: a
        received report may contain a text that was made to match slowly.

        Args:
            text: without a full stop at its end.
            seen: the text as `compared`.
        """
        seen = _uncapitalised(seen) if self.pieces[0] else seen
        found = _between(self.pieces, text, seen)
        if found is None and self.optional:
            found = _between((*self.pieces[:-2], self.pieces[-2].removesuffix(self.optional)), text, seen)
        if found is None:
            return None
        values, data = found
        if not all(map(is_balanced, values)):
            return None
        values += [""] * (len(self.numbers) - len(values))
        return dict(zip(self.numbers, values, strict=True)) | dict(enumerate(data, _DATA_PLACES))

    def is_plausible(self, value: str, english: str) -> bool:
        """Whether a value may belong into this message: it is translated, or short and without clauses.

        Almost any text fits a message of few words, and a wrong one would garble it.

        Args:
            value: as it goes into the translation.
            english: as it was in the text.
        """
        words = [word for word in _ENGLISH.findall(value) if word not in _UNITS]
        left = len(words)
        if left == 0:
            return True
        if value != english:  # translated, with names in it
            return 2 * left <= len(_CHINESE.findall(value))
        if self.letters < _FEW_LETTERS or (self.words == 1 and not self.pieces[0]):
            return False  # "{0} of {1}", "{0} positions": numbers
        if self.words < _SPECIFIC and any(_OF_SENTENCES.fullmatch(word.lower()) for word in words):
            return False
        return left <= min(LONGEST_NAME, 1 + self.words) and not _SEPARATES.search(value)


def has_places(english: str) -> bool:
    return any(name is not None for _, name, _, _ in string.Formatter().parse(english))


def literal(text: str) -> str:
    """A message without places, as text: its doubled braces are single ones."""
    return text.replace("{{", "{").replace("}}", "}")


def fixed_text(english: str) -> str:
    """The fixed text of a message with places."""
    return " ".join(text for text, _, _, _ in string.Formatter().parse(english))


def bare(text: str) -> str:
    """A text as it is compared: without a full stop at its end or a capital at its start, which callers add."""
    text = stopless(text).replace("'", "’")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] in " ’" else text


def stopless(text: str) -> str:
    """The text with single spaces, and without a full stop at its end."""
    text = _SPACE.sub(" ", text).strip()
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text


def is_balanced(text: str) -> bool:
    """Whether every inline element that begins in a text also ends there."""
    return not ANY_MARK.search(text) or all(text.count(OPENS[n]) == text.count(CLOSES[n]) for n in OPENS if n != "br")


def compared(text: str) -> str:
    """A text of the same length in which both apostrophes are the same, and all elements that are data."""
    return ANY_DATA.sub(DATA, text).replace("'", "’")


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _between(pieces: tuple[str, ...], text: str, seen: str) -> tuple[list[str], list[str]] | None:
    """The texts between the pieces, each piece as early as possible, and the data in the pieces; None if these do not
    make up the text."""
    values: list[str] = []
    data: list[str] = []
    end = 0
    for number, piece in enumerate(pieces):
        if number == 0:
            at = 0 if seen.startswith(piece) else -1
        elif number == len(pieces) - 1:
            at = len(seen) - len(piece) if seen.endswith(piece) else -1
        else:
            at = seen.find(piece, end)
        if at < end:
            return None
        if number:
            values.append(text[end:at])
        end = at + len(piece)
        data += ANY_DATA.findall(text[at:end])
    return (values, data) if end == len(seen) else None


def _parts(other: str) -> tuple[str | Place, ...]:
    parts: list[str | Place] = []
    data = 0
    for text, name, kind, _ in string.Formatter().parse(_QUOTED_PLACE.sub(r"\1", other)):
        pieces = ANY_DATA.split(text)
        for number, piece in enumerate(pieces):
            if number:
                parts.append(Place(_DATA_PLACES + data, is_message=False))
                data += 1
            parts.append(piece)
        if name is not None:
            parts.append(Place(int(name), kind == "t"))
    return tuple(parts)
