"""Vault: the keys and their commitments, what was released under them, the signing identity, and the log of it all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from irwm.report.numbers import power_text
from storage import schema as tables
from storage.audit import AuditCheck
from storage.checks import VaultCheck
from storage.vault import Vault
from ui.components import notices
from ui.components.case_file import short_path
from ui.components.commitment_box import commitment_box
from ui.components.events import PRIVATE
from ui.components.guarded import guarded
from ui.components.identity_box import identity_box
from ui.components.key_choice import key_label
from ui.components.label_box import label_box
from ui.components.open_key import open_key_box
from ui.components.paged_table import Found, PagedTable, named, paged_table
from ui.context import Context
from ui.passphrases import check_new

INTRO = """
# Vault
Keys never leave it. What is shown here is their fingerprint, which may be printed and published.
"""
KEYS = ["Owner", "Recipient", "Model", "Made (UTC)", "Key fingerprint", "Note"]
RELEASES = ["Marked for", "Folder", "Written (UTC)", "Verified", "Note"]
NO_KEYS = notices.empty_html(
    "No keys yet", "Protect a model: its key is made and sealed here before the release is written."
)
NO_RELEASES = notices.empty_html(
    "No releases yet", "Each marked copy that Protect writes is listed here with whom it was made for."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    refresh = gr.Button("Refresh", elem_id="vault-refresh")
    keys = _table(
        KEYS, "key", "Words of the owner, recipient, model or note, or the beginning of the fingerprint", NO_KEYS
    )
    key_note = label_box(context, tables.KEYS, "key")
    releases = _table(RELEASES, "release", "Words of the recipient or owner, of the folder or the note", NO_RELEASES)
    release_note = label_box(context, tables.RELEASES, "release")
    with gr.Accordion("Public commitment and time-stamp of a key", open=False, elem_id="commitments"):
        chosen = commitment_box(context)
        with gr.Accordion("Open this key to a verifier", open=False, elem_id="open-key-part"):
            open_key_box(context, chosen)
    looks = [tab.select, refresh.click]  # it is selected too when it is in front and the vault is opened
    with gr.Accordion("Signing identity", open=False, elem_id="signing"):
        identity_box(context, looks)
    with gr.Accordion("Audit log", open=False, elem_id="audit"):
        head = gr.HTML(elem_id="audit-head")
        check = gr.Button("Check the log and every record", elem_id="check-vault")
        checked = gr.HTML()
    with gr.Accordion("Backup and passphrase", open=False):
        backup = gr.Button("Back up the vault", elem_id="backup")
        backed_up = gr.HTML()
        old = _secret("Present passphrase", "current-password")
        new = _secret("New passphrase", "new-password")
        again = _secret("New passphrase once more", "new-password")
        change = gr.Button("Change the passphrase", elem_id="change-passphrase")
        changed = gr.HTML()

    @guarded
    def fill(request: gr.Request) -> Any:
        if not context.is_open(request):
            return gr.skip()
        vault = context.require(request)
        warned = "".join(notices.note_html(warning) for warning in vault.warnings)
        head = f"Head {vault.audit_head}, {vault.audit_count} entries. Every report can quote it."
        return warned + notices.note_html(head)

    @guarded
    def check_all(request: gr.Request) -> Any:
        vault = context.require(request)
        log, records = vault.verify_audit(), vault.check()
        if log.ok and records.ok:
            return notices.note_html(f"All {log.entries} entries and every record are as they were written.", good=True)
        return notices.error_html(altered(vault.path, log, records))

    @guarded
    def back_up(request: gr.Request) -> Any:
        path = context.require(request).backup()
        return notices.note_html(
            f"Sealed copy written to {path}. Keep it on another disk. To restore one, lock the vault: it is offered "
            "where the passphrase is asked for.",
            good=True,
        )

    @guarded
    def change_passphrase(old: str, new: str, again: str, request: gr.Request) -> Any:
        vault = context.require(request)
        try:
            check_new(new, again)
            vault.change_passphrase(old, new)
        except IrwmError as error:
            return notices.error_html(error), "", "", ""
        return notices.note_html("The passphrase is changed. Older backups keep the old one.", good=True), "", "", ""

    # A release is found by its key's names, so both tables follow a change of a key's note.
    keys.wire(context, _find_keys, [*looks, key_note.changed.change], also=[chosen, key_note.choice])
    noted = [key_note.changed.change, release_note.changed.change]
    releases.wire(context, _find_releases, [*looks, *noted], also=[release_note.choice])
    gr.on(looks, fill, None, head, trigger_mode="always_last", **PRIVATE)
    check.click(check_all, None, checked, **PRIVATE)
    backup.click(back_up, None, backed_up, **PRIVATE)
    change.click(
        change_passphrase,
        [old, new, again],
        [changed, old, new, again],
        **PRIVATE,
        concurrency_limit=1,
        concurrency_id="passphrase",
    )


def altered(path: Path, log: AuditCheck, records: VaultCheck) -> IrwmError:
    """What a check of the whole vault found wrong, with the records' names."""
    kinds = (("changed", records.damaged), ("gone", records.missing), ("unknown to the log", records.unlogged))
    return IrwmError(
        f"the vault was altered: {log.reason or 'records differ from what the log says of them'}",
        file=path,
        found="; ".join((*records.structure, *(f"{kind}: {named(lost)}" for kind, lost in kinds if lost))),
        advice="Restore the latest backup",
    )


def _table(headers: list[str], one: str, info: str, none_yet: str) -> PagedTable:
    """A searchable table of this page; `info` says what the search looks into."""
    several = f"{one}s"
    return paged_table(
        headers=headers,
        info=info,
        one=one,
        several=several,
        none_yet=none_yet,
        elem_id=f"vault-{several}",
    )


def _find_keys(vault: Vault, words: str, offset: int, limit: int) -> Found:
    page = vault.find_keys(words, offset=offset, limit=limit)
    rows = [
        [r.owner, r.recipient or "–", r.model_name, _time(r.created), r.commitment[:16], r.label] for r in page.records
    ]
    choices = [(key_label(record), record.id) for record in page.records]
    # What was chosen stays: this may come a moment after somebody chose.
    return Found(rows, page.total, page.damaged, (gr.Dropdown(choices=choices), gr.Dropdown(choices=choices)))


def _find_releases(vault: Vault, words: str, offset: int, limit: int) -> Found:
    page = vault.find_releases(words, offset=offset, limit=limit)
    keys = vault.key_records(dict.fromkeys(record.key_id for record in page.records))
    names = {key.id: key.recipient or key.owner for key in keys}
    rows = [[names.get(r.key_id, "?"), r.path, _time(r.created), _verified(r.receipt), r.label] for r in page.records]
    choices = [(f"{names.get(r.key_id, '?')} · {short_path(r.path)} · {_time(r.created)}", r.id) for r in page.records]
    return Found(rows, page.total, page.damaged, (gr.Dropdown(choices=choices),))


def _verified(receipt: dict[str, Any]) -> str:
    if not {"count", "present", "log10_p"} <= receipt.keys():
        return "–"
    return f"{receipt['count']} of {receipt['present']}, p = {power_text(receipt['log10_p'])}"


def _time(created: str) -> str:
    return created[:16].replace("T", " ")


def _secret(label: str, autocomplete: str) -> gr.Textbox:
    return gr.Textbox(
        label=label,
        type="password",
        max_length=1024,
        html_attributes=gr.InputHTMLAttributes(autocomplete=autocomplete, spellcheck=False),
    )
