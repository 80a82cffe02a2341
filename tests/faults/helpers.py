"""Shared by the fault tests: running out of disk space or file handles."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from irwm.errors import DiskSpaceError, PublishError


def fill_up(place: Path, left: int) -> None:
    """Leaves `left` bytes free, for real."""
    if os.path.ismount(place):
        (place / "filler").write_bytes(bytes(max(0, shutil.disk_usage(place).free - left)))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (left, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def empty(place: Path) -> None:
    """Undoes `fill_up`."""
    (place / "filler").unlink(missing_ok=True)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def full_disk(place: Path) -> tuple[type[PublishError], ...]:
    return (DiskSpaceError,) if os.path.ismount(place) else (PublishError,)


@contextlib.contextmanager
def all_but(free: int) -> Iterator[None]:
    """Uses up the process's file descriptors except for `free` of them."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(free):
            os.close(spare.pop())
        yield
    finally:
        for descriptor in spare:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def failing(call: str, number: int, after: bool) -> tuple[Callable[..., object], list[object]]:
    """A function of `os` whose call of this number fails, before or after it took effect; and the calls made so far."""
    original, calls = getattr(os, call), []

    def fail(*values: object, **named: object) -> object:
        calls.append(values)
        result = original(*values, **named) if after or len(calls) != number else None
        if len(calls) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return result

    return fail, calls
