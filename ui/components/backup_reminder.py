"""Shows when keys are missing from the last backup, and makes a backup with one button."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.report.numbers import number
from storage.backup import latest_backup
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.uploads import download_copy
from ui.context import Context

# Number of the newest keys that are checked; if none of them is in the backup, the text says "50 or more".
LOOKED_AT = 50
BACKED_UP = (
    "A sealed copy was written to {}. It is on the same disk as the vault, so download the backup and keep it on "
    "another disk. To restore a backup, lock the vault and use the form below the passphrase field."
)
DOWNLOAD = "Download the backup"


def unsaved_keys(vault: Vault) -> tuple[int, str]:
    """Number of the newest keys missing from the last backup, up to `LOOKED_AT`, and the day of that backup; "" if
    there is none."""
    last = latest_backup(vault.home)
    page = vault.find_keys(limit=LOOKED_AT)
    if last is None:
        return min(page.total, LOOKED_AT), ""
    moment = moment_of(last)
    newer = sum(_digits(record.created)[: len(moment)] > moment for record in page.records)
    return newer, f"{moment[:4]}-{moment[4:6]}-{moment[6:8]}"


def moment_of(backup: Path) -> str:
    """The time of a backup in the home folder, as the digits of its name: from the year to fractions of a second."""
    return _digits(backup.stem.rpartition("-")[2])


def reminder_text(count: int, last: str) -> str:
    """One or two sentences about the keys that are not backed up."""
    some = "One key" if count == 1 else f"{number(count)} {'or more ' if count >= LOOKED_AT else ''}keys"
    verb = "is" if count == 1 else "are"
    since = f"newer than the last backup of the vault, made on {last}" if last else "not backed up"
    return f"{some} {verb} {since}. A lost key cannot be recreated, and a mark proves nothing without its key."


def backup_reminder(context: Context, triggers: list[Callable[..., Any]], name: str) -> None:
    """Builds the reminder at this place of the page; it is hidden while a backup has every key.

    Args:
        triggers: the events after which it checks again.
        name: part of the elements' ids.
    """
    with gr.Row(visible=False, elem_classes="reminder", elem_id=f"{name}-reminder", equal_height=True) as box:
        said = gr.HTML(elem_classes="reminder-text")
        now = gr.Button("Back up now", elem_id=f"{name}-backup", scale=0, min_width=140)
    done = gr.HTML(visible=False, elem_id=f"{name}-backed-up")
    saved = gr.DownloadButton(DOWNLOAD, visible=False, elem_id=f"{name}-backup-file")

    def look(request: gr.Request) -> Any:
        if not context.is_open(request):
            return gr.Row(visible=False), gr.skip()
        count, last = unsaved_keys(context.require(request))
        return gr.Row(visible=bool(count)), notices.note_html(reminder_text(count, last)) if count else ""

    @guarded
    def back_up(request: gr.Request) -> Any:
        path = context.require(request).backup()
        said = gr.HTML(notices.note_html(BACKED_UP.format(path), good=True), visible=True)
        return gr.Row(visible=False), said, download_copy(path)

    gr.on(triggers, look, None, [box, said], trigger_mode="always_last", **PRIVATE)
    now.click(back_up, None, [box, done, saved], **PRIVATE)


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())
