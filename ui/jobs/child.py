"""The program of a job's process: `python -m ui.jobs.child [JOB_ID]`, started by `ui.jobs.processes`.

The request and the secrets come as one message on standard input: eight bytes of length, big-endian, then JSON.
Standard input is then empty, so nothing that the task starts can read them again. With a job's id, they are read before
anything large is imported. Without one, everything is imported first, and the process waits for whichever job comes; if
none does, standard input is closed and the process ends.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from ui.services.outcomes import error_parts

LENGTH_BYTES = 8
# A list of a few thousand recipients with their keys is a few MiB.
MESSAGE_BYTES = 256 * 1024 * 1024
# Shorter texts may occur in a traceback by chance.
SHORTEST_SECRET = 6
# Seconds between attempts to record a task's end; each attempt also waits for a busy database.
PAUSES = (0.5, 1, 2, 4)


def read_message(stream: BinaryIO) -> tuple[str, dict[str, object], dict[str, str], dict[str, str]]:
    """The home folder, the request, the secrets, and the keys that seal the job's text.

    Raises:
        ValueError: the message is cut short, too long or not in the runner's format.
    """
    head = stream.read(LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    if len(head) != LENGTH_BYTES or length > MESSAGE_BYTES:
        raise ValueError("no message on standard input")
    body = stream.read(length)
    if len(body) != length:
        raise ValueError("the message on standard input is cut short")
    message = json.loads(body)
    return message["home"], message["request"], message["secrets"], message["seal"]


def main(arguments: Sequence[str]) -> int:
    """Runs one job to its end; the exit status is only for the log, the job's row has the result."""
    message = sys.stdin.buffer
    if not arguments:
        with contextlib.suppress(Exception):  # the task itself reports it
            _get_ready()
        assert isinstance(message, io.BufferedReader)
        if not message.peek(1):  # the app has ended
            return 0
    home, request, secrets, seal = read_message(message)
    job_id = seal["job"]
    # Not closed: the next opened file would get number 0, and a library that reads standard input would read that file.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.umask(0o077)

    from pathlib import Path

    from storage.files import open_to_append
    from storage.job_keys import JobKey
    from storage.jobs import Jobs
    from ui.jobs.reporter import JobReporter
    from ui.services.device import memory_in_use

    jobs = Jobs(Path(home)).opened(JobKey(job_id, seal["key"], bytes.fromhex(seal["secret"])))
    # On Windows, the append mode is not inherited, so output of libraries would overwrite lines logged in the meantime.
    log = open_to_append(jobs.log_path(job_id))
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    lane = jobs.line(job_id).lane
    reporter = JobReporter(jobs, job_id, memory=lambda: memory_in_use(lane))
    signal.signal(signal.SIGTERM, lambda *_: reporter.cancel())
    return _run(jobs, job_id, request, secrets, reporter)


def _get_ready() -> None:
    """Imports what a task of any kind uses."""
    import importlib

    from ui.jobs import KINDS
    from ui.jobs import reporter as reporter
    from ui.jobs import task as task

    for kind in KINDS:
        importlib.import_module(f"ui.services.{kind}")


def _run(jobs: Any, job_id: str, request: dict[str, object], secrets: dict[str, str], reporter: Any) -> int:
    from irwm.errors import CancelledError, IrwmError
    from ui.jobs.queue import hours_between

    try:
        kind = jobs.line(job_id).kind
        hours = hours_between(kind, request)
        while hours:
            _rest_after_a_pass(jobs, job_id, kind, request, secrets, reporter, hours)
        result = _result(jobs, job_id, kind, request, secrets, reporter)
    except CancelledError:
        return finish(jobs, job_id, reporter, "stopped")
    except IrwmError as error:
        reporter.log(without(str(error), secrets))
        return finish(jobs, job_id, reporter, "failed", error=error_parts(error))
    except Exception as error:
        for line in without(traceback.format_exc(), secrets).split("\n"):
            reporter.log(line)
        return finish(jobs, job_id, reporter, "failed", error=unexpected(error))
    return finish(jobs, job_id, reporter, "done", result=result)


def _result(
    jobs: Any, job_id: str, kind: str, request: dict[str, object], secrets: dict[str, str], reporter: Any
) -> dict[str, object]:
    from ui.jobs.queue import wait_for_turn

    wait_for_turn(jobs, job_id, reporter)
    # Only now: a waiting process stays small.
    from ui.jobs import task

    return task.run(kind, request, secrets, reporter)


def _rest_after_a_pass(
    jobs: Any,
    job_id: str,
    kind: str,
    request: dict[str, object],
    secrets: dict[str, str],
    reporter: Any,
    hours: float,
) -> None:
    """A pass of a repeated task. An error ends only the pass, since the next one may not have it."""
    from irwm.errors import CancelledError, IrwmError
    from ui.jobs.queue import rest

    result, error = None, None
    try:
        result = _result(jobs, job_id, kind, request, secrets, reporter)
    except CancelledError:
        raise
    except IrwmError as failed:
        reporter.log(without(str(failed), secrets))
        error = error_parts(failed)
    rest(jobs, job_id, reporter, hours, result, error)


def finish(jobs: Any, job_id: str, reporter: Any, state: str, **how: Any) -> int:
    """Records how the task ended, with retries: a published result must not count as failed because its row was busy.

    Returns:
        The process's exit status; also not 0 if the row could not be written, with a note in the log.
    """
    from irwm.errors import IrwmError
    from storage.errors import RecordValueError, StorageBusyError, StorageError, StorageFullError

    with contextlib.suppress(IrwmError):
        reporter.flush()
    for pause in (*PAUSES, None):
        try:
            jobs.finish(job_id, state, **how)
            return 1 if state == "failed" else 0
        except RecordValueError as error:  # a result that is not plain JSON: retries do not help
            reporter.log(f"The task ended ({state}), but its result could not be stored: {error}")
            if "result" not in how:
                return 1
            state, how = "failed", {"error": error_parts(error)}
        except StorageError as error:
            if pause is None or not isinstance(error, (StorageBusyError, StorageFullError)):
                reporter.log(f"The task ended ({state}), but the job list could not be updated: {error}")
                return 1
            time.sleep(pause)
    return 1


def unexpected(error: Exception) -> dict[str, str]:
    """The row's entry for an unexpected error. Its text stays in the log because it may contain anything."""
    if isinstance(error, MemoryError):
        return {
            "type": "MemoryError",
            "problem": "the computer ran out of memory",
            "advice": "close other programs, then try again",
        }
    if type(error).__name__ == "OutOfMemoryError":  # torch's, recognised without importing torch
        return {
            "type": "OutOfMemoryError",
            "problem": "the GPU ran out of memory",
            "advice": "close other programs that use the GPU, or choose the processor (CPU) in the settings; "
            "then try again",
        }
    return {
        "type": type(error).__name__,
        "problem": "an unexpected error ended the task",
        "advice": "finished files were kept; please report the error "
        "(the log on the Jobs page shows where it occurred)",
    }


def without(text: str, secrets: Mapping[str, object]) -> str:
    """The text without any secret value, in case a library put one into its message."""
    for value in _texts(secrets):
        text = text.replace(value, "[secret]")
    return text


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if len(value) >= SHORTEST_SECRET else []
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _texts(item)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
