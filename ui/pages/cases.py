"""Cases: items, examinations and notes of one matter, its custody log, and all of it as one archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report.review import CONCLUSIONS
from storage.case_archive import export_case
from storage.casebook import LONGEST_TITLE
from storage.vault import Vault
from ui.components.case_file import (
    CaseLine,
    case_head_html,
    cases_html,
    custody_html,
    items_html,
    notes_html,
    runs_html,
)
from ui.components.dispute_form import dispute_form
from ui.components.events import PRIVATE, in_turn, unchanged
from ui.components.guarded import guarded
from ui.components.item_form import item_form
from ui.components.job_card import job_card
from ui.components.job_list import LIST_SCRIPT
from ui.components.next_steps import AWAIT_RESULT, OUTCOME, TO_RESULT
from ui.components.paged_table import damage_html
from ui.components.places import Places
from ui.components.run_view import run_view
from ui.components.uploads import new_offer
from ui.context import Context
from ui.file_names import plain_name
from ui.jobs.requests import Asked
from ui.services.filing import examiner_of

INTRO = """
# Cases
Each case contains the items that you received, your examinations, and their results.
"""
KINDS = ("item", "dispute")
ARCHIVE = (
    "One .zip file with the items and their hashes, the notes, every run with its signed report, the custody log, and "
    "SHA256SUMS for checking all files. The models themselves are not included."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    Cases(context, Layout(context)).connect(tab)


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        gr.Markdown(INTRO)
        self.damaged = gr.HTML(visible=False)
        self.listed = gr.HTML(js_on_load=LIST_SCRIPT, elem_id="cases-list")
        self.new_title, self.open_new, untitled = _title_field("Open a new case", "new-case", "Open")
        self.of_new = Places(form=untitled)
        self.case_id = gr.State(None)
        with gr.Column(visible=False, elem_id="case") as self.box:
            self.head = gr.HTML(elem_id="case-head")
            self.title, self.rename, unnamed = _title_field("Rename the case", "rename-case", "Rename")
            self.of_title = Places(form=unnamed)
            with gr.Row(elem_classes="case-export"):
                self.export = gr.Button(
                    "Export the case", variant="primary", elem_id="export-case", scale=0, min_width=180
                )
                self.archive = gr.DownloadButton(
                    "Download the archive (.zip)", visible=False, elem_id="case-archive", scale=0, min_width=240
                )
            gr.Markdown(ARCHIVE, elem_classes="caption")
            gr.Markdown("## Items")
            self.items = gr.HTML(elem_id="case-items")
            with gr.Accordion("Add an item", open=False, elem_id="add-item") as self.item_box:
                self.item = item_form(context)
            gr.Markdown("## Runs")
            self.runs = gr.HTML(js_on_load=LIST_SCRIPT, elem_id="case-runs")
            self.run = run_view()
            with gr.Accordion("Dispute between two claimants", open=False, elem_id="dispute") as self.dispute_box:
                self.dispute = dispute_form(context)
            self.job = job_card(context, KINDS)
            self.disputed = gr.State(None)  # the job of the dispute that was begun here
            gr.Markdown("## Notes")
            self.notes = gr.HTML(elem_id="case-notes")
            with gr.Row(elem_classes="picker-row"):
                self.note = gr.Textbox(
                    label="New note",
                    info="The note is saved with the time and your name, and cannot be changed later",
                    lines=2,
                    max_length=4000,
                    elem_id="note-text",
                )
                self.add_note = gr.Button(
                    "Add", elem_id="add-note", elem_classes="field-button", scale=0, min_width=112
                )
            self.of_note = Places(form=gr.HTML(visible=False, elem_id="note-notice"))
            with gr.Accordion("Custody log", open=False, elem_id="custody"):
                gr.Markdown(
                    "Every entry about this case in the vault’s log. Each entry contains the hash of the previous "
                    "one, so no entry can be changed or removed without detection.",
                    elem_classes="caption",
                )
                self.custody = gr.HTML(elem_id="custody-log")

    @property
    def shown(self) -> list[Any]:
        """The components that `shown_case` gives values for, in order."""
        whole = [self.listed, self.damaged, self.box, self.case_id, self.head, self.items, self.runs, self.notes]
        return [*whole, self.custody, self.archive]


@dataclass(frozen=True, slots=True)
class Cases:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self, tab: gr.Tab) -> None:
        """Connects each event to its handler."""
        page, case, run, turn = self.page, self.page.case_id, self.page.run.outputs, in_turn("cases")
        # The tab is also selected when it is in front and the vault is opened.
        tab.select(self.fill, case, page.shown, trigger_mode="always_last", **turn)
        page.listed.chosen(self.choose, None, [*page.shown, *run], **turn)
        page.runs.chosen(self.open_run, None, run, **turn)
        opened, renamed, noted = (
            [page.new_title, *page.shown, *run],
            [page.title, *page.shown],
            [page.note, *page.shown],
        )
        of_new, of_title, of_note = page.of_new, page.of_title, page.of_note
        new_case, rename = of_new.told(self.open_case, len(opened)), of_title.told(self.rename_case, len(renamed))
        opened, renamed = [*opened, *of_new.outputs], [*renamed, *of_title.outputs]
        gr.on([page.open_new.click, page.new_title.submit], new_case, page.new_title, opened, **turn)
        gr.on([page.rename.click, page.title.submit], rename, [page.title, case], renamed, **turn)
        write = of_note.told(self.write_note, len(noted))
        page.add_note.click(write, [page.note, case], [*noted, *of_note.outputs], **turn)
        item, dispute, job_id = page.item, page.dispute, page.job.job_id
        begun = [job_id, *item.places.outputs]
        item.start.click(item.places.told(self.begin_item, 1), [case, *item.inputs], begun, **PRIVATE)
        begun = [job_id, page.disputed, page.run.box, *dispute.places.outputs]
        dispute.start.click(dispute.places.told(self.begin_dispute, 3), [case, *dispute.inputs], begun, **PRIVATE)
        page.disputed.change(None, js=AWAIT_RESULT.format(OUTCOME))
        shown = [*page.shown, page.item_box, page.dispute_box, *run]
        finished = page.job.ended.change(self.finished, [page.job.ended, case], shown, **turn)
        finished.then(None, js=TO_RESULT.format(OUTCOME))
        page.export.click(self.pack, case, [page.archive, page.custody], **turn)

    @guarded
    def fill(self, wanted: str | None, request: gr.Request) -> Any:
        """The page when it comes into view."""
        if not self.context.is_open(request):
            return unchanged(self.page.shown)
        return shown_case(self.context.require(request), wanted)

    @guarded
    def choose(self, event: gr.EventData, request: gr.Request) -> Any:
        """A case of the list."""
        return *shown_case(self.context.require(request), str(event.record)), *self.page.run.hidden()

    @guarded
    def open_run(self, event: gr.EventData, request: gr.Request) -> Any:
        return self.page.run.shown(self.context.require(request), str(event.record))

    def write_note(self, words: str | None, id: str | None, request: gr.Request) -> Any:
        vault = self.context.require(request)
        if not (words or "").strip():
            raise IrwmError("the note is empty", advice="Write the note first")
        vault.add_note(_required(id), (words or "").strip(), added_by=examiner_of(vault, _required(id)))
        return "", *shown_case(vault, id)

    def open_case(self, words: str | None, request: gr.Request) -> Any:
        """A new case of this title."""
        vault = self.context.require(request)
        return "", *shown_case(vault, vault.add_case(_title(words)).id), *self.page.run.hidden()

    def rename_case(self, words: str | None, id: str | None, request: gr.Request) -> Any:
        vault = self.context.require(request)
        vault.rename_case(_required(id), _title(words))
        return "", *shown_case(vault, id)

    def begin_item(self, request: gr.Request, id: str | None, *values: Any) -> Any:
        vault = self.context.require(request)
        asked = self.page.item.request(_required(id), *values)
        return self.context.start(Asked(f"Add {Path(asked.path).name}", asked), vault).id

    def begin_dispute(self, request: gr.Request, id: str | None, *values: Any) -> Any:
        vault = self.context.require(request)
        asked = self.page.dispute.request(_required(id), self.context.settings.device, *values)
        started = self.context.start(Asked(f"Dispute with {asked.theirs.name}", asked), vault).id
        return started, started, gr.Column(visible=False)  # an earlier run would be taken for the outcome

    @guarded
    def finished(self, ended: str | None, id: str | None, request: gr.Request) -> Any:
        """The updated case when a task about it is over; a dispute's outcome is opened. Another chosen case stays.

        The form of the task is folded, so that the result is near it. After a failure it stays open.
        """
        run = self.page.run
        if ended is None or not self.context.is_open(request):
            return unchanged([*self.page.shown, None, None, *run.outputs])
        vault, done = self.context.require(request), self.context.jobs_of(request).get(ended)
        about = done.request.get("case_id") or id
        outcome = (done.result or {}).get("run_id") if id in (None, about) else None
        opened = run.shown(vault, outcome) if outcome else unchanged(run.outputs)
        folded = gr.Accordion(open=False) if done.state == "done" else gr.skip()
        forms = (folded if done.kind == kind else gr.skip() for kind in KINDS)
        return *shown_case(vault, id or about), *forms, *opened

    @guarded
    def pack(self, id: str | None, request: gr.Request) -> Any:
        """The archive of the case, and the custody log with the entry about it."""
        vault = self.context.require(request)
        case = next(case for case in vault.cases() if case.id == _required(id))
        path = export_case(vault, case.id, new_offer(f"{plain_name('case', case.title, mark=case.id[:6])}.zip"))
        return gr.DownloadButton(value=str(path), visible=True), custody_html(vault.case_file(case.id).entries)


def shown_case(vault: Vault, wanted: str | None) -> tuple[Any, ...]:
    """All values of `Layout.shown` for the wanted case; for the newest if that one is gone or `wanted` is None."""
    cases = vault.cases()
    lines = case_lines(vault)
    case = next((case for case in cases if case.id == wanted), cases[-1] if cases else None)
    if case is None:
        empty = ("",) * 5
        return cases_html(lines, None), _damage(cases.damaged), gr.Column(visible=False), None, *empty, gr.skip()
    file = vault.case_file(case.id)
    lost = dict.fromkeys((*cases.damaged, *file.damaged, *file.missing))
    return (
        cases_html(lines, case.id),
        _damage(tuple(lost)),
        gr.Column(visible=True),
        case.id,
        case_head_html(case),
        items_html(file.items),
        runs_html(file.runs),
        notes_html(file.notes),
        custody_html(file.entries),
        # An earlier export no longer shows the current case.
        gr.DownloadButton(value=None, visible=False),
    )


def _title_field(label: str, elem_id: str, button: str) -> tuple[gr.Textbox, gr.Button, gr.HTML]:
    """A folded field for a case's title, the button next to it, and the place below it for errors."""
    with gr.Accordion(label, open=False, elem_id=elem_id):
        with gr.Row(elem_classes="picker-row"):
            field = gr.Textbox(label="Title", max_length=LONGEST_TITLE, max_lines=1, elem_id=f"{elem_id}-title")
            press = gr.Button(button, elem_id=f"{elem_id}-button", elem_classes="field-button", scale=0, min_width=112)
        told = gr.HTML(visible=False, elem_id=f"{elem_id}-notice")
    return field, press, told


def _title(words: str | None) -> str:
    """The title of a case, as typed.

    Raises:
        IrwmError: the field is empty.
    """
    if not (words or "").strip():
        raise IrwmError("the title is empty", advice="Enter a title first")
    return (words or "").strip()


def case_lines(vault: Vault) -> list[CaseLine]:
    """Every case as a line of the list, newest first."""
    lines = []
    for case in reversed(vault.cases()):
        filed = vault.runs_of(case.id)
        # The conclusion of a review is no verdict on a suspect.
        verdicts = [run.verdict for run in filed if run.verdict not in CONCLUSIONS]
        lines.append(
            CaseLine(
                id=case.id,
                title=case.title,
                opened=case.created,
                items=len(vault.case_items(case.id)),
                runs=len(filed),
                last=verdicts[-1] if verdicts else "",
            )
        )
    return lines


def _damage(lost: tuple[Any, ...]) -> Any:
    return gr.HTML(damage_html(lost), visible=True) if lost else gr.HTML(visible=False)


def _required(id: str | None) -> str:
    """The case that the page shows.

    Raises:
        IrwmError: it shows no case.
    """
    if not id:
        raise IrwmError("no case is open", advice="Choose a case from the list first")
    return id
