"""Standard output and standard error, which may be closed, full, or no longer read.

These faults do not change a command's result, so they are not errors here: the exit status still gives the result.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def open_missing() -> None:
    """Replaces a closed stream by the null device.

    Otherwise text for standard error would go to standard output, and the next opened file would get the stream's
    number and receive the output of libraries.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # a file takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def say(words: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Writes at once, by default to standard error; output that cannot be written is lost.

    A stream that fails is redirected to the null device: otherwise its buffer would fail again when Python ends,
    and change the exit status.
    """
    stream = sys.stderr if stream is None else stream
    try:
        print(words, end=end, file=stream, flush=True)
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)
