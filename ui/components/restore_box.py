"""Restoring a backup of the vault, from the gate: users who lost the vault or its file cannot unlock it first.

The form requires the backup's passphrase before it shows its content. An existing vault is replaced only by a backup of
itself, and is set aside, never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report.numbers import counted, number
from storage import log_witness
from storage.backup import BACKUP_FOLDER, BackupFacts, inspect, restore
from storage.errors import DatabaseDamagedError, PassphraseError, WrongPassphraseError
from storage.vault import Vault
from storage.wrong_passphrases import Tries
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.markup import moment
from ui.components.secret_field import secret_field
from ui.components.uploads import uploaded
from ui.context import Context
from ui.guard import UPLOAD_BYTES
from ui.settings import without_home

INTRO = """
A backup is a sealed copy of the vault as it was when the backup was made. It lacks everything added later, including
keys, and with them the proof for later releases.
"""
ENDING = ".sqlite3"
# Most backups of the folder that are listed, newest first; the newest is usually the one to restore.
MOST_LISTED = 20


def restore_box(context: Context) -> None:
    """Builds the folded controls and their events at this place of the page."""
    with gr.Accordion("Restore a backup of the vault", open=False, elem_id="restore") as box:
        gr.Markdown(INTRO)
        listed = gr.Dropdown(label="Backup", info="Backups in this app’s folder, newest first", elem_id="restore-which")
        file = gr.File(
            label="Or a backup from elsewhere (.sqlite3)",
            file_count="single",
            height=160,
            elem_id="restore-file",
            elem_classes="drop",
        )
        passphrase = secret_field(
            "Passphrase for the backup",
            "current-password",
            "The passphrase that was in use when the backup was made",
            elem_id="restore-passphrase",
        )
        present = secret_field(
            "Passphrase for the current vault, if different",
            "off",
            "A working vault can be replaced only by someone who can open it",
            elem_id="restore-present",
        )
        look = gr.Button("Compare the backup with the vault", elem_id="restore-look")
        said = gr.HTML(elem_id="restore-said")
        with gr.Row(visible=False) as sure:
            confirm = gr.Button("Restore the backup", variant="stop", elem_id="restore-now", scale=0, min_width=160)
            cancel = gr.Button("Cancel", elem_id="restore-cancel", scale=0, min_width=200)
        done = gr.Button("Continue to unlock", variant="primary", visible=False, elem_id="restore-done")

    handlers = Handlers(context)
    asked = [listed, file, passphrase]
    # One at a time: reading a backup from elsewhere may take seconds.
    slow = {**PRIVATE, "concurrency_limit": 1, "concurrency_id": "restore"}
    box.expand(handlers.offer, None, listed, **PRIVATE)
    compare, put_back = guarded(handlers.compare), guarded(handlers.put_back)
    gr.on([look.click, passphrase.submit], compare, asked, [said, sure, passphrase], **slow)
    confirm.click(put_back, [*asked, present], [said, sure, passphrase, present, done], **slow)
    cancel.click(handlers.leave, None, [said, sure, passphrase, present], **PRIVATE)
    done.click(None, js="() => location.reload()", **PRIVATE)


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of the controls' events."""

    context: Context

    def offer(self) -> Any:
        return gr.Dropdown(choices=backups(self.context.settings.home))

    def compare(self, which: str | None, posted: Any, typed: str, request: gr.Request) -> Any:
        """Shows what the backup would change, and the button that restores it."""
        home = self.context.settings.home
        try:
            facts = self._inspected(source_of(home, which, posted), typed, request)
            text = comparison(home, facts)
        except IrwmError as error:
            return _told(error, home), gr.Row(visible=False), ""
        # The passphrase stays for the second button, which proves it again.
        return notices.error_html({"problem": text[0], "advice": text[1]}), gr.Row(visible=True), gr.skip()

    def put_back(self, which: str | None, posted: Any, typed: str, opens: str | None, request: gr.Request) -> Any:
        """Restores the backup. `opens`: the passphrase of the current vault, if it is different."""
        home = self.context.settings.home
        try:
            source = source_of(home, which, posted)
            comparison(home, self._inspected(source, typed, request))
            require_present(home, (opens or typed) or "", self.context.sessions.tries, self._caller(request))
            busy = [job for job in self.context.jobs.recent(200) if not job.is_over]
            if busy:
                raise IrwmError(
                    "a job may be writing to the vault",
                    found=f"{counted(len(busy), 'job')} running or waiting",
                    advice="wait until all jobs have ended, or unlock the vault and stop them on the Jobs page",
                )
            self.context.sessions.forget()
            aside = restore(source, home)
        except IrwmError as error:
            return _told(error, home), gr.Row(visible=False), "", "", gr.skip()
        kept = f" The previous vault is kept as {aside.name} in the app’s folder." if aside else ""
        text = f"The backup was restored.{kept} This will be recorded in the audit log at the next unlock."
        return notices.note_html(text, good=True), gr.Row(visible=False), "", "", gr.Button(visible=True)

    def _inspected(self, source: Path, typed: str, request: gr.Request) -> BackupFacts:
        """The content of the backup. A wrong passphrase counts as one at the gate, because it may open the vault too.

        Raises:
            IrwmError
        """
        return inspect(source, typed or "", self.context.sessions.tries.one(self._caller(request)))

    def _caller(self, request: gr.Request) -> str:
        return self.context.session(request) or ""

    def leave(self) -> Any:
        return "", gr.Row(visible=False), "", ""


def backups(home: Path) -> list[tuple[str, str]]:
    """The backups in the home's own folder, newest state first, as label and file name."""
    found = sorted((home / BACKUP_FOLDER).glob(f"vault-*{ENDING}"), reverse=True)[:MOST_LISTED]
    return [(path.name.removesuffix(ENDING), path.name) for path in found]


def source_of(home: Path, which: str | None, posted: Any) -> Path:
    """The backup that was chosen; an uploaded one counts before one of the list.

    Raises:
        IrwmError: no backup was chosen, it is not in the list, or it was not uploaded here.
    """
    if posted:
        (path,) = uploaded([str(posted)])
        if path.suffix != ENDING or path.stat().st_size > UPLOAD_BYTES:
            raise IrwmError("this is not a backup of a vault", expected=f"a file whose name ends with {ENDING}")
        return path
    if which not in {name for _, name in backups(home)}:
        raise IrwmError("no backup was chosen", advice="choose one from the list, or upload one")
    return home / BACKUP_FOLDER / str(which)


def comparison(home: Path, facts: BackupFacts) -> tuple[str, str]:
    """The changes that restoring this backup would make, in two sentences.

    Raises:
        IrwmError: it is a copy of another vault than the current one.
    """
    its = f"The log in this backup ends with entry {number(facts.entries)}, made on {moment(facts.last)} UTC"
    known, count = _here(home)
    if known is None:
        return (
            f"{its}. There is no readable vault here",
            "The backup will become this app’s vault, and the backup’s passphrase will open it",
        )
    if known != facts.vault:
        raise IrwmError(
            "this is a backup of another vault",
            expected=f"a backup of vault {known[:16]}",
            found=f"vault {facts.vault[:16]}",
            advice="set IRWM_HOME to an empty folder, restart the app, and restore the backup there",
        )
    missing = count - facts.entries
    if missing > 0:
        lost = f"{counted(missing, 'later entry', 'later entries')} in the vault’s log"
        return (
            f"{its}. Restoring it discards newer records: {lost} will be missing, along with the keys, cases and notes "
            "added since the backup",
            "The current vault will be set aside, not deleted, and the replacement will be recorded in the log",
        )
    return f"{its}. The current vault has no later entries", "The current vault will be set aside, not deleted"


def require_present(home: Path, passphrase: str, tries: Tries, caller: str) -> None:
    """Requires the passphrase of a working vault before it is replaced: the backup's may have been revoked since.

    Raises:
        IrwmError: the current vault is not damaged, and this passphrase does not open it or could not be tried now:
            the vault is busy, of a newer version, or its file is not safe to open.
    """
    if not Vault.exists(home):
        return
    try:
        vault = Vault.open(home, tries=tries, caller=caller)
        vault.unlock(passphrase)
        vault.lock()
    except (WrongPassphraseError, PassphraseError):
        raise IrwmError(
            "this passphrase does not open the current vault",
            advice="enter the current vault’s passphrase too; if no one knows it, first move vault.sqlite3 out of the "
            "app’s folder",
        ) from None
    except DatabaseDamagedError:
        return  # backups are for damaged vaults; a vault that is busy, newer or unsafe may open later


def _here(home: Path) -> tuple[str | None, int]:
    """The vault's identifier and the length of its log; from its witness if the file cannot be read."""
    if not Vault.exists(home):
        return None, 0
    seen = log_witness.read(home)
    known, count = (seen.vault, seen.count) if isinstance(seen, log_witness.Witness) else (None, 0)
    try:
        vault = Vault.open(home)
        return vault.id, max(vault.audit_count, count if vault.id == known else 0)
    except IrwmError:
        return known, count


def _told(error: IrwmError, home: Path) -> str:
    # For a browser that has not proved the passphrase: the error, but never the paths of files.
    parts = {part: without_home(text, home) for part, text in notices.parts_of(error).items() if part != "file"}
    return notices.error_html(parts)
