"""Vault: the keys and their commitments, the releases marked with them, the signing identity, and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError
from irwm.report.audit_log import ENDING as LOG_ENDING
from irwm.report.numbers import counted, number, power_hover, power_html
from storage import schema as tables
from storage.audit import AuditCheck
from storage.errors import PassphraseError, WrongPassphraseError
from storage.integrity import VaultCheck
from storage.job_table import Job
from storage.records import Receipt
from storage.vault import Vault
from ui.components import notices
from ui.components.backup_reminder import DOWNLOAD, back_up, backup_reminder
from ui.components.case_file import short_path
from ui.components.commitment_box import commitment_box
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.identity_box import identity_box
from ui.components.key_choice import key_label
from ui.components.label_box import label_box
from ui.components.markup import facts, moment
from ui.components.next_steps import OPEN_STAMPS
from ui.components.open_key import open_key_box
from ui.components.paged_table import Found, PagedTable, damage_html, named
from ui.components.places import Places, at
from ui.components.receipt import reading_text
from ui.components.secret_field import secret_field
from ui.components.uploads import download
from ui.context import Context
from ui.jobs import runner
from ui.passphrases import check_new
from ui.services.results import Released, ReleasedMany

INTRO = """
# Vault
A key leaves the vault only if you open it for an expert or a court. This page shows key fingerprints, which may
be printed and published.
"""
KEYS = ["Owner", "Recipient", "Model", "Made (UTC)", "Key fingerprint", "Note"]
RELEASES = ["Marked for", "Folder", "Written (UTC)", "Verified", "Note"]
RESEALING = "Re-encrypting the vault"
CHANGED = (
    "The passphrase and the vault’s encryption key were changed. Earlier backups can still be opened with the old "
    "passphrase: make a new backup, and delete those that someone else could open. Other browsers must unlock the "
    "vault again."
)
NO_KEYS = notices.empty_html(
    "No keys yet", "When you protect a model, its key is made and sealed here before the release is written."
)
NO_RELEASES = notices.empty_html(
    "No releases yet", "Every marked copy that Protect writes is listed here, with its recipient."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    VaultPage(context, Layout(context, tab)).connect()


class Layout:
    """The components of the page, from top to bottom."""

    def __init__(self, context: Context, tab: gr.Tab) -> None:
        gr.Markdown(INTRO)
        refresh = gr.Button("Refresh", elem_id="vault-refresh")
        looked = gr.State(0)
        # The tab is also selected when it is in front and the vault is opened. One event refreshes all parts
        # (`events.py`).
        gr.on([tab.select, refresh.click], lambda times: times + 1, looked, looked, **PRIVATE)
        self.looks = [looked.change]
        backup_reminder(context, self.looks, "vault")
        searched = "Owner, recipient, model, note, or the beginning of the fingerprint"
        self.keys = PagedTable("vault", KEYS, "key", searched, NO_KEYS)
        self.key_note = label_box(context, tables.KEYS, "key")
        self.releases = PagedTable("vault", RELEASES, "release", "Recipient, owner, folder or note", NO_RELEASES)
        self.release_note = label_box(context, tables.RELEASES, "release", release_html)
        with gr.Accordion("A key’s public commitment and timestamp", open=False, elem_id="commitments"):
            self.chosen = commitment_box(context, self.keys.words)
            with gr.Accordion("Open this key for a verifier", open=False, elem_id="open-key-part"):
                open_key_box(context, self.chosen)
        with gr.Accordion("Signing identity", open=False, elem_id="signing"):
            identity_box(context, self.looks)
        with gr.Accordion("Audit log", open=False, elem_id="audit"):
            self.head = gr.HTML(elem_id="audit-head")
            with gr.Row():
                self.check = gr.Button("Check the log and every record", elem_id="check-vault")
                self.export = gr.Button("Export the log", elem_id="export-log")
            self.checked = gr.HTML()
            self.exported = gr.DownloadButton(
                "Download the log (hashes and times only)", visible=False, elem_id="exported-log"
            )
        with gr.Accordion("Backup and passphrase", open=False):
            self.backup = gr.Button("Back up the vault", elem_id="backup")
            self.backed_up = gr.HTML()
            self.backup_file = gr.DownloadButton(DOWNLOAD, visible=False, elem_id="backup-file")
            self.old = secret_field("Current passphrase", "current-password", elem_id="present-passphrase")
            wrong = gr.HTML(visible=False, elem_id="present-passphrase-notice")
            self.new = secret_field("New passphrase", "new-password", elem_id="new-passphrase")
            refused = gr.HTML(visible=False, elem_id="new-passphrase-notice")
            self.again = secret_field("Repeat the new passphrase", "new-password", elem_id="new-passphrase-again")
            told = gr.HTML(visible=False, elem_id="passphrase-notice")
            self.change = gr.Button("Change the passphrase", elem_id="change-passphrase")
            self.changed = gr.HTML(elem_id="passphrase-changed")
            self.of_change = Places(form=told, old=wrong, new=refused)


@dataclass(frozen=True, slots=True)
class VaultPage:
    """The handlers of the page's events."""

    context: Context
    page: Layout

    def connect(self) -> None:
        """Connects each event to its handler."""
        context, page, of_release = self.context, self.page, self.context.next_steps
        of_release.stamp.click(self.choose_key, of_release.done, page.chosen, **PRIVATE).success(None, js=OPEN_STAMPS)
        # The search for releases uses their keys' names and notes, so a changed note refreshes both tables.
        key_noted, release_noted = page.key_note.changed.change, page.release_note.changed.change
        page.keys.wire(context, _find_keys, [*page.looks, key_noted], also=[page.chosen, page.key_note.choice])
        page.releases.wire(
            context, _find_releases, [*page.looks, key_noted, release_noted], also=[page.release_note.choice]
        )
        gr.on(page.looks, self.fill, None, page.head, trigger_mode="always_last", **PRIVATE)
        page.check.click(self.check_all, None, page.checked, **PRIVATE)
        page.export.click(self.export_log, None, page.exported, **PRIVATE)
        page.backup.click(self.back_up, None, [page.backed_up, page.backup_file], **PRIVATE)
        secrets = [page.old, page.new, page.again]
        page.change.click(
            page.of_change.told(self.change_passphrase, 4, emptied=4),
            secrets,
            [page.changed, *secrets, *page.of_change.outputs],
            concurrency_limit=1,
            concurrency_id="passphrase",
            **PRIVATE,
        )

    @guarded
    def choose_key(self, done: Released | ReleasedMany | None, request: gr.Request) -> Any:
        """The key of the release that Protect just wrote; of copies for many recipients, no key is selected."""
        vault = self.context.require(request)
        records = vault.key_records([done["key_id"]]) if done and "key_id" in done else []
        return gr.Dropdown([(key_label(r), r.id) for r in records], value=records[0].id) if records else gr.skip()

    @guarded
    def fill(self, request: gr.Request) -> Any:
        """The head of the audit log."""
        if not self.context.is_open(request):
            return gr.skip()
        vault = self.context.require(request)
        warned = "".join(notices.note_html(warning) for warning in vault.warnings)
        entries = counted(vault.audit_count, "entry", "entries")
        head = f"Head of the log: {vault.audit_head} ({entries}). Any report can quote it."
        return warned + notices.note_html(head)

    @guarded
    def check_all(self, request: gr.Request) -> Any:
        vault = self.context.require(request)
        log, records = vault.verify_audit(), vault.check()
        if log.ok and records.ok:
            return notices.note_html("No entry or record has been changed since it was written.", good=True)
        return notices.error_html(altered(vault.path, log, records))

    @guarded
    def export_log(self, request: gr.Request) -> Any:
        """The log for people who verify a report; it holds only hashes and times."""
        vault = self.context.require(request)
        vault.log("audit log exported", {})
        name = f"audit-log-{vault.audit_count}{LOG_ENDING}"
        return download(vault.exported_log(), name)

    @guarded
    def back_up(self, request: gr.Request) -> Any:
        return back_up(self.context, request)

    def change_passphrase(
        self,
        old: str,
        new: str,
        again: str,
        request: gr.Request,
        shown: gr.Progress = gr.Progress(),  # noqa: B008 - so Gradio finds it
    ) -> Any:
        vault = self.context.require(request)
        with at("new"):
            check_new(new, again)
        if tasks := runner.with_vault(self.context.jobs_of(request)):
            raise IrwmError(
                "unfinished jobs are using the vault and would not be able to write to it after the change",
                found="; ".join(job.title if isinstance(job, Job) else job.kind for job in tasks[:3]),
                advice="wait until they have finished, or stop them; then change the passphrase",
            )
        try:
            done = vault.change_passphrase(old, new, progress=lambda done, total: shown((done, total), RESEALING))
        except (WrongPassphraseError, PassphraseError) as error:
            with at("old"):
                raise error
        told = notices.note_html(f"{CHANGED} Records resealed: {number(done.records)}.", good=True)
        if lost := (*done.damaged, *done.entries):
            told += notices.note_html(
                f"Records and entries that were already damaged: {number(len(lost))}. To see which ones, check the log "
                "and every record."
            )
        return told, "", "", ""


def altered(path: Path, log: AuditCheck, records: VaultCheck) -> IrwmError:
    """The errors that a check of the whole vault found, with the records' names."""
    kinds = (("changed", records.damaged), ("missing", records.missing), ("not in the log", records.unlogged))
    return IrwmError(
        f"the vault was altered: {log.reason or 'records do not match the log'}",
        file=path,
        found="; ".join((*records.structure, *(f"{kind}: {named(lost)}" for kind, lost in kinds if lost))),
        advice="Restore the latest backup",
    )


def _find_keys(vault: Vault, words: str, offset: int, limit: int) -> Found:
    page = vault.find_keys(words, offset=offset, limit=limit)
    rows = [
        [r.owner, r.recipient or "–", r.model_name, moment(r.created), r.commitment[:16], r.label] for r in page.records
    ]
    choices = [(key_label(record), record.id) for record in page.records]
    # The chosen value stays: this may arrive a moment after the user chose it.
    return Found(rows, page.total, page.damaged, (gr.Dropdown(choices=choices), gr.Dropdown(choices=choices)))


def _find_releases(vault: Vault, words: str, offset: int, limit: int) -> Found:
    page = vault.find_releases(words, offset=offset, limit=limit)
    keys = vault.key_records(dict.fromkeys(record.key_id for record in page.records))
    names = {key.id: key.recipient or key.owner for key in keys}
    rows = [[names.get(r.key_id, "?"), r.path, moment(r.created), _verified(r.receipt), r.label] for r in page.records]
    choices = [(f"{names.get(r.key_id, '?')} · {short_path(r.path)} · {moment(r.created)}", r.id) for r in page.records]
    return Found(rows, page.total, page.damaged, (gr.Dropdown(choices=choices),))


def release_html(vault: Vault, id: str) -> str:
    """A release in full. Odds that the table caps have their exact value here, because not everyone can hover."""
    found = vault.release_records([id])
    if not found:
        return damage_html(found.damaged) if found.damaged else ""
    record = found[0]
    rows = [
        ("Folder", notices.copyable(record.path)),
        ("Key fingerprint", notices.copyable(record.receipt.get("commitment", "–"))),
        ("Verified", _verified(record.receipt, lambda log10: Markup(power_hover(log10, " of the probability")))),
    ]
    return str(facts(rows))


def _verified(receipt: Receipt, write: Callable[[float], str] = power_html) -> str:
    if not {"count", "present", "log10_p"} <= receipt.keys():
        return "–"
    return reading_text(receipt, write=write)
