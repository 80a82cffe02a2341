"""A page with one upload, served as the real app is; run by test_uploads as `python tests/ui/upload_app.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

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
