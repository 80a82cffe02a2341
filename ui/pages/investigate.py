"""Investigate: is this ours, and whose copy is it? One suspect, or a folder of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

import irwm
from irwm.answers.recorded_responses import holds_responses, read_source
from irwm.answers.text_files import MOST_BYTES, SEPARATOR, SUFFIXES, holds_text, read_texts
from irwm.checkpoint.candidates import several_in
from irwm.checkpoint.card import card_of
from irwm.checkpoint.opening import needs_base
from irwm.checkpoint.recorded import read_header
from irwm.checkpoint.remote.opening import server_of
from irwm.checkpoint.suspects import check_header
from irwm.errors import AnswersError, IrwmError, path_from, printable, shown_path
from ui.components import notices
from ui.components.answers_card import OUT, OUT_OF_TEXT, answers_html, how_html, responses_html, text_html
from ui.components.browsing import BrowsingLimits
from ui.components.events import LAST, PRIVATE, in_turn, unchanged
from ui.components.finding_view import finding_view, first_html
from ui.components.guarded import guarded
from ui.components.item_form import DATE_LENGTH, SEEN_HELP, examiner_field
from ui.components.job_card import job_card
from ui.components.key_choice import key_choice, key_label
from ui.components.model_card import measure, model_html
from ui.components.next_steps import OPEN_PAGE
from ui.components.originals_table import all_originals_html, compared_html
from ui.components.path_picker import path_picker
from ui.components.places import Places, at
from ui.components.suspect_source import suspect_source
from ui.components.sweep_view import folder_html, sweep_view
from ui.components.uploads import receive_text
from ui.context import Context
from ui.dates import day_utc
from ui.guard import UPLOAD_BYTES, UPLOADS_TOTAL_BYTES
from ui.jobs import requests
from ui.services.known_originals import KnownOriginals
from ui.services.results import Investigated, Released, ReleasedMany
from ui.services.stored_results import FIRST
from ui.units import size_text

__all__ = ["build", "key_label"]

INTRO = """
# Investigate a suspect
Looks for your marks in a checkpoint, in every checkpoint in a folder, or in a served model’s answers, and states how
strong the evidence is.
"""
# Defined in studio.js: models' cards fold when the work has begun, and the verdict that was requested here is scrolled
# into view when it is ready.
AWAIT_VERDICT = "() => { window.irwmAwaitVerdict?.(); window.irwmFoldModels?.(); }"
TO_INPUTS = "() => window.irwmToField?.('#investigate-inputs')"
TO_VERDICT = "() => window.irwmToVerdict?.()"
# The two forms in which a suspect can be available.
WEIGHTS, ANSWERS = "weights", "answers"
WAYS = [("The weights are available", WEIGHTS), ("Only an API or text is available", ANSWERS)]
SECOND_READING = (
    "Reads the most likely key with a second method, as supporting evidence. The verdict does not depend on it."
)
STATISTICS = [
    ("joint: all equations together", "joint"),
    ("sum: as in the paper", "sum"),
    ("difference: the change from the original", "difference"),
]
INVARIANTS = [("from the original", "original"), ("from the suspect, as in the paper", "suspect")]


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    context.investigate = Investigate(context, Layout(context))
    context.investigate.connect(tab)


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        gr.Markdown(INTRO)
        # One line replaces the inputs of an investigation that was started here and is done. They stay in the document,
        # so that uploads and open parts are kept.
        self.asked = gr.State(None)  # the job that was started here, until its inputs are to be changed
        self.begun = gr.State(None)  # the same job, also after that
        with gr.Row(visible=False, elem_classes="list-row", elem_id="investigate-folded") as self.folded:
            self.summary = gr.HTML(elem_id="investigate-summary")
            self.change = gr.Button("Change", elem_id="investigate-change", scale=0, min_width=120)
        with gr.Column(elem_id="investigate-inputs") as self.inputs:
            told = self._inputs(context)
        self.job = job_card(context, ("investigate", "sweep"), unit="keys")
        self.early = gr.HTML(visible=False, elem_id="first-verdict")
        with gr.Column(visible=False) as self.results:
            self.compared = gr.HTML(visible=False, elem_id="compared-originals")
            self.sweep = sweep_view()
            self.view = finding_view(lambda: context.settings.preferences.language)
        # Kept with the original's field: the original that was read, and whether there is a key for it, or for any
        # original of the vault while the field is empty.
        self.known, self.keyed = gr.State(None), gr.State(False)
        pickers = {"suspect": self.suspect.picker, "answers": self.recorded.picker, "original": self.original}
        notes = {place: picker.note for place, picker in pickers.items()}
        fields = {"keys": self.keys.notice, "seen": self.seen_notice, "seed": self.seed_notice}
        self.places = Places(kept=notes, form=told, **fields, **notes)

    def _inputs(self, context: Context) -> gr.HTML:
        """Suspect, original, keys, settings and the button; returns the place for errors above it."""
        with gr.Row(equal_height=False):
            with gr.Column():
                self._suspect(context)
            with gr.Column():
                self.original = path_picker(
                    context,
                    label="Original",
                    info="The unmarked model that your releases were made from. If you leave this empty, the suspect "
                    "is compared with all originals of your vault",
                    purpose="original-of",
                )
                self.original_card = gr.HTML(elem_id="original-model")
        self.keys = key_choice()
        with gr.Accordion("Case and advanced settings", open=False, elem_id="investigate-advanced"):
            self._settings()
        told = gr.HTML(visible=False, elem_id="investigate-notice")
        self.start = gr.Button("Investigate", variant="primary", interactive=False, elem_id="start-investigate")
        return told

    def _suspect(self, context: Context) -> None:
        """The two ways to give a suspect; one of them is shown."""
        self.way = gr.Radio(WAYS, value=WEIGHTS, label="Access to the suspect", elem_id="suspect-way")
        with gr.Column() as self.of_weights:
            self.suspect = suspect_source(
                context,
                label="Suspect",
                info="The model’s folder, one weights file of any type, a folder of several suspects, or an address "
                "such as hf://organisation/name",
                purpose="suspect",
                addresses=True,
                placeholder="Full path or address",
                upload=f"Drop a weights file or the model’s folder here (at most {size_text(UPLOADS_TOTAL_BYTES)})",
                missing="Enter the suspect’s path, or upload the suspect",
                several=True,
            )
        with gr.Column(visible=False) as self.of_answers:
            self.how = gr.HTML(how_html(None), elem_id="how-to-record")
            self.recorded = suspect_source(
                context,
                label="Recorded answers or text",
                info=f"The file written by one of the commands above, such as {OUT_OF_TEXT} or {OUT}, or a text file "
                f"with only what the suspect generated. A line “{SEPARATOR}” separates two texts",
                purpose="answers",
                upload="One .jsonl or .safetensors file with recorded answers, or one .txt file with text (at most "
                f"{size_text(UPLOAD_BYTES)})",
                missing="Record the answers with one of the commands above. Then enter the file’s path, or "
                "upload the file",
                several=False,
                kind="file",
                suffixes=(".safetensors", ".jsonl", *SUFFIXES),
            )
            with gr.Accordion("Paste text instead", open=False, elem_id="paste-answers"):
                self.pasted = gr.Textbox(
                    label="Text that the suspect generated",
                    info="Without prompts and your own words. Text alone needs tens or hundreds of thousands of words",
                    lines=4,
                    max_lines=12,
                    max_length=MOST_BYTES // 4,
                    elem_id="pasted-text",
                )
                self.paste = gr.Button("Use this text", elem_id="use-pasted")
            self.fits = gr.Checkbox(
                True,
                label="Fit the original to the text if no recipient is named without a fit",
                info="This removes an unknown system prompt, fine-tuning and quantisation. It takes minutes for a "
                "small model, and days for one with billions of weights and no GPU. It does not change the risk",
                elem_id="fits",
            )

    def _settings(self) -> None:
        """The case, and how the numbers are computed."""
        with gr.Row():
            self.title = gr.Textbox(
                label="Case (optional)", info="The run is filed under this title", max_length=200, elem_id="case-title"
            )
            self.note = gr.Textbox(
                label="Note (optional)", info="Your own comment, filed with the run", max_length=1000
            )
        with gr.Row():
            self.seen = gr.Textbox(
                label="When did the suspect first appear? (optional)",
                info=SEEN_HELP,
                placeholder="2024-01-28",
                max_length=DATE_LENGTH,
                elem_id="suspect-seen",
            )
            self.examiner = examiner_field("examiner")
        self.seen_notice = gr.HTML(visible=False, elem_id="suspect-seen-notice")
        gr.Markdown(SECOND_READING, elem_classes="caption")
        with gr.Row():
            self.statistic = gr.Dropdown(
                STATISTICS, value="joint", label="Statistic", info="The quantity that is ranked at each position"
            )
            self.invariant = gr.Dropdown(
                INVARIANTS,
                value="original",
                label="Invariant (A)",
                info="The model whose attention scores are used in the equations",
            )
            self.seed = gr.Number(0, label="Seed", info="The same seed gives the same numbers")
        self.seed_notice = gr.HTML(visible=False, elem_id="seed-notice")


@dataclass(frozen=True, slots=True)
class Investigate:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self, tab: gr.Tab) -> None:
        """Connects each event to its handler."""
        self._connect_models(tab)
        self._connect_start()
        self._connect_results()

    def _connect_models(self, tab: gr.Tab) -> None:
        page, suspect, keys, known = self.page, self.page.suspect, self.page.keys, self.page.known
        original = page.original.chosen
        unfolded = [page.asked, page.folded, page.inputs]
        page.change.click(unfold, None, unfolded, **PRIVATE).then(None, js=TO_INPUTS)
        of_release = self.context.next_steps
        of_release.investigate.click(self.take_release, of_release.done, self.taken, **PRIVATE).success(
            None, js=OPEN_PAGE.format("investigate")
        )
        suspect.connect(original, page.results, described, needs_base)
        page.recorded.connect(original, page.results, described_answers, lambda _path: True)
        source = page.recorded
        page.paste.click(
            self.take_text,
            [page.pasted, original],
            [source.card, source.sound, source.uploaded, *source.picker.outputs, page.results],
            **in_turn("answers"),
        )
        original.change(self.tell_how, original, page.how, **LAST)
        about_original = [page.original_card, *keys.shown, page.keyed, known, page.results]
        of_keys = {**in_turn("keys"), **LAST}
        original.change(self.look_at_original, original, about_original, **of_keys)
        tab.select(self.get_ready, **PRIVATE)
        read_again = [*keys.shown, page.keyed, page.original_card]
        tab.select(self.read_keys_again, [original, known, *keys.inputs], read_again, **of_keys)
        usable = [suspect.sound, suspect.picker.faulty, page.recorded.sound, page.recorded.picker.faulty, page.keyed]
        ready = [page.way, *usable]
        shown = [page.of_weights, page.of_answers, page.results, page.start]
        of_start = in_turn("start")  # the answer to an older state must not be the last one
        page.way.change(self.choose_way, ready, shown, **of_start)
        gr.on([state.change for state in usable], may_start, ready, page.start, **of_start)
        # Only when an officer types, not when another original clears the field: that event shows the matching keys.
        keys.words.input(self.search, [keys.words, known], keys.summary, **LAST)

    def _connect_start(self) -> None:
        page, places = self.page, self.page.places
        sources = [page.way, *page.suspect.inputs, *page.recorded.inputs, page.original.field, page.known]
        settings = [page.title, page.note, page.seen, page.examiner, page.statistic, page.invariant, page.seed]
        settings += [page.fits]
        inputs = [*sources, *page.keys.inputs, *settings]
        outputs = [page.results, page.job.job_id, page.asked, page.begun, *places.outputs]
        page.start.click(places.told(self.begin, 4, hidden=1), inputs, outputs, **PRIVATE)
        page.begun.change(None, js=AWAIT_VERDICT)  # not on the click, which may be refused

    def _connect_results(self) -> None:
        page, view, sweep, job, dark = self.page, self.page.view, self.page.sweep, self.page.job, self.context.dark
        told_early = {**in_turn("first finding"), **LAST}
        job.step.change(self.show_first, [job.job_id, job.step], page.early, **told_early).then(None, js=TO_VERDICT)
        findings = {**in_turn("findings"), **LAST}
        shown = [page.early, page.results, page.compared, *view.outputs, *sweep.outputs]
        shown += [page.folded, page.summary, page.inputs]  # at once: a user may already change the inputs again
        looked = gr.on([job.ended.change, dark.change], self.show, [job.ended, dark, page.asked], shown, **findings)
        looked.then(None, js=TO_VERDICT)
        view.pick.input(self.show_key, [view.pick, job.ended, dark], view.of_one_key, **findings)
        sweep.pick.input(self.show_one, [sweep.pick, job.ended, dark], view.outputs, **findings)

    @guarded
    def take_release(self, done: Released | ReleasedMany | None, request: gr.Request) -> Any:
        """The release that Protect just wrote, and its original."""
        self.context.require(request)
        if done is None:
            return unchanged(self.taken)
        page = self.page
        return WEIGHTS, *page.suspect.picker.filled(done["path"]), *page.original.filled(done["model"]), *unfold()

    @property
    def taken(self) -> list[Any]:
        """The components that `take` gives values for."""
        page = self.page
        return [
            page.way, *page.suspect.picker.outputs, *page.original.outputs, page.asked, page.folded, page.inputs
        ]  # fmt: skip

    def take(self, suspect: str, original: str) -> tuple[Any, ...]:
        """A suspect's path or address, and an original's path or "".

        Raises:
            PathRefusedError: the suspect may not be read.
            RemoteError: its server cannot be asked.
        """
        _, *checked = self.page.suspect.picker.filled(shown_path(self.page.suspect.picker.check(suspect)))
        return WEIGHTS, suspect, *checked, *self.page.original.filled(original or None), *unfold()

    @guarded
    def take_text(self, text: str | None, base: str | None, request: gr.Request) -> Any:
        """A pasted text, as if it was uploaded."""
        self.context.require(request)
        if not (text or "").strip():
            raise IrwmError("no text was pasted", advice="Paste the text that the suspect generated into the field")
        path = str(receive_text(text or "", self.context.settings.home))
        emptied = *self.page.recorded.picker.filled(None), gr.Column(visible=False)
        return *list(described_answers(path, base))[-1], path, *emptied

    @guarded
    def choose_way(self, request: gr.Request, chosen: str, *usable: bool) -> Any:
        """The fields of one way to give a suspect; a verdict on one must not stay below another suspect's card."""
        self.context.require(request)
        fields = gr.Column(visible=chosen == WEIGHTS), gr.Column(visible=chosen == ANSWERS)
        return *fields, gr.Column(visible=False), may_start(chosen, *usable)

    @guarded
    def tell_how(self, path: str | None, request: gr.Request) -> str:
        """The command that records the answers of a served model."""
        self.context.require(request)
        return how_html(path)

    def look_at_original(self, path: str | None, request: gr.Request) -> Iterator[Any]:
        """The original's card, from headers first, and which keys fit it."""
        vault, keys = guarded(self.context.require)(request), self.page.keys  # a generator itself cannot be guarded
        nothing = *keys.nothing(), False, None, gr.Column(visible=False)
        if not path:
            known = KnownOriginals.of(vault, BrowsingLimits.of(self.context.settings).allow)
            yield all_originals_html(known), *keys.nothing(), bool(known.here), None, gr.Column(visible=False)
            return
        try:
            model = irwm.open_checkpoint(path)
            facts = card_of(model)
            yield model_html(facts, foldable=True), *nothing
            card = model_html(facts, measure(model), foldable=True)
            choice, any_key = keys.fill(vault, model.fingerprint)
        except IrwmError as error:
            yield notices.error_html(error), *nothing
            return
        yield card, *choice, any_key, (path, model.fingerprint), gr.Column(visible=False)

    def get_ready(self, request: gr.Request) -> None:
        """Starts the process of the next task, while the form is filled in."""
        if self.context.is_open(request):
            self.context.ready.prepare()

    @guarded
    def read_keys_again(
        self, request: gr.Request, path: str | None, original: tuple[str, str] | None, *chosen: Any
    ) -> Any:
        """The original's keys again, when the page comes into view; not while another original is being read."""
        keys, page = self.page.keys, self.page
        if not self.context.is_open(request) or (path and (original is None or path != original[0])):
            return unchanged([*keys.shown, page.keyed, page.original_card])
        vault = self.context.require(request)
        if not path or original is None:
            known = KnownOriginals.of(vault, BrowsingLimits.of(self.context.settings).allow)
            return *keys.nothing(), bool(known.here), all_originals_html(known)
        choice, any_key = keys.again(vault, original[1], *chosen)
        return *choice, any_key, gr.skip()

    @guarded
    def search(self, words: str | None, original: tuple[str, str] | None, request: gr.Request) -> Any:
        """How many keys the words find."""
        vault = self.context.require(request)
        return self.page.keys.search(vault, original[1], words or "") if original else gr.skip()

    def begin(self, request: gr.Request, chosen_way: str, *values: Any) -> Any:
        """Starts the job. `values`: of both sources, of the original, of the keys and of the settings."""
        context, page = self.context, self.page
        vault = context.require(request)
        weights, answers, (reference, read), keys = values[:3], values[3:6], values[6:8], values[8:11]
        title, note, since, who, statistic, invariant, seed, fits = values[11:]
        by_answers = chosen_way == ANSWERS
        purpose, given = ("answers", page.recorded) if by_answers else ("suspect", page.suspect)
        typed, looked_at, held = answers if by_answers else weights
        with at(purpose):
            source = given.given(typed, looked_at, held)
        allowed = BrowsingLimits.of(context.settings).allow
        with at("original"):
            looked = self._original(reference, read)
            if looked is None:
                requests.known_originals(vault, path_from(source), by_answers, None, allowed)
        with at("keys"):
            chosen = page.keys.chosen(vault, looked[1], *keys) if looked else {}
        with at("seen"):
            day_utc(since)
        with at("seed"):
            requests.checked_seed(seed)
        asked = requests.investigate(
            vault,
            context.jobs_of(request),
            path_from(source),
            path_from(looked[0]) if looked else None,
            looked[1] if looked else "",
            **chosen,
            case=title or "",  # a field that was never unfolded has no value yet
            note=note or "",
            seen=since,
            examiner=who or "",
            seed=seed,
            statistic=statistic,
            invariant=invariant,
            device=context.settings.device,
            scheduler=context.settings.scheduler,
            answers=by_answers,
            fits=fits,
            allowed=allowed,
        )
        started = context.start(asked, vault)
        if not held and not server_of(path_from(source)):
            context.recent.add(purpose, source)
        if looked:
            context.recent.add("original-of", looked[0])
        return gr.Column(visible=False), *(started.id,) * 3

    def _original(self, reference: str | None, read: tuple[str, str] | None) -> tuple[str, str] | None:
        """Path and fingerprint of the original that the page shows; None if the field is empty.

        Raises:
            IrwmError: the card below the field belongs to another original.
        """
        if not (reference or "").strip():
            return None
        if read is None or shown_path(self.page.original.check(reference or "")) != read[0]:
            raise IrwmError(
                "the original’s path does not match the model card below it",
                expected=read[0] if read else None,
                found=reference,
                advice="Wait until the original’s card appears below the field, then start again",
            )
        return read

    @guarded
    def show_first(self, id: str | None, step: str, request: gr.Request) -> Any:
        """The findings of a running investigation so far; `show` replaces them when there is more."""
        if id is None or not step or not self.context.is_open(request):
            return gr.skip()
        said = first_html(self.context.jobs_of(request).files(id), FIRST)
        return gr.HTML(said, visible=bool(said))

    @guarded
    def show(self, ended: str | None, dark: bool, asked: str | None, request: gr.Request) -> Any:
        """The results of a job that is over, and one line in place of its inputs if it was started here."""
        return *self._found(ended, dark, request), *self._folded(ended, asked, request)

    def _found(self, ended: str | None, dark: bool, request: gr.Request) -> tuple[Any, ...]:
        view, sweep, hidden = self.page.view, self.page.sweep, gr.HTML("", visible=False)
        over, nothing = hidden, (gr.Column(visible=False), hidden, *view.hidden(), *sweep.hidden())
        if ended is None or not self.context.is_open(request):
            return gr.skip(), *nothing
        jobs = self.context.jobs_of(request)
        done, files = jobs.get(ended), jobs.files(ended)
        if done.kind == "sweep":
            table, first = sweep.shown(files)
            finding = view.shown(files, first, [], dark=dark) if first else view.hidden()
            return (over, gr.Column(visible=True), hidden, *finding, *table)
        result: Investigated | None = done.result
        if not result:
            return over, *nothing
        finding = view.shown(files, result["json"], result["rows"], dark=dark, others=result.get("others"))
        rows = result.get("originals", [])
        compared = gr.HTML(compared_html(rows), visible=bool(rows))
        return over, gr.Column(visible=True), compared, *finding, *sweep.hidden()

    def _folded(self, ended: str | None, asked: str | None, request: gr.Request) -> tuple[Any, ...]:
        if ended is None or ended != asked or not self.context.is_open(request):
            return (gr.skip(),) * 3
        done = self.context.jobs_of(request).get(ended)
        if not done.result:
            return (gr.skip(),) * 3
        self.context.ready.prepare()  # often, another suspect follows
        return gr.Row(visible=True), inputs_html(done.request), gr.Column(elem_classes=["replaced"])

    @guarded
    def show_key(self, commitment: str | None, ended: str | None, dark: bool, request: gr.Request) -> Any:
        """The figures of one key of an investigation."""
        self.context.require(request)
        view, jobs = self.page.view, self.context.jobs_of(request)
        result: Investigated | None = jobs.get(ended).result if ended else None
        if not commitment or not result or "json" not in result:
            return unchanged(view.of_one_key)
        return view.of_key(jobs.files(str(ended)), result["json"], result.get("others"), commitment, dark=dark)

    @guarded
    def show_one(self, name: str | None, ended: str | None, dark: bool, request: gr.Request) -> Any:
        """One suspect of a sweep."""
        self.context.require(request)
        view = self.page.view
        if ended is None or not name or self.context.jobs.line(ended).kind != "sweep":
            return view.hidden()
        files = self.context.jobs_of(request).files(ended)
        chosen = self.page.sweep.document_of(files, name)
        return view.shown(files, chosen, [], dark=dark) if chosen else view.hidden()


def unfold() -> tuple[None, gr.Row, gr.Column]:
    """The inputs again, in place of their summary."""
    return None, gr.Row(visible=False), gr.Column(elem_classes=[])


def inputs_html(request: Mapping[str, Any]) -> str:
    """The inputs of an investigation in one line."""
    suspect = printable(Path(request.get("suspect") or request["folder"]).name, 80)
    if not request["original"]:
        said = Markup("<strong>{}</strong> against all originals of the vault").format(suspect)
        return notices.note_html(said)
    names = suspect, printable(Path(request["original"]).name, 80)
    return notices.note_html(Markup("<strong>{}</strong> against <strong>{}</strong>").format(*names))


def described(path: str | None, base: str | None = None) -> Iterator[tuple[str, bool]]:
    """A model's card, and whether it can be opened: first from headers, then from the weights. An adapter's card is
    that of `base` with the adapter applied."""
    if not path:
        yield "", True
        return
    try:
        several = several_in(path_from(path))
        if several is not None:
            yield folder_html(several), True
            return
        under = irwm.open_checkpoint(base) if base and needs_base(path) else None
        model = irwm.open_checkpoint(path, under)
        facts = card_of(model)
        yield model_html(facts, foldable=True), True
        yield model_html(facts, measure(model), foldable=True), True
    except IrwmError as error:
        yield notices.error_html(error), False


def described_answers(path: str | None, base: str | None = None) -> Iterator[tuple[str, bool]]:
    """A recording's card, from its header, and whether it can be examined with this original."""
    if not path:
        yield "", True
        return
    try:
        if holds_text(path):
            yield text_html(Path(path).name, read_texts(path)), True
            return
        if holds_responses(path):
            source, count = read_source(path)
            yield responses_html(Path(path).name, source, count, Path(path).stat().st_size), True
            return
        header = read_header(path)
    except IrwmError as error:
        yield notices.error_html(error), False
        return
    problem: IrwmError | None = None
    try:
        if base:
            check_header(path_from(path), header, irwm.open_checkpoint(base))
    except AnswersError as error:
        problem = error
    except IrwmError:  # the original's own card shows what is wrong with it
        pass
    yield answers_html(Path(path).name, header, problem), problem is None


def may_start(chosen: str, sound: bool, faulty: bool, sound_answers: bool, faulty_answers: bool, keyed: bool) -> Any:
    """The button, enabled when the suspect of the chosen way can be used and there is a key."""
    usable = sound_answers and not faulty_answers if chosen == ANSWERS else sound and not faulty
    return gr.Button(interactive=keyed and usable)
