"""Ctrl-C and SIGTERM while a command runs."""

from __future__ import annotations

import signal
import threading

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Stopped(BaseException):
    """Stop was asked for while nothing was under way that would have to be taken back."""


class Stop:
    """What the signals do: before a job is started they end the command, afterwards they are noted.

    Attributes:
        asked: set by the first of them.
        interrupts: whether they end the command at once.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.interrupts = True

    @classmethod
    def installed(cls) -> Stop:
        """In place of what the signals did in this process before."""
        stop = cls()
        for name in SIGNALS:
            if hasattr(signal, name):  # Windows has no SIGHUP
                signal.signal(getattr(signal, name), stop)
        return stop

    def __call__(self, *_: object) -> None:
        self.asked.set()
        if self.interrupts:
            raise Stopped
