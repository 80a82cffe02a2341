"""What POSIX and Windows do differently with files: flags of `os.open`, reading by position, locks, folders.

Told by what Python's modules offer and not by the system's name. Python without `fcntl` is Python on Windows.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from threading import Event
from typing import Any

try:
    import fcntl
except ImportError:
    import msvcrt

    # Checked on another system, the module seems to be empty.
    _windows: Any = msvcrt
    # An open file can be neither removed nor renamed, and neither can a folder that holds one.
    OPEN_FILES_STAY = True
else:
    OPEN_FILES_STAY = False

# Windows cannot open a folder, and so cannot be asked to make the names in it durable.
FOLDERS_OPEN = hasattr(os, "O_DIRECTORY")
# Flags that one of the systems lacks and does not need. Always: without O_BINARY Windows translates line ends.
ALWAYS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
NO_TERMINAL = getattr(os, "O_NOCTTY", 0)

_HELD_ELSEWHERE = {errno.EAGAIN, errno.EACCES}
# Seconds between two tries, and how many make five seconds.
_PAUSE = 0.05
_TRIES = 100


def read_at(descriptor: int, target: memoryview, offset: int) -> int:
    """Reads bytes from `offset` on into `target` and returns how many; 0 at the file's end.

    The descriptor must be this thread's own: without `preadv` its position moves.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], offset)
    with io.FileIO(descriptor, closefd=False) as file:
        file.seek(offset)
        return file.readinto(target)


def try_lock(descriptor: int) -> bool:
    """Locks a file for this descriptor alone; False where another one has the lock.

    It lasts until `unlock_and_close` or the end of the process, however it ends.
    """
    try:
        if OPEN_FILES_STAY:
            os.lseek(descriptor, 0, os.SEEK_SET)  # what is locked is one byte from here on, there or not
            _windows.locking(descriptor, _windows.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_ELSEWHERE:
            return False
        raise
    return True


def lock(descriptor: int) -> None:
    """As `try_lock`, but waits until the other one lets go."""
    if not OPEN_FILES_STAY:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while not try_lock(descriptor):
        Event().wait(_PAUSE)


def unlock_and_close(descriptor: int) -> None:
    """Lets go of a locked file. Closing alone would do, but Windows may then take its time."""
    try:
        if OPEN_FILES_STAY:
            os.lseek(descriptor, 0, os.SEEK_SET)
            _windows.locking(descriptor, _windows.LK_UNLCK, 1)
    finally:
        os.close(descriptor)


def patiently(call: Callable[..., None], *arguments: Any) -> None:
    """`os.rename` or `os.unlink`; on Windows tried for five seconds where it is refused.

    Virus scanners and indexers open for a moment what was just written, and that moment is when it gets its name.
    """
    for _ in range(_TRIES if OPEN_FILES_STAY else 0):
        try:
            return call(*arguments)
        except PermissionError:
            Event().wait(_PAUSE)
    return call(*arguments)
