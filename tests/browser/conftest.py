"""An unlocked page of the running app."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tools.running_app import RunningApp, opened_context, pass_the_gate


@pytest.fixture(scope="module")
def page(running_app: RunningApp, chromium: Browser) -> Iterator[Page]:
    """One unlocked browser for a module's tests. Its tabs stay open from test to test."""
    context = opened_context(chromium, accept_downloads=True)
    page = context.new_page()
    page.goto(running_app.url)
    pass_the_gate(page)
    yield page
    context.close()
