"""Fixtures of the running app and of a real Chromium, for all folders of tests (a plugin of `tests/conftest.py`)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from storage.jobs import Jobs
from tools.running_app import CHROMIUM, CHROMIUM_ARGUMENTS, RunningApp, opened_context, start_app
from ui.jobs import runner


@pytest.fixture(scope="session")
def one_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """`python app.py` on a free port, started once for all modules of a worker."""
    with start_app(tmp_path_factory.mktemp("app")) as app:
        yield app


@pytest.fixture(scope="module")
def running_app(one_app: RunningApp) -> RunningApp:
    """The app as on its first day: no vault, no jobs, no models. A module that changes its settings starts its own."""
    start_over(one_app)
    return one_app


def start_over(app: RunningApp) -> None:
    """Removes everything that was done with the app, which keeps running: its state is on disk, and what it
    remembers about a browser depends on a cookie that the next one does not have."""
    jobs = Jobs(app.home)
    for job in jobs.recent():
        runner.stop(job.id, jobs)
    for path in (*app.home.iterdir(), *app.root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    Jobs(app.home)  # the app expects the empty list that it made when it started


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
    """One page and everything that it requested.

    Attributes:
        requested: every address, including those that the browser requests itself.
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
            context = opened_context(chromium, color_scheme=scheme)
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
