"""What systems do differently with files and memory: flags of `os.open`, reading by position, folders, freed blocks.

The available modules identify the system, not its name: Python without `fcntl` is Python on Windows.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from filelock import unlock_descriptor

# Without `fcntl`, which means Windows: an open file cannot be removed or renamed, nor can its folder.
try:
    import fcntl  # noqa: F401
except ImportError:
    OPEN_FILES_STAY = True
else:
    OPEN_FILES_STAY = False

# Windows cannot open a folder, and so cannot make the names in it durable.
FOLDERS_OPEN = hasattr(os, "O_DIRECTORY")
# Flags that exist on only one of the systems. O_BINARY is always needed: without it Windows translates line ends.
ALWAYS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
NO_TERMINAL = getattr(os, "O_NOCTTY", 0)

# Seconds between two tries, and the number of tries in five seconds.
_PAUSE = 0.05
_TRIES = 100


def read_at(descriptor: int, target: memoryview, offset: int) -> int:
    """Reads bytes from `offset` on into `target` and returns how many; 0 at the file's end.

    The descriptor must belong to this thread alone: without `preadv` its position moves.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], offset)
    with io.FileIO(descriptor, closefd=False) as file:
        file.seek(offset)
        return file.readinto(target)


def return_memory() -> None:
    """Returns freed blocks to the system where the C library would keep them, which is Linux with glibc.

    Between two steps that each need hundreds of megabytes, this lowers the peak by as much.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def free_memory() -> int | None:
    """Bytes that are free or can be freed; None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def elapsed() -> float:
    """Seconds of the system's clock. On Windows it never advances, and only other limits apply."""
    return os.times().elapsed


def unlock_and_close(descriptor: int) -> None:
    """Releases and closes a locked file. Closing alone would do, but Windows may then release the lock later."""
    try:
        unlock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def patiently(call: Callable[..., None], *arguments: Any) -> None:
    """`os.rename` or `os.unlink`; on Windows it is retried for five seconds if it fails.

    Virus scanners and indexers briefly open new files, just when these are renamed.
    """
    for _ in range(_TRIES if OPEN_FILES_STAY else 0):
        try:
            return call(*arguments)
        except PermissionError:
            Event().wait(_PAUSE)
    return call(*arguments)
