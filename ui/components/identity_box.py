"""The vault's signing identity: its public key, since when it is in use, and how to replace it."""

from __future__ import annotations

from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from storage.records import Identity
from storage.vault import Vault
from ui.components import notices
from ui.components.events import in_turn
from ui.components.guarded import guarded
from ui.components.markup import facts, moment
from ui.context import Context

INTRO = """
Every report is signed with this identity (Ed25519). Publish the first public key where others will find it, for example
on your website or with a notary. Anyone who has this public key can check every report from this vault, even those
signed after a replacement, because each identity certifies the next.
"""
NONE_YET = notices.empty_html(
    "No identity yet", "The identity is created when the first report is signed. To create it now, press the button."
)


def identity_box(context: Context, fill: list[Any]) -> None:
    """Builds the controls at this place of the page.

    Args:
        fill: events after which the identity is shown again.
    """
    gr.Markdown(INTRO)
    shown = gr.HTML(elem_id="identity")
    with gr.Row():
        make = gr.Button("Create the identity", elem_id="make-identity", visible=False, scale=0, min_width=200)
        replace = gr.Button("Replace the identity…", elem_id="rotate-identity", visible=False, scale=0, min_width=220)
    with gr.Column(visible=False, elem_id="rotate-box") as box:
        gr.Markdown(
            "After the replacement, reports will be signed with a new key, certified by the current one. Replace the "
            "identity when staff change, or if someone else may know the vault’s passphrase. Earlier reports stay "
            "valid. The replacement cannot be undone."
        )
        with gr.Row():
            confirm = gr.Button(
                "Replace the identity now", variant="stop", elem_id="confirm-rotate", scale=0, min_width=220
            )
            cancel = gr.Button("Keep the identity", elem_id="keep-identity", scale=0, min_width=180)
    outputs = [shown, make, replace, box]

    def state(vault: Vault) -> tuple[Any, ...]:
        """The values of the page. Creates no identity, because viewing the page must not write to the vault."""
        try:
            known = vault.identities()
        except IrwmError as error:
            return notices.error_html(error), *(gr.skip(),) * 3
        lost = notices.error_html(_lost(len(known.damaged))) if known.damaged else ""
        present = known[-1] if known else None
        return (
            (identity_html(present) if present else NONE_YET) + lost,
            gr.Button(visible=present is None and not known.damaged),
            gr.Button(visible=present is not None or bool(known.damaged)),
            gr.Column(visible=False),
        )

    @guarded
    def look(request: gr.Request) -> Any:
        return state(context.require(request)) if context.is_open(request) else (gr.skip(),) * len(outputs)

    @guarded
    def make_one(request: gr.Request) -> Any:
        vault = context.require(request)
        vault.identity()
        return state(vault)

    @guarded
    def ask(request: gr.Request) -> Any:
        context.require(request)
        return gr.Column(visible=True)

    @guarded
    def rotate(request: gr.Request) -> Any:
        vault = context.require(request)
        vault.rotate_identity()
        return state(vault)

    turn = in_turn("identity")
    gr.on(fill, look, None, outputs, trigger_mode="always_last", **turn)
    make.click(make_one, None, outputs, **turn)
    replace.click(ask, None, box, **turn)
    confirm.click(rotate, None, outputs, **turn)
    cancel.click(look, None, outputs, **turn)


def identity_html(identity: Identity) -> str:
    """The identity's public keys, copyable."""
    rows = [("Public key", notices.copyable(identity.public_key)), ("In use since", f"{moment(identity.created)} UTC")]
    if identity.certificates:
        rows.insert(0, ("First public key (to publish)", notices.copyable(identity.first_public_key)))
        count = len(identity.certificates)
        rows.append(("Replaced", f"{count} {'time' if count == 1 else 'times'}; each identity certifies the next"))
    return str(facts(rows))


def _lost(count: int) -> IrwmError:
    return IrwmError(
        "a signing identity of this vault is damaged or missing",
        found=f"{count} damaged or missing",
        advice="Restore the latest backup, or replace the identity to start a new chain of certificates",
    )
