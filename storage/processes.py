"""Whether a process is still the same one: process numbers are reused, start times are not."""

from __future__ import annotations

from pathlib import Path

# Characters before the state field: "pid (name) state ..."; names may hold spaces and brackets.
_STATE, _START_TIME = 0, 19
_GONE = frozenset({"Z", "X", "x"})


def process_mark(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Text that distinguishes this process from a later one with its number.

    On Linux boot identifier and start time in clock ticks; elsewhere the start time reported by psutil. (On Linux
    psutil's start time moves when the clock is set.) None if the process is gone or a zombie.
    """
    try:
        stat = (proc / str(pid) / "stat").read_text("utf-8", "surrogateescape")
        boot = (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return _start(pid)
    # The name is the only field with brackets; the text after its last one is plain (proc(5), fields 3 and 22).
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _START_TIME or fields[_STATE] in _GONE:
        return None
    return f"{boot}:{fields[_START_TIME]}"


def _start(pid: int) -> str | None:
    import psutil  # takes a tenth of a second; not needed on Linux

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.Error:
        return None


def still_runs(pid: int, mark: str | None, proc: Path = Path("/proc")) -> bool:
    """Whether the process that had this mark is alive.

    Args:
        mark: from `process_mark` when it was started; None to check the number alone.
    """
    now = process_mark(pid, proc)
    return now is not None and (mark is None or mark == now)
