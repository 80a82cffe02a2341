"""The public commitment of a key and its time-stamps: files to download, files to upload, checks offline."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError, printable
from irwm.ownership import Commitment, Timestamp
from irwm.report.numbers import counted, number
from storage.records import TimestampRecord
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.markup import moment, table, with_icon
from ui.components.uploads import download, offer, uploaded
from ui.context import Context
from ui.services.stamps import StampFiles, commitments, file_stamps, own_request, requests_of, stem

# Refused responses that are named.
MOST_TOLD = 5

INTRO = """
A commitment proves later that a key existed on the day you published it or had it time-stamped. It reveals
nothing about the key. Send the request to any time-stamping authority (RFC 3161), then upload its response here.
For many keys, send each request of the archive, and upload all responses together: each is filed with its key.
Without a time-stamp from before the leak, a report cannot rule out that the claimant searched for a key that fits.
"""
NONE_YET = notices.empty_html(
    "No time-stamp yet", "Download the request, send it to an authority of your choice, and upload the response here."
)


def commitment_box(context: Context, words: gr.Textbox) -> gr.Dropdown:
    """Builds the controls at this place of the page; returns the choice of the key, which the page fills.

    Args:
        words: the search for keys; the archive has a request for each key that it finds.
    """
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
    with gr.Row():
        pack = gr.Button("Requests of all keys without a time-stamp", elem_id="pack-requests", scale=0, min_width=370)
        packed = gr.DownloadButton(
            "Download the requests (.zip)", visible=False, elem_id="stamp-requests", scale=0, min_width=310
        )
    said_packed = gr.HTML(visible=False, elem_id="stamp-requests-notice")
    response = gr.File(
        label="The authority’s responses (.tsr), and its root certificate (.pem) if you have it",
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
        name = stem(commitment)
        return (
            gr.DownloadButton(value=offer(commitment.to_bytes(), f"{name}.json"), interactive=True),
            gr.DownloadButton(value=offer(own_request(commitment.digest), f"{name}.tsq"), interactive=True),
            gr.HTML(visible=False),
            stamps_html(vault.timestamps(id)),
        )

    @guarded
    def export_all(text: str | None, request: gr.Request) -> Any:
        """The requests of all keys that the search finds and that no authority has dated yet."""
        vault = context.require(request)
        dated = {stamp.key_id for stamp in vault.timestamps()}
        ids = [id for id in vault.key_ids(text or "") if id not in dated]
        if not ids:
            note = "The search above finds no key without a time-stamp."
            return gr.DownloadButton(value=None, visible=False), gr.HTML(notices.note_html(note), visible=True)
        content = requests_of(vault, ids)
        vault.log("commitments exported", {"keys": len(ids), "sha256": hashlib.sha256(content).hexdigest()})
        note = f"The archive has {counted(len(ids), 'request')}, of the keys that the search above finds."
        name = f"time-stamp-requests-{len(ids)}.zip"
        return download(content, name), gr.HTML(notices.note_html(note, good=True), visible=True)

    @guarded
    def take(files: list[str] | None, id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        try:
            given = StampFiles.of_each(map(Path, uploaded(files or ())))
            filed, refused = file_stamps(vault, given, [id] if id else [])
        except IrwmError as error:
            return gr.HTML(notices.error_html(error), visible=True), gr.skip(), None
        present = stamps_html(vault.timestamps(id)) if id else gr.skip()
        return gr.HTML(filed_html(filed, refused), visible=True), present, None

    chosen.change(export, chosen, [document, request_file, said, stamps], **PRIVATE)
    pack.click(export_all, words, [packed, said_packed], **PRIVATE)
    response.upload(take, [response, chosen], [said, stamps, response], **PRIVATE)
    return chosen


def commitment_of(vault: Vault, id: str) -> Commitment:
    """The public document of a key in the vault; the same bytes each time.

    Raises:
        RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
    """
    vault.key_bytes(id)  # a missing or damaged key is an error here
    ((_, commitment),) = commitments(vault, [id])
    return commitment


def filed_html(filed: Sequence[Timestamp], refused: Mapping[str, IrwmError]) -> str:
    """Which time-stamps were filed, and why others were not."""
    said = ""
    if len(filed) == 1:
        (stamp,) = filed
        said = f"{stamp.authority} states that the commitment existed at {stamp.time_utc}."
    elif filed:
        said = f"{number(len(filed))} time-stamps were filed, each with its key."
    notes = notices.note_html(said, good=True) if said else ""
    if len(refused) < 2:
        return notes + "".join(map(notices.error_html, refused.values()))
    lines = [f"{name}: {error.problem}" for name, error in refused.items()]
    return notes + notices.error_html(
        IrwmError(
            f"{number(len(refused))} of {number(len(refused) + len(filed))} responses could not be used",
            found="; ".join(lines[:MOST_TOLD]) + (" …" if len(lines) > MOST_TOLD else ""),
            advice="Give the responses as the authority sent them",
        )
    )


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
