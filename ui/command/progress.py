"""A job's progress on standard error: one line that is overwritten on a terminal, else a line for each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from irwm.errors import printable
from storage.job_table import Job
from ui.command.streams import say

# In a pipeline's log, a long step repeats its line after this time.
SECONDS_BETWEEN_LINES = 15.0
_WIDEST = 100


class Progress:
    """Called with a job repeatedly; prints the changes.

    Args:
        stream: where to print.
        quiet: print nothing.
        clock: seconds that never run backwards.
    """

    def __init__(self, stream: TextIO, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._quiet, self._clock = stream, quiet, clock
        self._over = stream.isatty()
        self._step, self._said, self._width = "", float("-inf"), 0

    def show(self, job: Job, ahead: int = 0) -> None:
        """Shows the job in its present state.

        Args:
            ahead: how many jobs a queued one waits for.
        """
        self.step(job.done, job.total, f"Waiting for {ahead} before it" if ahead else job.what or "Starting")

    def step(self, done: int, total: int, what: str) -> None:
        """Shows the current step, and how much of it is done; `total` is 0 if unknown."""
        if self._quiet:
            return
        if self._over:
            self._write_over(_line(done, total, what))
        elif what != self._step or self._clock() - self._said >= SECONDS_BETWEEN_LINES:
            self._write(_line(done, total, what))
        self._step = what

    def end(self) -> None:
        """Removes the line that is overwritten."""
        if self._width:
            say("\r" + " " * self._width + "\r", self._stream, end="")
            self._width = 0

    def _write_over(self, line: str) -> None:
        say("\r" + line.ljust(self._width), self._stream, end="")
        self._width = len(line)

    def _write(self, line: str) -> None:
        self._said = self._clock()
        say(line, self._stream)


def _line(done: int, total: int, what: str) -> str:
    share = f"{100 * done // total:3d}%  " if total > 0 else ""
    return printable(share + what, _WIDEST)
