"""IRWM Studio: `python app.py`, then open the address it prints.

All pages are tabs of one document and not routes of Gradio's multipage apps: a link of its Navbar loads the whole
document anew (seen in 6.31.0), which drops everything typed and every `gr.State`. A change of tab keeps all of it, and
`/?tab=investigate` still leads straight to a page; studio.js keeps the address in step.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import ui  # noqa: F401  # isort: skip  # before Gradio: it turns off what would talk to the outside

import gradio as gr

from irwm.errors import IrwmError
from storage.jobs import Jobs
from storage.paths import HOME_VARIABLE, check_home
from ui import quiet, server
from ui.components.header import NAME, device_label, header
from ui.components.lock_gate import lock_gate, wire
from ui.context import Context
from ui.pages import cases, explore, investigate, lab, protect, vault, verify
from ui.sessions import Sessions
from ui.settings import REPOSITORY, Settings

# Name in the address, label, page.
PAGES: tuple[tuple[str, str, ModuleType], ...] = (
    ("protect", "Protect", protect),
    ("investigate", "Investigate", investigate),
    ("cases", "Cases", cases),
    ("explore", "Explore", explore),
    ("lab", "Lab", lab),
    ("vault", "Vault", vault),
    ("verify", "Verify", verify),
)


def build(context: Context, device: str) -> gr.Blocks:
    """Header, gate and tabs; serves nothing yet."""
    quiet.private_uploads()
    with gr.Blocks(title=NAME, analytics_enabled=False) as blocks:
        lock = header(device)
        gate = lock_gate(context)
        with gr.Column(visible=False, elem_id="outside") as outside:
            verify.build_outside()
        opened = []
        with gr.Column(visible=False, elem_id="desk") as desk, gr.Tabs(elem_id="pages") as tabs:
            for name, label, page in PAGES:
                with gr.Tab(label, id=name, elem_id=f"page-{name}") as tab:
                    context.opened = gr.State(0)
                    page.build(context, tab)
                opened.append((tab, context.opened))
        wire(gate, context, blocks, outside, desk, lock, tabs, opened)
    return blocks


def main() -> int:
    """Reads the settings, opens what the app keeps, builds the pages and serves them until interrupted."""
    os.umask(0o077)
    # So that a service manager's stop, too, removes what was uploaded.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = Settings.from_environment()
        named = bool(os.environ.get(HOME_VARIABLE))
        temp = Path(tempfile.gettempdir())
        # Gradio can hand out what lies in the working folder, so that is ours, wherever the app was started; settings
        # and temp folder were told from there.
        os.chdir(REPOSITORY)
        for warning in check_home(settings.home, Path.cwd(), temp, allow_temp=named):
            print(f"Note: {warning}", file=sys.stderr)
        jobs = Jobs(settings.home)
        jobs.interrupt_dead()
        context = Context(settings, Sessions(settings.home), jobs)
        blocks = build(context, device_label(settings.device))
        server.launch(blocks, settings, context.sessions.is_open, block=True)
    except IrwmError as error:
        print(f"IRWM Studio cannot start: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while it was still starting
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
