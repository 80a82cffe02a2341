"""Pieces of HTML that cards and lists share; the classes are in style.css. All functions are pure and escape texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from irwm.errors import printable
from ui.components.icons import icon

# The icon of each word for an outcome.
_ICONS = {
    "found": "found",
    "found, not yet proof": "unproven",
    "not found": "not found",
    "inconclusive": "inconclusive",
    "decided": "found",
    "undecided": "inconclusive",
    "held": "found",
    "lost": "not found",
    "not measured": "inconclusive",
}


def each(pattern: str, rows: Iterable[Sequence[object]]) -> Markup:
    """The pattern once for each row, with the values of the row in its places."""
    return Markup("").join(Markup(pattern).format(*row) for row in rows)


def paragraphs(texts: Iterable[object]) -> Markup:
    return each("<p>{}</p>", ((text,) for text in texts))


def items(texts: Iterable[object]) -> Markup:
    return each("<li>{}</li>", ((text,) for text in texts))


def facts(rows: Iterable[tuple[object, object]], kind: str = "facts") -> Markup:
    """Labels with their values; `kind` is the class of the list."""
    return Markup('<dl class="{}">{}</dl>').format(kind, each("<dt>{}</dt><dd>{}</dd>", rows))


def heads(names: Iterable[str | tuple[object, str]]) -> Markup:
    """The header cells of a table: their texts, or pairs of text and class."""
    pairs = ((name, "") if isinstance(name, str) else name for name in names)
    return each('<th scope="col"{}>{}</th>', ((_class(kind), text) for text, kind in pairs))


def table(label: str, names: Iterable[str | tuple[object, str]], rows: Iterable[Markup], kind: str = "") -> Markup:
    """A table of finished rows, in a box that scrolls sideways where the page is too narrow for it.

    Args:
        label: its name for screen readers.
        names: see `heads`.
        kind: another class of the table.
    """
    return scrolling(
        label,
        Markup('<table class="{}" aria-label="{}"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>').format(
            f"case-table {kind}".rstrip(), label, heads(names), Markup("").join(rows)
        ),
    )


def scrolling(label: str, content: Markup) -> Markup:
    """A table in a box that scrolls sideways, also by keyboard; `label` is the name of the box for screen readers."""
    return Markup('<div class="table-scroll" tabindex="0" role="region" aria-label="{}">{}</div>').format(
        label, content
    )


def record_row(id: str, title: str, chosen: bool, cells: Markup, below: str | Markup = "") -> Markup:
    """A row of a list: the title is a real button, so that the list works by keyboard, and `cells` follow it.

    Args:
        below: text below the button.
    """
    return Markup(
        '<tr{}><th scope="row"><button type="button" class="place" data-record="{}"{}>{}</button>{}</th>{}</tr>'
    ).format(
        _class("chosen" if chosen else ""), id, Markup(' aria-current="true"') if chosen else "", title, below, cells
    )


def beneath(text: str) -> Markup:
    """A second line in small type, if there is a text."""
    return Markup('<span class="beneath">{}</span>').format(text) if text else Markup("")


def own(text: str, longest: int = 200) -> Markup:
    """A name or a note that somebody typed, which no translation may change."""
    return Markup('<span translate="no">{}</span>').format(printable(text, longest))


def with_icon(symbol: str, word: str) -> Markup:
    return Markup('<span class="word-with-icon">{}{}</span>').format(icon(symbol), word)


def verdict_word(word: str, unknown: str = "fault") -> Markup:
    """An outcome with its sign, so that it does not depend on colour alone; `unknown` is the icon of other words."""
    return with_icon(_ICONS.get(word, unknown), printable(word[:1].upper() + word[1:], 80))


def moment(time: str) -> str:
    """A time of the vault or of a job, to the minute."""
    return time[:16].replace("T", " ")


def _class(name: str) -> Markup:
    return Markup(' class="{}"').format(name) if name else Markup("")
