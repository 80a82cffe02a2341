"""Standard output and standard error, which may be closed, full, or read by nobody any more.

None of that changes what came of a command, so none of it is an error here: the exit status says it all the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def open_missing() -> None:
    """Puts nothing in place of a closed stream.

    Else what is said to standard error would go to standard output, and the next file that is opened would take the
    stream's place and get what a library prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # a file takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def say(words: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Writes at once, by default to standard error; what cannot be written is lost.

    A stream that fails is turned to nothing: what is left in its buffer would otherwise fail again when Python ends,
    and take the exit status with it.
    """
    stream = sys.stderr if stream is None else stream
    try:
        print(words, end=end, file=stream, flush=True)
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)
