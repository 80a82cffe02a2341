"""Vault: the keys, what was released under them, the cases, and the log of it all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.audit import AuditCheck
from storage.checks import VaultCheck
from storage.records import RecordName
from storage.vault import Vault
from ui.components import notices
from ui.components.guarded import guarded
from ui.components.lock_gate import check_new
from ui.components.paged_table import Found, damage_html, named, paged_table
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
NO_RELEASES = notices.empty_html(
    "No releases yet", "Each marked copy that Protect writes is listed here with whom it was made for."
)
NO_CASES = notices.empty_html(
    "No cases yet", "Give an investigation the title of a case, and it is filed here with its verdict."
)


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    refresh = gr.Button("Refresh", elem_id="vault-refresh")
    keys = paged_table(
        headers=KEYS,
        label="Keys",
        info="Words of the owner, recipient, model or note, or the beginning of the fingerprint",
        one="key",
        several="keys",
        none_yet=NO_KEYS,
        elem_id="vault-keys",
    )
    releases = paged_table(
        headers=RELEASES,
        label="Releases",
        info="Words of the recipient or owner, or of the folder",
        one="release",
        several="releases",
        none_yet=NO_RELEASES,
        elem_id="vault-releases",
    )
    damaged = gr.HTML(visible=False)
    no_cases = gr.HTML(NO_CASES, visible=False)
    cases = gr.Dataframe(
        headers=CASES, interactive=False, wrap=True, label="Cases", elem_id="vault-cases", visible=False
    )
    with gr.Accordion("Public commitment of a key", open=False):
        gr.Markdown(
            "A commitment proves later that a key existed on the day you published or notarised it. It gives nothing "
            "of the key away."
        )
        chosen = gr.Dropdown(
            [], label="Key", info="Those of the page shown above: search there for another", elem_id="commit-key"
        )
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
            return (gr.skip(),) * 4
        vault = context.require(request)
        runs, lost = filed(vault)
        return (
            gr.HTML(damage_html(lost), visible=True) if lost else gr.HTML(visible=False),
            gr.HTML(visible=not runs),
            gr.Dataframe(runs, visible=bool(runs)),
            notices.note_html(f"Head {vault.audit_head}, {vault.audit_count} entries. Every report can quote it."),
        )

    @guarded
    def export(id: str | None, request: gr.Request) -> Any:
        vault = context.require(request)
        record = next(iter(vault.key_records([id] if id else [])), None)
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
        return notices.error_html(altered(vault.path, log, records))

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

    looks = [context.opened.change, tab.select, refresh.click]
    keys.wire(context, _find_keys, looks, also=[chosen])
    releases.wire(context, _find_releases, looks)
    gr.on(looks, fill, None, [damaged, no_cases, cases, head], trigger_mode="always_last", **PRIVATE)
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


def altered(path: Path, log: AuditCheck, records: VaultCheck) -> IrwmError:
    """What a check of the whole vault found wrong, with the records' names."""
    kinds = (("changed", records.damaged), ("gone", records.missing), ("unknown to the log", records.unlogged))
    return IrwmError(
        f"the vault was altered: {log.reason or 'records differ from what the log says of them'}",
        file=path,
        found="; ".join((*records.structure, *(f"{kind}: {named(lost)}" for kind, lost in kinds if lost))),
        advice="Restore the latest backup",
    )


def _find_keys(vault: Vault, words: str, offset: int, limit: int) -> Found:
    page = vault.find_keys(words, offset=offset, limit=limit)
    rows = [
        [r.owner, r.recipient or "–", r.model_name, _time(r.created), r.commitment[:16], r.label] for r in page.records
    ]
    choices = [(key_label(record), record.id) for record in page.records]
    return Found(rows, page.total, page.damaged, (gr.Dropdown(choices=choices, value=None),))


def _find_releases(vault: Vault, words: str, offset: int, limit: int) -> Found:
    page = vault.find_releases(words, offset=offset, limit=limit)
    keys = vault.key_records(dict.fromkeys(record.key_id for record in page.records))
    names = {key.id: key.recipient or key.owner for key in keys}
    rows = [[names.get(r.key_id, "?"), r.path, _time(r.created), _verified(r.receipt)] for r in page.records]
    return Found(rows, page.total, page.damaged)


def filed(vault: Vault) -> tuple[list[list[str]], list[RecordName]]:
    """A row for every run of every case, newest case first, and the cases and runs that do not authenticate."""
    cases = vault.cases()
    runs = [(case, vault.case_runs(case.id)) for case in reversed(cases)]
    rows = [
        [case.title, run.suspect, run.verdict, _time(run.created), run.note] for case, filed in runs for run in filed
    ]
    return rows, list(dict.fromkeys((*cases.damaged, *(name for _, filed in runs for name in filed.damaged))))


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
