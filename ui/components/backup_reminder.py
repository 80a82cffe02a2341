"""Shows when keys are missing from the last backup, and makes a backup with one button."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.report.numbers import number
from storage.backup import latest_backup
from storage.errors import StorageError
from storage.vault import Vault
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.uploads import download_copy
from ui.context import Context

# Number of the newest keys that are checked; if none of them is in the backup, the text says "50 or more".
LOOKED_AT = 50
# The form that restores a backup.
_RESTORE = "To restore a backup, lock the vault and use the form below the passphrase field."
_BACKED_UP = (
    "A sealed copy was written to {}. It is in the vault’s own folder, so download the backup and keep it on another "
    "disk, or choose a folder for backups in Settings. " + _RESTORE
)
_IN_BOTH = "A sealed copy was written to {}, and another one to {}. " + _RESTORE
_NOT_COPIED = (
    "A sealed copy was written to {}, but not to the folder for backups. Download the backup and keep it on another "
    "disk."
)
DOWNLOAD = "Download the backup"


def back_up(context: Context, request: gr.Request) -> tuple[str, gr.DownloadButton]:
    """Backs up the vault, also to the folder chosen in Settings; returns what was done, as HTML, and the download.

    Raises:
        StorageError: no backup was made.
    """
    vault, folder = context.require(request), context.settings.preferences.backups
    path = vault.backup()
    if not folder:
        return notices.note_html(_BACKED_UP.format(path), good=True), download_copy(path)
    try:
        other = vault.backup(Path(folder, path.name))
    except StorageError as error:
        return notices.note_html(_NOT_COPIED.format(path)) + notices.error_html(error), download_copy(path)
    return notices.note_html(_IN_BOTH.format(path, other), good=True), download_copy(path)


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
    def make(request: gr.Request) -> Any:
        said, offered = back_up(context, request)
        return gr.Row(visible=False), gr.HTML(said, visible=True), offered

    gr.on(triggers, look, None, [box, said], trigger_mode="always_last", **PRIVATE)
    now.click(make, None, [box, done, saved], **PRIVATE)


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())
