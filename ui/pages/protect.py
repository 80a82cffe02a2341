"""Protect: mark a model before release."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.checkpoint.card import card_of
from irwm.errors import IrwmError, shown_path
from irwm.keys.key import MAX_NAME
from irwm.release import SIGNATURE_NAME, STALE_SIGNATURE, Preflight, preflight
from irwm.report.numbers import number
from storage.job_files import JobFiles
from storage.job_table import Job
from ui.components import notices
from ui.components.backup_reminder import backup_reminder
from ui.components.browsing import BrowsingLimits, new_folder
from ui.components.events import LAST, PRIVATE, unchanged
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.model_card import measure, model_html
from ui.components.next_steps import AWAIT_RESULT, RECEIPT, TO_RESULT, TO_WIZARD, NextSteps, next_steps
from ui.components.path_picker import hold_back, path_picker
from ui.components.places import Places, at
from ui.components.receipt import HEADERS, receipt_html, receipt_rows
from ui.components.recipients import damaged_html, preview_html, recipients_field
from ui.components.settings_form import settings_form
from ui.components.uploads import download
from ui.context import Context
from ui.drafts import Draft
from ui.file_names import plain_name
from ui.jobs import requests
from ui.preset_names import MANY, STANDARD
from ui.presets import check_memory
from ui.services.protect import CSV_NAME, room_for
from ui.services.recipients import RecipientListError, read_list
from ui.services.request import ALWAYS, NEVER, SMALL
from ui.services.results import Released, ReleasedMany
from ui.settings import DEMO
from ui.units import size_text

INTRO = """
# Protect a model
Writes a copy of your model with a mark that only your key can reveal. The original is not changed.
"""

ONE, SEVERAL = "One copy", "One copy per recipient"
# Endings of the suggested names of release folders.
ENDINGS = {ONE: "-marked", SEVERAL: "-copies"}
ENDED_EARLY = (
    "Copies that were finished before the job ended are complete and have been kept; they are listed in the table. "
    "Start again with the same list: finished copies are skipped, and keys that are already in the vault are reused."
)
ALREADY_MARKED = (
    "This model is one of your releases and is already marked for {}. A new mark is read by comparison with this "
    "release, and each earlier mark by comparison with its own original. All marks remain readable. To mark a copy for "
    "someone else, choose the unmarked original."
)
# Tells programs that drive the page that the wizard is back at this browser's last step and will not move on its own.
NOW_AS_LEFT = "() => document.body.dataset.protect = 'as left'"


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    Protect(context, Layout(context)).connect()


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        gr.Markdown(INTRO)
        # Of the original that was read: its fingerprint and d. Then the numbers of keys it will have and of copies now.
        self.fingerprint, self.hidden_size, self.in_use = gr.State(None), gr.State(None), gr.State((1, 1))
        self.filled_for = gr.State(None)  # d of the model that the preset's fields were filled in for
        self.at_step = gr.State(1)
        # The original that a reload restored together with its target folder. A state, like `chosen`: both change at
        # once on the server, while the page's fields change one after the other, and each change stores a draft.
        self.given_back = gr.State(None)
        # A release that is being written, or its receipt, replaces the wizard.
        self.replaced = gr.State(False)
        self.begun = gr.State(None)  # the job that was started here
        with gr.Column(elem_id="protect-form") as self.wizard:
            self._wizard(context)
        self.job = job_card(context, ("protect",), log_apart=True, running_only=partial(_has_draft, context))
        self.back = gr.Button("Back to the form", visible=False, elem_id="protect-back", scale=0, min_width=200)
        self._results(context)
        self.job.log.render()  # type: ignore[no-untyped-call]
        # The choice of recipients comes last: it has a value from the start.
        self.written: list[Any] = [self.owner, self.recipient, self.names, self.label, self.whom]
        self.place = [self.folder.field, self.name, self.cost, self.also]
        # The components that `keep_draft` takes, and those that `give_back` gives values for.
        source, settings = self.original, self.form.inputs
        self.draft = [
            self.replaced,
            source.chosen,
            self.at_step,
            self.filled_for,
            *self.written,
            *self.place,
            *settings,
        ]
        self.returned = [*self.written, source.field, source.chosen, self.steps, self.filled_for, self.folder.field]
        self.returned += [self.given_back, self.cost, self.left_out, self.also]
        self.returned += [self.list_box, self.name, self.start, *settings]

    def _wizard(self, context: Context) -> None:
        with gr.Walkthrough(selected=1, elem_id="protect-steps") as self.steps:
            with _step("Original", 1) as first:
                self._original(context)
            with _step("For whom", 2) as second:
                self._whom(context)
            with _step("How", 3) as third:
                self.form = context.settings_form = settings_form(context, self.hidden_size, self.in_use)
                self.to_place = _steps_row(self.steps, back=2, next_id="to-place")
            with _step("Where", 4) as fourth:
                self._where(context)
        self.each_step = first, second, third, fourth

    def _original(self, context: Context) -> None:
        self.original = path_picker(
            context,
            label="Original model",
            info="The unmarked model: its folder, or one .safetensors file with config.json in the same folder",
            purpose="original",
        )
        with gr.Row():
            self.demo = gr.Button("Use the demo model", elem_id="use-demo", scale=0, min_width=200)
            self.to_names = gr.Button(
                "Next", variant="primary", interactive=False, elem_id="to-names", scale=0, min_width=120
            )
        self.card = gr.HTML(elem_id="protect-model")

    def _whom(self, context: Context) -> None:
        self.whom = gr.Radio(
            [ONE, SEVERAL],
            value=ONE,
            label="Who gets a copy",
            elem_id="whom",
            info="Each recipient gets their own copy",
        )
        with gr.Row():
            self.owner = gr.Textbox(
                label="Owner",
                info="Who owns the model. The name is recorded in the key",
                elem_id="owner",
                max_length=MAX_NAME,
            )
            self.recipient = gr.Textbox(
                label="Recipient (optional)", info="Who gets this copy", elem_id="recipient", max_length=MAX_NAME
            )
        owner_notice = gr.HTML(visible=False, elem_id="owner-notice")
        with gr.Column(visible=False) as self.list_box:
            self.names = recipients_field(context)
            self.preview = gr.HTML(elem_id="recipients-preview")
        self.label = gr.Textbox(label="Note (optional)", info="Your own comment, stored in the vault", max_length=500)
        self.of_names = Places(form=gr.HTML(visible=False, elem_id="names-notice"), owner=owner_notice)
        self.to_setting = _steps_row(self.steps, back=1, next_id="to-setting")

    def _where(self, context: Context) -> None:
        self.folder = path_picker(
            context,
            label="Put the release in",
            info="An existing folder; the release is written to a new folder inside it",
            purpose="target",
            kind="folder",
        )
        self.name = gr.Textbox(label="Name of the release folder", elem_id="release-name", max_length=200)
        self.cost = gr.Radio(
            [("If the model is smaller than 1 GB", SMALL), ("Yes", ALWAYS), ("No", NEVER)],
            value=SMALL,
            label="Measure the cost of the mark",
            info="Runs both models on a text and records perplexity and agreement in the receipt",
            elem_id="measure-cost",
        )
        self.check = gr.HTML(elem_id="preflight")
        self.left_out = gr.State([])  # the files that `also` offers
        self.also = gr.CheckboxGroup(
            label="Files left out of the release",
            info="These files may contain unmarked weights, keys or other secrets. Select those that the release needs",
            visible=False,
            elem_id="also",
        )
        # Errors of the release are shown in the place of the check of its folder.
        self.of_place = Places(kept=("form",), form=self.check)
        self.start = _steps_row(self.steps, back=3, next_id="start-protect", text="Write the release")
        hold_back(self.start, [self.folder])

    def _results(self, context: Context) -> None:
        receipt = gr.HTML(visible=False, elem_id="receipt")
        receipts = gr.Dataframe(
            headers=HEADERS, interactive=False, wrap=True, visible=False, show_label=False, elem_id="receipts-table"
        )
        receipts_file = gr.DownloadButton("Download all receipts (CSV)", visible=False, elem_id="receipts-csv")
        context.next_steps = next_steps()
        backup_reminder(context, [self.job.ended.change, context.opened.change], "protect")
        self.results = [receipt, receipts, receipts_file, *context.next_steps.outputs]


@dataclass(frozen=True, slots=True)
class Protect:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self) -> None:
        """Connects each event to its handler."""
        # One object for all its events, so that they wait for each other: `self.keep_filled` is a new object each time.
        keep_filled = self.keep_filled
        self._connect_draft(keep_filled)
        self._connect_original()
        self._connect_choices(keep_filled)
        self._connect_start()

    def _connect_draft(self, keep_filled: Any) -> None:
        page, draft, source = self.page, self.page.draft, self.page.original
        for number_of, step in enumerate(page.each_step, start=1):
            step.select(partial(int, number_of), None, page.at_step, **PRIVATE)
        typed = [*(part.input for part in page.written), source.chosen.change]
        gr.on(typed, self.keep_draft, draft, None, **LAST)
        filled = [page.at_step.change, page.filled_for.change, page.cost.change, page.also.input]
        gr.on(filled, keep_filled, draft, None, **LAST)
        page.form.drawn.then(keep_filled, draft, None, **LAST)
        read, given = [source.chosen, *page.written], [*page.returned, page.replaced, page.wizard]
        self.context.opened.change(self.give_back, read, given, **PRIVATE).then(None, js=NOW_AS_LEFT)

    def _connect_original(self) -> None:
        page, original = self.page, self.page.original
        looked = [page.given_back, page.card, page.to_names, page.name, *page.folder.outputs]
        looked += [page.fingerprint, page.hidden_size]
        original.chosen.change(self.look, [original.chosen, page.given_back], looked, **PRIVATE)
        page.demo.click(self.use_demo, None, original.outputs, **PRIVATE)
        page.to_names.click(lambda: gr.Walkthrough(selected=2), None, page.steps, **PRIVATE)

    def _connect_choices(self, keep_filled: Any) -> None:
        page, source, name, d = self.page, self.page.original.chosen, self.page.name, self.page.hidden_size
        switched = [page.recipient, page.list_box, name, page.start, *page.form.chosen]
        page.whom.input(self.switch, [page.whom, name, d], switched, **PRIVATE)
        filled = [page.filled_for, *page.form.chosen]
        d.change(self.refill, [page.filled_for, d, *page.form.chosen], filled, **PRIVATE)
        people = [page.whom, page.owner, page.names, page.fingerprint]
        changed = [page.whom.change, page.owner.blur, page.names.change, page.fingerprint.change]
        understood = [*changed, self.context.opened.change]
        counted = gr.on(understood, self.understand, people, [page.preview, page.in_use], **LAST)
        counted.then(keep_filled, page.draft, None, **LAST)
        checked = [page.steps, *page.of_names.outputs]
        page.to_setting.click(page.of_names.told(self.check_names, 1), people, checked, **PRIVATE)
        page.to_place.click(self.check_setting, [d, *page.form.inputs], page.steps, **PRIVATE)
        placed = [page.folder.field.change, page.folder.chosen.change, name.change, name.blur]
        # Stored first, so that what the check shows survives a reload.
        kept = gr.on([*placed, source.change, page.in_use.change], keep_filled, page.draft, None, **LAST)
        asked = [source, page.folder.field, name, page.whom, page.in_use, page.left_out, page.also]
        kept.then(self.check_place, asked, [page.check, page.left_out, page.also], **LAST)

    def _connect_start(self) -> None:
        page, job = self.page, self.page.job
        who = [page.whom, page.owner, page.recipient, page.names, page.label]
        inputs = [page.original.chosen, *who, *page.place, *page.form.inputs]
        begun = [job.job_id, page.begun, *page.results, *page.of_place.outputs]
        page.start.click(page.of_place.told(self.begin, 2 + len(page.results)), inputs, begun, **PRIVATE)
        page.begun.change(None, js=AWAIT_RESULT.format(RECEIPT))
        job.job_id.change(replaced_by, job.job_id, [page.replaced, page.wizard], **PRIVATE)
        shown = [page.back, *page.results]
        job.ended.change(self.show, job.ended, shown, **PRIVATE).then(None, js=TO_RESULT.format(RECEIPT))
        again = [page.back.click, self.context.next_steps.another.click]
        gr.on(again, self.start_again, job.ended, [job.job_id, page.steps], **PRIVATE).success(None, js=TO_WIZARD)

    def keep_draft(
        self, request: gr.Request, replaced: bool, source: str | None, step: int, d: int | None, *rest: Any
    ) -> None:
        """Stores the wizard's fields for this browser, for after a reload."""
        if replaced or not self.context.is_open(request):
            return
        at, end = len(self.page.written), len(self.page.written) + len(self.page.place)
        texts, (parent, name, cost, also), settings = rest[:at], rest[at:end], rest[end:]
        place = parent or "", name or "", cost
        draft = Draft(tuple(text or "" for text in texts), source, step, place, tuple(also or ()), d, settings)
        self.context.drafts.keep(self.context.session(request), draft)

    def keep_filled(self, request: gr.Request, replaced: bool, source: str | None, *rest: Any) -> None:
        """Stores fields that the page fills in, but only once a model is chosen, not while the page is drawn."""
        if source:
            self.keep_draft(request, replaced, source, *rest)

    def give_back(self, request: gr.Request, source: str | None, *texts: str | None) -> Any:
        """The wizard as this browser left it before a reload, unless a field was filled in since then; or hidden, if
        the newest release replaces it."""
        job = self.page.job.restored(request)
        wizard = replaced_by(job.id) if job else (gr.skip(), gr.skip())
        return *self._left(request, source, *texts), *wizard

    def _left(self, request: gr.Request, source: str | None, *texts: str | None) -> Any:
        left = self.context.drafts.of(self.context.session(request)) if self.context.is_open(request) else None
        *typed, _ = texts
        if left is None or source or any(typed):
            return unchanged(self.page.returned)
        try:
            path = shown_path(self.page.original.check(left.original)) if left.original else None
        except IrwmError:
            path = None  # it no longer exists and has to be chosen again
        owner, recipient, names, label, who = left.texts
        parent, name, cost = left.place
        also, several = list(left.also), who == SEVERAL
        return (
            *(owner, gr.Textbox(recipient, visible=not several), names, label, who),
            *(path or "", path, gr.Walkthrough(selected=left.step if path else 1), left.filled_for),
            *(parent, path if all(left.place) else None, cost),
            *(also, gr.CheckboxGroup(choices=also, value=also, visible=bool(also))),  # until the folder is checked
            *(*for_many(several, name), *left.settings),
        )

    def look(self, path: str | None, given_back: str | None, request: gr.Request) -> Iterator[Any]:
        """Information from headers first, then from the weights. A target folder that a reload restored stays."""
        guarded(self.context.require)(request)  # a generator itself cannot be guarded
        nothing = (gr.skip(),) * (1 + len(self.page.folder.outputs))
        if not path:
            yield None, "", gr.Button(interactive=False), *nothing, None, None
            return
        try:
            model = irwm.open_checkpoint(path)
            facts = card_of(model)
            where = model.path if model.path.is_dir() else model.path.parent
            home = self.page.folder.filled(_home_for(where, self.context))
            offered = f"{model.path.stem or where.name}{ENDINGS[ONE]}", *home
            goes_to = nothing if path == given_back else offered
            about = model_html(facts, marking=True), gr.Button(interactive=not facts.refusal)
            yield None, *about, *goes_to, None, model.hidden_size
            self.context.ready.prepare()
            measured = measure(model, rows=not facts.refusal)
            sound = not (facts.refusal or measured.problems)
            marks = self.context.require(request).marks_on(model.fingerprint)
            whose = "; ".join(mark.whose for mark in marks)
            warned = notices.note_html(ALREADY_MARKED.format(whose)) if marks else ""
            lost = damaged_html(len(marks.damaged)) if marks.damaged else ""
            card = model_html(facts, measured, marking=True) + warned + lost
            yield None, card, gr.Button(interactive=sound), *nothing, model.fingerprint, model.hidden_size
        except IrwmError as error:
            yield None, notices.error_html(error), gr.Button(interactive=False), *nothing, None, None

    @guarded
    def use_demo(self, request: gr.Request) -> Any:
        self.context.require(request)
        return self.page.original.filled(str(DEMO))

    def switch(self, who: str, name: str | None, d: int | None) -> Any:
        """The fields for one recipient or for many, and the preset that suits them."""
        several, name = who == SEVERAL, name or ""
        other = next((ending for kind, ending in ENDINGS.items() if kind != who and name.endswith(ending)), None)
        if other:
            name = name.removesuffix(other) + ENDINGS[who]
        return (
            gr.Textbox(visible=not several),
            *for_many(several, name),
            *self.page.form.choose(MANY if several else STANDARD, d),
        )

    @guarded
    def refill(self, request: gr.Request, before: int | None, d: int | None, *values: Any) -> Any:
        """The preset's fields for another model."""
        filled = self.page.form.refilled(before, d, *values) if self.context.is_open(request) else None
        return d, *(filled or unchanged(self.page.form.chosen))

    @guarded
    def understand(self, who: str, owner: str | None, text: str | None, mark: str | None, request: gr.Request) -> Any:
        """A summary of the list, and the numbers of keys and copies that result."""
        if not self.context.is_open(request):
            return gr.skip(), gr.skip()
        vault = self.context.require(request)
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

    def check_names(self, who: str, owner: str | None, text: str | None, mark: str | None, request: gr.Request) -> Any:
        """On to the next step, unless the names cannot be used."""
        vault = self.context.require(request)
        with at("owner"):
            requests.check_owner(owner)
        try:
            found = read_list(text or "") if who == SEVERAL else None
        except RecipientListError:  # already shown below the list, as faulty lines are
            return gr.skip()
        if found is not None and found.faults:
            return gr.skip()
        requests.check_names(vault, mark, owner, found.require() if found is not None else None)
        return gr.Walkthrough(selected=3)

    @guarded
    def check_setting(self, request: gr.Request, d: int | None, *values: Any) -> Any:
        """On to the next step, unless the settings cannot be used; the error is already shown below them."""
        self.context.require(request)
        try:
            check_memory(self.page.form.parameters(*values), d)
        except IrwmError:
            return gr.skip()
        return gr.Walkthrough(selected=4)

    @guarded
    def check_place(
        self,
        source: str | None,
        parent: str | None,
        name: str | None,
        who: str,
        keys: Sequence[int],
        offered: Sequence[str],
        chosen: Sequence[str] | None,
        request: gr.Request,
    ) -> Any:
        """The space that the release needs, or why it cannot be written there; and the files that are left out."""
        if not self.context.is_open(request) or not source or not (parent or "").strip() or not (name or "").strip():
            return "", gr.skip(), gr.skip()  # a step that was never shown has no values yet
        try:
            out, model = self._target(parent, name), irwm.open_checkpoint(source)
            copies = max(1, keys[1]) if who == SEVERAL else 1
            ready = room_for(model, out, copies) if who == SEVERAL else preflight(model, out)
        except IrwmError as error:
            return notices.error_html(error), gr.skip(), gr.skip()
        others = [file for file in ready.left_out if not file.endswith("/") and file != SIGNATURE_NAME]
        said = notices.note_html(room_text(ready, copies, out), good=True)
        if others == list(offered):
            return said, gr.skip(), gr.skip()  # the selection may have changed in the meantime
        kept = [file for file in chosen or () if file in others]
        return said, others, gr.CheckboxGroup(choices=others, value=kept, visible=bool(others))

    def begin(
        self,
        request: gr.Request,
        source: str | None,
        who: str,
        owner: str,
        recipient: str,
        text: str,
        label: str,
        parent: str,
        name: str,
        cost: str,
        also: list[str] | None,
        *values: Any,
    ) -> Any:
        vault = self.context.require(request)
        if not source:
            raise IrwmError("no original was chosen", advice="Go back to the first step and choose one")
        path, target = self.page.original.check(source), self._target(parent, name)
        asked = requests.protect(
            vault,
            path,
            target,
            owner=owner or "",
            parameters=self.page.form.parameters(*values),
            recipient=recipient or "",
            recipients=read_list(text or "").require() if who == SEVERAL else None,
            label=label or "",
            device=self.context.settings.device,
            utility=cost,
            also=also or (),
        )
        started = self.context.start(asked, vault)
        self.context.recent.add("original", path)
        self.context.recent.add("target", target.parent)
        self.context.drafts.drop(self.context.session(request))
        return started.id, started.id, *nothing_yet()

    def _target(self, parent: str | None, name: str | None) -> Path:
        """The folder that the release is written to."""
        return new_folder(parent or "", name or "", BrowsingLimits.of(self.context.settings))

    def show(self, ended: str | None, request: gr.Request) -> Any:
        """The output of a job that is over, or the way back to the wizard if it has none."""
        if ended is None or not self.context.is_open(request):
            return gr.Button(visible=False), *nothing_yet()
        jobs = self.context.jobs_of(request)
        job = jobs.get(ended)
        return gr.Button(visible=not job.result), *self._output(job, jobs.files(ended))

    @guarded
    def start_again(self, request: gr.Request, ended: str | None) -> Any:
        """Back to the wizard: to its first step, or to where a job that failed was started."""
        self.context.require(request)
        done = ended is not None and self.context.jobs_of(request).get(ended).state == "done"
        return None, gr.Walkthrough(selected=1) if done else gr.skip()

    def _output(self, job: Job, files: JobFiles) -> tuple[Any, ...]:
        no_table = gr.Dataframe(visible=False), gr.DownloadButton(visible=False)
        result: Released | ReleasedMany | None = job.result
        if not result and CSV_NAME not in files:
            return nothing_yet()
        if result and "many" not in result:
            return gr.HTML(receipt_html(result), visible=True), *no_table, *NextSteps.shown(result)
        table = download(files.read(CSV_NAME), f"{plain_name('receipts', Path(job.request['out']).name)}.csv")
        if not result:
            return gr.HTML(notices.note_html(ENDED_EARLY), visible=True), no_table[0], table, *NextSteps.shown(None)
        rows = gr.Dataframe(receipt_rows(result), visible=True)
        return gr.HTML(receipt_html(result), visible=True), rows, table, *NextSteps.shown(result)


def for_many(several: bool, name: str) -> Any:
    """The list of recipients, the folder's name and the last button."""
    return (
        gr.Column(visible=several),
        gr.Textbox(label="Name of the folder for all copies" if several else "Name of the release folder", value=name),
        gr.Button("Write the copies" if several else "Write the release"),
    )


def replaced_by(job_id: str | None) -> tuple[bool, gr.Column]:
    """Whether a job replaces the wizard, and the wizard, which keeps its fields and its width: its steps measure it
    when it is shown again, and fail if it has none."""
    return job_id is not None, gr.Column(elem_classes=[] if job_id is None else ["replaced"])


def _has_draft(context: Context, request: gr.Request) -> bool:
    return context.drafts.of(context.session(request)) is not None


def nothing_yet() -> tuple[Any, ...]:
    return gr.HTML(visible=False), gr.Dataframe(visible=False), gr.DownloadButton(visible=False), *NextSteps.shown(None)


def room_text(ready: Preflight, copies: int, out: Path) -> str:
    """The disk space that the release needs, and the folders that are left out."""
    needs = f"Needs {size_text(ready.needed)}"
    if copies > 1:
        each = f"{number(copies)} copies of {size_text(ready.each)} each"
        if ready.clones and ready.same:
            each += f" ({size_text(ready.same)} of each copy is shared by all copies and written only once)"
        needs += f" for {each}"
    there = f"; {size_text(ready.free)} free in {out}"
    folders = [name for name in ready.left_out if name.endswith("/")]  # the files are listed to be selected
    said = needs + there + (f". Left out: {', '.join(folders)}" if folders else "")
    return said + (f". {STALE_SIGNATURE}" if SIGNATURE_NAME in ready.left_out else "")


def _step(label: str, number_of: int) -> gr.Step:
    """A step; studio.js names its button after its id where Gradio hides its label."""
    return gr.Step(label, id=number_of, elem_id=f"step-{label.replace(' ', '-')}")


def _steps_row(steps: gr.Walkthrough, *, back: int, next_id: str, text: str = "Next") -> gr.Button:
    with gr.Row():
        gr.Button("Back", elem_id=f"back-to-{back}", scale=0, min_width=120).click(
            lambda: gr.Walkthrough(selected=back), None, steps, **PRIVATE
        )
        return gr.Button(text, variant="primary", elem_id=next_id, scale=0, min_width=170)


def _home_for(model: Path, context: Context) -> str:
    """The suggested target folder: that of the last release, else the original's folder if it is writable."""
    recent = context.recent.paths("target")
    if recent:
        return recent[0]
    limits = BrowsingLimits.of(context.settings)
    places = [model.parent, *limits.roots]
    return next((str(p) for p in places if limits.hold(p.resolve()) and os.access(p, os.W_OK)), "")
