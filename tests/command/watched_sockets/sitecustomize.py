"""Imported by every Python process with this folder on PYTHONPATH: writes down what it asks sockets for."""

import os
import sys

WATCHED = ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname")


def note(event: str, args: tuple) -> None:  # type: ignore[type-arg]
    if event in WATCHED:
        asked = args[0] if event in ("socket.getaddrinfo", "socket.gethostbyname") else args[-1]
        with open(os.environ["SOCKET_LOG"], "a", encoding="utf-8") as log:
            log.write(f"{event}\t{asked!r}\n")


if "SOCKET_LOG" in os.environ:
    sys.addaudithook(note)
