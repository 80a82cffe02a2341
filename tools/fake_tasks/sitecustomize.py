"""Replaces the tasks "protect" and "investigate" by small ones for the tests, if it is on a job's PYTHONPATH."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any


def protect(request: dict[str, Any], secrets: dict[str, Any], report: Any) -> dict[str, Any]:
    """Run the action in `request["do"]`."""
    from irwm.errors import CorruptCheckpointError

    do = request["do"]
    if do == "fail":
        raise CorruptCheckpointError("a shard is cut short", file="/models/a", tensor="t", expected="8", found="7")
    if do == "crash":
        raise RuntimeError(f"low-level trouble with {secrets['key']}")
    if do == "memory":
        raise MemoryError
    if do == "bad result":
        return {"p": float("nan")}
    if do == "leave":
        sys.exit(7)
    if do == "read stdin":
        return {"rest": sys.stdin.read() if not sys.stdin.closed else "", "secret length": len(secrets["key"])}
    if do == "many":
        for n in range(2000):
            report.progress(n, 2000, "Counting")
            time.sleep(0.0005)
        return {}
    if do == "work":
        # Long enough for a test to watch, lock and stop it, even on a machine that is busy with other tests.
        steps = request.get("steps", 6000)
        total = steps * 4_000_000
        (report.folder / "half").write_text("half")
        try:
            for n in range(1, steps + 1):
                report.progress(n * 4_000_000, total, f"Copying shard {1 + n // 50} of 120")
                time.sleep(0.05)
        finally:
            (report.folder / "half").unlink()
        return {"answer": 42}
    if do == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "300"])
        (report.folder / "grandchild").write_text(str(child.pid))
        report.progress(1, 2, "Not listening")
        report.flush()
        threading.Event().wait()
    raise AssertionError(do)


def run(kind: str, request: dict[str, Any], secrets: dict[str, Any], report: Any) -> dict[str, Any]:
    """Instead of `ui.jobs.task.run`."""
    assert kind in ("protect", "investigate")
    return protect(request, secrets, report)


module = types.ModuleType("ui.jobs.task")
module.run = run  # type: ignore[attr-defined]
sys.modules[module.__name__] = module

__all__ = ["Path"]
