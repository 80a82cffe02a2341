"""Opening a key: writes its file for another examiner or the other side of a dispute; never through a page."""

from __future__ import annotations

from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.path_picker import path_picker
from ui.components.secret_field import secret_field
from ui.context import Context
from ui.key_file import write_key

INTRO = """
Anyone who has the key itself can find the marked rows and remove the mark from every copy made with it. Open a key only
to someone who must examine again without your vault, such as an expert or a court.
"""


def open_key_box(context: Context, chosen: gr.Dropdown) -> None:
    """Builds the controls at this place of the page.

    Args:
        chosen: the choice of the key, by its id in the vault.
    """
    gr.Markdown(INTRO)
    folder = path_picker(
        context,
        label="Folder for the key file",
        info="A folder that no one else can read; the file is never sent through the browser",
        purpose="open-key",
        kind="folder",
    )
    again = "Needed again, because this step cannot be undone"
    passphrase = secret_field("Passphrase", "current-password", again, elem_id="open-key-passphrase")
    start = gr.Button("Write the key file", elem_id="open-key", scale=0, min_width=200)
    said = gr.HTML(elem_id="open-key-notice")

    @guarded
    def write(id: str | None, where: str, typed: str, request: gr.Request) -> Any:
        vault = context.require(request)
        try:
            if not id:
                raise IrwmError("no key was chosen", advice="Choose the key to open")
            if not (where or "").strip():
                raise IrwmError("the folder is missing", advice="Choose where to write the key file")
            target = folder.check(where)
            Vault.open(vault.home).unlock(typed or "")
            file = write_key(vault, id, target)
        except IrwmError as error:
            return notices.error_html(error), ""
        return notices.note_html(f"The key is in {file}, unencrypted and readable only by you.", good=True), ""

    start.click(
        write,
        [chosen, folder.field, passphrase],
        [said, passphrase],
        **PRIVATE,
        concurrency_limit=1,
        concurrency_id="passphrase",
    )
