"""Whether a process is still the one that it was: process numbers are reused, start times are not."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

# Characters before the state field: "pid (name) state ..."; names may hold spaces and brackets.
_STATE, _START_TIME = 0, 19
_GONE = frozenset({"Z", "X", "x"})
# What Windows' OpenProcess and WaitForSingleObject take and answer.
_SYNCHRONIZE, _QUERY_LIMITED_INFORMATION = 0x0010_0000, 0x1000
_STILL_RUNNING = 0x102


def process_mark(pid: int, proc: Path = Path("/proc")) -> str | None:
    """What tells this process from a later one with its number.

    On Linux boot identifier and start time in clock ticks, on Windows the moment of its start. None when the process
    is gone (a zombie is), or where the system has neither way to ask.
    """
    if hasattr(ctypes, "WinDLL"):
        return _windows_mark(pid, ctypes.WinDLL("kernel32"))
    try:
        stat = (proc / str(pid) / "stat").read_text("utf-8", "surrogateescape")
        boot = (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    # The name is the only field with brackets; what follows its last one is plain (proc(5), fields 3 and 22).
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _START_TIME or fields[_STATE] in _GONE:
        return None
    return f"{boot}:{fields[_START_TIME]}"


def _windows_mark(pid: int, kernel: Any) -> str | None:
    kernel.OpenProcess.restype = ctypes.c_void_p  # without this a handle is cut to 32 bits
    process = ctypes.c_void_p(kernel.OpenProcess(_SYNCHRONIZE | _QUERY_LIMITED_INFORMATION, False, pid))
    if not process:
        return None
    try:
        # An ended process can be opened for as long as anybody, such as its starter, holds a handle of it.
        if kernel.WaitForSingleObject(process, 0) != _STILL_RUNNING:
            return None
        # Created, exited, time in the kernel, time outside: each in steps of 100 ns.
        created, *others = (ctypes.c_uint64() for _ in range(4))
        if not kernel.GetProcessTimes(process, *map(ctypes.byref, (created, *others))):
            return None
        return str(created.value)
    finally:
        kernel.CloseHandle(process)


def can_mark(proc: Path = Path("/proc")) -> bool:
    """Whether `process_mark` can tell anything here."""
    return process_mark(os.getpid(), proc) is not None


def still_runs(pid: int, mark: str | None, proc: Path = Path("/proc")) -> bool:
    """Whether the process that had this mark is alive.

    Args:
        mark: from `process_mark` when it was started; None where that could not be told, and then only the number
            is looked at.
    """
    if can_mark(proc):
        now = process_mark(pid, proc)
        return now is not None and (mark is None or mark == now)
    if not hasattr(os, "killpg"):
        # Where signals are not POSIX's, os.kill(pid, 0) ends the process. Saying "alive" can only delay a label.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
