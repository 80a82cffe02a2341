"""The note on a key or a release: shown, changed or removed, below the table that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.schema import KEYS
from storage.vault import LONGEST_LABEL, Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.context import Context


@dataclass(frozen=True, slots=True)
class LabelBox:
    """The parts of the box that a page uses.

    Attributes:
        choice: the record; its choices are those that the table above shows, each with its id in the vault.
        changed: a `gr.State` that counts the changes made here; a table is redrawn on its `change` event.
    """

    choice: gr.Dropdown
    changed: gr.State


def label_box(context: Context, table: str, one: str, about: Callable[[Vault, str], str] | None = None) -> LabelBox:
    """Builds the folded controls and their events at this place of the page.

    Args:
        table: of the vault, "keys" or "releases".
        one: the singular name of a record, such as "key".
        about: the details of the chosen record, as HTML; None to show no details.
    """
    title = f"Note and details for a {one}" if about else f"Note on a {one}"
    with gr.Accordion(title, open=False, elem_id=f"note-on-{one}"):
        with gr.Row(elem_classes=["picker-row", "note-row"]):
            choice = gr.Dropdown(
                label=one.capitalize(), info=f"A {one} from the table", value=None, elem_id=f"note-{one}"
            )
            text = gr.Textbox(
                label="Note",
                info="Stored sealed, and included in searches. To remove the note, clear the field",
                max_length=LONGEST_LABEL,
                max_lines=1,
                elem_id=f"note-{one}-text",
                html_attributes=gr.InputHTMLAttributes(autocomplete="off", spellcheck=True),
            )
            save = gr.Button("Save", elem_id=f"note-{one}-save", elem_classes="field-button", scale=0, min_width=112)
        said = gr.HTML(elem_id=f"note-{one}-said")
        shown = gr.HTML(elem_id=f"about-{one}")
    changed = gr.State(0)

    @guarded
    def show(id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        return (label_of(vault, table, id), "", about(vault, id) if about else "") if id else ("", "", "")

    @guarded
    def keep(id: str | None, words: str | None, count: int, request: gr.Request) -> Any:
        vault = context.require(request)
        words = (words or "").strip()
        try:
            if not id:
                raise IrwmError(f"no {one} was chosen", advice=f"choose a {one} first")
            if words == label_of(vault, table, id):
                return notices.note_html("The note is unchanged."), count
            vault.set_label(table, id, words)
        except IrwmError as error:
            return notices.error_html(error), count
        done = "The note was removed." if not words else "The note was saved."
        return notices.note_html(f"{done} Any previous note remains in the sealed change log.", good=True), count + 1

    choice.change(show, choice, [text, said, shown], **PRIVATE)
    gr.on([save.click, text.submit], keep, [choice, text, changed], [said, changed], **PRIVATE)
    return LabelBox(choice, changed)


def label_of(vault: Vault, table: str, id: str) -> str:
    """The current note of a record.

    Raises:
        VaultLockedError, StorageError
    """
    if later := vault.labels(table, id):
        return str(later[-1].text)
    return next((record.label for record in vault.key_records([id])), "") if table == KEYS else ""
