"""Processes for tasks, on the app's side: their environment, and one that is started before it is needed.

Starting Python and importing what a task uses takes seconds, which is most of the time until a small model's verdict.
So the pages start a process when Investigate is opened or a model is chosen, and the next task runs in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from irwm.checkpoint.child_process import module_command, module_environment
from irwm.errors import IrwmError
from ui import offline
from ui.jobs.executors import THREADS, cores
from ui.settings import REPOSITORY

# A task gets its secrets through a pipe; variables that look like other secrets are removed from its environment.
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_?KEY|AUTH", re.IGNORECASE)
# glibc otherwise keeps freed memory apart for each of many threads: a copy of an 8B model took 0.3 GB more.
MEMORY = {"MALLOC_ARENA_MAX": "2"}
# How long a process of about 330 MB waits for a task.
IDLE_SECONDS = 600.0
# A separate console without a window, so that neither Ctrl+C nor closing the app's window ends the task.
_WINDOWS_FLAGS = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)


def environment() -> dict[str, str]:
    """This process's environment without variables that look like secrets, offline and with limited threads."""
    kept = {name: value for name, value in os.environ.items() if not _SECRET_NAME.search(name)}
    streams = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
    # All cores but one, so that the pages stay quick.
    own = dict.fromkeys(THREADS, str(max(1, cores() - 1))) | MEMORY | kept | offline.SWITCHES | streams
    return module_environment(base=own)


def spawn(variables: Mapping[str, str], log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A new process of `ui.jobs.child`, which waits for its message on standard input.

    Args:
        variables: its environment.
        log: a file, to which its output is appended.
        arguments: the job's id, or nothing if the process only gets ready.

    Raises:
        IrwmError: it could not be started.
    """
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                module_command("ui.jobs.child", *arguments),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=REPOSITORY,
                env=variables,
                start_new_session=True,
                creationflags=_WINDOWS_FLAGS,
            )
    except OSError as error:
        raise IrwmError("the task's process could not be started", found=str(error)) from error


class Ready:
    """At most one process that waits for a task, with everything imported; threads may use it at once.

    It ends when it is not used for `idle_seconds`, and with the app: then its standard input is closed.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle = idle_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._variables: dict[str, str] = {}
        self._timer: threading.Timer | None = None

    def prepare(self) -> None:
        """Starts a process if none waits. Errors are left to the task's own start."""
        with self._lock, contextlib.suppress(IrwmError):
            if not self._usable():
                self._end()
                self._variables = environment()
                self._process = spawn(self._variables, Path(os.devnull))
            self._restart_timer()

    def take(self) -> subprocess.Popen[bytes] | None:
        """The process that waits, for one task; None if there is none, or if its environment is no longer ours."""
        with self._lock:
            process = self._process if self._usable() else None
            if process is not None:
                self._process = None
            self._end()
            return process

    def end(self) -> None:
        """Ends the process that waits."""
        with self._lock:
            self._end()

    def _usable(self) -> bool:
        return self._process is not None and self._process.poll() is None and self._variables == environment()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()  # it has nothing to lose
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(self._idle, self.end)
        self._timer.daemon = True
        self._timer.start()
