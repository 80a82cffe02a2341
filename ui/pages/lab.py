"""Lab: attack your own release before someone else does, or rehearse with a trial mark before the release exists."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

import irwm
from irwm import Parameters
from irwm.attacks.catalogue import ATTACKS
from irwm.errors import IrwmError, shown_path
from irwm.report.lab_rows import MANY, MODES, SINGLE
from irwm.report.numbers import counted
from irwm.scheme.parameters import many_recipients, one_owner
from storage.vault import Vault
from ui.components import notices
from ui.components.events import LAST, PRIVATE
from ui.components.guarded import guarded
from ui.components.item_form import examiner_field
from ui.components.job_card import job_card
from ui.components.key_choice import key_label
from ui.components.lab_choice import lab_choice, obstacles_html, obstacles_of
from ui.components.lab_view import KIND, LabView
from ui.components.markup import own
from ui.components.path_picker import path_picker
from ui.components.places import Places, at
from ui.context import Context
from ui.explore_settings import MOST_CHARACTERS, ExploreSettings
from ui.jobs import runner
from ui.jobs.requests import Asked, checked_seed, whole_number
from ui.services.request import LabRequest
from ui.settings import DEMO

INTRO = """
# Lab
Attack your own model before someone else does, and see which fails first: the mark or the model.
"""
REHEARSE, RELEASE = "rehearse", "release"
TRIAL_MARK = (
    "A trial mark with a public secret is added to a copy of the model, which is then attacked. The copy is deleted at "
    "the end. The trial mark is never stored in the vault and protects nothing."
)
STANDARD, PAPER = "standard", "paper"
TEXTS = (".txt", ".md")
LEAST_TOKENS, USUAL_TOKENS, MOST_TOKENS = 64, 1024, 65_536
# Most keys of one original that the list offers; the release's own key is always first.
MOST_KEYS = 200
# Bundled, so that "Start" does something useful in the first minute.
DEMO_NAME = "the demo model"


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    Lab(context, Layout(context)).connect(tab)


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context) -> None:
        gr.Markdown(INTRO)
        self._attacked(context)
        self.choice = lab_choice(context)
        with gr.Accordion("Settings and case", open=False, elem_id="lab-advanced"):
            self._advanced(context)
        told = gr.HTML(visible=False, elem_id="lab-notice")
        notes = {"original": self.original.note, "release": self.release.note}
        self.places = Places(kept=notes, form=told, key=self.key_note, **notes)
        self.start = gr.Button("Start the attacks", variant="primary", elem_id="start-lab")
        self.job = job_card(context, (KIND,), unit="rows")
        self.view = LabView(context, self.job)

    def _attacked(self, context: Context) -> None:
        """The target of the attacks: a rehearsal's trial marks, or a release with its key."""
        self.what = gr.Radio(
            [("A rehearsal with a trial mark, before a release", REHEARSE), ("One of my releases", RELEASE)],
            value=REHEARSE,
            label="Attack target",
            elem_id="lab-what",
        )
        with gr.Row(equal_height=False):
            with gr.Column():
                self.original = path_picker(
                    context,
                    label="Original (optional for a rehearsal)",
                    info="The unmarked model’s folder. The demo model is used if you choose none",
                    purpose="lab-original",
                )
            with gr.Column() as self.rehearsal:
                self.modes = gr.CheckboxGroup(
                    [(words, name) for name, words in MODES.items()],
                    value=[SINGLE, MANY],
                    label="Trial marks",
                    info="The selected trial marks are attacked one after the other",
                    elem_id="lab-modes",
                )
                gr.Markdown(TRIAL_MARK, elem_classes="caption")
            with gr.Column(visible=False) as self.released:
                self.release = path_picker(
                    context,
                    label="Release",
                    info="The marked copy’s folder; it is not changed",
                    purpose="lab-release",
                )
                self.key = gr.Dropdown(
                    [],
                    label="Key for the release",
                    info="Keys made for this original",
                    elem_id="lab-key",
                    visible=False,
                )
                self.key_note = gr.HTML(elem_id="lab-key-note")

    def _advanced(self, context: Context) -> None:
        with gr.Row():
            preset = gr.Radio(
                [("Standard: in secret coordinates", STANDARD), ("Paper: the published settings", PAPER)],
                value=STANDARD,
                label="Trial mark for one owner",
                elem_id="lab-preset-mark",
            )
            settings = gr.Textbox(
                label="Settings from Explore as JSON (optional)",
                info="These settings replace those for one owner, or those for many recipients if they specify "
                "more than one",
                lines=1,
                max_lines=6,
                max_length=MOST_CHARACTERS,
                elem_id="lab-settings",
                elem_classes="mono",
            )
        self.text = path_picker(
            context,
            label="Text (optional)",
            info="Half is used for measuring and half for training attacks. A bundled text is used if you choose none",
            purpose="lab-text",
            kind="file",
            suffixes=TEXTS,
        )
        with gr.Row():
            tokens = gr.Number(
                USUAL_TOKENS, label="Tokens measured", info="More tokens give more stable numbers but take longer",
                elem_id="lab-tokens",
            )  # fmt: skip
            seed = gr.Number(
                0, label="Seed", info="The same seed gives the same numbers", elem_id="lab-seed",
            )  # fmt: skip
            title = gr.Textbox(
                label="Case (optional)",
                info="The results are filed under this title",
                max_length=200,
                elem_id="lab-case",
            )
            examiner = examiner_field("lab-examiner")
        # In the order in which `Lab.begin` takes their values.
        self.settings = [preset, settings, self.text.field, tokens, seed, title, examiner]


@dataclass(frozen=True, slots=True)
class Lab:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self, tab: gr.Tab) -> None:
        """Connects each event to its handler."""
        page, choice, original, release = self.page, self.page.choice, self.page.original, self.page.release
        attacked = gr.State(REHEARSE)
        page.what.change(self.switch, page.what, [page.rehearsal, page.released, attacked], **PRIVATE)
        sources = [page.what, original.chosen, release.chosen]
        seen = [attacked.change, original.chosen.change, release.chosen.change]
        gr.on(
            [self.context.opened.change, *seen, page.modes.change],
            self.look_at_model,
            [*sources, page.modes, choice.cannot, *choice.inputs],
            [choice.obstacles, page.start, *choice.outputs],
            **LAST,
        )
        gr.on([*seen, tab.select], self.offer_keys, [*sources, page.key], [page.key, page.key_note], **LAST)
        inputs = [page.what, original.field, page.modes, release.field, page.key, *page.settings, *choice.inputs]
        begun = [page.job.job_id, *page.places.outputs]
        page.start.click(page.places.told(self.begin, 1), inputs, begun, **PRIVATE)
        page.view.go_on.click(guarded(self.go_on), page.view.shown, page.job.job_id, **PRIVATE)

    def switch(self, what: str, request: gr.Request) -> Any:
        self.context.require(request)
        return gr.Column(visible=what == REHEARSE), gr.Column(visible=what == RELEASE), what

    def look_at_model(
        self, request: gr.Request, what: str, base: str | None, copy: str | None, modes: list[str] | None, *present: Any
    ) -> Any:
        """The attacks that cannot run on the chosen model and cannot be ticked; with a damaged model none starts.

        Args:
            present: the attacks that could not run before, and the values of the choice, as `LabChoice.offered` takes
                them.
        """
        kept = (gr.skip(),) * len(self.page.choice.outputs)
        if not self.context.is_open(request):
            return "", gr.skip(), *kept
        try:
            path = Path(base) if base else DEMO
            attacked = Path(copy) if what == RELEASE and copy else path
            # Attacks that need a mark for many recipients are offered if there is one, or may be one.
            several = what == RELEASE or MANY in (modes or ())
            d = irwm.open_checkpoint(path).hidden_size
            found = obstacles_of(path, attacked, many_recipients(d), "anyone" if several else "")
        except IrwmError as error:
            return notices.error_html(error), gr.Button(interactive=False), *kept
        said = obstacles_html(Markup(DEMO_NAME) if attacked == DEMO else own(attacked.name, 80), found)
        possible = gr.Button(interactive=not found.keys() >= ATTACKS.keys())
        return said, possible, *self.page.choice.offered(found, *present)

    def offer_keys(self, what: str, base: str | None, copy: str | None, chosen: str | None, request: gr.Request) -> Any:
        """The keys of the original, read again each time the page comes into view."""
        if what != RELEASE or not base or not self.context.is_open(request):
            return gr.Dropdown(visible=False), ""
        try:
            choices, own = keys_for(self.context.require(request), base, copy)
        except IrwmError as error:
            return gr.Dropdown(visible=False), notices.error_html(error)
        if not choices:
            said = "The vault contains no key that was made for this original."
            return gr.Dropdown(visible=False), notices.empty_html("No key fits this original", said)
        kept = chosen if chosen in [id for _, id in choices] and own is None else own
        return gr.Dropdown(choices=choices, value=kept, visible=True), ""

    def begin(
        self, request: gr.Request, what: str, base: str | None, modes: list[str] | None, copy: str | None,
        key: str | None, *values: Any,
    ) -> Any:  # fmt: skip
        """Starts the job. `values`: of the settings, then of the choice of attacks."""
        vault = self.context.require(request)
        preset, json, file, tokens, seed, title, who = values[: len(self.page.settings)]
        chosen = values[len(self.page.settings) :]
        original, recent = self.page.original, self.context.recent
        named = (title or "").strip()
        base = (base or "").strip()
        with at("original"):
            if what == RELEASE and not base:
                raise IrwmError(
                    "no original was chosen", advice="Choose the unmarked model that the release was made from"
                )
            path = original.check(base) if base else DEMO
        asked = LabRequest(
            original=shown_path(path),
            trials=self.page.choice.trials(*chosen),
            text=shown_path(self.page.text.check(file or "")) if (file or "").strip() else "",
            tokens=whole_number("number of tokens", tokens, LEAST_TOKENS, MOST_TOKENS),
            seed=checked_seed(seed),
            device=self.context.settings.device,
            case_id=next((case.id for case in vault.cases() if named and case.title == named), ""),
            case_title=named or f"Lab: {DEMO_NAME if path == DEMO else path.name}",
            examiner=(who or "").strip(),
        )
        if what == RELEASE:
            asked = self.released(asked, copy, key)
            recent.add(self.page.release.purpose, asked.release)
        else:
            asked = replace(asked, parameters=trial_marks(path, modes, preset, json))
        if base:
            recent.add(original.purpose, shown_path(path))
        attacked = Path(asked.about)
        name = DEMO_NAME if attacked == DEMO else attacked.name
        how = "Lab" if asked.release else "Rehearsal"
        return self.context.start(Asked(f"{how} on {name}", asked), vault).id

    def released(self, asked: LabRequest, copy: str | None, key: str | None) -> LabRequest:
        """The request about a release and its key."""
        with at("release"):
            if not (copy or "").strip():
                raise IrwmError("no release was chosen", advice="Choose one, or run a rehearsal instead")
            attacked = self.page.release.check(copy or "")
        with at("key"):
            if not key:
                raise IrwmError("no key was chosen for the release", advice="Choose one, or run a rehearsal instead")
        return replace(asked, release=shown_path(attacked), key=key)

    def go_on(self, id: str | None, request: gr.Request) -> Any:
        vault = self.context.require(request)
        if id is None or self.context.jobs.line(id).kind != KIND:
            raise IrwmError("there is nothing to continue")
        return runner.again(self.context.jobs_of(request).get(id), vault, self.context.jobs).id


def keys_for(vault: Vault, original: str, release: str | None) -> tuple[list[tuple[str, str]], str | None]:
    """Label and id of each key made for this original, the release's own keys first; and the key to preselect.

    Raises:
        IrwmError: a model or the vault cannot be read.
    """
    model = irwm.open_checkpoint(original)
    own = list(vault.marks_on(irwm.open_checkpoint(release).fingerprint)) if release else []
    own = [record for record in own if record.model_fingerprint == model.fingerprint]
    page = vault.find_keys(model_fingerprint=model.fingerprint, newest_first=False, limit=MOST_KEYS)
    records = {record.id: record for record in (*own, *page.records)}
    first = own[0].id if own else page.records[0].id if len(page.records) == 1 else None
    return [(key_label(record), id) for id, record in records.items()], first


def trial_marks(path: Path, modes: list[str] | None, preset: str, text: str | None) -> dict[str, Parameters]:
    """The settings of each requested trial mark, by mode.

    Raises:
        IrwmError: none is requested, or the settings cannot be read.
    """
    if not modes:
        raise IrwmError("no trial mark was chosen", advice="Select one owner, many recipients, or both")
    d = irwm.open_checkpoint(path).hidden_size
    usual = {SINGLE: Parameters.paper() if preset == PAPER else one_owner(d), MANY: many_recipients(d)}
    if (text or "").strip():
        given = ExploreSettings.from_json(text or "")
        mode = MANY if given.recipients > 1 else SINGLE
        if mode not in modes:
            raise IrwmError(
                "the settings are for a trial mark that is not selected",
                found=f"settings for {counted(given.recipients, 'recipient')}",
                advice=f"Select “{MODES[mode]}”, or clear the settings",
            )
        usual[mode] = given.parameters
    return {mode: usual[mode] for mode in MODES if mode in modes}
