"""What a use case needs from the process that runs it: progress, Stop, a folder, and help with heavy computations."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage.job_files import JobFiles

# Beginnings of steps whose progress is in bytes, in jobs whose other steps count something else.
IN_BYTES = ("Hashing", "Reading the suspect from")


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers for whole suspects.

    Attributes:
        size: tasks that they run at once.
        ended: the error of a task whose worker ended.
    """

    executor: Executor
    size: int
    ended: type[Exception]


class Reports(Protocol):
    """Progress and log of one step of a use case."""

    def progress(self, done: int, total: int, what: str) -> None:
        """Reports progress; may be called as often as needed.

        Args:
            done, total: in the same unit, bytes if bytes are moved; total 0 while unknown.
            what: the step in readable form ("Copying shard 2 of 4"); each new step also goes to the log, so numbers
                that change fast belong in `done`.

        Raises:
            CancelledError: Stop was pressed. Do not catch it: partial output is then removed.
        """

    def log(self, line: str) -> None:
        """Adds a line to the log; the page shows its end."""


class Work(Reports, Protocol):
    """One run of a use case."""

    @property
    def folder(self) -> Path:
        """A private folder for temporary files, removed with the run."""

    @property
    def files(self) -> JobFiles:
        """Sealed files for reports, and for results that are too large for the returned dict."""

    @property
    def language(self) -> str:
        """Of the pages of reports, one of `irwm.language.LANGUAGES`."""

    def cancelled(self) -> bool:
        """Whether Stop was pressed; work that loops without `progress` must check it regularly."""

    def executor(self, size: int, scheduler: str) -> AbstractContextManager[Executor | None]:
        """Processes or a cluster for the scoring of recipients; None if this process should do it.

        Args:
            size: noise coordinates that will be looked up, over all recipients and rows.
            scheduler: address of a Dask scheduler, "" for none.
        """

    def pool(
        self,
        prepare: Callable[..., None],
        args: tuple[object, ...],
        workers: int,
        scheduler: str,
        forget: Callable[[], None],
    ) -> AbstractContextManager[Pool]:
        """Processes, at most one for each core, or the workers of a cluster; `prepare(*args)` is called first in each,
        and `forget()` at the end if it does not end with the pool."""
