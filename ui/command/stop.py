"""Ctrl-C and SIGTERM while a command runs."""

from __future__ import annotations

import signal
import time

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_SECONDS_BETWEEN_LOOKS = 0.05


class Stopped(BaseException):
    """Stop was requested before there was any work to undo."""


class Stop:
    """The handler of the signals: between `open` and `close` they end the command, otherwise they are recorded.

    They are recorded during the import of libraries, which an exception would leave half-imported, and while there is
    a job, which must be stopped. A plain attribute and not `threading.Event`, whose lock could block the handler.

    Attributes:
        asked: set by the first of them.
    """

    def __init__(self) -> None:
        self.asked = False
        self._interrupts = False

    @classmethod
    def installed(cls) -> Stop:
        """Replaces the earlier signal handlers of this process."""
        stop = cls()
        for name in SIGNALS:
            if hasattr(signal, name):  # Windows has no SIGHUP
                signal.signal(getattr(signal, name), stop)
        return stop

    def __call__(self, *_: object) -> None:
        self.asked = True
        if self._interrupts:
            self._interrupts = False  # one is enough: a second would end the response to the first
            raise Stopped

    def open(self) -> None:
        """After this, a signal ends the command.

        Raises:
            Stopped: one came before.
        """
        self._interrupts = True
        self._check()

    def close(self) -> None:
        """After this, signals are recorded, because there is work to undo.

        Raises:
            Stopped: one came before.
        """
        self._interrupts = False
        self._check()

    def wait(self, seconds: float) -> bool:
        """Whether stop was requested, after this many seconds at the latest."""
        until = time.monotonic() + seconds
        while not self.asked and time.monotonic() < until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return self.asked

    def _check(self) -> None:
        if self.asked:
            self._interrupts = False
            raise Stopped
