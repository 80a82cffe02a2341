"""`tools.page_events` in a real Chromium: it counts pending events, and ends when they are done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Route

from tests.ui.serving import Visit
from tools.page_events import pending, settled
from tools.running_app import RunningApp, pass_the_gate

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("part", ["**/queue/join*", "**/queue/data*"], ids=["the event", "its results"])
def test_an_event_is_pending_until_its_result_is_there(
    running_app: RunningApp, visit: Callable[..., Visit], part: str
) -> None:
    page = visit(running_app).page
    pass_the_gate(page)
    settled(page)
    assert pending(page) == 0
    held: list[Route] = []
    holding = True
    page.route(part, lambda route: held.append(route) if holding else route.continue_())
    with page.expect_request(part):
        page.click("#lock")
    page.wait_for_function("irwmEvents.pending() > 0")
    assert pending(page) > 0
    for _ in range(3):
        page.evaluate("new Promise(done => requestAnimationFrame(done))")
        assert not page.evaluate("irwmEvents.settled()")
    assert not page.locator("#passphrase input").is_visible()
    holding = False
    for route in held:
        route.continue_()
    settled(page)
    assert page.locator("#passphrase input").is_visible(), "what the event brought is drawn"
