"""Watch: which of the models that appear on hubs, in buckets and in folders are copies of ours?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.checkpoint.remote.address import is_address
from irwm.errors import IrwmError, printable, shown_path
from storage.job_table import Job
from ui.components import notices
from ui.components.browsing import BrowsingLimits, use_path
from ui.components.descent_map import DescentMap
from ui.components.events import LAST, PRIVATE, in_turn
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.job_list import LIST_SCRIPT, where_text
from ui.components.next_steps import OPEN_PAGE
from ui.components.originals_table import all_originals_html
from ui.components.places import Places, at
from ui.components.watch_list import (
    ALL,
    FINDINGS,
    NOTHING_YET,
    PAGE_SIZE,
    SHOWN,
    chosen_rows,
    detail_html,
    id_of,
    list_html,
    summary_html,
)
from ui.context import Context
from ui.jobs import requests
from ui.services.known_originals import KnownOriginals
from ui.services.request import BYTES_OF_ONE, MOST_IN_A_PASS, SECONDS_OF_ONE
from ui.services.results import WatchRow
from ui.services.stored_results import watch_rows, watches

INTRO = """
# Watch
Screens the models of organisations, buckets and folders for copies of yours, each version once.
"""
KIND = "watch"
# Labels and hours.
EVERY = [("No", 0), ("Every hour", 1), ("Every 6 hours", 6), ("Every day", 24), ("Every week", 168)]
GIB = 1 << 30
TO_RESULTS = "() => document.getElementById('watch-results')?.scrollIntoView({block: 'nearest'})"


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    Watch(context, Layout(context)).connect(tab)


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        gr.Markdown(INTRO)
        self.sources = gr.Textbox(
            label="Sources",
            info="One on each line: a folder, hf://organisation, hf://?search=words, s3://bucket/folder, or the "
            "address of one model. Allow servers on the page Settings first",
            lines=3,
            max_lines=10,
            max_length=20_000,
            elem_id="watch-sources",
        )
        sources_notice = gr.HTML(visible=False, elem_id="watch-sources-notice")
        self.originals = gr.HTML(elem_id="watch-originals")
        with gr.Accordion("Keys and limits", open=False, elem_id="watch-advanced"):
            self.words = gr.Textbox(
                label="Keys (optional)",
                info="Only keys with these words in owner, recipient or note",
                max_length=200,
                elem_id="watch-words",
            )
            with gr.Row():
                self.most = gr.Number(
                    MOST_IN_A_PASS, label="Suspects in one pass", info="The others are left for the next pass"
                )
                self.size = gr.Number(
                    BYTES_OF_ONE // GIB, label="GiB of one suspect", info="Most that is read of it from a server"
                )
                self.seconds = gr.Number(
                    SECONDS_OF_ONE,
                    label="Seconds for one suspect",
                    info="After that, its result is inconclusive or an error",
                )
        self.every = gr.Dropdown(
            EVERY,
            value=0,
            label="Repeat",
            info="While this computer is on, also if the vault is locked meanwhile. Stop ends it",
            elem_id="watch-every",
        )
        told = gr.HTML(visible=False, elem_id="watch-notice")
        self.start = gr.Button("Screen the sources", variant="primary", elem_id="start-watch")
        self.job = job_card(context, (KIND,), unit="suspects")
        with gr.Column(elem_id="watch-results"):
            self.summary = gr.HTML(visible=False, elem_id="watch-summary")
            with gr.Row(elem_classes="list-row"):
                self.shown = gr.Radio(SHOWN, value=FINDINGS, label="Show", elem_id="watch-shown")
            with gr.Row(elem_classes="list-row"):
                self.where = gr.HTML(elem_id="watch-where")
                self.back = gr.Button("Previous", elem_id="watch-back", size="sm", scale=0, min_width=96, visible=False)
                self.forth = gr.Button("Next", elem_id="watch-forth", size="sm", scale=0, min_width=96, visible=False)
            self.listed = gr.HTML(NOTHING_YET, js_on_load=LIST_SCRIPT, elem_id="watch-list")
            self.detail = gr.HTML(visible=False, elem_id="watch-detail")
            self.investigate = gr.Button(
                "Investigate this suspect", visible=False, elem_id="watch-investigate", scale=0, min_width=230
            )
        self.map = DescentMap(context)
        self.page, self.chosen = gr.State(0), gr.State(None)
        self.places = Places(form=told, sources=sources_notice)

    @property
    def results(self) -> list[Any]:
        """The components that `Watch.filled` gives values for."""
        return [
            self.summary, self.where, self.back, self.forth, self.listed, self.detail, self.investigate, self.page,
            self.chosen,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Watch:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self, tab: gr.Tab) -> None:
        """Connects each event to its handler."""
        page, places = self.page, self.page.places
        tab.select(self.about_originals, None, page.originals, **PRIVATE)
        limits = [page.words, page.most, page.size, page.seconds, page.every]
        page.start.click(
            places.told(self.begin, 1), [page.sources, *limits], [page.job.job_id, *places.outputs], **PRIVATE
        )
        listing = in_turn(KIND)
        asked = [page.shown, page.page, page.chosen, page.job.job_id]
        looks = [tab.select, page.job.ended.change, page.job.step.change]
        gr.on(looks, guarded(self.fill), asked, page.results, trigger_mode="always_last", **listing)
        page.shown.change(guarded(self.first_page), asked, page.results, **{**listing, **LAST})
        page.back.click(self.turn(-1), asked, page.results, **listing)
        page.forth.click(self.turn(+1), asked, page.results, **listing)
        page.listed.chosen(guarded(self.choose), asked, page.results, **listing)
        opened = page.investigate.click(
            guarded(self.investigated), [page.chosen, page.job.job_id], self.context.investigate.taken, **PRIVATE
        )
        opened.success(None, js=OPEN_PAGE.format("investigate"))
        page.map.connect(tab)
        page.map.findings.click(
            guarded(self.findings), page.job.job_id, [page.map.models, page.map.originals], **PRIVATE
        )

    def about_originals(self, request: gr.Request) -> str:
        """With which originals suspects will be compared."""
        if not self.context.is_open(request):
            return ""
        return all_originals_html(self._originals(request), several=True) or notices.empty_html(
            "No originals yet", "Protect a model first. Its original is then compared with every suspect."
        )

    def begin(
        self,
        request: gr.Request,
        typed: str | None,
        words: str | None,
        most: float | None,
        size: float | None,
        seconds: float | None,
        every: float | None,
    ) -> str:
        """Starts the job; returns its id."""
        context = self.context
        vault, limits = context.require(request), BrowsingLimits.of(context.settings)
        with at("sources"):
            sources = [
                line if is_address(line) else shown_path(use_path(line, limits, kind="folder"))
                for line in filter(None, map(str.strip, (typed or "").splitlines()))
            ]
            asked = requests.watch(
                vault,
                sources,
                matching=words or "",
                most=most,
                most_bytes=None if size is None else size * GIB,
                seconds=seconds,
                every=every or 0,
                device=context.settings.device,
                scheduler=context.settings.scheduler,
                allowed=limits.allow,
            )
        return context.start(asked, vault).id

    def fill(self, shown: str, at: int, chosen: str | None, id: str | None, request: gr.Request) -> tuple[Any, ...]:
        if not self.context.is_open(request):
            return (gr.skip(),) * len(self.page.results)
        return self.filled(shown, at, chosen, id, request)

    def first_page(
        self, shown: str, at: int, chosen: str | None, id: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        return self.fill(shown, 0, None, id, request)

    def turn(self, by: int) -> Any:
        """The handler that shows another page of the list."""

        @guarded
        def to(shown: str, at: int, chosen: str | None, id: str | None, request: gr.Request) -> Any:
            self.context.require(request)
            return self.filled(shown, at + by, chosen, id, request)

        return to

    def choose(
        self, event: gr.EventData, shown: str, at: int, chosen: str | None, id: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        self.context.require(request)
        return self.filled(shown, at, str(event.record), id, request)

    def filled(self, shown: str, at: int, chosen: str | None, id: str | None, request: gr.Request) -> tuple[Any, ...]:
        """The values of `Layout.results`, with this page of the list, or with the last page if there are fewer."""
        job, rows = self._rows(id, request)
        wanted = chosen_rows(rows, shown)
        last = max(0, (len(wanted) - 1) // PAGE_SIZE)
        at = max(0, min(at, last))
        page = wanted[at * PAGE_SIZE : (at + 1) * PAGE_SIZE]
        row = next((each for each in wanted if id_of(each) == chosen), None)
        result: Any = job.result if job else None
        return (
            gr.HTML(summary_html(result) if result else "", visible=bool(result)),
            _where_html(at, len(wanted)) if wanted else "",
            gr.Button(visible=last > 0, interactive=at > 0),
            gr.Button(visible=last > 0, interactive=at < last),
            list_html(page, chosen, shown if rows else ALL),
            gr.HTML(detail_html(row) if row else "", visible=row is not None),
            gr.Button(visible=row is not None),
            at,
            chosen if row else None,
        )

    def investigated(self, chosen: str | None, id: str | None, request: gr.Request) -> tuple[Any, ...]:
        """The suspect of a row, and the original that it resembles most, on the page Investigate."""
        self.context.require(request)
        row = next((each for each in reversed(self._rows(id, request)[1]) if id_of(each) == chosen), None)
        if row is None:
            raise IrwmError("no suspect was chosen", advice="Choose one from the list first")
        result = row["result"]
        original = result["original"] if result and result["lineage"] else ""
        values: tuple[Any, ...] = self.context.investigate.take(_address_of(row), original)
        return values

    def findings(self, id: str | None, request: gr.Request) -> tuple[str, str]:
        """The addresses of the findings, and the originals that they resemble, for the map."""
        self.context.require(request)
        rows = chosen_rows(self._rows(id, request)[1], FINDINGS)
        if not rows:
            raise IrwmError("there are no findings yet", advice="Screen the sources first, or enter models")
        found = [(_address_of(row), row["result"]["original"]) for row in rows if row["result"]]
        return tuple("\n".join(dict.fromkeys(each)) for each in zip(*found, strict=True))  # type: ignore[return-value]

    def _rows(self, id: str | None, request: gr.Request) -> tuple[Job | None, list[WatchRow]]:
        """The shown watch, else the newest one, with its rows so far."""
        jobs = self.context.jobs_of(request)
        job = jobs.get(id) if id else next(watches(jobs), None)
        return job, list(watch_rows(jobs.files(job.id))) if job else []

    def _originals(self, request: gr.Request) -> KnownOriginals:
        vault = self.context.require(request)
        return KnownOriginals.of(vault, BrowsingLimits.of(self.context.settings).allow)


def _address_of(row: WatchRow) -> str:
    part = row["result"]["part"] if row["result"] else ""
    return f"{row['address']}/{part}" if part else row["address"]


def _where_html(page: int, total: int) -> str:
    said = where_text(page, PAGE_SIZE, total, "suspect")
    return str(Markup('<p class="note" role="status">{}</p>').format(printable(said)))
