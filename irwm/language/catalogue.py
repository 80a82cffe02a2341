"""A catalogue: English messages, with places for values, and what they are in another language.

A message is written as a format string whose places are numbered: "{0} of {1} positions rank below {2}". Its
translation has the same places in any order. A value is put in as it is, because it may be a name; "{0:t}" in a
translation says that this value is itself a message of this program.

A finished text is looked up as a whole, then by its sentences, clauses and parts between commas.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from irwm.language.message import (
    FIRST_QUOTED,
    LAST_PRIVATE,
    LONGEST_NAME,
    QUOTED,
    WORD,
    Message,
    Place,
    bare,
    compared,
    fixed_text,
    has_places,
    literal,
    stopless,
)
from irwm.language.tags import ANY_MARK, CLOSES, OPENS, marked, with_sup, without_sup

# Where a text is cut, the next one if there is no such place: at a line break, between sentences, clauses, commas.
_MARKS = "[\ue000-\uf8ff]"
_BREAK = re.compile(f"({OPENS['br']})")
_SENTENCE = re.compile(rf"(?:(?<=[.!?…。])(?<!\beq\.)|(?<=[.!?…。]{_MARKS}))\s+(?=\W?[A-Z0-9“\"(\ue000-\uf8ff])")
_CLAUSE = re.compile(rf"(?:(?<=[:;·])|(?<=[:;]{_MARKS}))\s+|\s+(?=[(·])")
_COMMA = re.compile(r"(?<=,)\s+")
_FINER = {_BREAK: _SENTENCE, _SENTENCE: _CLAUSE, _CLAUSE: _COMMA}
# Parts that are tried together as one message.
_TOGETHER = 5
# A list of names or short parts in a sentence.
_LISTS, _LISTED = (re.compile(r", and |, |; "), re.compile(" and ")), "、"
# What joins parts of a text, and its Chinese form.
_JOINTS = {":": "：", ";": "；", ",": "，"}
_BETWEEN = re.compile(r"(?<=[\u4e00-\u9fff，。；：（）]) (?=[\u4e00-\u9fff，。；：（）])")
_FULL_STOP, _WIDE = "。", "。，、；：！？（）“”《》…"
# What begins a line of Markdown that does not continue the line before it.
_BEGINNING = re.compile(r"\s*(#{1,6} |[-*] |\d+\. |$)")
# A translated value can hold other values; texts are nested less deeply than this.
_DEEPEST = 6
# Parts of one text that are compared with the messages with places; further parts stay English. No text of this program
# needs 200. A text in a received report may be made to need millions.
_MOST_COMPARED = 2_000
_MOST_QUOTED = 200
# Characters that stand for tags and quotations here. No text of this program has them; another one's stays as it is.
_PRIVATE = re.compile(_MARKS)


class Catalogue:
    """The messages of one language.

    Args:
        entries: pairs of an English message and its translation.

    Raises:
        ValueError: a message is not a format string with numbered places.
    """

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        self._exact: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._with_places: defaultdict[str, list[Message]] = defaultdict(list)
        self._quoted: set[str] = set()
        entries = [(marked(english), marked(other)) for english, other in entries]
        words = _rarity(english for english, _ in entries)
        for english, other in entries:
            self._quoted.update(QUOTED.findall(fixed_text(english)))
            if has_places(english):
                rarest = min(WORD.findall(fixed_text(english)), key=lambda word: words[word.lower()], default="")
                self._with_places[rarest.lower()].append(Message.of(english, other))
            else:
                self._exact[stopless(literal(english))] = literal(other)
                self._whole.setdefault(bare(literal(english)), literal(other))

    @classmethod
    def of_file(cls, path: Path) -> Catalogue:
        """The translated messages of a gettext file."""
        import polib

        entries = (entry for entry in polib.pofile(str(path)) if entry.translated())
        return cls((entry.msgid, entry.msgstr) for entry in entries)

    def __bool__(self) -> bool:
        return bool(self._whole or self._with_places)

    def text(self, english: str) -> str:
        """The text in this language, paragraph by paragraph; the parts without a translation unchanged."""
        return english if _PRIVATE.search(english) else without_sup(self.marked_text(with_sup(english)))

    def marked_text(self, english: str) -> str:
        """The same for a text with characters in place of its tags (`irwm.language.tags`)."""
        if not self or not WORD.search(english) or any(FIRST_QUOTED <= ord(c) <= LAST_PRIVATE for c in english):
            return english
        return _Reading(self, english).translated()

    def whole(self, text: str) -> str | None:
        """The translation of a message without places; one with the same capital, if there are several."""
        return self._exact.get(stopless(text), self._whole.get(bare(text)))

    def likely(self, text: str) -> Iterator[Message]:
        """The messages with places that a text may be, the most specific one first."""
        words = {word.lower() for word in WORD.findall(text)} | {""}
        found = [message for word in words for message in self._with_places.get(word, ())]
        yield from sorted(found, key=lambda each: (-each.letters, -each.size, each.pieces))

    def is_fixed(self, quoted: str) -> bool:
        """Whether a text in quotation marks is a part of a message, and not a value."""
        return quoted in self._quoted


class _Reading:
    """One text that is translated.

    Args:
        catalogue: the messages.
        english: the text.
    """

    def __init__(self, catalogue: Catalogue, english: str) -> None:
        self._catalogue = catalogue
        self._quotes: list[str] = []
        self._filled_before: dict[tuple[str, int], str | None] = {}
        self._left = _MOST_COMPARED
        self._english = QUOTED.sub(self._hidden, english)

    def translated(self) -> str:
        pieces = []
        for beginning, paragraph in paragraphs(self._english):
            # A number may belong to the message: "3.1 The mark".
            numbered = self._message(beginning + paragraph, _DEEPEST) if beginning.strip() else None
            pieces.append(beginning + self._line(paragraph, _DEEPEST) if numbered is None else numbered)
        return self._shown("\n".join(pieces))

    def _hidden(self, quoted: re.Match[str]) -> str:
        if self._catalogue.is_fixed(quoted[0]) or len(self._quotes) == _MOST_QUOTED:
            return quoted[0]
        self._quotes.append(quoted[0])
        return chr(FIRST_QUOTED + len(self._quotes) - 1)

    def _shown(self, text: str) -> str:
        for number, quoted in enumerate(self._quotes):
            text = text.replace(chr(FIRST_QUOTED + number), quoted)
        return text

    def _line(self, line: str, depth: int) -> str:
        text = line.strip()
        if depth == 0 or not WORD.search(text):
            return line
        before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        found = self._message(text, depth)
        if found is None:
            found = self._parts(text, _BREAK, depth)
        return before + (text if found is None else found) + after

    def _message(self, text: str, depth: int) -> str | None:
        """The translation of one whole message; None if there is none. It may end with what joins it to another."""
        found = self._catalogue.whole(text)
        if found is None and text[-1:] in _JOINTS:
            found = self._message(text[:-1], depth)
            if found is not None:
                return found.rstrip(_FULL_STOP + "：；，") + _JOINTS[text[-1]]
        if found is None:
            found = self._filled(stopless(text), depth)
        if found is None:
            before, inner, after = _around(text)
            found = self._message(inner, depth) if before or after else None
            return None if found is None else before + found + after
        stopped = text.endswith(".") and not text.endswith("..")
        found = found.removesuffix(_FULL_STOP)
        return found + _FULL_STOP if stopped and found[-1:] not in "。！？…：" else found

    def _filled(self, text: str, depth: int) -> str | None:
        """The translation of the first message with places that fits."""
        if (text, depth) in self._filled_before:
            return self._filled_before[text, depth]
        if self._left == 0:
            return None
        self._left -= 1
        found = self._filled_before[text, depth] = self._first_that_fits(text, depth)
        return found

    def _first_that_fits(self, text: str, depth: int) -> str | None:
        seen = compared(text)
        for message in self._catalogue.likely(text):
            found = message.values(text, seen)
            if found is None or any(_SENTENCE.search(value) for value in found.values()):
                continue
            places = [part for part in message.other if isinstance(part, Place)]
            values = {each.number: self._value(found[each.number], depth, each.is_message) for each in places}
            if all(message.is_plausible(values[number], found[number]) for number in values):
                made = "".join(part if isinstance(part, str) else values[part.number] for part in message.other)
                return _BETWEEN.sub("", made)
        return None

    def _value(self, value: str, depth: int, is_message: bool) -> str:
        text = value.strip()
        if is_message and len(text) == 1 and 0 <= ord(text) - FIRST_QUOTED < len(self._quotes):
            quoted = self._quotes[ord(text) - FIRST_QUOTED]
            return f"“{self._line(quoted[1:-1], depth - 1)}”"
        if not is_message or depth <= 1 or not WORD.search(text):
            return value
        found = self._message(text, depth - 1)
        found = self._list(text, depth) if found is None else found
        return self._line(value, depth - 1) if found is None else found

    def _list(self, text: str, depth: int) -> str | None:
        """A list of names or short parts; None if it is none, or if no part has a translation."""
        for separator in _LISTS:
            parts = separator.split(text)
            if len(parts) > 1 and all(len(part.split()) <= LONGEST_NAME for part in parts):
                items = [self._value(part, depth - 1, True) for part in parts]
                return None if items == parts else _LISTED.join(items)
        return None

    def _parts(self, text: str, cut: re.Pattern[str], depth: int) -> str | None:
        """The text with those of its parts translated that have a translation; None if no part has one."""
        parts = cut.split(text)
        if len(parts) == 1:
            return self._parts(text, _FINER[cut], depth) if cut in _FINER else None
        if cut is _BREAK:
            made = [self._line(part, depth) for part in parts]
            return None if made == parts else "".join(made)
        made, changed, at = [], False, 0
        while at < len(parts):
            for end in range(min(len(parts), at + _TOGETHER), at, -1):
                together = " ".join(parts[at:end])
                # A word alone may be any part of speech.
                found = None if together.isalpha() and together.islower() else self._message(together, depth)
                if found is None and end == at + 1 and cut in _FINER:
                    found = self._parts(together, _FINER[cut], depth)
                if found is not None or end == at + 1:
                    break
            changed |= found is not None
            made.append(together if found is None else found)
            at = end
        return _joined(made) if changed else None


def paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """The paragraphs of a text, which may be Markdown: the sign before each, such as "## ", and its lines as one."""
    beginning = ""
    lines: list[str] = []
    for number, line in enumerate(text.split("\n")):
        found = _BEGINNING.match(line)
        if number and (found or not lines[-1].strip() or beginning.startswith("#")):
            yield beginning, "\n".join(lines)
            lines = []
        if not lines:
            beginning = found[0] if found else ""
            line = line[len(beginning) :]
        lines.append(line)
    yield beginning, "\n".join(lines)


def _around(text: str) -> tuple[str, str, str]:
    """The tags around a text, and the text: pairs, and those whose other half is in another part."""
    before = after = ""
    while text:
        opened = next((name for name, mark in OPENS.items() if text[0] == mark), "")
        closed = next((name for name, mark in CLOSES.items() if text[-1] == mark), "")
        if opened and (opened == closed or CLOSES[opened] not in text):
            before, text = before + text[0], text[1:]
            if opened == closed:
                after, text = text[-1] + after, text[:-1]
        elif closed and OPENS[closed] not in text:
            after, text = text[-1] + after, text[:-1]
        else:
            break
    return before, text, after


def _joined(parts: list[str]) -> str:
    """Parts of a text; no space follows a wide mark."""
    text = ""
    for part in parts:
        left, right = ANY_MARK.sub("", text)[-1:], ANY_MARK.sub("", part)[:1]
        text += part if not text or left in _WIDE or right in _WIDE else f" {part}"
    return text


def _rarity(texts: Iterable[str]) -> defaultdict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for text in texts:
        for word in WORD.findall(text):
            counts[word.lower()] += 1
    return counts
