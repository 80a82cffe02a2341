"""The public commitment of a key and its timestamps: files to download, files to upload, checks offline."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError, printable
from irwm.ownership import Commitment
from irwm.report.numbers import counted, number
from storage.records import TimestampRecord
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.key_choice import key_label
from ui.components.markup import moment, table, with_icon
from ui.components.uploads import download, offer, uploaded
from ui.context import Context
from ui.services.stamps import (
    Filing,
    ManyStampFiles,
    Requests,
    commitments,
    file_stamps,
    own_request,
    requests_of,
    stem,
)

INTRO = """
A commitment lets you prove later that a key existed on the day you published the commitment or had it timestamped. It
reveals nothing about the key. Send the request to any timestamping authority (RFC 3161), then upload its response
here. For many keys, send each request in the archive and upload all responses together: each is filed with its key.
Without a timestamp from before the leak, a report cannot rule out the possibility that the claimant searched for a key
that fits.
"""
NONE_YET = notices.empty_html(
    "No timestamp yet", "Download the request, send it to an authority of your choice, and upload the response here."
)


def commitment_box(context: Context, words: gr.Textbox) -> gr.Dropdown:
    """Builds the controls at this place of the page; returns the choice of the key, which the page fills.

    Args:
        words: the search for keys; the archive has a request for each key that it finds.
    """
    gr.Markdown(INTRO)
    chosen = gr.Dropdown(
        [], label="Key", info="The keys in the table above. Use its search to find others", elem_id="commit-key"
    )
    with gr.Row():
        document = gr.DownloadButton(
            "Download the commitment (JSON)", interactive=False, elem_id="commitment", scale=0, min_width=310
        )
        request_file = gr.DownloadButton(
            "Download the timestamp request (.tsq)", interactive=False, elem_id="stamp-request", scale=0, min_width=370
        )
    with gr.Row():
        pack = gr.Button("Requests for all keys without a timestamp", elem_id="pack-requests", scale=0, min_width=370)
        packed = gr.DownloadButton(
            "Download the requests (.zip)", visible=False, elem_id="stamp-requests", scale=0, min_width=310
        )
    said_packed = gr.HTML(visible=False, elem_id="stamp-requests-notice")
    response = gr.File(
        label="The authority’s responses (.tsr), and its root certificate (.pem, .crt) if you have it",
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
        vault = context.require(request)
        made = requests_of(vault, text or "")
        note = gr.HTML(packed_html(made), visible=True)
        if not made.written:
            return gr.DownloadButton(value=None, visible=False), note
        digest = hashlib.sha256(made.archive).hexdigest()
        vault.log("commitments exported", {"keys": made.written, "sha256": digest})
        return download(made.archive, f"timestamp-requests-{made.written}.zip"), note

    @guarded
    def take(files: list[str] | None, id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        try:
            done = file_stamps(vault, ManyStampFiles.of(map(Path, uploaded(files or ()))), [id] if id else [])
        except IrwmError as error:
            return gr.HTML(notices.error_html(error), visible=True), gr.skip(), None, gr.skip(), gr.skip()
        keys = vault.key_records({each.stamp.key_id: None for each in done.filed})
        told = gr.HTML(filed_html(done, {key.id: key_label(key) for key in keys}), visible=True)
        if all(each.before for each in done.filed):
            return told, gr.skip(), None, gr.skip(), gr.skip()
        present = stamps_html(vault.timestamps(id)) if id else gr.skip()
        # The archive was made for the keys that had no timestamp then.
        return told, present, None, gr.DownloadButton(value=None, visible=False), gr.HTML("", visible=False)

    chosen.change(export, chosen, [document, request_file, said, stamps], **PRIVATE)
    pack.click(export_all, words, [packed, said_packed], **PRIVATE)
    response.upload(take, [response, chosen], [said, stamps, response, packed, said_packed], **PRIVATE)
    return chosen


def commitment_of(vault: Vault, id: str) -> Commitment:
    """The public document of a key in the vault; the same bytes each time.

    Raises:
        RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
    """
    vault.key_bytes(id)  # a missing or damaged key is an error here
    ((_, commitment),) = commitments(vault, [id])
    return commitment


def packed_html(made: Requests) -> str:
    """How many requests the archive has, and how many keys are left out of it."""
    if made.written:
        note = f"The archive contains {counted(made.written, 'request')} for the keys found by the search above."
    else:
        note = "The search above found no keys without a timestamp."
    if not made.damaged:
        return notices.note_html(note, good=bool(made.written))
    lost = "1 key is damaged and was left out. Restore the latest backup."
    if made.damaged > 1:
        lost = f"{number(made.damaged)} keys are damaged and were left out. Restore the latest backup."
    return notices.note_html(note) + notices.note_html(lost)


def filed_html(done: Filing, keys: Mapping[str, str]) -> str:
    """With which keys timestamps were filed, and why other files were not.

    Args:
        keys: the labels of the keys, by id.
    """
    said = ""
    if done.filed:
        new = sum(not each.before for each in done.filed)
        old = len(done.filed) - new
        lines = [f"{counted(new, 'timestamp')} {'was' if new == 1 else 'were'} filed."] if new else []
        lines += [f"{counted(old, 'response')} {'was' if old == 1 else 'were'} already filed."] if old else []
        rows = [
            Markup('<tr><th scope="row">{}</th><td>{}</td><td>{} UTC</td><td>{}</td><td>{}</td></tr>').format(
                printable(each.name, 200),
                printable(keys.get(each.stamp.key_id, "–"), 200),
                moment(each.stamp.time_utc),
                printable(each.stamp.authority, 200),
                "Already filed" if each.before else "Filed",
            )
            for each in done.filed
        ]
        heads = ("Response", "Key", "Timestamped at", "Authority", "Outcome")
        said = notices.note_html(" ".join(lines), good=True) + str(table("Responses and their keys", heads, rows))
    if done.strays:
        files = counted(done.strays, "request or commitment", "requests or commitments")
        said += notices.note_html(f"Skipped: {files} without a response.")
    return said + _refused_html(done)


def _refused_html(done: Filing) -> str:
    if not done.refused:
        return ""
    if len(done.refused) == 1:
        ((name, error),) = done.refused
        problem = f"“{name}” was not filed: {error.problem}"
        return notices.error_html(IrwmError(problem, expected=error.expected, found=error.found, advice=error.advice))
    advice = dict.fromkeys(notices.sentence(error.advice) for _, error in done.refused if error.advice)
    total = len(done.refused) + len(done.filed)
    problem = f"{number(len(done.refused))} of {number(total)} files could not be used"
    rows = [
        Markup('<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>').format(
            printable(name, 200), notices.sentence(error.problem), printable(error.found or "", 200)
        )
        for name, error in done.refused
    ]
    listed = table("Files that could not be used", ("File", "Reason", "Actual"), rows)
    return notices.error_html(IrwmError(problem, advice=" ".join(advice) or None)) + str(listed)


def stamps_html(stamps: Iterable[TimestampRecord]) -> str:
    """The timestamps of a key, earliest first: time, authority, and whether the chain to a root was checked."""
    rows = [
        Markup('<tr><th scope="row">{} UTC</th><td>{}</td><td>{}</td></tr>').format(
            moment(stamp.time_utc), printable(stamp.authority, 200), _trust(stamp.trusted)
        )
        for stamp in sorted(stamps, key=lambda stamp: stamp.time_utc)
    ]
    return str(table("Timestamps of this key", ("Time", "Authority", "Certificate chain"), rows)) if rows else NONE_YET


def _trust(trusted: bool) -> Markup:
    if trusted:
        return with_icon("done", "Trusted: verified up to a root certificate")
    return with_icon("fault", "Not verified: no root certificate was provided")
