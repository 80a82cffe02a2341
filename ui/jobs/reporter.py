"""Progress and log of a running task, for the page."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path

from irwm.errors import CancelledError
from irwm.language import ENGLISH
from storage.errors import StorageBusyError, StorageError, StorageFullError
from storage.job_files import JobFiles
from storage.jobs import Jobs
from ui import preferences
from ui.jobs.executors import executor_for, pool_of
from ui.services.work import Pool

# The page refreshes once a second; five writes in that time give a smooth bar and cost almost nothing.
SECONDS_BETWEEN_WRITES = 0.2


class JobReporter:
    """The `Work` of a use case that runs as a job.

    Attributes:
        folder: the job's own folder, for temporary files; results go into `files`.
        home: the app's folder, for a task that writes to the vault.
        language: of reports, as chosen on the page Settings when the task began.

    The result of `memory`, in bytes, is stored with the progress; 0 for a task that shares its process with others.
    """

    def __init__(
        self,
        jobs: Jobs,
        job_id: str,
        clock: Callable[[], float] = time.monotonic,
        memory: Callable[[], int] = lambda: 0,
    ) -> None:
        self.folder: Path = jobs.folder(job_id)
        self.home: Path = jobs.home
        self.language: str = _language(jobs.home)
        self._jobs = jobs
        self._id = job_id
        self._clock, self._memory = clock, memory
        self._files: JobFiles | None = None
        self._written = float("-inf")
        self._pending: tuple[int, int, str] | None = None
        self._step: str | None = None
        self._stop = threading.Event()

    @property
    def files(self) -> JobFiles:
        """Sealed files for reports, and for results that are too large for the returned dict."""
        if self._files is None:
            self._files = self._jobs.files(self._id)
        return self._files

    def progress(self, done: int, total: int, what: str) -> None:
        """Stores the task's progress, see `Work.progress`."""
        self._pending = (int(done), int(total), what)
        if what != self._step:
            self._step = what
            self.log(what)
            self.flush()  # a page shows results so far when the step changes
        elif self._clock() - self._written >= SECONDS_BETWEEN_WRITES:
            self.flush()
        if self.cancelled():
            raise CancelledError("stopped on request")

    def log(self, line: str) -> None:
        """Adds a line, with the time, to the log; the page shows its end."""
        # On a full disk, the task fails when it writes its results, with a better message than here.
        with contextlib.suppress(StorageError):
            self._jobs.log(self._id, f"{time.strftime('%H:%M:%S', time.gmtime())} {line}")

    def cancelled(self) -> bool:
        """Whether Stop was pressed."""
        return self._stop.is_set()

    def executor(self, size: int, scheduler: str) -> AbstractContextManager[Executor | None]:
        """See `ui.jobs.executors`."""
        return executor_for(size, scheduler, self.cancelled)

    def pool(
        self,
        prepare: Callable[..., None],
        args: tuple[object, ...],
        workers: int,
        scheduler: str,
        forget: Callable[[], None],
    ) -> AbstractContextManager[Pool]:
        """See `ui.jobs.executors`."""
        return pool_of(prepare, args, workers, scheduler, forget)

    def cancel(self) -> None:
        """Records that Stop was pressed; called from the signal handler, so it only sets a flag."""
        self._stop.set()

    def flush(self) -> None:
        """Writes progress that was held back."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        self._written = self._clock()
        try:
            still_ours = self._jobs.progress(self._id, *pending, self._memory())
        except (StorageBusyError, StorageFullError):
            return  # a lost line of progress costs nothing
        if not still_ours:
            self._stop.set()


def _language(home: Path) -> str:
    try:
        return preferences.read(home).language
    except preferences.PreferencesError:  # the page Settings shows the damage
        return ENGLISH
