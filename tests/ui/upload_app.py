"""A page with one upload, served as the real app is; run by test_uploads as `python -m tests.ui.upload_app`."""

from __future__ import annotations

from pathlib import Path

import ui  # noqa: F401  # isort: skip  # before Gradio

import gradio as gr

from ui import server
from ui.settings import Settings

if __name__ == "__main__":
    settings = Settings.from_environment()
    reached = settings.home / "reached"

    def take(file: str | None) -> str:
        reached.write_text(str(file))
        return Path(file).read_text() if file else ""

    with gr.Blocks(analytics_enabled=False) as blocks:
        given = gr.File()
        gr.Button().click(take, given, gr.Textbox(), api_name="take")
    server.launch(blocks, settings, block=True)
