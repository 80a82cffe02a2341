"""Whether a process is still the one that it was: process numbers are reused, start times are not."""

from __future__ import annotations

import os
from pathlib import Path

# Characters before the state field: "pid (name) state ..."; names may hold spaces and brackets.
_STATE, _START_TIME = 0, 19
_GONE = frozenset({"Z", "X", "x"})


def process_mark(pid: int, proc: Path = Path("/proc")) -> str | None:
    """What tells this process from a later one with its number: boot identifier and start time in clock ticks.

    None when the process is gone (a zombie is), or where there is no /proc to ask.
    """
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


def has_proc(proc: Path = Path("/proc")) -> bool:
    """Whether `process_mark` can tell anything here."""
    return process_mark(os.getpid(), proc) is not None


def still_runs(pid: int, mark: str | None, proc: Path = Path("/proc")) -> bool:
    """Whether the process that had this mark is alive.

    Args:
        mark: from `process_mark` when it was started; None where that could not be told, and then only the number
            is looked at.
    """
    if has_proc(proc):
        now = process_mark(pid, proc)
        return now is not None and (mark is None or mark == now)
    if os.name != "posix":
        # os.kill(pid, 0) ends the process on Windows. Saying "alive" can only delay a label.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
