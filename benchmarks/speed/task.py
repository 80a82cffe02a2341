"""One measured step in a separate process: `python -m benchmarks.speed.task MODULE NAME JSON`.

Prints one JSON object: the step's result, its wall-clock and processor seconds from the end of the imports to its end,
the process's peak resident memory, and the bytes that it read meanwhile (`rchar` of /proc/PID/io, which includes reads
from the page cache, so a second run shows no less than the first).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.alignment_scale import peak

ROOT = Path(__file__).resolve().parents[2]
_MODULES = "benchmarks.speed"


def measured(
    module: str, name: str, threads: int | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Run the step `name` of `benchmarks.speed.module` in a separate process.

    Args:
        environment: variables to set in addition to this process's environment.

    Returns:
        The step's result, with `seconds`, `cpu`, `started` (seconds from the process's start to the step's start),
        `peak` (bytes) and `read` (bytes).
    """
    began = time.time()
    command = [sys.executable, "-m", f"{_MODULES}.task", module, name, json.dumps(arguments | {"_began": began})]
    environment = os.environ | dict(environment or {})
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def forget(*folders: Path) -> None:
    """Ask the system to drop the folders' files from its page cache."""
    if not hasattr(os, "posix_fadvise"):
        return
    for folder in folders:
        for file in (each for each in folder.rglob("*") if each.is_file()):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _read() -> int | None:
    try:
        return int(Path("/proc/self/io").read_text(encoding="ascii").split("rchar:")[1].split()[0])
    except OSError:
        return None


def main() -> None:
    module, name, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    began = arguments.pop("_began")
    step = importlib.import_module(f"{_MODULES}.{module}").STEPS[name]
    started, before, clock, worked = time.time() - began, _read(), time.perf_counter(), time.process_time()
    said = step(**arguments) or {}
    seconds, cpu, after = time.perf_counter() - clock, time.process_time() - worked, _read()
    read = after - before if after is not None and before is not None else None
    took = {"seconds": seconds, "cpu": cpu, "started": started, "peak": peak(), "read": read}
    print(json.dumps(took | said))


if __name__ == "__main__":
    main()
