"""The form of a dispute: our claim, their claim, and the model that both claim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.errors import IrwmError, shown_path
from irwm.keys.key import MAX_NAME
from irwm.report.reader_inputs import opened_key
from irwm.report.stamps import trusted_roots
from storage.vault import Vault
from ui.components import notices
from ui.components.events import LAST
from ui.components.guarded import guarded
from ui.components.key_choice import MOST_LISTED, key_label
from ui.components.path_picker import PathPicker, hold_back, path_picker
from ui.components.places import Places, at
from ui.components.uploads import receive, uploaded
from ui.context import Context
from ui.services.request import DisputeRequest, OurClaim, TheirClaim
from ui.services.stamps import ROOTS, StampFiles

INTRO = """
Every key is tried on every model. The true owner’s original carries no mark. If a claimant marked someone else’s
release, that claimant’s “original” already carries the other claimant’s mark.
"""
# Commitment, request, response and roots: some kilobytes each.
LARGEST_STAMP = 1 << 20


@dataclass(frozen=True, slots=True)
class DisputeForm:
    """The parts of the form that a page uses.

    Attributes:
        inputs: the components whose values `request` takes, in order.
        start: the button that starts it.
        places: where errors of `request` are shown.
    """

    start: gr.Button
    inputs: list[Any]
    pickers: dict[str, PathPicker]
    home: Path
    places: Places

    def request(self, case_id: str, device: str, *values: Any) -> DisputeRequest:
        """The request from the values of `inputs`.

        Raises:
            IrwmError: a value is missing, or a path may not be used; at its place.
        """
        ours, key, release, name, original, key_file, marked, stamp, roots, exhibit = values
        our_original = self._path("dispute-original", ours, "our original")
        with at("key"):
            if not key:
                raise IrwmError("our key is missing", advice="Choose our original first, then the key")
        our_release = self._path("dispute-release", release, "our release")
        with at("name"):
            if not (name or "").strip():
                raise IrwmError("the other claimant’s name is missing", advice="Enter the other claimant’s name")
        return DisputeRequest(
            case_id=case_id,
            device=device,
            ours=OurClaim(original=our_original, release=our_release, key=key),
            theirs=TheirClaim(
                name=(name or "").strip(),
                original=self._path("dispute-their-original", original, "their original"),
                key_file=self._path("dispute-their-key", key_file, "their key file"),
                release=self._path("dispute-their-release", marked, "their marked model"),
                stamp=self._stamp(stamp),
            ),
            roots=self._path("dispute-roots", roots) if (roots or "").strip() else "",
            exhibit=self._path("dispute-exhibit", exhibit) if (exhibit or "").strip() else "",
        )

    def _path(self, purpose: str, typed: str | None, what: str = "") -> str:
        with at(purpose):
            if not (typed or "").strip():
                raise IrwmError(f"{what} is missing", advice="Enter its path, or browse for it")
            return shown_path(self.pickers[purpose].check(typed or ""))

    def _stamp(self, files: list[str] | None) -> str:
        """The folder with the uploaded files of their timestamp; "" for none."""
        if not files:
            return ""
        with at("stamp"):
            if sum(Path(file).stat().st_size for file in files if Path(file).is_file()) > LARGEST_STAMP:
                raise IrwmError(
                    "these files are too large to belong to a timestamp",
                    advice="Upload only the commitment and the response",
                )
            StampFiles.of(map(Path, uploaded(files)))
            received = receive(files, self.home)
        return str(received if received.is_dir() else received.parent)


def dispute_form(context: Context) -> DisputeForm:
    """Builds the form at this place of the page."""
    pickers: dict[str, PathPicker] = {}

    def picker(purpose: str, label: str, info: str, **of_file: Any) -> PathPicker:
        picking = {"kind": "file", **of_file} if of_file else {"read": irwm.open_checkpoint}
        pickers[purpose] = path_picker(context, label=label, info=info, purpose=purpose, **picking)
        return pickers[purpose]

    gr.Markdown(INTRO)
    with gr.Row(equal_height=False):
        with gr.Column():
            gr.Markdown("## Our claim", elem_classes="group-title")
            original = picker("dispute-original", "Our original", "The unmarked model that our release was made from")
            key = gr.Dropdown(
                [], label="Our key", info="A key for this original, from the vault", elem_id="dispute-key"
            )
            problem = gr.HTML(visible=False, elem_id="dispute-key-notice")
            release = picker("dispute-release", "Our release", "The copy that we marked with this key")
        with gr.Column():
            gr.Markdown("## Their claim", elem_classes="group-title")
            name = gr.Textbox(
                label="The other claimant", info="The name to use in the report", elem_id="dispute-name",
                max_length=MAX_NAME,
            )  # fmt: skip
            unnamed = gr.HTML(visible=False, elem_id="dispute-name-notice")
            theirs = picker("dispute-their-original", "Their original", "The unmarked model that they say is theirs")
            key_file = picker(
                "dispute-their-key",
                "Their key file",
                "The key file that they disclosed; it is read but not stored",
                suffixes=(),
                read=opened_key,
            )
            marked = picker("dispute-their-release", "Their marked model", "The copy that they say carries their mark")
            stamp = gr.File(
                label="Their commitment and its timestamp (optional): .json, .tsq, .tsr",
                file_count="multiple",
                elem_id="dispute-stamp",
                elem_classes="drop",
                height=180,
            )
            unstamped = gr.HTML(visible=False, elem_id="dispute-stamp-notice")
            roots = picker(
                "dispute-roots",
                "Root certificates that you trust (.pem, optional)",
                "Get them from the authority itself, never from the other claimant. Without a root certificate, the "
                "other claimant’s date does not count",
                suffixes=(ROOTS,),
                read=lambda path: trusted_roots([path]),
            )
    exhibit = picker("dispute-exhibit", "Model in dispute (optional)", "A third model that both sides claim")
    told = gr.HTML(visible=False, elem_id="dispute-notice")
    start = gr.Button("Resolve the dispute", elem_id="start-dispute")
    hold_back(start, list(pickers.values()))
    notes = {purpose: each.note for purpose, each in pickers.items()}
    places = Places(kept=[*notes, "key"], form=told, key=problem, name=unnamed, stamp=unstamped, **notes)

    @guarded
    def list_keys(path: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        if not path:
            return gr.Dropdown(choices=[], value=None), gr.HTML(visible=False)
        try:
            choices = keys_of(vault, irwm.open_checkpoint(path).fingerprint)
        except IrwmError as error:
            return gr.Dropdown(choices=[], value=None), gr.HTML(notices.error_html(error), visible=True)
        return gr.Dropdown(choices=choices, value=choices[0][1] if choices else None), gr.HTML(
            "" if choices else notices.note_html("The vault contains no key for this original."), visible=not choices
        )

    original.chosen.change(list_keys, original.chosen, [key, problem], **LAST)
    fields = [original.field, key, release.field, name, theirs.field, key_file.field, marked.field, stamp]
    return DisputeForm(start, [*fields, roots.field, exhibit.field], pickers, context.settings.home, places)


def keys_of(vault: Vault, fingerprint: str) -> list[tuple[str, str]]:
    """The first keys of an original as choices."""
    page = vault.find_keys(model_fingerprint=fingerprint, newest_first=False, limit=MOST_LISTED)
    return [(key_label(record), record.id) for record in page.records]
