"""Protect tasks to be killed: each in a fork of this process, which has imported everything; run by test_kills.

A line of JSON on standard input starts one: "home", "request", "secrets", and when to kill it: "after" ("start",
"partial" or "release": the sign of life to wait for) and "pause", the seconds after it; a pause of null lets it live.
The answer is a line of JSON: the "job", whether it was "killed", and the "seconds" from that sign to its end.

One thread only, as this process's environment sets: a fork keeps no other thread, and a pool of them would hang.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from irwm.errors import IrwmError
from storage.jobs import Jobs
from storage.vault import Vault
from tools.waiting import until
from ui.jobs import task
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import SECRET_NAME
from ui.services.outcomes import error_parts

# Seconds between two checks for a sign of life: the time between the release's name and its record is short.
LOOK_SECONDS = 0.0005


def work(jobs: Jobs, job_id: str, request: dict[str, Any], secrets: dict[str, Any]) -> None:
    """Runs a job's process (`ui.jobs.child`), from its message to its last row."""
    reporter = JobReporter(jobs, job_id)
    try:
        result = task.run("protect", request, secrets, reporter)
    except IrwmError as error:
        jobs.finish(job_id, "failed", error=error_parts(error))
        return
    reporter.flush()
    jobs.finish(job_id, "done", result=result)


def trial(home: str, request: dict[str, Any], secrets: dict[str, Any], after: str, pause: float | None) -> Any:
    vault = Vault.take_over(Path(home), bytes.fromhex(secrets[SECRET_NAME]))
    jobs = Jobs(Path(home)).opened(vault.jobs_keys_to_seal())
    job_id = jobs.create("protect", "To be killed", request).id
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(told, 1)
            work(jobs, job_id, request, secrets)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(9)
    # As `ui.jobs.runner` does: the row says whose the job is before the task begins, and before it can be killed.
    jobs.start(job_id, child)
    os.write(tell, b".")
    for end in (told, tell):
        os.close(end)
    out = request["out"]
    sign = {"start": None, "partial": f"{out}.partial", "release": out}[after]

    def is_there() -> bool:
        if sign is None or os.path.lexists(sign):
            return True
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            raise SystemExit(f"the task ended with {status} before {sign} was there")
        return False

    until(is_there, f"{sign} to exist", longest_pause=LOOK_SECONDS)
    began = time.monotonic()
    if pause is not None:
        # A time decides when to kill, so that moments inside system calls and libraries are included. No check depends
        # on which moment it was.
        # Ends early when the child does; SIGCHLD is blocked, so no signal is lost.
        signal.sigtimedwait([signal.SIGCHLD], pause)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    signal.sigtimedwait([signal.SIGCHLD], 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or status == 0, f"the task failed with {status}"
    return {"job": job_id, "killed": killed, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    os.umask(0o077)
    for line in sys.stdin:
        print(json.dumps(trial(**json.loads(line))), flush=True)
