"""The text of HTML in another language.

A message may contain inline elements: "under 1 in 10<sup>{0}</sup>". Tags are compared without their attributes, and
the translation gets them back. Everything else ends a message. The content of `code`, and of elements with the
attribute translate="no", is data and stays as it is.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from irwm.language.catalogue import Catalogue
from irwm.language.tags import ANY_MARK, CLOSES, DATA, INLINE, MOST_DATA, OPENS, WRITTEN, with_sup, without_sup

_TAG = re.compile(
    r"""<!--.*?-->|<(?P<end>/?)(?P<name>[a-zA-Z][\w-]*)(?:"[^"]*"|'[^']*'|[^'">])*>|<![^>]*>""", re.DOTALL
)
_SHOWN = re.compile(
    r"""\b(?P<name>aria-label|title|placeholder|alt)=(?P<quote>["'])(?P<text>.*?)(?P=quote)""", re.DOTALL
)
_UNTRANSLATED = re.compile(r"""\stranslate=["']?no\b""")
_PRIVATE = re.compile("[\ue000-\uf8ff]")
# Elements whose content is not text, or is data.
_OPAQUE = frozenset(("code", "pre", "script", "style", "svg", "textarea"))
# Inline elements that are drawn on separate lines.
_APART = re.compile(r"""\sclass=["'](?:beneath|entry-\w+|aside)["' ]""")
_VOID = frozenset(("br", "wbr", "hr", "img", "input", "meta", "link", "path", "circle"))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a document.

    Attributes:
        source: as it is in the document.
        mark: its character in a message; None for text, "" for what ends a message.
    """

    source: str
    mark: str | None


def translated(source: str, catalogue: Catalogue) -> str:
    """A document or a part of one, with its text in the catalogue's language."""
    if not catalogue:
        return source
    made: list[str] = []
    run: list[_Piece] = []
    for piece in _pieces(source):
        if piece.mark == "":
            made += [_run(run, catalogue), _attributes(piece.source, catalogue)]
            run = []
        else:
            run.append(piece)
    return "".join([*made, _run(run, catalogue)])


def messages_of(source: str) -> Iterator[str]:
    """The messages in a document that is part of a program: its tags without attributes, its entities as characters."""
    run = ""
    for piece in _pieces(source):
        if piece.mark == "":
            yield run
            run = ""
        else:
            run += html.unescape(piece.source) if piece.mark is None else WRITTEN[piece.mark]
    yield run


def _pieces(source: str) -> Iterator[_Piece]:
    at, hidden = 0, 0
    opened: deque[str] = deque()  # the elements inside one that is data
    apart: deque[bool] = deque()  # for each open span, whether it is drawn on a separate line
    for tag in _TAG.finditer(source):
        name = (tag["name"] or "").lower()
        text, at, start = source[at : tag.start()], tag.end(), at
        if opened:
            if name == opened[-1] and tag["end"]:
                opened.pop()
            elif name == opened[-1] and not tag["end"] and not tag[0].endswith("/>"):
                opened.append(name)
            if not opened:
                whole = source[hidden:at]
                yield _Piece(whole, DATA if name in INLINE else "")
            continue
        if text:
            yield _Piece(source[start : tag.start()], None)
        is_data = name in _OPAQUE or (name not in _VOID and _UNTRANSLATED.search(tag[0]) is not None)
        if is_data and not tag["end"] and not tag[0].endswith("/>"):
            hidden = tag.start()
            opened.append(name)
        elif name == "span" and not tag["end"]:
            apart.append(_APART.search(tag[0]) is not None)
            yield _Piece(tag[0], "" if apart[-1] else OPENS[name])
        elif name == "span" and apart:
            yield _Piece(tag[0], "" if apart.pop() else CLOSES[name])
        elif name in INLINE:
            yield _Piece(tag[0], (CLOSES if tag["end"] else OPENS)[name])
        else:
            yield _Piece(tag[0], "")
    if opened:
        yield _Piece(source[hidden:], "")
    elif at < len(source):
        yield _Piece(source[at:], None)


def _run(run: list[_Piece], catalogue: Catalogue) -> str:
    """Text and inline elements between two other tags."""
    source = "".join(piece.source for piece in run)
    # Characters that could be taken for a tag; no text of this program has them.
    if not any(piece.mark is None and piece.source.strip() for piece in run) or _PRIVATE.search(source):
        return source
    message, data = "", 0
    tags: defaultdict[str, deque[str]] = defaultdict(deque)
    for piece in run:
        if piece.mark is None:
            message += html.unescape(piece.source)
            continue
        mark = chr(ord(DATA) + data) if piece.mark == DATA else str(piece.mark)
        data += piece.mark == DATA
        message += mark
        tags[mark].append(_attributes(piece.source, catalogue))
    # Raised digits in a text without <sup>, as in the catalogue.
    raised = OPENS["sup"] not in message
    found = catalogue.marked_text(with_sup(message) if raised else message)
    if raised:
        found = without_sup(found)
    same_marks = Counter(ANY_MARK.findall(found)) == Counter(ANY_MARK.findall(message))
    if data <= MOST_DATA and found != message and same_marks:
        return ANY_MARK.sub(lambda mark: tags[mark[0]].popleft(), html.escape(found, quote=False))
    return "".join(
        html.escape(catalogue.text(html.unescape(piece.source)), quote=False)
        if piece.mark is None
        else _attributes(piece.source, catalogue)
        for piece in run
    )


def _attributes(tag: str, catalogue: Catalogue) -> str:
    """A tag with its attributes that a person reads or hears."""
    if _UNTRANSLATED.search(tag) or not tag.startswith("<") or tag.startswith("<!"):
        return tag
    head, end, rest = tag.partition(">")

    def shown(found: re.Match[str]) -> str:
        text = html.escape(catalogue.text(html.unescape(found["text"])))
        return f"{found['name']}={found['quote']}{text}{found['quote']}"

    return _SHOWN.sub(shown, head) + end + rest
