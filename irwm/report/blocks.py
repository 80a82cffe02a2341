"""The printed form of a report as plain blocks, taken from its HTML: the sentences and the numbers are written once.

`render_html` escapes all untrusted text, so only the template's own tags are markup; this module therefore reads the
template's structure and text. A block is a dictionary that `report.typ` can set:

    {"kind": "heading", "level": 1 to 3, "runs": runs}
    {"kind": "par", "class": "lead", "runs": runs}
    {"kind": "list", "ordered": bool, "items": [runs, ...]}
    {"kind": "facts", "rows": [[runs, runs], ...]}
    {"kind": "table", "class": ..., "columns": [...], "head": [[cell, ...], ...], "body": [[cell, ...], ...]}
    {"kind": "figure", "name": ..., "caption": runs, "alt": text}
    {"kind": "pre", "text": text}
    {"kind": "card", "word": ..., "said": runs, "sentence": runs, "first": [block, ...], "figures": [[block, ...], ...],
     "rest": [block, ...]}

`runs` is a list of {"text": ..., "styles": [...]}, where a style is b, i, sup, sub, code, small or aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TypedDict

from irwm.canonical import strict_json
from irwm.report.html import FIGURE_DATA
from irwm.report.plots.theme import PlotlyJson
from irwm.report.typefaces import settable

Block = dict[str, object]
_VOID = frozenset(("br", "hr", "img", "meta", "link", "path", "circle"))
# Elements that only a screen needs.
_LEFT_OUT = frozenset(("noscript", "svg", "script", "style"))
_STYLES = {"b": "b", "strong": "b", "i": "i", "em": "i", "sup": "sup", "sub": "sub", "code": "code", "small": "small"}
_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 3, "summary": 3}
# A longer word could be wider than its column; a SHA-256 has 64 characters and a column that fits it.
_LONGEST_WORD = 24
_HASH = re.compile(r"[0-9a-f]{64}|[0-9a-f]{128}")
_BREAK_HERE = "\u200b"


class Run(TypedDict):
    """Text in one combination of styles."""

    text: str
    styles: list[str]


class _Cell(TypedDict):
    """A cell of a table."""

    runs: list[Run]
    across: int
    down: int
    left: bool
    centre: bool
    header: bool


@dataclass(slots=True)
class _Node:
    """An element: its tag, its attributes, and elements and texts inside."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[_Node | str] = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def elements(self, *tags: str) -> list[_Node]:
        return [child for child in self.children if isinstance(child, _Node) and (not tags or child.tag in tags)]

    def every(self, *tags: str) -> Iterator[_Node]:
        for child in self.elements():
            if child.tag in tags:
                yield child
            yield from child.every(*tags)


class _Tree(HTMLParser):
    """Builds the elements of this package's template, which closes every tag."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = _Node("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = _Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(_Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while len(self._open) > 1 and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def blocks_of(html: str) -> list[Block]:
    """The blocks of a report's HTML, in order."""
    tree = _Tree()
    tree.feed(html[html.index("<main>") : html.index("</main>")])
    tree.close()
    return list(_blocks(tree.root))


def figures_of(html: str) -> dict[str, PlotlyJson]:
    """The figures inside a report's HTML by name, as plotly's JSON: {"data": traces, "layout": layout}."""
    _, _, rest = html.partition(FIGURE_DATA)
    data, end, _ = rest.partition("</script>")
    return strict_json(data.encode())["figures"] if end else {}


def _blocks(node: _Node) -> Iterator[Block]:
    for child in node.children:
        if isinstance(child, str):
            if child.strip():  # the template has no text outside a paragraph; if it ever does, it is kept
                yield {"kind": "par", "class": "", "runs": _runs([child])}
        elif child.tag in _LEFT_OUT:
            continue
        elif child.tag in _HEADINGS:
            yield {"kind": "heading", "level": _HEADINGS[child.tag], "runs": _runs(child.children)}
        elif child.tag == "p":
            yield {"kind": "par", "class": " ".join(child.classes), "runs": _runs(child.children)}
        elif child.tag in ("ul", "ol"):
            items = [_runs(item.children) for item in child.elements("li")]
            yield {"kind": "list", "ordered": child.tag == "ol", "items": items}
        elif child.tag == "table":
            yield _facts(child) if "facts" in child.classes else _table(child)
        elif child.tag == "figure":
            yield _figure(child)
        elif child.tag == "pre":
            yield {"kind": "pre", "text": _breakable(settable(_text(child)).rstrip("\n"), 90)}
        elif child.tag == "section" and "verdict" in child.classes:
            yield _card(child)
        elif child.tag in _STYLES or child.tag in ("span", "q", "a"):
            yield {"kind": "par", "class": "", "runs": _runs([child])}
        else:
            yield from _blocks(child)


def _facts(table: _Node) -> Block:
    rows = []
    for row in table.every("tr"):
        cells = row.elements("th", "td")
        rows.append([_runs(cells[0].children), _runs(cells[1].children)])
    return {"kind": "facts", "rows": rows}


def _table(table: _Node) -> Block:
    head = [row for part in table.elements("thead") for row in part.elements("tr")]
    body = [row for part in table.elements("tbody") or [table] for row in part.elements("tr")]
    named = [[_cell(cell, True) for cell in row.elements("th", "td")] for row in head]
    cells = [[_cell(cell, False) for cell in row.elements("th", "td")] for row in body]
    names = " ".join(table.classes)
    columns = _columns(named, cells, narrow="narrow" in names)
    return {"kind": "table", "class": names, "head": named, "body": cells, "columns": columns}


def _cell(cell: _Node, header: bool) -> _Cell:
    return {
        "runs": _runs(cell.children),
        "across": int(cell.attributes.get("colspan", "1")),
        "down": int(cell.attributes.get("rowspan", "1")),
        "left": "text" in cell.classes,
        "centre": "over" in cell.classes,
        "header": header,
    }


def _columns(head: list[list[_Cell]], body: list[list[_Cell]], *, narrow: bool) -> list[int]:
    """One width per column: 0 for as narrow as its content, else its share of the rest."""
    rows = body or head
    count = max((sum(cell["across"] for cell in row) for row in rows), default=0)
    longest, text = [0] * count, [False] * count
    for row in rows:
        if len(row) == count:
            for i, cell in enumerate(row):
                longest[i] = max(longest[i], len(_plain(cell)))
                text[i] = text[i] or cell["left"]
    widths = [min(max(n, 8), 70) if t and n > 12 else 0 for n, t in zip(longest, text, strict=True)]
    if any(widths) or narrow:
        return widths
    # Only numbers: the columns are spread over the page, each by the length of its content and its heading.
    for row in head:
        if len(row) == count:
            longest = [max(n, len(_plain(cell))) for n, cell in zip(longest, row, strict=True)]
    return [n + 3 for n in longest]


def _plain(cell: _Cell) -> str:
    return "".join(run["text"] for run in cell["runs"])


def _figure(figure: _Node) -> Block:
    plot = next((node for node in figure.every("div") if "plot" in node.classes), _Node("div"))
    caption = next(figure.every("figcaption"), _Node("figcaption"))
    return {
        "kind": "figure",
        "name": plot.attributes.get("id", ""),
        "alt": settable(plot.attributes.get("aria-label", "")),
        "caption": _runs(caption.children),
    }


def _card(section: _Node) -> Block:
    said: dict[str, list[Run]] = {name: [] for name in ("word", "sentence")}
    figures: list[list[Block]] = []
    first: list[Block] = []
    rest: list[Block] = []
    for part in section.elements():
        if "says" in part.classes:
            for p in part.every("p"):
                said.setdefault(" ".join(p.classes), []).extend(_runs(p.children))
        elif "three" in part.classes:
            figures = [list(_blocks(column)) for column in part.elements("div")]
        elif "first" in part.classes:
            first += _blocks(_Node("", {}, [part]))
        else:
            rest += _blocks(_Node("", {}, [part]))
    word = " ".join(name for name in section.classes if name != "verdict").replace("-", " ")
    card = {"kind": "card", "word": word, "said": said["word"], "sentence": said["sentence"]}
    return card | {"first": first, "figures": figures, "rest": rest}


def _runs(children: list[_Node | str], styles: tuple[str, ...] = ()) -> list[Run]:
    """Text with its styles; runs of blanks become one, as in HTML, and blanks at both ends are removed."""
    runs = [run for run in _raw_runs(children, styles) if run["text"]]
    joined: list[Run] = []
    for run in runs:
        text = re.sub(r"[ \t\r\n]+", " ", run["text"])
        if (not joined or joined[-1]["text"].endswith((" ", "\n"))) and text.startswith(" "):
            text = text[1:]
        if text:
            joined.append({"text": text, "styles": run["styles"]})
    if joined:
        joined[-1]["text"] = joined[-1]["text"].rstrip(" ")
    return [{**run, "text": _breakable(settable(run["text"]), _LONGEST_WORD)} for run in joined]


def _raw_runs(children: list[_Node | str], styles: tuple[str, ...]) -> Iterator[Run]:
    for child in children:
        if isinstance(child, str):
            yield {"text": child, "styles": list(styles)}
        elif child.tag in _LEFT_OUT:
            continue
        else:
            own = _STYLES.get(child.tag) or ("aside" if "aside" in child.classes else "")
            quotes = child.tag == "q"
            if quotes:
                yield {"text": "“", "styles": list(styles)}
            yield from _raw_runs(child.children, (*styles, own) if own else styles)
            if quotes:
                yield {"text": "”", "styles": list(styles)}


def _text(node: _Node) -> str:
    return "".join(child if isinstance(child, str) else _text(child) for child in node.children)


def _breakable(text: str, longest: int) -> str:
    """`text` with possible breaks in words longer than a column; a SHA-256 stays whole, so that it can be copied."""

    def broken(word: re.Match[str]) -> str:
        if _HASH.fullmatch(word[0]):
            return word[0]
        return _BREAK_HERE.join(word[0][i : i + 8] for i in range(0, len(word[0]), 8))

    return re.sub(rf"[^\s\u00a0]{{{longest + 1},}}", broken, text)
