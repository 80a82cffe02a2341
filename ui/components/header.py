"""The strip at the top: the app's name, its device, and the lock button."""

from __future__ import annotations

from dataclasses import replace

import gradio as gr
from markupsafe import Markup

from irwm.errors import IrwmError, printable
from ui.context import Context
from ui.preferences import PreferencesError
from ui.settings import DEVICE, Settings

NAME = "IRWM Studio"


def device_label(wanted: str) -> str:
    """The device that the app computes on, in a few words.

    Args:
        wanted: "auto", "cpu" or "cuda", as in the settings.

    Raises:
        IrwmError: a GPU is required and there is none.
    """
    import torch

    if wanted != "cpu" and torch.cuda.is_available():
        return f"GPU: {torch.cuda.get_device_name(0)}"
    if wanted == "cuda":
        raise IrwmError(
            "IRWM_DEVICE requires a GPU, but no usable GPU was found",
            expected="a CUDA device that PyTorch can see",
            advice="set IRWM_DEVICE to auto or cpu, or fix the driver",
        )
    return "CPU: no GPU found" if wanted == "auto" else "CPU"


def settle_device(settings: Settings) -> tuple[Settings, str]:
    """The settings with an available device, and that device in a few words.

    Raises:
        IrwmError: the environment requires a GPU and there is none. If a GPU was only preferred and is missing, the app
            chooses, and the settings' note says so.
    """
    try:
        return settings, device_label(settings.device)
    except IrwmError:
        if DEVICE in settings.given:
            raise
    gone = PreferencesError(
        "the chosen GPU cannot be used",
        expected="a CUDA device that PyTorch can see",
        advice="The app is using the CPU for now. Repair the driver, or choose another device and save",
    )
    settings = replace(settings, device="auto", note=gone)
    return settings, device_label(settings.device)


def header_html(context: Context) -> str:
    """Name, device, and whether other computers are asked, as HTML."""
    network = "Suspects may be read from servers" if context.settings.servers else "Nothing leaves this computer"
    return str(
        Markup(
            '<div class="top"><span class="top-name">{}</span>'
            '<span class="top-facts"><span>{}</span><span>{}</span></span></div>'
        ).format(NAME, printable(context.device, 80), network)
    )


def header(context: Context, device: str) -> gr.Button:
    """Builds the strip, also as `context.top`; returns the lock button, hidden while the vault is locked."""
    context.device = device
    with gr.Row(elem_id="top", equal_height=True):
        context.top = gr.HTML(header_html(context), elem_classes="top-text", js_on_load=None)
        return gr.Button("Lock", size="sm", scale=0, min_width=80, visible=False, elem_id="lock")
