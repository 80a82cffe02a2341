"""Opening a key: writes its file for another examiner or the other side of a dispute; never through a page."""

from __future__ import annotations

from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.path_picker import hold_back, path_picker
from ui.components.places import Places, at
from ui.components.secret_field import secret_field
from ui.context import Context
from ui.key_file import write_key

INTRO = """
Anyone who has the key itself can find the marked rows and remove the mark from every copy made with that key. Open a
key only for someone who must repeat the examination without your vault, such as an expert or a court.
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
    again = "Required again, because this step cannot be undone"
    passphrase = secret_field("Passphrase", "current-password", again, elem_id="open-key-passphrase")
    wrong = gr.HTML(visible=False, elem_id="open-key-passphrase-notice")
    told = gr.HTML(visible=False, elem_id="open-key-notice")
    start = gr.Button("Write the key file", elem_id="open-key", scale=0, min_width=200)
    said = gr.HTML(elem_id="open-key-written")
    hold_back(start, [folder])
    places = Places(kept=["folder"], form=told, folder=folder.note, passphrase=wrong)

    def write(id: str | None, where: str, typed: str, request: gr.Request) -> Any:
        vault = context.require(request)
        if not id:
            raise IrwmError("no key was chosen", advice="Choose the key to open")
        with at("folder"):
            if not (where or "").strip():
                raise IrwmError("no folder was chosen", advice="Choose where to write the key file")
            target = folder.check(where)
        with at("passphrase"):
            Vault.open(vault.home).unlock(typed or "")
        file = write_key(vault, id, target)
        return notices.note_html(
            f"The key was written to {file}. It is unencrypted and readable only by you.", good=True
        ), ""

    start.click(
        places.told(write, 2, emptied=2),
        [chosen, folder.field, passphrase],
        [said, passphrase, *places.outputs],
        **PRIVATE,
        concurrency_limit=1,
        concurrency_id="passphrase",
    )
