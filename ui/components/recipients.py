"""The list of recipients on a page: a field to type or paste into, an upload instead of it, and a preview."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import printable
from irwm.report.numbers import counted, number
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.icons import icon
from ui.components.markup import items
from ui.components.uploads import UploadRefusedError, browser_folder
from ui.context import Context
from ui.services.recipients import MAX_LIST_BYTES, Recipient, RecipientList, read_file

# A few names show that the right column was read; three hundred of them would push the buttons off the page.
NAMES_SHOWN = 5
FAULTS_SHOWN = 8
EXAMPLE = "Example, Inc.\nBolt Ltd\n\nor a table from a spreadsheet:\n\nrecipient,note\nBolt Ltd,early access"


def recipients_field(context: Context) -> gr.Textbox:
    """Builds the field and the file chooser that fills it."""
    field = gr.Textbox(
        label="Recipients",
        info="One name per line, or a table with a “recipient” column and, optionally, a “note” column",
        placeholder=EXAMPLE,
        lines=7,
        max_lines=12,
        max_length=MAX_LIST_BYTES,
        elem_id="recipients",
        html_attributes=gr.InputHTMLAttributes(autocomplete="off", spellcheck=False),
    )
    upload = gr.UploadButton(
        "Import from a CSV file…",
        file_types=[".csv", ".tsv", ".txt"],
        file_count="single",
        elem_id="recipients-file",
        scale=0,
    )

    @guarded
    def take(file: str | None, request: gr.Request) -> Any:
        context.require(request)
        return text_of_upload(file) if file else gr.skip()

    upload.upload(take, upload, field, **PRIVATE)
    return field


def text_of_upload(file: str) -> str:
    """The text of an uploaded list; the uploaded file is removed because it contains customers' names.

    Raises:
        UploadRefusedError: the path was not uploaded here.
        RecipientListError: it is not a list.
    """
    path = Path(file)
    # A posted form can name any path; only files in the upload folder were uploaded.
    if path.is_symlink() or not path.is_file() or not path.resolve().is_relative_to(browser_folder()):
        raise UploadRefusedError("this file was not uploaded here", file=path, advice="Choose the file again")
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_LIST_BYTES + 1)
    finally:
        path.unlink(missing_ok=True)
    return read_file(content, path.name)


def preview_html(found: RecipientList, released: Sequence[Recipient], damaged: int) -> str:
    """A preview of a list.

    Args:
        released: those of its recipients who already have a copy of this model.
        damaged: records of the vault that cannot be read.
    """
    parts, new = [], len(found.recipients) - len(released)
    understood = f"{counted(len(found.recipients), 'recipient')}"
    if found.table:
        understood += f", read as {found.table}"
    if found.recipients:
        understood += f": {_some(found.recipients)}"
    parts.append(_faults_html(found, understood) if found.faults else notices.note_html(understood, good=bool(new)))
    if released:
        rest = f"; {counted(new, 'copy', 'copies')} will be created" if new else "; no new copies are needed"
        parts.append(
            notices.note_html(
                f"Skipped because they already have a copy: {counted(len(released), 'recipient')} "
                f"({_some(released)}){rest}"
            )
        )
    if damaged:
        parts.append(damaged_html(damaged))
    return "".join(parts)


def damaged_html(damaged: int) -> str:
    """An error for records of the vault that cannot be read, and what that means here."""
    return str(
        Markup('<section class="notice notice-fault" role="alert"><div><h2>{}</h2><p>{}</p></div></section>').format(
            f"{counted(damaged, 'record')} in the vault cannot be read",
            "Any such record may concern a mark on this model or on one of its copies, so this list may be incomplete. "
            "The Vault page lists these records; restore a backup to recover them.",
        )
    )


def _faults_html(found: RecipientList, understood: str) -> str:
    lines = items(fault.text for fault in found.faults[:FAULTS_SHOWN])
    more = len(found.faults) - FAULTS_SHOWN
    return str(
        Markup(
            '<section class="notice notice-fault" role="alert">{}<div><h2>{}</h2><ul>{}{}</ul>'
            '<p class="advice">{}</p></div></section>'
        ).format(
            icon("fault"),
            f"{counted(len(found.faults), 'line')} in the list cannot be used",
            lines,
            Markup("<li>and {} more</li>").format(number(more)) if more > 0 else "",
            f"The other lines contain {understood}.",
        )
    )


def _some(recipients: Sequence[Recipient]) -> str:
    names = ", ".join(printable(recipient.name, 60) for recipient in recipients[:NAMES_SHOWN])
    more = len(recipients) - NAMES_SHOWN
    return f"{names} and {number(more)} more" if more > 0 else names
