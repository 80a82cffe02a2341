"""Protect: mark a model before it leaves the house."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gradio as gr

import irwm
from irwm.checkpoint import preflight
from irwm.errors import IrwmError
from ui.components import notices
from ui.components.browsing import Limits, size_text, use_path
from ui.components.guarded import guarded
from ui.components.job_card import job_card
from ui.components.model_card import model_html
from ui.components.path_picker import path_picker
from ui.components.receipt import receipt_html
from ui.components.settings_form import settings_form
from ui.context import Context
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for
from ui.settings import DEMO

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
INTRO = """
# Protect a model
Writes a copy of your model that carries a mark only your key can show. The original is not touched.
"""


def build(context: Context, tab: gr.Tab) -> None:
    """Adds the page's components to the open tab."""
    gr.Markdown(INTRO)
    with gr.Walkthrough(selected=1, elem_id="protect-steps") as steps:
        with gr.Step("Original", id=1):
            original = path_picker(
                context,
                label="Original model",
                info="The unmarked model: its folder, or one .safetensors file with config.json beside it",
                purpose="original",
            )
            with gr.Row():
                demo = gr.Button("Use the demo model", elem_id="use-demo", scale=0, min_width=200)
                to_names = gr.Button(
                    "Next", variant="primary", interactive=False, elem_id="to-names", scale=0, min_width=120
                )
            card = gr.HTML(elem_id="protect-model")
        with gr.Step("For whom", id=2):
            with gr.Row():
                owner = gr.Textbox(
                    label="Owner", info="Whose model it is; bound into the key", elem_id="owner", max_length=200
                )
                recipient = gr.Textbox(
                    label="Recipient (optional)", info="Who gets this copy", elem_id="recipient", max_length=200
                )
            label = gr.Textbox(label="Note (optional)", info="Your own words, kept in the vault", max_length=500)
            to_setting = _steps_row(steps, back=1, next_id="to-setting")
        with gr.Step("How", id=3):
            form = settings_form(context)
            to_place = _steps_row(steps, back=2, next_id="to-place")
        with gr.Step("Where", id=4):
            folder = path_picker(
                context,
                label="Put the release into",
                info="An existing folder; the release becomes a new folder inside it",
                purpose="target",
                kind="folder",
            )
            name = gr.Textbox(label="Name of the release folder", elem_id="release-name", max_length=200)
            check = gr.HTML(elem_id="preflight")
            start = _steps_row(steps, back=3, next_id="start-protect", text="Write the release")
    job = job_card(context, ("protect",))
    receipt = gr.HTML(visible=False, elem_id="receipt")

    @guarded
    def look(path: str | None, request: gr.Request) -> Any:
        context.require(request)
        if not path:
            return "", gr.Button(interactive=False), gr.skip(), gr.skip()
        try:
            model = irwm.open_checkpoint(path)
            shown = model_html(model)
        except IrwmError as error:
            return notices.error_html(error), gr.Button(interactive=False), gr.skip(), gr.skip()
        where = model.path if model.path.is_dir() else model.path.parent
        return shown, gr.Button(interactive=True), f"{model.path.stem or where.name}-marked", _home_for(where, context)

    @guarded
    def use_demo(request: gr.Request) -> Any:
        context.require(request)
        return str(DEMO), str(DEMO)

    @guarded
    def check_names(owner: str | None, request: gr.Request) -> Any:
        context.require(request)
        if not (owner or "").strip():
            raise IrwmError("the owner is missing", advice="Say whose model it is; it is bound into the key")
        return gr.Walkthrough(selected=3)

    @guarded
    def check_setting(*values: Any) -> Any:
        form.parameters(*values)
        return gr.Walkthrough(selected=4)

    @guarded
    def check_place(source: str | None, parent: str | None, name: str | None, request: gr.Request) -> Any:
        if not context.is_open(request) or not source or not (parent or "").strip() or not (name or "").strip():
            return ""  # a step that was never shown has no values yet
        try:
            out = _target(parent, name, context)
            ready = preflight(irwm.open_checkpoint(source), out)
        except IrwmError as error:
            return notices.error_html(error)
        room = f"Needs {size_text(ready.needed)}; {size_text(ready.free)} are free"
        left = f". Left out, because they would carry no mark: {', '.join(ready.left_out)}" if ready.left_out else ""
        return notices.note_html(f"{room} at {ready.path}{left}", good=True)

    @guarded
    def begin(source: str | None, owner: str, recipient: str, label: str, parent: str, name: str, *rest: Any) -> Any:
        *values, request = rest
        vault = context.require(request)
        if not source:
            raise IrwmError("no original is chosen", advice="Go back to the first step")
        check_names(owner, request)
        path = original.check(source)
        out = _target(parent, name, context)
        preflight(irwm.open_checkpoint(path), out)
        task = {
            "model": str(path),
            "out_dir": str(out),
            "parameters": form.parameters(*values).to_dict(),
            "owner": (owner or "").strip(),
            "recipient": (recipient or "").strip(),
            "label": (label or "").strip(),
            "device": context.settings.device,
        }
        started = runner.start("protect", f"Protect {path.name} as {out.name}", task, secrets_for(vault), context.jobs)
        context.recent.add("original", path)
        context.recent.add("target", out.parent)
        return started.id, gr.HTML(visible=False)

    def show(ended: str | None, request: gr.Request) -> Any:
        if ended is None or not context.is_open(request):
            return gr.HTML(visible=False)
        result = context.jobs.get(ended).result
        return gr.HTML(receipt_html(result), visible=True) if result else gr.HTML(visible=False)

    original.chosen.change(look, original.chosen, [card, to_names, name, folder.field], **PRIVATE)
    demo.click(use_demo, None, [original.field, original.chosen], **PRIVATE)
    to_names.click(lambda: gr.Walkthrough(selected=2), None, steps, **PRIVATE)
    to_setting.click(check_names, owner, steps, **PRIVATE)
    to_place.click(check_setting, list(form.inputs), steps, **PRIVATE)
    place = [original.chosen, folder.field, name]
    gr.on(
        [folder.field.change, folder.chosen.change, name.change, name.blur, original.chosen.change],
        check_place,
        place,
        check,
        trigger_mode="always_last",
        **PRIVATE,
    )
    inputs = [original.chosen, owner, recipient, label, folder.field, name, *form.inputs]
    start.click(_with_request(begin), inputs, [job.job_id, receipt], **PRIVATE)
    job.ended.change(show, job.ended, receipt, **PRIVATE)


def _with_request(handler: Any) -> Any:
    """`handler(*values, request)` for Gradio, which fills in the request by its annotation and not behind `*args`."""

    def with_request(request: gr.Request, *values: Any) -> Any:
        return handler(*values, request)

    return with_request


def _steps_row(steps: gr.Walkthrough, *, back: int, next_id: str, text: str = "Next") -> gr.Button:
    with gr.Row():
        gr.Button("Back", elem_id=f"back-to-{back}", scale=0, min_width=120).click(
            lambda: gr.Walkthrough(selected=back), None, steps, **PRIVATE
        )
        return gr.Button(text, variant="primary", elem_id=next_id, scale=0, min_width=170)


def _home_for(model: Path, context: Context) -> str:
    """Where a release is offered to go: where the last one went, else beside the original if that may be written to."""
    recent = context.recent.paths("target")
    if recent:
        return recent[0]
    limits = Limits.of(context.settings)
    places = [model.parent, *limits.roots]
    return next((str(p) for p in places if limits.hold(p.resolve()) and os.access(p, os.W_OK)), "")


def _target(parent: str, name: str, context: Context) -> Path:
    """The release folder, inside the folders that the app may use.

    Raises:
        IrwmError: the name is not a plain name, or the place is refused.
    """
    name = name.strip()
    if not name or name != Path(name).name or name in (".", "..") or not name.isprintable() or "\\" in name:
        raise IrwmError(
            "this is not a name for a folder", found=name, expected="one name without slashes", advice="Change it"
        )
    return use_path(parent, Limits.of(context.settings), kind="folder") / name
