"""Connections that send no request, on a real server in this process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.config import HTTP_PROTOCOLS

from tools.waiting import PATIENCE, until
from ui import connections

ASK = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Served:
    """A server whose answers begin at once and end when the test releases them."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self._server = uvicorn.Server(
            uvicorn.Config(self._app, port=0, log_level="warning", lifespan="off", interface="asgi3")
        )
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        until(lambda: self._server.started, "the server to start")
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self.may_end.set()
        self._server.should_exit = True
        self._thread.join()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await asyncio.to_thread(self.may_end.wait, PATIENCE)
        await send({"type": "http.response.body", "body": b"z"})


Serve = Callable[..., Served]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    running: list[Served] = []

    def start(**limits: float) -> Served:
        for name, value in limits.items():
            monkeypatch.setattr(connections, name, value)
        monkeypatch.setitem(HTTP_PROTOCOLS, "auto", "")
        connections.limit()
        running.append(Served())
        return running[-1]

    yield start
    for each in running:
        each.stop()


def read_to_end(connection: socket.socket) -> bytes:
    """All data until the other side closes."""
    found = b""
    with suppress(ConnectionError):
        while part := connection.recv(4096):
            found += part
    return found


@pytest.mark.fault(96)
def test_silent_connection_ends_and_answered_one_continues(serve: Serve) -> None:
    served = serve(SILENCE_SECONDS=0.05)
    with served.connect() as answered, served.connect() as silent:
        answered.sendall(ASK)
        assert answered.recv(4096)
        assert read_to_end(silent) == b""
        served.may_end.set()
        assert read_to_end(answered).endswith(b"z"), "longer than the limit on silence, and complete"


@pytest.mark.fault(96)
def test_incomplete_request_and_silence_after_an_answer_end(serve: Serve) -> None:
    served = serve(SILENCE_SECONDS=0.05)
    served.may_end.set()
    with served.connect() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        drip = (slow.sendall(b"a: b\r\n") for _ in itertools.count())
        with pytest.raises(ConnectionError):
            all(line is None for line in drip)
    with served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_to_end(connection).endswith(b"az")


@pytest.mark.fault(96)
def test_non_http_is_refused_without_log_entries(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve()
    for _ in range(20):
        with served.connect() as connection:
            connection.sendall(b"\x16\x03\x01 what is no request\r\n\r\n")
            assert b"400 Bad Request" in read_to_end(connection)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.fault(96)
def test_excess_connections_end_the_longest_silent_one(serve: Serve) -> None:
    served = serve(MOST=3)
    with served.connect() as answered:
        answered.sendall(ASK)
        assert answered.recv(4096)
        silent = [served.connect() for _ in range(4)]
        try:
            assert read_to_end(silent[0]) == read_to_end(silent[1]) == b""
            silent[3].sendall(ASK)
            assert b"200 OK" in silent[3].recv(4096)
        finally:
            for each in silent:
                each.close()
        served.may_end.set()
        assert read_to_end(answered).endswith(b"z")
