"""Checks HTML and PDF against the document: they are drawn again from its numbers and must be the same bytes.

A file that another version of the program drew cannot be compared. It does not pass, because it may say anything.
"""

from __future__ import annotations

import html as html_text
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from irwm.errors import printable
from irwm.language import ENGLISH, LANGUAGES
from irwm.report import schema
from irwm.report.blocks import figures_of
from irwm.report.checks import Check, listed
from irwm.report.document import from_json, to_json
from irwm.report.html import render_html
from irwm.report.items import LAYOUT, installed_versions
from irwm.report.pdf import set_pages
from irwm.report.translation import in_language, language_of

# Bytes at the beginning of a page that state its language.
_HEAD = 4096
_Kind = TypeVar("_Kind", bound=schema.Document)
# What determines the bytes of a page, and of a PDF, apart from the document.
_OF_PAGE, _OF_PDF = ("irwm", LAYOUT, "plotly"), ("irwm", LAYOUT, "plotly", "matplotlib", "typst")


def check_page(
    document: _Kind,
    data: bytes | None,
    json_name: str,
    draw: Callable[[_Kind, str], str] | None = None,
) -> Check:
    """Whether the HTML is drawn from the document; names the figures or the line that differ.

    Args:
        draw: the function that draws a document of another kind.
    """
    if data is None:
        return Check("page", None, "there is no HTML file next to the JSON file")
    english = draw(document, json_name) if draw else _page(to_json(document), json_name)
    drawn = in_language(english, language_of(data[:_HEAD].decode("utf-8", "replace")))
    if data == drawn.encode("utf-8"):
        return Check(
            "page", True, "the HTML is byte-for-byte identical to the page generated from the numbers in the JSON"
        )
    others = _other_versions(document, _OF_PAGE)
    if others:
        return Check(
            "page",
            None,
            f"the HTML was not compared, because it was drawn with different versions: {others}",
            asked=True,
        )
    where = _where(data.decode("utf-8", "replace"), drawn)
    return Check("page", False, f"the HTML differs from the page generated from the numbers in the JSON: {where}")


def check_pdf(document: schema.Report, data: bytes | None, json_name: str) -> Check:
    """Whether the PDF is drawn from the document."""
    if data is None:
        return Check("pdf", None, "there is no PDF file next to the JSON file")
    drawn = _pdf(to_json(document), json_name)
    # A PDF does not state its language where a reader of bytes finds it.
    others = (_pdf(to_json(document), json_name, language) for language in LANGUAGES if language != ENGLISH)
    if data == drawn or data in others:
        return Check(
            "pdf", True, "the PDF is byte-for-byte identical to the one generated from the numbers in the JSON"
        )
    versions = _other_versions(document, _OF_PDF)
    if versions:
        return Check(
            "pdf",
            None,
            f"the PDF was not compared, because it was typeset with different versions: {versions}",
            asked=True,
        )
    first = _first_difference(data, drawn)
    said = f"the PDF differs from the one generated from the numbers in the JSON (first difference: byte {first + 1:,})"
    return Check("pdf", False, said)


# Cached: the PDF needs the page too, and a report is often verified twice, through another file or with the models.
@lru_cache(maxsize=4)
def _page(json_bytes: bytes, json_name: str) -> str:
    return render_html(from_json(json_bytes), json_name)


@lru_cache(maxsize=4)
def _pdf(json_bytes: bytes, json_name: str, language: str = ENGLISH) -> bytes:
    return set_pages(from_json(json_bytes), in_language(_page(json_bytes, json_name), language))


def _other_versions(document: schema.Document, names: Sequence[str]) -> str:
    """The programs that drew the report in other versions than those here; "" for the same versions."""
    recorded, here = document["versions"], installed_versions()
    other = [
        f"{name} {printable(recorded.get(name, 'of unknown version'), 40)} (here: {here.get(name, 'none')})"
        for name in names
        if recorded.get(name) != here.get(name)
    ]
    return listed(other)


def _where(given: str, drawn: str) -> str:
    """The differences: figures by name, then the first line."""
    try:
        theirs, ours = figures_of(given), figures_of(drawn)
    except (ValueError, TypeError, KeyError, RecursionError):
        return "the numbers in the figures cannot be read"
    figures = [name for name in dict.fromkeys((*ours, *theirs)) if ours.get(name) != theirs.get(name)]
    named = [f"different numbers in {listed(figures)}"] if figures else []
    pairs = enumerate(zip(_lines(given), _lines(drawn), strict=False), 1)
    line = next(((i, _words(a), _words(b)) for i, (a, b) in pairs if a != b), None)
    if line is not None and line[1] != line[2]:
        at = max(0, _first_difference(line[1], line[2]) - 30)
        named.append(f"line {line[0]} reads “{_cut(line[1], at)}” instead of “{_cut(line[2], at)}”")
    elif line is not None:
        named.append(f"line {line[0]} has different markup")
    return "; ".join(named) or "an invisible part was added, removed or changed"


def _first_difference(one: str | bytes, other: str | bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _lines(page: str) -> list[str]:
    """The page with empty lines instead of its scripts and figures."""
    kept = []
    at = 0
    while (start := page.find("<script", at)) >= 0 and (stop := page.find("</script>", start)) >= 0:
        kept += [page[at:start], "\n" * page.count("\n", start, stop)]
        at = stop + len("</script>")
    return "".join([*kept, page[at:]]).split("\n")


def _words(line: str) -> str:
    return " ".join(html_text.unescape(re.sub(r"<[^<>]*>", " ", line)).split())


def _cut(words: str, at: int) -> str:
    return ("…" if at else "") + printable(words[at:], 90)
