"""Ctrl-C and SIGTERM while a command runs."""

from __future__ import annotations

import signal
import time

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_SECONDS_BETWEEN_LOOKS = 0.05


class Stopped(BaseException):
    """Stop was asked for while nothing was under way that would have to be taken back."""


class Stop:
    """What the signals do: between `open` and `close` they end the command, otherwise they are noted.

    Noted while libraries are imported, which an exception would leave in pieces; and noted once there is a job, which
    has to be stopped. A plain attribute and no `threading.Event`, whose lock the handler could wait for forever.

    Attributes:
        asked: set by the first of them.
    """

    def __init__(self) -> None:
        self.asked = False
        self._interrupts = False

    @classmethod
    def installed(cls) -> Stop:
        """In place of what the signals did in this process before."""
        stop = cls()
        for name in SIGNALS:
            if hasattr(signal, name):  # Windows has no SIGHUP
                signal.signal(getattr(signal, name), stop)
        return stop

    def __call__(self, *_: object) -> None:
        self.asked = True
        if self._interrupts:
            self._interrupts = False  # one is enough: a second would end what answers the first
            raise Stopped

    def open(self) -> None:
        """From here on a signal ends the command.

        Raises:
            Stopped: one came before.
        """
        self._interrupts = True
        self._check()

    def close(self) -> None:
        """From here on signals are noted, since there is something to take back.

        Raises:
            Stopped: one came before.
        """
        self._interrupts = False
        self._check()

    def wait(self, seconds: float) -> bool:
        """Whether stop was asked for, at the latest after so many seconds."""
        until = time.monotonic() + seconds
        while not self.asked and time.monotonic() < until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return self.asked

    def _check(self) -> None:
        if self.asked:
            self._interrupts = False
            raise Stopped
