"""The server's connections: how many are allowed, and how long one may wait before it sends a request.

uvicorn 0.54 waits without limit for the first request of a connection and for the rest of a request's headers. Each
connection uses one of the process's open files, so a thousand silent ones would block all other users.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.h11_impl import H11Protocol

from ui.offline import allow_files

# Half of the open files that a process may have by default on Linux; a browser opens six.
MOST = 512
# Open files of this process: uvicorn takes up to 2 048 connections at once before any can be ended.
FILES = 4096
# Seconds for a request's headers to arrive, on one computer.
SILENCE_SECONDS = 15.0
# uvicorn warns of each request that is not HTTP. Any caller could fill a disk with these warnings.
_LOG = logging.getLogger("uvicorn.error.connections")
_LOG.setLevel(logging.ERROR)


def limit() -> None:
    """Makes every server that this process starts later use `Connection`.

    Gradio 6.31.0 starts uvicorn with its default protocol and has no option to choose another.
    """
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{Connection.__name__}"
    allow_files(FILES)


class Connection(H11Protocol):
    """A connection that ends after a time without a request, or, if there are too many, when it is silent longest."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.logger = _LOG
        self._end: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_here(self) -> bool:
        """Whether it is not about to end."""
        return not self.transport.is_closing()

    @property
    def ends_at(self) -> float:
        """When it ends without a request, in seconds of the event loop's clock."""
        return self._end.when() if self._end else 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))  # of TCP, as uvicorn expects
        self._wait()
        if len(self.connections) > MOST:
            here = [each for each in self.connections if isinstance(each, Connection) and each.is_here]
            if len(here) > MOST:
                min((each for each in here if each.is_silent), key=lambda each: each.ends_at).transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_silent:
            self._stay()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_silent and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stay()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stay()
        self._end = self.loop.call_later(SILENCE_SECONDS, self.transport.close)

    def _stay(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
