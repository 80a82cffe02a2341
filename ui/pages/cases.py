"""Cases: what was received, examined and noted in one matter, its custody log, and all of it as one archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.case_archive import export_case
from storage.vault import Vault
from ui.components.case_file import (
    LIST_SCRIPT,
    CaseLine,
    case_head_html,
    cases_html,
    custody_html,
    items_html,
    notes_html,
    runs_html,
)
from ui.components.dispute_form import dispute_form
from ui.components.events import PRIVATE, in_turn
from ui.components.finding_view import plain_name
from ui.components.guarded import guarded
from ui.components.item_form import item_form
from ui.components.job_card import job_card
from ui.components.paged_table import damage_html
from ui.components.run_view import run_view
from ui.components.uploads import new_offer
from ui.context import Context
from ui.jobs import runner
from ui.jobs.filing import examiner_of
from ui.jobs.vault_access import secrets_for

INTRO = """
# Cases
What you received, what you examined and what came of it, one matter at a time.
"""
ARCHIVE = (
    "One .zip: items with their hashes, notes, every run with its signed report, the custody log, and SHA256SUMS to "
    "check it all. The models themselves stay where they are."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    damaged = gr.HTML(visible=False)
    listed = gr.HTML(js_on_load=LIST_SCRIPT, elem_id="cases-list")
    case_id = gr.State(None)
    with gr.Column(visible=False, elem_id="case") as box:
        head = gr.HTML(elem_id="case-head")
        with gr.Row(elem_classes="case-export"):
            export = gr.Button("Export the case", variant="primary", elem_id="export-case", scale=0, min_width=180)
            archive = gr.DownloadButton(
                "Download the archive (.zip)", visible=False, elem_id="case-archive", scale=0, min_width=240
            )
        gr.Markdown(ARCHIVE, elem_classes="caption")
        gr.Markdown("## Items")
        items = gr.HTML(elem_id="case-items")
        with gr.Accordion("Add an item", open=False, elem_id="add-item"):
            form = item_form(context)
        gr.Markdown("## Runs")
        runs = gr.HTML(js_on_load=LIST_SCRIPT, elem_id="case-runs")
        view = run_view()
        with gr.Accordion("Dispute between two claimants", open=False, elem_id="dispute"):
            claims = dispute_form(context)
        job = job_card(context, ("item", "dispute"))
        gr.Markdown("## Notes")
        notes = gr.HTML(elem_id="case-notes")
        with gr.Row(elem_classes="picker-row"):
            text = gr.Textbox(
                label="New note",
                info="It is kept with the time and your name, and cannot be changed later",
                lines=2,
                max_length=4000,
                elem_id="note-text",
            )
            add_note = gr.Button("Add", elem_id="add-note", elem_classes="beside-field", scale=0, min_width=112)
        with gr.Accordion("Custody log", open=False, elem_id="custody"):
            gr.Markdown(
                "Every entry of the vault’s log about this case. Each holds the hash of the one before it, so that no "
                "entry can be changed or taken out unseen.",
                elem_classes="caption",
            )
            custody = gr.HTML(elem_id="custody-log")

    shown = [listed, damaged, box, case_id, head, items, runs, notes, custody, archive]
    nothing = (gr.skip(),) * len(shown)

    def look(vault: Vault, wanted: str | None) -> tuple[Any, ...]:
        """Everything of `shown`, with the case wanted; with the newest where that one is gone or none is named."""
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
            # What was exported is of another moment now.
            gr.DownloadButton(value=None, visible=False),
        )

    @guarded
    def fill(wanted: str | None, request: gr.Request) -> Any:
        return look(context.require(request), wanted) if context.is_open(request) else nothing

    @guarded
    def choose(event: gr.EventData, request: gr.Request) -> Any:
        return *look(context.require(request), str(event.record)), *view.hidden()

    @guarded
    def open_run(event: gr.EventData, request: gr.Request) -> Any:
        vault = context.require(request)
        return view.shown(vault, str(event.record))

    @guarded
    def write_note(words: str | None, id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        if not (words or "").strip():
            raise IrwmError("the note is empty", advice="Write it first")
        vault.add_note(_required(id), (words or "").strip(), added_by=examiner_of(vault, _required(id)))
        return "", *look(vault, id)

    @guarded
    def begin_item(request: gr.Request, *values: Any) -> Any:
        vault = context.require(request)
        id, *rest = values
        asked = form.request(*rest) | {"case_id": _required(id)}
        title = f"Add {Path(asked['path']).name}"
        return runner.start("item", title, asked, secrets_for(vault), context.jobs).id

    @guarded
    def begin_dispute(request: gr.Request, *values: Any) -> Any:
        vault = context.require(request)
        id, *rest = values
        asked = claims.request(*rest) | {
            "case_id": _required(id),
            "device": context.settings.device,
        }
        title = f"Dispute with {asked['theirs']['name']}"
        return runner.start("dispute", title, asked, secrets_for(vault), context.jobs).id

    @guarded
    def finished(ended: str | None, id: str | None, request: gr.Request) -> Any:
        """The case anew when a task about it is over; a dispute's outcome is opened. Another one chosen since stays."""
        if ended is None or not context.is_open(request):
            return *nothing, *(gr.skip(),) * len(view.outputs)
        vault, done = context.require(request), context.jobs.get(ended)
        about = done.request.get("case_id") or id
        outcome = (done.result or {}).get("run_id") if id in (None, about) else None
        opened = view.shown(vault, outcome) if outcome else (gr.skip(),) * len(view.outputs)
        return *look(vault, id or about), *opened

    @guarded
    def pack(id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        case = next(case for case in vault.cases() if case.id == _required(id))
        path = export_case(vault, case.id, new_offer(f"{plain_name(f'case-{case.title}')}.zip"))
        return gr.DownloadButton(value=str(path), visible=True), custody_html(vault.case_file(case.id).entries)

    turn = in_turn("cases")
    # It is selected too when it is in front and the vault is opened.
    tab.select(fill, case_id, shown, trigger_mode="always_last", **turn)
    listed.chosen(choose, None, [*shown, *view.outputs], **turn)
    runs.chosen(open_run, None, view.outputs, **turn)
    add_note.click(write_note, [text, case_id], [text, *shown], **turn)
    form.start.click(begin_item, [case_id, *form.inputs], job.job_id, **PRIVATE)
    claims.start.click(begin_dispute, [case_id, *claims.inputs], job.job_id, **PRIVATE)
    job.ended.change(finished, [job.ended, case_id], [*shown, *view.outputs], **turn)
    export.click(pack, case_id, [archive, custody], **turn)


def case_lines(vault: Vault) -> list[CaseLine]:
    """Every case as a line of the list, newest first."""
    lines = []
    for case in reversed(vault.cases()):
        filed = vault.runs_of(case.id)
        lines.append(
            CaseLine(
                id=case.id,
                title=case.title,
                opened=case.created,
                items=len(vault.case_items(case.id)),
                runs=len(filed),
                last=filed[-1].verdict if filed else "",
            )
        )
    return lines


def _damage(lost: tuple[Any, ...]) -> Any:
    return gr.HTML(damage_html(lost), visible=True) if lost else gr.HTML(visible=False)


def _required(id: str | None) -> str:
    """The case that the page shows.

    Raises:
        IrwmError: it shows none.
    """
    if not id:
        raise IrwmError("no case is open", advice="Choose a case in the list first")
    return id
