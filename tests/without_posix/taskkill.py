"""Stands for taskkill.exe: `taskkill /PID number /T /F` ends a process and all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

parents = {}
for stat in Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(OSError):
        parents[int(stat.parent.name)] = int(stat.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
option, pid, *others = sys.argv[1:]
assert (option, others) == ("/PID", ["/T", "/F"])
tree = [int(pid)]
for process in tree:
    tree += [child for child, parent in parents.items() if parent == process]
for process in reversed(tree):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
