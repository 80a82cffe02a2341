"""Protect: mark a model before it leaves the house."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.checkpoint.card import card_of
from irwm.errors import IrwmError
from irwm.keys.key import MAX_NAME
from irwm.release import Preflight, preflight
from irwm.report.numbers import number
from ui.amounts import size_text
from ui.components import notices
from ui.components.browsing import Limits, new_folder
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.model_card import measure, model_html
from ui.components.path_picker import path_picker
from ui.components.receipt import HEADERS, receipt_html, receipt_rows
from ui.components.recipients import damaged_html, preview_html, recipients_field
from ui.components.settings_form import settings_form
from ui.components.uploads import offer
from ui.context import Context
from ui.jobs import requests
from ui.jobs.certifying import ALWAYS, NEVER, SMALL
from ui.jobs.protect_many import CSV_NAME, room_for
from ui.jobs.recipients import read_list
from ui.preset_names import MANY, STANDARD
from ui.presets import check_memory
from ui.settings import DEMO

INTRO = """
# Protect a model
Writes a copy of your model that carries a mark only your key can show. The original is not touched.
"""

ONE, SEVERAL = "One owner or recipient", "Many recipients"
# What the offered name of the release's folder ends in.
ENDINGS = {ONE: "-marked", SEVERAL: "-copies"}
ENDED_EARLY = (
    "The copies that were finished before it ended are complete and stay; the table lists them. Start again with the "
    "same list: they are passed over, and keys that were sealed already are used."
)
ALREADY_MARKED = (
    "This model is a release of yours and carries a mark already, for {}. A second mark is read against this release "
    "as its original, the first one against its own; both stay readable. To mark a copy for somebody else, choose the "
    "unmarked original."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    # Of the original that was looked at: its fingerprint and d. Then how many keys it will have, and copies now.
    fingerprint, hidden_size, in_use = gr.State(None), gr.State(None), gr.State((1, 1))
    filled_for = gr.State(None)  # d of the model that the preset's fields were filled in for
    with gr.Walkthrough(selected=1, elem_id="protect-steps") as steps:
        with gr.Step("Original", id=1):
            original = path_picker(
                context,
                label="Original model",
                info="The unmarked model: its folder, or one .safetensors file with config.json beside it",
                purpose="original",
            )
            with gr.Row():
                demo = gr.Button("Use the demo model", elem_id="use-demo", scale=0, min_width=200)
                to_names = gr.Button(
                    "Next", variant="primary", interactive=False, elem_id="to-names", scale=0, min_width=120
                )
            card = gr.HTML(elem_id="protect-model")
        with gr.Step("For whom", id=2):
            whom = gr.Radio(
                [ONE, SEVERAL], value=ONE, label="Who gets a copy", elem_id="whom", info="Each recipient gets their own"
            )
            with gr.Row():
                owner = gr.Textbox(
                    label="Owner", info="Whose model it is; bound into the key", elem_id="owner", max_length=MAX_NAME
                )
                recipient = gr.Textbox(
                    label="Recipient (optional)", info="Who gets this copy", elem_id="recipient", max_length=MAX_NAME
                )
            with gr.Column(visible=False) as list_box:
                names = recipients_field(context)
                preview = gr.HTML(elem_id="recipients-preview")
            label = gr.Textbox(label="Note (optional)", info="Your own words, kept in the vault", max_length=500)
            to_setting = _steps_row(steps, back=1, next_id="to-setting")
        with gr.Step("How", id=3):
            form = context.settings_form = settings_form(context, hidden_size, in_use)
            to_place = _steps_row(steps, back=2, next_id="to-place")
        with gr.Step("Where", id=4):
            folder = path_picker(
                context,
                label="Put the release into",
                info="An existing folder; the release becomes a new folder inside it",
                purpose="target",
                kind="folder",
            )
            name = gr.Textbox(label="Name of the release folder", elem_id="release-name", max_length=200)
            cost = gr.Radio(
                [("If the model is under 1 GB", SMALL), ("Yes", ALWAYS), ("No", NEVER)],
                value=SMALL,
                label="Measure what the mark costs the model",
                info="Runs the original and the release over a text, for perplexity and agreement on the receipt",
                elem_id="measure-cost",
            )
            check = gr.HTML(elem_id="preflight")
            start = _steps_row(steps, back=3, next_id="start-protect", text="Write the release")
    job = job_card(context, ("protect",))
    receipt = gr.HTML(visible=False, elem_id="receipt")
    receipts = gr.Dataframe(
        headers=HEADERS, interactive=False, wrap=True, visible=False, show_label=False, elem_id="receipts-table"
    )
    receipts_file = gr.DownloadButton("Download all receipts (CSV)", visible=False, elem_id="receipts-csv")
    require = guarded(context.require)

    def look(path: str | None, request: gr.Request) -> Iterator[Any]:
        """What headers tell at once, then what has to be read for."""
        require(request)
        nothing = gr.skip(), gr.skip()
        if not path:
            yield "", gr.Button(interactive=False), *nothing, None, None
            return
        try:
            model = irwm.open_checkpoint(path)
            facts = card_of(model)
            where = model.path if model.path.is_dir() else model.path.parent
            goes_to = f"{model.path.stem or where.name}{ENDINGS[ONE]}", _home_for(where, context)
            about = model_html(facts, marking=True), gr.Button(interactive=not facts.refusal)
            yield *about, *goes_to, None, model.hidden_size
            measured = measure(model, rows=not facts.refusal)
            sound = not (facts.refusal or measured.problems)
            marks = context.require(request).marks_on(model.fingerprint)
            whose = "; ".join(mark.whose for mark in marks)
            warned = notices.note_html(ALREADY_MARKED.format(whose)) if marks else ""
            lost = damaged_html(len(marks.damaged)) if marks.damaged else ""
            card = model_html(facts, measured, marking=True) + warned + lost
            yield card, gr.Button(interactive=sound), *nothing, model.fingerprint, model.hidden_size
        except IrwmError as error:
            yield notices.error_html(error), gr.Button(interactive=False), *nothing, None, None

    @guarded
    def use_demo(request: gr.Request) -> Any:
        context.require(request)
        return str(DEMO), str(DEMO)

    def switch(who: str, name: str | None, d: int | None) -> Any:
        """The fields for one recipient or for many, and the preset that suits them."""
        several, name = who == SEVERAL, name or ""
        other = next((ending for kind, ending in ENDINGS.items() if kind != who and name.endswith(ending)), None)
        return (
            gr.Textbox(visible=not several),
            gr.Column(visible=several),
            gr.Textbox(
                label="Name of the folder for all copies" if several else "Name of the release folder",
                value=name.removesuffix(other) + ENDINGS[who] if other else name,
            ),
            gr.Button("Write the copies" if several else "Write the release"),
            *form.choose(MANY if several else STANDARD, d),
        )

    @guarded
    def refill(before: int | None, d: int | None, *rest: Any) -> Any:
        *values, request = rest
        filled = form.refilled(before, d, *values) if context.is_open(request) else None
        return d, *(filled or (gr.skip(),) * len(form.chosen))

    @guarded
    def understand(who: str, owner: str | None, text: str | None, mark: str | None, request: gr.Request) -> Any:
        """What the list says, and how many keys and copies that makes."""
        if not context.is_open(request):
            return gr.skip(), gr.skip()
        vault = context.require(request)
        before = vault.find_keys(model_fingerprint=mark, limit=1).total if mark else 0
        if who == ONE or not (text or "").strip():
            return "", (before + 1, 1)
        try:
            found = read_list(text or "")
        except IrwmError as error:
            return notices.error_html(error), (before + 1, 1)
        released, damaged = requests.released(vault, mark, owner, found.recipients)
        copies = len(found.recipients) - len(released)
        return preview_html(found, released, damaged), (max(1, before + copies), copies)

    @guarded
    def check_names(who: str, owner: str | None, text: str | None, mark: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        requests.check_names(vault, mark, owner, read_list(text or "").require() if who == SEVERAL else None)
        return gr.Walkthrough(selected=3)

    @guarded
    def check_setting(d: int | None, *rest: Any) -> Any:
        *values, request = rest
        context.require(request)
        check_memory(form.parameters(*values), d)
        return gr.Walkthrough(selected=4)

    @guarded
    def check_place(
        source: str | None, parent: str | None, name: str | None, who: str, keys: Sequence[int], request: gr.Request
    ) -> Any:
        if not context.is_open(request) or not source or not (parent or "").strip() or not (name or "").strip():
            return ""  # a step that was never shown has no values yet
        try:
            out, model = new_folder(parent or "", name or "", Limits.of(context.settings)), irwm.open_checkpoint(source)
            copies = max(1, keys[1]) if who == SEVERAL else 1
            ready = room_for(model, out, copies) if who == SEVERAL else preflight(model, out)
        except IrwmError as error:
            return notices.error_html(error)
        return notices.note_html(room_text(ready, copies, out), good=True)

    @guarded
    def begin(
        source: str | None,
        who: str,
        owner: str,
        recipient: str,
        text: str,
        label: str,
        parent: str,
        name: str,
        cost: str,
        *rest: Any,
    ) -> Any:
        *values, request = rest
        vault = context.require(request)
        if not source:
            raise IrwmError("no original is chosen", advice="Go back to the first step")
        path = original.check(source)
        asked = requests.protect(
            vault,
            path,
            new_folder(parent or "", name or "", Limits.of(context.settings)),
            owner=owner or "",
            parameters=form.parameters(*values),
            recipient=recipient or "",
            recipients=read_list(text or "").require() if who == SEVERAL else None,
            label=label or "",
            device=context.settings.device,
            utility=cost,
        )
        started = asked.start(vault, context.jobs)
        context.recent.add("original", path)
        context.recent.add("target", Path(asked.request["out_dir"]).parent)
        return started.id, gr.HTML(visible=False), gr.Dataframe(visible=False), gr.DownloadButton(visible=False)

    def show(ended: str | None, request: gr.Request) -> Any:
        no_table = gr.Dataframe(visible=False), gr.DownloadButton(visible=False)
        if ended is None or not context.is_open(request):
            return gr.HTML(visible=False), *no_table
        job, table = context.jobs.get(ended), context.jobs.folder(ended) / CSV_NAME
        if job.result and not job.result.get("many"):
            return gr.HTML(receipt_html(job.result), visible=True), *no_table
        if not job.result and not ("recipients" in job.request and table.exists()):
            return gr.HTML(visible=False), *no_table
        download = gr.DownloadButton(value=offer(table, CSV_NAME), visible=True)
        if not job.result:
            return gr.HTML(notices.note_html(ENDED_EARLY), visible=True), no_table[0], download
        rows = gr.Dataframe(receipt_rows(job.result), visible=True)
        return gr.HTML(receipt_html(job.result), visible=True), rows, download

    looked = [card, to_names, name, folder.field, fingerprint, hidden_size]
    original.chosen.change(look, original.chosen, looked, **PRIVATE)
    demo.click(use_demo, None, [original.field, original.chosen], **PRIVATE)
    to_names.click(lambda: gr.Walkthrough(selected=2), None, steps, **PRIVATE)
    whom.change(switch, [whom, name, hidden_size], [recipient, list_box, name, start, *form.chosen], **PRIVATE)
    filled = [filled_for, *form.chosen]
    hidden_size.change(_with_request(refill), [filled_for, hidden_size, *form.chosen], filled, **PRIVATE)
    people = [whom, owner, names, fingerprint]
    gr.on(
        [whom.change, owner.blur, names.change, fingerprint.change, context.opened.change],
        understand,
        people,
        [preview, in_use],
        trigger_mode="always_last",
        **PRIVATE,
    )
    to_setting.click(check_names, people, steps, **PRIVATE)
    to_place.click(_with_request(check_setting), [hidden_size, *form.inputs], steps, **PRIVATE)
    place = [original.chosen, folder.field, name]
    gr.on(
        [folder.field.change, folder.chosen.change, name.change, name.blur, original.chosen.change, in_use.change],
        check_place,
        [*place, whom, in_use],
        check,
        trigger_mode="always_last",
        **PRIVATE,
    )
    inputs = [original.chosen, whom, owner, recipient, names, label, folder.field, name, cost, *form.inputs]
    results = [receipt, receipts, receipts_file]
    start.click(_with_request(begin), inputs, [job.job_id, *results], **PRIVATE)
    job.ended.change(show, job.ended, results, **PRIVATE)


def room_text(ready: Preflight, copies: int, out: Path) -> str:
    """What the release needs of the disk, and what stays behind."""
    room = f"Needs {size_text(ready.needed)}"
    if copies > 1:
        each = f"{number(copies)} copies of {size_text(ready.each)}"
        if ready.clones and ready.same:
            each += f", of which {size_text(ready.same)} are the same in all and written once"
        room += f" for {each}"
    there = f"; {size_text(ready.free)} are free at {out}"
    left = f". Left out, because they would carry no mark: {', '.join(ready.left_out)}" if ready.left_out else ""
    return room + there + left


def _with_request(handler: Any) -> Any:
    """`handler(*values, request)` for Gradio, which fills in the request by its annotation and not behind `*args`."""

    def with_request(request: gr.Request, *values: Any) -> Any:
        return handler(*values, request)

    return with_request


def _steps_row(steps: gr.Walkthrough, *, back: int, next_id: str, text: str = "Next") -> gr.Button:
    with gr.Row():
        gr.Button("Back", elem_id=f"back-to-{back}", scale=0, min_width=120).click(
            lambda: gr.Walkthrough(selected=back), None, steps, **PRIVATE
        )
        return gr.Button(text, variant="primary", elem_id=next_id, scale=0, min_width=170)


def _home_for(model: Path, context: Context) -> str:
    """Where a release is offered to go: where the last one went, else beside the original if that may be written to."""
    recent = context.recent.paths("target")
    if recent:
        return recent[0]
    limits = Limits.of(context.settings)
    places = [model.parent, *limits.roots]
    return next((str(p) for p in places if limits.hold(p.resolve()) and os.access(p, os.W_OK)), "")
