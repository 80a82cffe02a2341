"""The running app and a real Chromium, for the tests, benchmarks and pictures that need them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tools.page_events import watch
from tools.waiting import PATIENCE, quoted, until

REPOSITORY = Path(__file__).resolve().parents[1]
FAKE_TASKS = REPOSITORY / "tools" / "fake_tasks"  # folder for PYTHONPATH that replaces tasks by small ones
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Printed by `ui.server.launch` once the app answers.
READY = "IRWM Studio is at"
# Timeout in milliseconds of expectations about a page.
PATIENCE_MS = 1000 * PATIENCE
expect.set_options(timeout=PATIENCE_MS)
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
# Seconds for the app to end normally, which removes uploads, before it is killed.
PATIENCE_AT_END = 60
PASSPHRASE = "umbrella-quartz-lantern-tide"


def opened_context(browser: Browser, **more: Any) -> BrowserContext:
    """Open a fresh profile with our window size and a timeout of `PATIENCE_MS`."""
    context = browser.new_context(viewport=VIEWPORT, **more)
    context.set_default_timeout(PATIENCE_MS)
    watch(context)
    return context


def free_port() -> int:
    """Return a port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RunningApp:
    """The app in a separate process."""

    port: int
    home: Path
    root: Path
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **settings: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False, **settings)  # type: ignore[arg-type]


@contextlib.contextmanager
def start_app(
    folder: Path,
    command: tuple[str, ...] = (str(REPOSITORY / "app.py"),),
    extra: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
) -> Iterator[RunningApp]:
    """Run `python app.py` in `cwd` with home, temp folder and root below `folder`, until the block ends.

    The temp folder is set because the app refuses a home inside the real temp folder, where pytest's folders are.
    """
    port = free_port()
    home, root, temp, log = folder / "home", folder / "models", folder / "tmp", folder / "app.log"
    for path in (home, root, temp):
        path.mkdir(mode=0o700, exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("IRWM_", "GRADIO_"))},
        "IRWM_HOME": str(home),
        "IRWM_PORT": str(port),
        "IRWM_ROOTS": str(root),
        "IRWM_DEVICE": "cpu",
        "TMPDIR": str(temp),
        **(extra or {}),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Background processes of a script ignore Ctrl-C, and the app would inherit this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    app = RunningApp(port, home, root, log, process)
    try:
        _until_it_answers(app)
        yield app
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_AT_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_it_answers(app: RunningApp) -> None:
    def ready() -> bool:
        return app.process.poll() is not None or READY in app.log.read_text(encoding="utf-8", errors="replace")

    until(ready, "the app to start", app.log)
    if app.process.poll() is not None:
        raise AssertionError(f"the app ended with {app.process.returncode} during its start{quoted(app.log)}")


def pass_the_gate(page: Page, passphrase: str = PASSPHRASE) -> None:
    """Create or unlock the vault, as the page requests, and wait for the pages."""
    page.wait_for_selector("#first-passphrase input, #passphrase input")
    if page.locator("#first-passphrase").count():
        page.fill("#first-passphrase input", passphrase)
        page.fill("#second-passphrase input", passphrase)
        page.click("#create-vault")
    else:
        page.fill("#passphrase input", passphrase)
        page.click("#unlock-vault")
    page.wait_for_selector("#pages")
