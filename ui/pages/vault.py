"""Vault: the keys, what was released under them, the cases, and the log of it all."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.vault import Vault
from ui.components import notices
from ui.components.guarded import guarded
from ui.components.lock_gate import check_new
from ui.components.uploads import offer_text
from ui.context import Context
from ui.pages.investigate import key_label
from ui.plot_theme import power_text

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
INTRO = """
# Vault
Keys never leave it. What is shown here is their fingerprint, which may be printed and published.
"""
KEYS = ["Owner", "Recipient", "Model", "Made (UTC)", "Key fingerprint", "Note"]
RELEASES = ["Marked for", "Folder", "Written (UTC)", "Verified"]
CASES = ["Case", "Suspect", "Verdict", "Filed (UTC)", "Note"]
NO_KEYS = notices.empty_html(
    "No keys yet", "Protect a model: its key is made and sealed here before the release is written."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    refresh = gr.Button("Refresh", elem_id="vault-refresh")
    empty = gr.HTML(NO_KEYS, visible=False, elem_id="no-keys")
    damaged = gr.HTML(visible=False)
    keys = gr.Dataframe(headers=KEYS, interactive=False, wrap=True, label="Keys", elem_id="vault-keys")
    releases = gr.Dataframe(headers=RELEASES, interactive=False, wrap=True, label="Releases", elem_id="vault-releases")
    cases = gr.Dataframe(headers=CASES, interactive=False, wrap=True, label="Cases", elem_id="vault-cases")
    with gr.Accordion("Public commitment of a key", open=False):
        gr.Markdown(
            "A commitment proves later that a key existed on the day you published or notarised it. It gives nothing "
            "of the key away."
        )
        chosen = gr.Dropdown([], label="Key", elem_id="commit-key")
        commitment = gr.DownloadButton("Download the commitment (JSON)", interactive=False, elem_id="commitment")
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
            return (gr.skip(),) * 7
        vault = context.require(request)
        records = vault.keys()
        names = {record.id: record.recipient or record.owner for record in records}
        lost = [*records.damaged, *vault.releases().damaged, *vault.cases().damaged]
        return (
            gr.HTML(visible=not records),
            gr.HTML(damage_html(lost), visible=True) if lost else gr.HTML(visible=False),
            [
                [r.owner, r.recipient or "–", r.model_name, _time(r.created), r.commitment[:16], r.label]
                for r in reversed(records)
            ],
            [
                [names.get(r.key_id, "?"), r.path, _time(r.created), _verified(r.receipt)]
                for r in reversed(vault.releases())
            ],
            _runs(vault),
            gr.Dropdown(choices=[(key_label(record), record.id) for record in records], value=None),
            notices.note_html(f"Head {vault.audit_head}, {len(vault.audit_log())} entries. Every report can quote it."),
        )

    @guarded
    def export(id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        record = next((record for record in vault.keys() if record.id == id), None)
        if record is None:
            return gr.DownloadButton(value=None, interactive=False)
        public = {
            "format": "irwm-commitment",
            "version": 1,
            "commitment": record.commitment,
            "model_fingerprint": record.model_fingerprint,
            "family": record.family,
            "made_utc": record.created,
        }
        vault.log("commitment exported", {"commitment": record.commitment})
        file = offer_text(json.dumps(public, indent=1) + "\n", f"commitment-{record.commitment[:16]}.json")
        return gr.DownloadButton(value=file, interactive=True)

    @guarded
    def check_all(request: gr.Request) -> Any:
        vault = context.require(request)
        log, records = vault.verify_audit(), vault.check()
        if log.ok and records.ok:
            return notices.note_html(f"All {log.entries} entries and every record are as they were written.", good=True)
        reason = log.reason or "records differ from what the log says of them"
        return notices.error_html(
            IrwmError(f"the vault was altered: {reason}", file=vault.path, advice="Restore the latest backup")
        )

    @guarded
    def back_up(request: gr.Request) -> Any:
        path = context.require(request).backup()
        return notices.note_html(f"Sealed copy written to {path}. Keep it on another disk.", good=True)

    @guarded
    def change_passphrase(old: str, new: str, again: str, request: gr.Request) -> Any:
        vault = context.require(request)
        try:
            check_new(new, again)
            vault.change_passphrase(old, new)
        except IrwmError as error:
            return notices.error_html(error), "", "", ""
        return notices.note_html("The passphrase is changed. Older backups keep the old one.", good=True), "", "", ""

    shown = [empty, damaged, keys, releases, cases, chosen, head]
    gr.on([context.opened.change, tab.select, refresh.click], fill, None, shown, trigger_mode="always_last", **PRIVATE)
    chosen.change(export, chosen, commitment, **PRIVATE)
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


def damage_html(lost: list[Any]) -> str:
    """Says which records do not authenticate."""
    named = ", ".join(f"{record.table} {record.id}" for record in lost[:10])
    return notices.error_html(
        IrwmError("some records of the vault are damaged", found=named, advice="Restore the latest backup")
    )


def _runs(vault: Vault) -> list[list[str]]:
    return [
        [case.title, run.suspect, run.verdict, _time(run.created), run.note]
        for case in reversed(vault.cases())
        for run in vault.case_runs(case.id)
    ]


def _verified(receipt: dict[str, Any]) -> str:
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
