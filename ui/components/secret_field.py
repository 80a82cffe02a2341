"""A field for a passphrase."""

from __future__ import annotations

import gradio as gr

MOST_CHARACTERS = 1024


def secret_field(
    label: str, autocomplete: str, info: str | None = None, *, elem_id: str | None = None, first: bool = False
) -> gr.Textbox:
    """Builds the field.

    Args:
        autocomplete: what password managers may fill in: "new-password", "current-password" or "off".
        first: it gets the focus when it appears.
    """
    return gr.Textbox(
        label=label,
        info=info,
        type="password",
        max_length=MOST_CHARACTERS,
        max_lines=1,
        elem_id=elem_id,
        autofocus=first,
        html_attributes=gr.InputHTMLAttributes(autocomplete=autocomplete, spellcheck=False, autocapitalize="off"),
    )
