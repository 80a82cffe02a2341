"""A long list as a table of one page with a search field; the browser holds only one page of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError, printable
from irwm.report.numbers import counted, number, why_capped
from storage.records import RecordName
from storage.vault import PAGE_SIZE, Vault
from ui.components import notices
from ui.components.events import in_turn
from ui.components.guarded import guarded
from ui.components.markup import each, own, table
from ui.context import Context

LONGEST_SEARCH = 200
# A few names are enough; ten thousand of them would hide the advice.
MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Found:
    """One page of search results.

    Attributes:
        rows: the page's rows, with one cell for each header of the table; a `Markup` is used unchanged.
        total: rows on all pages together.
        damaged: records of all pages that do not authenticate.
        also: values for other components of the app's page that depend on this table.
    """

    rows: list[list[str]]
    total: int
    damaged: tuple[RecordName, ...] = ()
    also: tuple[Any, ...] = ()


# Searches the vault for words; offset and limit select the rows.
Find = Callable[[Vault, str, int, int], Found]


class PagedTable:
    """The table with its search field; `wire` connects it once the components that depend on it are built.

    Args:
        place: prefix of the ids of the table and its controls.
        one: the name of a row, such as "key".
        info: the columns that the search covers.
        none_yet: HTML in the table's place while there are no rows at all.
    """

    def __init__(self, place: str, headers: Sequence[str], one: str, info: str, none_yet: str) -> None:
        self.headers, self.one, self.several, self.none_yet = headers, one, f"{one}s", none_yet
        several, elem_id = self.several, f"{place}-{one}s"
        self.damaged = gr.HTML(visible=False)
        with gr.Row(elem_classes="picker-row", visible=False) as self.box:
            self.words = gr.Textbox(
                label=f"Search {several}",
                info=info,
                max_lines=1,
                max_length=LONGEST_SEARCH,
                elem_id=f"{elem_id}-search",
                html_attributes=gr.InputHTMLAttributes(autocomplete="off", spellcheck=False),
            )
            button: dict[str, Any] = {"elem_classes": "field-button", "scale": 0, "min_width": 112, "visible": False}
            self.back = gr.Button("Previous", elem_id=f"{elem_id}-back", **button)
            self.forth = gr.Button("Next", elem_id=f"{elem_id}-forth", **button)
        self.where = gr.HTML(visible=False, elem_id=f"{elem_id}-where")
        self.empty = gr.HTML(visible=False, elem_id=f"{elem_id}-empty")
        # Not a Dataframe: the browser takes one or two seconds to draw fifty rows of one.
        self.table = gr.HTML(visible=False, elem_id=elem_id)
        self.page = gr.State(0)

    def wire(
        self, context: Context, find: Find, fill: Sequence[Any], also: Sequence[gr.components.Component] = ()
    ) -> None:
        """Connects the table with its data.

        Args:
            find: searches the vault.
            fill: events after which the current page is searched again.
            also: components that get `Found.also` with each page.
        """

        def shown(request: gr.Request, words: str | None, page: int) -> tuple[Any, ...]:
            vault, words = context.require(request), (words or "").strip()[:LONGEST_SEARCH]
            page = max(0, page)
            found = find(vault, words, page * PAGE_SIZE, PAGE_SIZE)
            last = max(0, (found.total - 1) // PAGE_SIZE)
            if page > last:  # there are fewer rows than when this page was opened
                page = last
                found = find(vault, words, page * PAGE_SIZE, PAGE_SIZE)
            nothing = "" if found.total else self.none_yet if not words else nothing_found_html(words, self.several)
            return (
                page,
                gr.Row(visible=bool(found.total or words)),
                gr.Button(visible=last > 0, interactive=page > 0),
                gr.Button(visible=last > 0, interactive=page < last),
                gr.HTML(
                    where_html(page, found.total, self.one, self.several, found=bool(words)), visible=found.total > 0
                ),
                gr.HTML(damage_html(found.damaged), visible=bool(found.damaged)),
                gr.HTML(nothing, visible=not found.total),
                gr.HTML(table_html(self.headers, found.rows, self.several), visible=found.total > 0),
                *found.also,
            )

        def again(words: str | None, page: int, request: gr.Request) -> Any:
            return shown(request, words, page) if context.is_open(request) else (gr.skip(),) * len(outputs)

        def search(words: str | None, request: gr.Request) -> Any:
            return shown(request, words, 0)

        def go_back(words: str | None, page: int, request: gr.Request) -> Any:
            return shown(request, words, page - 1)

        def go_forth(words: str | None, page: int, request: gr.Request) -> Any:
            return shown(request, words, page + 1)

        # More letters may be typed while one search runs; only the last text counts.
        turn = in_turn(str(self.table.elem_id))
        latest = {**turn, "trigger_mode": "always_last"}
        outputs = [
            self.page, self.box, self.back, self.forth, self.where, self.damaged, self.empty, self.table, *also
        ]  # fmt: skip
        gr.on(fill, guarded(again), [self.words, self.page], outputs, **latest)
        gr.on([self.words.change, self.words.submit], guarded(search), self.words, outputs, **latest)
        self.back.click(guarded(go_back), [self.words, self.page], outputs, **turn)
        self.forth.click(guarded(go_forth), [self.words, self.page], outputs, **turn)


def table_html(headers: Sequence[str], rows: Sequence[Sequence[str]], several: str) -> str:
    """The rows of one page as a plain table, and below it why odds are capped, if it has such odds."""
    lines = Markup("").join(
        Markup("<tr>{}</tr>").format(
            each("<td>{}</td>", ((cell if isinstance(cell, Markup) else own(cell, 500),) for cell in row))
        )
        for row in rows
    )
    why = why_capped(lines)
    return str(table(several.capitalize(), headers, [lines])) + (notices.note_html(why) if why else "")


def where_html(page: int, total: int, one: str, several: str, *, found: bool) -> str:
    """The range of the rows shown and their total number; screen readers read it when it changes.

    Args:
        page: counts from 0.
        found: whether the rows are the results of a search, or all rows.
    """
    text = rows = f"{counted(total, one, several)}{' found' if found else ''}"
    if total > PAGE_SIZE:
        first, last = page * PAGE_SIZE + 1, min(total, (page + 1) * PAGE_SIZE)
        pages = (total - 1) // PAGE_SIZE + 1
        text = f"Page {number(page + 1)} of {number(pages)}: {number(first)} to {number(last)} of {rows}, newest first"
    return str(Markup('<p class="note" role="status">{}</p>').format(text))


def nothing_found_html(words: str, several: str) -> str:
    """Replaces the table when a search finds no rows."""
    return notices.empty_html(
        "Nothing found", f"None of the {several} contains “{printable(words, 100)}”. Try fewer or shorter words."
    )


def damage_html(lost: Sequence[RecordName]) -> str:
    """An error with the records that do not authenticate."""
    return notices.error_html(
        IrwmError("some records in the vault are damaged", found=named(lost), advice="Restore the latest backup")
    )


def named(records: Sequence[RecordName]) -> str:
    """The first few records by name, and how many more there are."""
    text = ", ".join(f"{record.table} {record.id}" for record in records[:MOST_NAMED])
    return f"{text} and {len(records) - MOST_NAMED} more" if len(records) > MOST_NAMED else text
