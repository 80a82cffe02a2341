"""An unlocked page of the running app."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tools.running_app import PATIENCE_MS, VIEWPORT, RunningApp, pass_the_gate


@pytest.fixture(scope="module")
def page(running_app: RunningApp, chromium: Browser) -> Iterator[Page]:
    """One browser for a module's tests, past the gate; it keeps its tabs from test to test as a person's would."""
    context = chromium.new_context(viewport=VIEWPORT, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(running_app.url)
    pass_the_gate(page)
    yield page
    context.close()
