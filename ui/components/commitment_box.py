"""The public commitment of a key and its time-stamps: files to download, files to upload, checks offline."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm import Key
from irwm.errors import IrwmError, printable
from irwm.ownership import Commitment
from storage.records import TimestampRecord
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.markup import moment, table, with_icon
from ui.components.uploads import offer, uploaded
from ui.context import Context
from ui.services.stamps import StampFiles, own_request

INTRO = """
A commitment proves later that a key existed on the day you published it or had it time-stamped. It reveals
nothing about the key. Send the request to any time-stamping authority (RFC 3161), then upload its response here.
Without a time-stamp from before the leak, a report cannot rule out that the claimant searched for a key that fits.
"""
NONE_YET = notices.empty_html(
    "No time-stamp yet", "Download the request, send it to an authority of your choice, and upload the response here."
)


def commitment_box(context: Context) -> gr.Dropdown:
    """Builds the controls at this place of the page; returns the choice of the key, which the page fills."""
    gr.Markdown(INTRO)
    chosen = gr.Dropdown(
        [], label="Key", info="The keys shown in the table above; search there for others", elem_id="commit-key"
    )
    with gr.Row():
        document = gr.DownloadButton(
            "Download the commitment (JSON)", interactive=False, elem_id="commitment", scale=0, min_width=310
        )
        request_file = gr.DownloadButton(
            "Download the time-stamp request (.tsq)", interactive=False, elem_id="stamp-request", scale=0, min_width=370
        )
    response = gr.File(
        label="The authority’s response (.tsr), and its root certificate (.pem) if you have it",
        file_count="multiple",
        elem_id="stamp-response",
        height=180,
        elem_classes="drop",
    )
    said = gr.HTML(visible=False, elem_id="stamp-notice")
    stamps = gr.HTML(elem_id="stamps")

    @guarded
    def export(id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        nothing = gr.DownloadButton(value=None, interactive=False)
        if not id:
            return nothing, nothing, gr.HTML(visible=False), ""
        commitment = commitment_of(vault, id)
        vault.log("commitment exported", {"commitment": commitment.commitment})
        stem = f"commitment-{commitment.commitment[:16]}"
        return (
            gr.DownloadButton(value=offer(commitment.to_bytes(), f"{stem}.json"), interactive=True),
            gr.DownloadButton(value=offer(own_request(commitment.digest), f"{stem}.tsq"), interactive=True),
            gr.HTML(visible=False),
            stamps_html(vault.timestamps(id)),
        )

    @guarded
    def take(files: list[str] | None, id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        try:
            if not id:
                raise IrwmError("no key was chosen", advice="Choose the key whose commitment was time-stamped")
            sent = commitment_of(vault, id)
            asked, answered, stamp = StampFiles.of(map(Path, uploaded(files or ()))).read(sent)
            vault.add_timestamp(
                id, sent.to_bytes(), asked, answered, stamp.time_utc, stamp.authority, stamp.trusted
            )  # fmt: skip
        except IrwmError as error:
            return gr.HTML(notices.error_html(error), visible=True), gr.skip(), None
        note = f"{stamp.authority} states that the commitment existed at {stamp.time_utc}."
        return gr.HTML(notices.note_html(note, good=True), visible=True), stamps_html(vault.timestamps(id)), None

    chosen.change(export, chosen, [document, request_file, said, stamps], **PRIVATE)
    response.upload(take, [response, chosen], [said, stamps, response], **PRIVATE)
    return chosen


def commitment_of(vault: Vault, id: str) -> Commitment:
    """The public document of a key in the vault; the same bytes each time.

    Raises:
        RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
    """
    key = Key.from_bytes(vault.key_bytes(id))
    (record,) = vault.key_records([id])
    return Commitment.of(key, family=record.family, made_utc=record.created)


def stamps_html(stamps: Iterable[TimestampRecord]) -> str:
    """The time-stamps of a key, earliest first: time, authority, and whether the chain to a root was checked."""
    rows = [
        Markup('<tr><th scope="row">{} UTC</th><td>{}</td><td>{}</td></tr>').format(
            moment(stamp.time_utc), printable(stamp.authority, 200), _trust(stamp.trusted)
        )
        for stamp in sorted(stamps, key=lambda stamp: stamp.time_utc)
    ]
    return str(table("Time-stamps of this key", ("Time", "Authority", "Chain to a root"), rows)) if rows else NONE_YET


def _trust(trusted: bool) -> Markup:
    if trusted:
        return with_icon("done", "Trusted: checked to a root")
    return with_icon("fault", "Not checked: no root was given")
