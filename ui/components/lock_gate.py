"""The gate in front of the pages: creates the vault, asks for its passphrase, and locks it.

Each browser proves the passphrase separately (`ui.sessions`). When the gate closes, the pages are removed from the
document; typed input is not lost. Hiding alone does not protect: every handler calls `context.require(request)`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup, escape

from irwm.errors import IrwmError
from storage.backup import latest_backup
from storage.errors import VaultExistsError
from storage.wrong_passphrases import MOST_WAITING
from ui.components import notices
from ui.components.events import PRIVATE
from ui.components.secret_field import secret_field
from ui.context import Context
from ui.jobs import orphans
from ui.passphrases import LEAST_CHARACTERS, check_new
from ui.settings import HOME, without_home

# How often an open page checks whether it has been locked in the meantime.
WATCH_SECONDS = 20.0
# Handlers that wait to try a passphrase, including those that are refused because the queue is full.
PASSPHRASES = 2 * MOST_WAITING
TELL_TABS = "() => window.irwmLocked?.()"
# first.js answers in place of the system.
NOW_DARK = "() => [matchMedia('(prefers-color-scheme: dark)').matches]"

ABOUT = (
    "IRWM Studio embeds a different mark in the weights of each copy of your language model. If a copy leaks, the app "
    "determines from the leaked weights whose copy it was. Everything stays on this computer."
)
FIRST = """
# Choose a passphrase
The passphrase seals the keys that prove which models are yours. Four or more unrelated words make a good passphrase.

**The passphrase cannot be reset.** If you lose it, you also lose the keys, and the proof with them. Store the
passphrase in your password manager.
"""
AGAIN = """
# Unlock
The vault is locked for this browser. Running jobs continue.
"""


class LockGate:
    """The gate, hidden until the page knows whether this browser is unlocked; also makes `context.dark`.

    `wire` connects its parts once the rest of the page is built.
    """

    def __init__(self, context: Context) -> None:
        context.dark = gr.State(False)
        with gr.Column(elem_classes="gate"):
            said = str(Markup("<p>{}</p>").format(ABOUT))
            self.about = gr.HTML(said, visible=False, elem_classes="gate-about", elem_id="gate-about")
            with gr.Row(visible=False, elem_id="gate-first") as self.first_box:
                with gr.Column():
                    gr.Markdown(FIRST)
                with gr.Column():
                    least = f"At least {LEAST_CHARACTERS} characters. Passphrases that are easy to guess are refused"
                    self.first = secret_field(
                        "Passphrase", "new-password", least, elem_id="first-passphrase", first=True
                    )
                    self.second = secret_field("Repeat the passphrase", "new-password", elem_id="second-passphrase")
                    self.create = gr.Button("Create the vault", variant="primary", elem_id="create-vault")
                    self.first_notice = gr.HTML(visible=False)
            with gr.Row(visible=False, elem_id="gate-again") as self.again_box:
                with gr.Column():
                    gr.Markdown(AGAIN)
                with gr.Column():
                    self.passphrase = secret_field("Passphrase", "current-password", elem_id="passphrase", first=True)
                    self.unlock = gr.Button("Unlock", variant="primary", elem_id="unlock-vault")
                    self.again_notice = gr.HTML(visible=False)
            # Passes values that only the browser knows; never shown.
            self.dark = gr.Checkbox(visible=False)
            # Pressed by studio.js when another tab of this browser was locked; never visible.
            self.follow = gr.Button("Locked in another tab", elem_id="follow-lock")
            # Pressed by studio.js when the page becomes dark or light: the server draws the figures.
            self.theme = gr.Button("The theme changed", elem_id="follow-theme")


def wire(
    gate: LockGate,
    context: Context,
    blocks: gr.Blocks,
    outside: gr.Column,
    desk: gr.Column,
    lock: gr.Button,
    tabs: gr.Tabs,
    pages: Sequence[tuple[gr.Tab, gr.State]],
) -> None:
    """Connects the gate with the pages behind it.

    Args:
        outside: shown below the gate while it is locked; made with `visible=False`.
        desk: everything that needs the passphrase; made with `visible=False`.
        lock: the button that locks.
        tabs: gets the page that the address names, as in `/?tab=investigate`.
        pages: each page's tab and its own `Context.opened`.
    """
    # How often the gate was opened so far. Only the page that comes into view is notified: an event with the states of
    # all pages as outputs would change each of them in the browser, skipped or not, and so fill all pages at once.
    count = gr.State(0)
    places = [gate.about, gate.first_box, gate.again_box, outside, desk, lock, count]
    keeper = Gatekeeper(context, [str(tab.id) for tab, _ in pages], places)
    blocks.load(
        keeper.arrive,
        gate.dark,
        [*places, context.dark, tabs],
        js=NOW_DARK,
        **PRIVATE,
    )
    gate.theme.click(lambda dark: dark, gate.dark, context.dark, js=NOW_DARK, **PRIVATE)
    for tab, own in pages:
        tab.select(come_to_front, count, own, **PRIVATE)
    # They wait where passphrases are counted (`storage.wrong_passphrases`), not in Gradio's queue: there a browser that
    # proved the passphrase before has priority.
    slow = {**PRIVATE, "concurrency_limit": PASSPHRASES, "concurrency_id": "passphrase"}
    fields = [gate.first, gate.second]
    gr.on(
        [gate.create.click, gate.second.submit],
        keeper.do_create,
        [*fields, count],
        [*places, *fields, gate.first_notice],
        **slow,
    )
    gr.on(
        [gate.unlock.click, gate.passphrase.submit],
        keeper.do_unlock,
        [gate.passphrase, count],
        [*places, gate.passphrase, gate.again_notice],
        **slow,
    )
    # After a lock, the other tabs of this browser are notified and check their state. Every tab also checks from time
    # to time, because a browser is also locked after a while without use.
    lock.click(keeper.do_lock, count, places, **PRIVATE).then(None, js=TELL_TABS)
    gr.on([gr.Timer(WATCH_SECONDS).tick, gate.follow.click], keeper.watch, count, places, **PRIVATE)


def come_to_front(count: int) -> int:
    return count


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """The gate's handlers.

    Attributes:
        names: of the pages, as the address has them.
        places: the components that `state` gives values for.
    """

    context: Context
    names: Sequence[str]
    places: Sequence[Any]

    def state(self, request: gr.Request, opened: int) -> tuple[Any, ...]:
        """The current values of the gate, the desk and the lock button for this browser."""
        sessions, is_open = self.context.sessions, self.context.is_open(request)
        # If the vault is lost but a backup exists, the form for a new vault stays hidden.
        there = sessions.vault_exists() or latest_backup(sessions.home) is not None
        return (
            gr.HTML(visible=not is_open),
            gr.Row(visible=not is_open and not there),
            gr.Row(visible=not is_open and there),
            gr.Column(visible=not is_open),
            # Gradio removes invisible components from the document, and keeps their input for when they come back.
            gr.Column(visible=is_open),
            gr.Button(visible=is_open),
            opened + 1 if is_open else opened,
        )

    def arrive(self, is_dark: bool, request: gr.Request) -> Any:
        tab = request.query_params.get("tab") if request.query_params else None
        return *self.state(request, 0), is_dark, gr.Tabs(selected=tab) if tab in self.names else gr.skip()

    def do_create(self, first: str, second: str, opened: int, request: gr.Request) -> Any:
        try:
            # Checked first: anyone can call this, and rating a new passphrase takes long.
            if self.context.sessions.vault_exists():
                raise VaultExistsError("there is already a vault here", advice="unlock it with its passphrase")
            check_new(first, second)
            self.context.sessions.create(self.context.session(request), first)
        except IrwmError as error:
            return *self.state(request, opened), first, second, self.refused(error)
        return *self.state(request, opened), "", "", gr.HTML("", visible=False)

    def do_unlock(self, passphrase: str, opened: int, request: gr.Request) -> Any:
        try:
            self.context.sessions.unlock(self.context.session(request), passphrase)
            warnings = self.context.require(request).warnings
            orphans.sweep_left(self.context.jobs_of(request))
        except IrwmError as error:
            return *self.state(request, opened), "", self.refused(error)
        for warning in warnings:
            # Escaped, because Gradio renders the text of its toasts as HTML; it stays until the user closes it.
            said = self.context.said
            gr.Warning(str(escape(said(warning))), title=said("Warning"), duration=None)
        return *self.state(request, opened), "", gr.HTML("", visible=False)

    def do_lock(self, opened: int, request: gr.Request) -> Any:
        self.context.sessions.lock(self.context.session(request))
        return self.state(request, opened)

    def watch(self, was_visible: Any, request: gr.Request) -> Any:
        if self.context.is_open(request):
            return (gr.skip(),) * len(self.places)
        return self.state(request, was_visible)

    def refused(self, error: IrwmError) -> Any:
        # The gate is shown to anyone, so it shows only names of files, without their folders.
        home = self.context.sessions.home
        told = {name: without_home(text, home) for name, text in notices.parts_of(error).items()}
        parts = {name: text.replace(f"{HOME}{os.sep}", "") for name, text in told.items()}
        return gr.HTML(notices.error_html(parts), visible=True)
