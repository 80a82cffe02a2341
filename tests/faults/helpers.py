"""Shared by the fault tests: opening a model that must be refused, and running out of disk space or file handles."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from irwm.checkpoint import open_checkpoint
from irwm.errors import CheckpointError, DiskSpaceError, PublishError


def weights(folder: Path, content: bytes) -> Path:
    """A model folder whose only weight file has the given content."""
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(content)
    return folder


# What happens to a file that is in use, by its path and its content. A file is replaced by one with the same size and
# times.
CHANGES: dict[str, Callable[[Path, bytes], object]] = {
    "replaced": lambda path, content: os.replace(shutil.copy2(path, path.with_name("other")), path),
    "cut": lambda path, content: os.truncate(path, len(content) - 40),
    "longer": lambda path, content: path.write_bytes(content + b"x"),
    "removed": lambda path, content: path.unlink(),
    "touched": lambda path, content: os.utime(path, ns=(0, 12345)),
}


def refused(path: Path, *kinds: type[CheckpointError]) -> CheckpointError:
    """The error of opening `path`; it must name a file and be printable, and opening must not allocate much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(kinds or CheckpointError) as caught:
            open_checkpoint(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024 * 1024
    assert caught.value.file is not None
    assert str(caught.value).isprintable()
    return caught.value


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
