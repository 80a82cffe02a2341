"""A line for each step in a log; one line that is overwritten on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from tests.jobs.recipients import JOB
from ui.command.progress import SECONDS_BETWEEN_LINES, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_for_each_step_and_now_and_then_one_for_a_long_step() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, quiet=False, clock=clock)
    progress.show(replace(JOB, state="queued"), ahead=2)
    progress.show(JOB)
    for done in (1, 2, 3):
        clock.now += SECONDS_BETWEEN_LINES / 2
        progress.show(replace(JOB, done=done, total=4, what="Copying\x1b[2J shard 1"))
    progress.end()
    assert stream.getvalue().splitlines() == [
        "Waiting for 2 before it",
        "Starting",
        " 25%  Copying\\x1b[2J shard 1",
        " 75%  Copying\\x1b[2J shard 1",
    ]


def test_terminal_progress_is_one_line_that_is_cleared() -> None:
    stream = Terminal()
    progress = Progress(stream, quiet=False)
    progress.show(replace(JOB, what="A long first step"))
    progress.show(replace(JOB, what="Short"))
    progress.end()
    shown = stream.getvalue()
    assert "\n" not in shown
    assert shown.split("\r")[1:3] == ["A long first step", "Short".ljust(len("A long first step"))]
    assert shown.endswith("\r")


def test_quiet_says_nothing() -> None:
    stream = Terminal()
    progress = Progress(stream, quiet=True)
    progress.show(JOB)
    progress.end()
    assert stream.getvalue() == ""
