"""The fixtures of the running app, and an unlocked page of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.ui.serving import chromium, running_app, visit
from tools.running_app import VIEWPORT, RunningApp, pass_the_gate

__all__ = ["chromium", "page", "running_app", "visit"]


@pytest.fixture(scope="module")
def page(running_app: RunningApp, chromium: Browser) -> Iterator[Page]:
    """One browser for a module's tests, past the gate; it keeps its tabs from test to test as a person's would."""
    context = chromium.new_context(viewport=VIEWPORT, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(running_app.url)
    pass_the_gate(page)
    yield page
    context.close()
