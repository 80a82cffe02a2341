"""The document around the pages: header, gate and tabs.

All pages are tabs of one document and not routes of Gradio's multipage apps: a link of its Navbar reloads the whole
document (seen in 6.31.0), which drops all input and every `gr.State`. A change of tab keeps all of it, and
`/?tab=investigate` still leads straight to a page; studio.js keeps the address up to date.
"""

from __future__ import annotations

from types import ModuleType

import gradio as gr

from ui import offline
from ui.components.events import PRIVATE
from ui.components.header import NAME, header, header_html
from ui.components.lock_gate import LockGate, wire
from ui.components.plain_blocks import PlainBlocks
from ui.components.restore_box import restore_box
from ui.context import Context
from ui.pages import about, api, cases, explore, investigate, jobs, lab, protect, settings, vault, verify, watch

# Name in the address, label, page.
PAGES: tuple[tuple[str, str, ModuleType], ...] = (
    ("protect", "Protect", protect),
    ("investigate", "Investigate", investigate),
    ("watch", "Watch", watch),
    ("cases", "Cases", cases),
    ("explore", "Explore", explore),
    ("lab", "Lab", lab),
    ("vault", "Vault", vault),
    ("verify", "Verify", verify),
    ("jobs", "Jobs", jobs),
    ("settings", "Settings", settings),
    ("about", "About", about),
)


def build(context: Context, device: str) -> gr.Blocks:
    """Header, gate and tabs; does not serve them yet."""
    offline.private_uploads()
    blocks: PlainBlocks
    with PlainBlocks(title=NAME, analytics_enabled=False) as blocks:
        blocks.is_open, blocks.of_lock = context.is_open, frozenset({"do_lock", "watch", "lock"})
        blocks.language = lambda: context.settings.preferences.language
        lock = header(context, device)
        gate = LockGate(context)
        with gr.Column(visible=False, elem_id="outside") as outside:
            verify.build_outside()
            restore_box(context)
        opened = []
        with (
            gr.Column(visible=False, elem_id="desk") as desk,
            gr.Tabs(elem_id="pages", overflow_behavior="wrap") as tabs,
        ):
            for name, label, page in PAGES:
                with gr.Tab(label, id=name, elem_id=f"page-{name}") as tab:
                    context.opened, context.page = gr.State(0), name
                    page.build(context, tab)
                opened.append((tab, context.opened))
        api.build(context)
        wire(gate, context, blocks, outside, desk, lock, tabs, opened)
        # The device may have been changed since this document was made.
        blocks.load(lambda: header_html(context), None, context.top, **PRIVATE)
    return blocks
