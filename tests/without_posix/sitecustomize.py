"""On a process's PYTHONPATH: makes what this app uses of Python and the disk behave as on Windows, as far as known.

Removed: modules and names that Windows' Python lacks, and /proc. Replaced, on top of the real system:
`os.O_BINARY`; filelock and psutil act as Windows' locks and processes. Made as strict as there: an open file can be
neither removed nor renamed, nor can a folder that holds one; a rename never overwrites; a folder cannot be opened;
`os.kill` kills with any signal; our own modules must open files as binary or name an encoding.

`os.name` and `sys.platform` stay what they are, since the libraries here are built for this system.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # like every unused import here: it uses os.name or fcntl to choose POSIX
import builtins
import contextlib
import errno
import io
import multiprocessing.util  # noqa: F401
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock  # noqa: F401
import platformdirs  # noqa: F401
import psutil

OURS = ("irwm", "storage", "ui", "app", "__main__")
real = types.SimpleNamespace(
    **{name: getattr(os, name) for name in ("kill", "listdir", "lseek", "lstat", "open", "readlink", "rename")},
    **{name: getattr(os, name) for name in ("replace", "rmdir", "stat", "unlink")},
    file=open,
)


def refused(path: object) -> PermissionError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def caller() -> str:
    """Top-level package of the nearest frame that is neither this file nor pathlib."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") in (__name__, "pathlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).split(".")[0]


# Names


for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None  # type: ignore[assignment]
KEPT_FLAGS = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_APPEND", "O_CREAT", "O_EXCL", "O_TRUNC"}
ABSENT = {
    os: {name for name in dir(os) if name.startswith(("O_", "sched_", "posix_", "getpg", "setpg"))} - KEPT_FLAGS
    | {"killpg", "getuid", "geteuid", "getgid", "getegid", "getsid", "setsid", "pread", "preadv", "pwrite", "pwritev"}
    | {"readv", "writev", "chown", "lchown", "fchown", "fchmod", "fchdir", "mkfifo", "mknod"}
    | {"fdatasync", "sync", "nice", "fork", "forkpty", "getloadavg", "chroot", "wait", "wait3", "wait4"},
    signal: {"SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGSTOP", "SIGCONT"},
    time: {name for name in dir(time) if name.startswith(("CLOCK_", "clock_", "pthread_"))},
}
for module, names in ABSENT.items():
    for name in names & set(dir(module)):
        delattr(module, name)
os.O_BINARY = 1 << 28  # type: ignore[attr-defined]
shutil._use_fd_functions = False  # type: ignore[attr-defined]
tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # type: ignore[misc]
subprocess.CREATE_NEW_PROCESS_GROUP, subprocess.CREATE_NO_WINDOW = 0x200, 0x0800_0000  # type: ignore[attr-defined]


# Files


def is_proc(path: object) -> bool:
    return isinstance(path, str | Path) and str(path).startswith("/proc")


def checked_stat(call: Any) -> Any:
    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if is_proc(path) and caller() in OURS:
            raise FileNotFoundError(errno.ENOENT, "no /proc here", str(path))
        return call(path, *args, **kwargs)

    return stat


def os_open(path: Any, flags: int, mode: int = 0o777) -> int:
    if not flags & os.O_BINARY and caller() in OURS and path != os.devnull:
        raise AssertionError(f"{path} is opened for text, in which Windows changes line ends")
    if os.path.isdir(path):
        raise refused(path)
    return real.open(path, flags & ~os.O_BINARY, mode)


def file_open(
    file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, *args: Any, **kw: Any
) -> Any:
    if is_proc(file) and caller() in OURS:  # psutil may: it replaces Windows' own calls
        raise FileNotFoundError(errno.ENOENT, "no /proc here", str(file))
    if "b" not in mode and encoding in (None, "locale") and caller() in OURS:
        raise AssertionError(f"{file} is opened without an encoding, which Windows takes for cp1252")
    return real.file(file, mode, buffering, encoding, *args, **kw)


def open_files() -> Iterator[str]:
    """Paths of all files that any process has open."""
    for pid in filter(str.isdigit, real.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended since
            for number in real.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):  # closed since
                    yield real.readlink(f"/proc/{pid}/fd/{number}")


def require_closed(path: Any) -> None:
    """Raises if a process has the file open, or one below it."""
    place = os.path.join(os.path.realpath(os.path.dirname(os.fspath(path)) or "."), os.path.basename(os.fspath(path)))
    if any(name == place or name.startswith(place + "/") for name in open_files()):
        raise refused(path)


def removing(call: Any) -> Any:
    def remove(path: Any) -> None:
        require_closed(path)
        call(path)

    return remove


def rename(source: Any, target: Any) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    require_closed(source)
    real.rename(source, target)


def replace(source: Any, target: Any) -> None:
    if os.path.isdir(target):
        raise refused(target)
    require_closed(source)
    require_closed(target)
    real.replace(source, target)


os.stat, os.lstat = checked_stat(real.stat), checked_stat(real.lstat)
os.open, os.rename, os.replace = os_open, rename, replace  # type: ignore[assignment]
os.unlink = os.remove = removing(real.unlink)
os.rmdir = removing(real.rmdir)
builtins.open = io.open = file_open  # type: ignore[assignment]


# Processes


def kill(pid: int, number: int) -> None:
    real.kill(pid, 9)


def end_process(self: Any) -> None:
    if self.poll() is None:
        real.kill(self.pid, 9)


start_process = subprocess.Popen.__init__


def start_without_flags(self: Any, *args: Any, creationflags: int = 0, **kwargs: Any) -> None:
    start_process(self, *args, **kwargs)


os.kill = kill
psutil.Process.kill = lambda self: real.kill(self.pid, 9)
subprocess.Popen.terminate = subprocess.Popen.kill = end_process  # type: ignore[method-assign]
subprocess.Popen.__init__ = start_without_flags  # type: ignore[method-assign]

if more := os.environ.get("WITHOUT_POSIX_THEN"):  # another sitecustomize, because a process can have only one
    exec(compile(Path(more).read_text("utf-8"), more, "exec"), {"__name__": "more"})
