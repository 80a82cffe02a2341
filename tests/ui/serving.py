"""Fixtures of the running app and of a real Chromium.

Another folder of tests takes them over with `from tests.ui.serving import chromium, running_app`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from tools.running_app import CHROMIUM, CHROMIUM_ARGUMENTS, VIEWPORT, RunningApp, start_app


@pytest.fixture(scope="module")
def running_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """`python app.py` on a free port with an empty home; one per test module."""
    with start_app(tmp_path_factory.mktemp("app")) as app:
        yield app


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser; each test opens its own context, which starts with an empty profile.

    Not for the whole session: while Playwright's synchronous interface is open, `asyncio.run` fails in this thread.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page and all that it asked for.

    Attributes:
        requested: every address, also those of the browser's own making.
        complaints: page errors and refusals by the content security policy.
    """

    page: Page
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def outside(self, app: RunningApp) -> list[str]:
        """Requested addresses that are not the app's."""
        own = urlsplit(app.url).netloc
        return [u for u in self.requested if urlsplit(u).scheme not in ("data", "blob") and urlsplit(u).netloc != own]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens the app in a fresh profile: `visit(app, scheme="dark", path="/?tab=vault")`."""
    with contextlib.ExitStack() as stack:

        def open_page(app: RunningApp, scheme: str = "light", path: str = "/") -> Visit:
            context = chromium.new_context(viewport=VIEWPORT, color_scheme=scheme)  # type: ignore[arg-type]
            stack.callback(context.close)
            page = context.new_page()
            seen = Visit(page)

            def note(request: Request) -> None:
                seen.requested.append(request.url)

            page.on("request", note)
            page.on("pageerror", lambda error: seen.complaints.append(str(error)))
            page.on(
                "console",
                lambda line: seen.complaints.append(line.text) if "Content Security Policy" in line.text else None,
            )
            page.goto(app.url + path)
            return seen

        yield open_page
