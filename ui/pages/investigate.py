"""Investigate: is this ours, and whose copy is it? One suspect, or a folder of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.checkpoint.adapter import is_adapter
from irwm.checkpoint.card import card_of
from irwm.errors import IrwmError
from ui.candidates import several_in
from ui.components import notices
from ui.components.browsing import PathRefusedError
from ui.components.events import PRIVATE, in_turn
from ui.components.finding_view import finding_view
from ui.components.guarded import guarded
from ui.components.item_form import DATE_LENGTH, SEEN_HELP, examiner_field
from ui.components.job_card import job_card
from ui.components.key_choice import key_choice, key_label
from ui.components.model_card import measure, model_html
from ui.components.path_picker import path_picker
from ui.components.sweep_view import folder_html, sweep_view
from ui.components.uploads import RECEIVED, receive
from ui.context import Context
from ui.jobs import requests
from ui.jobs.requests import LARGEST_SEED

__all__ = ["build", "key_label"]

INTRO = """
# Investigate a suspect
Looks for your marks in a checkpoint, or in every checkpoint of a folder, and says what the evidence is worth.
"""


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    with gr.Row(equal_height=False):
        with gr.Column():
            suspect = path_picker(
                context,
                label="Suspect",
                info="Its folder, one weights file of any kind, or a folder of several suspects",
                purpose="suspect",
            )
            with gr.Accordion("Upload it instead", open=False, elem_id="upload-suspect"):
                upload = gr.File(
                    label="One weights file, or all files of the model's folder",
                    file_count="multiple",
                    elem_id="suspect-files",
                )
            suspect_card = gr.HTML(elem_id="suspect-model")
        with gr.Column():
            original = path_picker(
                context,
                label="Original",
                info="The unmarked model that your releases were made from",
                purpose="original-of",
            )
            original_card = gr.HTML(elem_id="original-model")
    keys = key_choice()
    with gr.Accordion("Case and advanced settings", open=False, elem_id="investigate-advanced"):
        with gr.Row():
            title = gr.Textbox(
                label="Case (optional)", info="The run is filed under this title", max_length=200, elem_id="case-title"
            )
            note = gr.Textbox(label="Note (optional)", info="Your own words, filed with the run", max_length=1000)
        with gr.Row():
            seen = gr.Textbox(
                label="Since when is the suspect known to exist? (optional)",
                info=SEEN_HELP,
                placeholder="2024-01-28",
                max_length=DATE_LENGTH,
                elem_id="suspect-seen",
            )
            examiner = examiner_field("examiner")
        gr.Markdown(
            "A supporting reading of the likeliest key in another way. The verdict does not rest on it.",
            elem_classes="caption",
        )
        with gr.Row():
            statistic = gr.Dropdown(
                [
                    ("joint: all equations together", "joint"),
                    ("sum: the paper's", "sum"),
                    ("difference: the change from the original", "difference"),
                ],
                value="joint",
                label="Statistic",
                info="What is ranked at each position",
            )
            invariant = gr.Dropdown(
                [("the original's", "original"), ("the suspect's, as the paper has it", "suspect")],
                value="original",
                label="Invariant (A)",
                info="Whose attention scores stand in the equations",
            )
            seed = gr.Number(
                0, label="Seed", info="Same seed, same numbers", precision=0, minimum=0, maximum=LARGEST_SEED
            )
    start = gr.Button("Investigate", variant="primary", interactive=False, elem_id="start-investigate")
    job = job_card(context, ("investigate", "sweep"), unit="keys")
    with gr.Column(visible=False) as results:
        sweep = sweep_view()
        view = finding_view()
    # What the page holds of the suspect and the original, beside the fields: what was uploaded, and what was read.
    uploaded = gr.State(None)
    known = gr.State(None)

    require = guarded(context.require)

    def described(path: str | None, base: str | None = None) -> Iterator[str]:
        """A model's card: what headers tell at once, then what has to be read for. An adapter's is that of `base`
        with the adapter on it."""
        if not path:
            yield ""
            return
        try:
            several = several_in(Path(path))
            if several is not None:
                yield folder_html(several)
                return
            under = irwm.open_checkpoint(base) if base and is_adapter(path) else None
            model = irwm.open_checkpoint(path, under)
            facts = card_of(model)
            yield model_html(facts)
            yield model_html(facts, measure(model))
        except IrwmError as error:
            yield notices.error_html(error)

    def look_at_suspect(path: str | None, base: str | None, held: str | None, request: gr.Request) -> Iterator[Any]:
        """A path that was picked takes the place of an upload; a field that an upload emptied changes nothing."""
        require(request)
        if not path and held:
            yield (gr.skip(),) * 4
            return
        for card in described(path, base):
            yield card, None, gr.File(value=None), gr.Column(visible=False)

    def look_again(path: str | None, held: str | None, base: str | None, request: gr.Request) -> Iterator[Any]:
        """The suspect once more where another original makes another model of it."""
        require(request)
        source = held or path
        if source and is_adapter(source):
            yield from described(source, base)
        else:
            yield gr.skip()

    def take_upload(files: list[str] | None, base: str | None, request: gr.Request) -> Any:
        """An upload takes the place of a path: only one of the two is ever shown.

        Nothing that yields: Gradio sends the last of it again at its end, and would empty the field of a path that was
        pasted meanwhile. What takes long is looked at by `look_at_upload`.
        """
        require(request)
        emptied = "", None, gr.HTML(visible=False), gr.Column(visible=False)
        try:
            path = str(receive(files, context.settings.home)) if files else None
        except IrwmError as error:
            return notices.error_html(error), None, *emptied
        return next(described(path, base)), path, *emptied

    def look_at_upload(held: str | None, base: str | None, request: gr.Request) -> Any:
        """The card of what was uploaded, after all of it was read."""
        require(request)
        return list(described(held, base))[-1] if held else gr.skip()

    def drop_upload(held: str | None, request: gr.Request) -> Any:
        require(request)
        if not held:
            return (gr.skip(),) * 4
        return "", None, gr.File(value=None), gr.Column(visible=False)

    def look_at_original(path: str | None, request: gr.Request) -> Iterator[Any]:
        vault = require(request)
        nothing = *keys.nothing(), gr.Button(interactive=False), None, gr.Column(visible=False)
        if not path:
            yield "", *nothing
            return
        try:
            model = irwm.open_checkpoint(path)
            facts = card_of(model)
            yield model_html(facts), *nothing
            card = model_html(facts, measure(model))
            choice, any_key = keys.fill(vault, model.fingerprint)
        except IrwmError as error:
            yield notices.error_html(error), *nothing
            return
        yield card, *choice, gr.Button(interactive=any_key), (path, model.fingerprint), gr.Column(visible=False)

    @guarded
    def search(words: str | None, original: tuple[str, str] | None, request: gr.Request) -> Any:
        vault = context.require(request)
        return keys.search(vault, original[1], words or "") if original else gr.skip()

    @guarded
    def begin(
        typed: str | None,
        looked_at: str | None,
        held: str | None,
        reference: str | None,
        read: tuple[str, str] | None,
        listed: list[str] | None,
        words: str | None,
        title: str | None,
        note: str | None,
        since: str | None,
        who: str | None,
        statistic: str,
        invariant: str,
        seed: float | None,
        request: gr.Request,
    ) -> Any:
        vault = context.require(request)
        source = source_of(typed, looked_at, held)
        if not (reference or "").strip():
            raise IrwmError("the original is missing", advice="Choose the unmarked model first")
        if read is None or str(original.check(reference or "")) != read[0]:
            raise IrwmError(
                "the original in the field is not the one that was looked at",
                expected=read[0] if read else None,
                found=reference,
                advice="Wait for its card below the field, then start again",
            )
        asked = requests.investigate(
            vault,
            context.jobs,
            Path(source),
            Path(read[0]),
            read[1],
            **keys.chosen(vault, read[1], listed, words),
            case=title or "",  # a field that was never unfolded has no value yet
            note=note or "",
            seen=since,
            examiner=who or "",
            seed=seed,
            statistic=statistic,
            invariant=invariant,
            device=context.settings.device,
            scheduler=context.settings.scheduler,
        )
        started = asked.start(vault, context.jobs)
        for purpose, path in (("suspect", source), ("original-of", read[0])):
            if not held or purpose != "suspect":
                context.recent.add(purpose, path)
        return started.id, gr.Column(visible=False)

    def source_of(typed: str | None, looked_at: str | None, held: str | None) -> str:
        """The suspect that the page shows, and nothing else.

        Raises:
            IrwmError: none is shown, or the page holds another one than it shows.
        """
        typed = (typed or "").strip()
        if held:
            received = Path(held).resolve()
            if typed:
                raise IrwmError("both a path and an upload are given", advice="Empty the field or remove the upload")
            if not received.is_relative_to((context.settings.home / RECEIVED).resolve()) or not received.exists():
                raise PathRefusedError("what was uploaded is gone", file=received, advice="Upload it again")
            return str(received)
        if not typed:
            raise IrwmError("the suspect is missing", advice="Choose it by its path, or upload it")
        path = str(suspect.check(typed))
        if path != looked_at:
            raise IrwmError(
                "the suspect in the field is not the one that was looked at",
                expected=looked_at,
                found=path,
                advice="Wait for its card below the field, then start again",
            )
        return path

    @guarded
    def show(ended: str | None, dark: bool, request: gr.Request) -> Any:
        nothing = (gr.Column(visible=False), *view.hidden(), *sweep.hidden())
        if ended is None or not context.is_open(request):
            return nothing
        done, folder = context.jobs.get(ended), context.jobs.folder(ended)
        if done.kind == "sweep":
            table, first = sweep.shown(folder)
            finding = view.shown(folder / first, None, [], dark=dark) if first else view.hidden()
            return (gr.Column(visible=True), *finding, *table)
        if not done.result:
            return nothing
        result = done.result
        return (
            gr.Column(visible=True),
            *view.shown(folder / result["json"], folder / result["html"], result["rows"], dark=dark),
            *sweep.hidden(),
        )

    @guarded
    def show_one(name: str | None, ended: str | None, dark: bool, request: gr.Request) -> Any:
        """One suspect of a sweep."""
        context.require(request)
        if ended is None or not name or context.jobs.get(ended).kind != "sweep":
            return view.hidden()
        folder = context.jobs.folder(ended)
        chosen = sweep.document_of(folder, name)
        return view.shown(folder / chosen, None, [], dark=dark) if chosen else view.hidden()

    of_suspect = in_turn("suspect")
    last: dict[str, Any] = {"trigger_mode": "always_last"}
    # A verdict on another suspect must not stand below this one's card.
    replaced = [suspect_card, uploaded, upload, results]
    suspect.chosen.change(look_at_suspect, [suspect.chosen, original.chosen, uploaded], replaced, **of_suspect, **last)
    emptied = [suspect_card, uploaded, suspect.field, suspect.chosen, suspect.note, results]
    upload.upload(take_upload, [upload, original.chosen], emptied, **of_suspect).success(
        look_at_upload, [uploaded, original.chosen], suspect_card, **of_suspect
    )
    gr.on([upload.clear, upload.delete], drop_upload, uploaded, replaced, **of_suspect)
    again = [suspect.chosen, uploaded, original.chosen]
    original.chosen.change(look_again, again, suspect_card, **of_suspect, **last)
    about_original = [original_card, *keys.shown, start, known, results]
    original.chosen.change(look_at_original, original.chosen, about_original, **PRIVATE, **last)
    # What an officer types, not what another original empties the field of: that one says itself which keys fit.
    keys.words.input(search, [keys.words, known], keys.summary, **PRIVATE, **last)
    sources = [suspect.field, suspect.chosen, uploaded, original.field, known]
    settings = [title, note, seen, examiner, statistic, invariant, seed]
    start.click(begin, [*sources, *keys.inputs, *settings], [job.job_id, results], **PRIVATE)
    shown = [results, *view.outputs, *sweep.outputs]
    findings = {**in_turn("findings"), **last}
    gr.on([job.ended.change, context.dark.change], show, [job.ended, context.dark], shown, **findings)
    sweep.pick.input(show_one, [sweep.pick, job.ended, context.dark], view.outputs, **findings)
