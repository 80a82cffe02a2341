"""Serves the app: to this computer only, behind `ui.guard`, with Gradio's other services switched off."""

from __future__ import annotations

import gc
import os
import sys
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gradio as gr
from gradio import processing_utils
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from irwm.errors import IrwmError
from irwm.report.typefaces import FONTS
from ui import connections, offline
from ui.guard import NOBODY, UPLOAD_BYTES, Callers, Guard
from ui.preferences import Preferences
from ui.sessions import cookie_name
from ui.settings import HOST, Settings
from ui.theme import theme

HOSTS = [HOST, "localhost"]
STATIC = Path(__file__).resolve().parent / "static"
STYLE = Path(__file__).resolve().parent / "style.css"
HEAD = '<script src="/studio/studio.js" defer></script>'
# Gradio checks every ten minutes for uploads older than six hours.
DELETE_CACHE = (600, 6 * 3600)
# Enough for one user with several windows; beyond it Gradio answers 503 instead of growing.
QUEUE_LENGTH = 128
# Threads of one handler; handlers are short, because all long work is a job.
CONCURRENCY = 8


class PortTakenError(IrwmError):
    """Another program listens on the port."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running server.

    Attributes:
        url: where the page is, with a slash at its end.
        stop: ends the server.
    """

    url: str
    stop: Callable[[], None]


def first_script(chosen: Preferences) -> bytes:
    """The tag for the first line of the page, so that theme and language are set before anything is drawn."""
    tag = f'<script src="/studio/first.js" data-theme="{chosen.theme}" data-language="{chosen.language}"></script>'
    return tag.encode("ascii")


def harden(
    settings: Settings,
    uploads: Path,
    callers: Callers,
    now: Callable[[], Settings],
    waiting: Callable[[], int] = int,
    forget: Callable[[str], object] = str,
) -> dict[str, object]:
    """Arguments for Gradio's FastAPI app: our checks, our static files, no description of its routes.

    Gradio adds its own two layers (CORS, Brotli) outside of these; neither runs a handler.
    `launch` and not `mount_gradio_app`: a mounted app never counts as launched, and only then does Gradio check that
    a posted file path was uploaded (seen in 6.31.0).
    """
    return {
        "openapi_url": None,
        "middleware": [
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(
                Guard,
                uploads=uploads,
                cookie=cookie_name(settings.port),
                callers=callers,
                waiting=waiting,
                forget=forget,
                first=lambda: first_script(now().preferences),
            ),
        ],
        "routes": [
            Mount("/studio/fonts", StaticFiles(directory=FONTS)),
            Mount("/studio", StaticFiles(directory=STATIC)),
        ],
    }


async def _fetch_nothing(url: str, cache_dir: str) -> str:
    raise gr.Error(
        "The app does not fetch web addresses. Download the file yourself, then choose it.", print_exception=False
    )


def _stay_on_this_computer() -> None:
    """Disables Gradio's one way to fetch an address: a posted upload whose path begins with http (seen in 6.31.0).

    Its other network access uses this function or routes that the guard does not serve.
    """
    processing_utils.async_ssrf_protected_download = _fetch_nothing


def open_in_browser(url: str) -> bool:
    """Opens the page in the user's own browser. Does nothing without a screen: a terminal browser would take over the
    terminal that the app runs in."""
    has_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(has_screen and webbrowser.open(url))


def launch(
    blocks: gr.Blocks,
    settings: Settings,
    callers: Callers = NOBODY,
    now: Callable[[], Settings] | None = None,
    *,
    block: bool = False,
) -> Served:
    """Starts serving.

    Args:
        callers: see `Guard`.
        now: the settings at the time of a page request; `settings` if they do not change.
        block: wait here until the app is interrupted.

    Raises:
        PortTakenError: another program has the port.
    """
    _stay_on_this_computer()
    connections.limit()
    uploads = Path(offline.private_uploads())

    def forget(stream: str) -> None:
        blocks.state_holder.session_data.pop(stream, None)
        blocks.state_holder.time_last_used.pop(stream, None)

    blocks.delete_cache = DELETE_CACHE
    blocks.queue(max_size=QUEUE_LENGTH, default_concurrency_limit=CONCURRENCY)
    try:
        _, url, _ = blocks.launch(
            server_name=HOST,
            server_port=settings.port,
            app_kwargs=harden(
                settings, uploads, callers, now or (lambda: settings), lambda: len(blocks._queue), forget
            ),
            theme=theme(),
            css_paths=[STYLE],
            head=HEAD,
            favicon_path=STATIC / "icon.svg",
            share=False,
            inbrowser=False,
            ssr_mode=False,
            run_history=False,
            mcp_server=False,
            pwa=False,
            enable_monitoring=False,
            show_error=False,
            strict_cors=True,
            footer_links=[],
            allowed_paths=[],
            blocked_paths=sorted({str(settings.home), str(settings.home.resolve())}),
            max_file_size=UPLOAD_BYTES,
            quiet=True,
            prevent_thread_lock=True,
            # Gradio lets its own server answer a request first, without a time limit. A second request, with a limit
            # of three seconds, kept the app from starting on a busy machine.
            _frontend=False,
        )
    except OSError as error:
        if "empty port" not in str(error):
            raise
        raise PortTakenError(
            f"port {settings.port} is already in use by another program",
            advice="close that program, or set IRWM_PORT to another port",
        ) from error
    served = Served(url, blocks.close)
    if block:
        # The present objects stay until the app ends. Otherwise the collector would scan all of them again and again
        # while a large vault is read, and take longer than the reading.
        gc.collect()
        gc.freeze()
        print(f"IRWM Studio is at {url}", flush=True)
        if settings.open_browser:
            open_in_browser(url)
        try:
            while True:  # on Windows, a wait without a limit ignores Ctrl+C
                time.sleep(60)
        except KeyboardInterrupt:
            blocks.close(verbose=False)
    return served
