"""Limits for reading one checkpoint: one folder, total seconds of child processes, total size of headers.

With limits per file only, a folder of two thousand files could take two thousand times as much.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from irwm.checkpoint.files import FileState, for_another_process, open_regular, open_seen
from irwm.checkpoint.formats.parser_child import LIMITS, ParserLimits, run_parser
from irwm.checkpoint.magic import DOWNLOAD_AGAIN
from irwm.checkpoint.platform import elapsed
from irwm.checkpoint.remote.headers import readable_prefixes
from irwm.errors import CheckpointError, CorruptCheckpointError

# Total time of child processes. Each takes a second or two to load torch; the largest real models in such a format have
# about 200 files.
SECONDS = LIMITS.seconds
SECONDS_PER_FILE = 3
MOST_COUNTED_FILES = 200
# Total size of the headers of all files, or of child processes' answers about them. The largest allowed model, with
# half a million tensors, takes half of it.
HEADER_BYTES = 128 * 1024 * 1024


class ReadBudget:
    """One checkpoint that is being read, possibly by several threads.

    Args:
        folder: the resolved folder that its files must be in; None for a file that the user chose.
        files: the number of its weight files.
        clock: seconds that never run backwards.
    """

    def __init__(self, folder: Path | None = None, files: int = 1, *, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self.folder = folder
        self.seconds = SECONDS + SECONDS_PER_FILE * min(files, MOST_COUNTED_FILES)
        self._left = float(self.seconds)
        self._headers = HEADER_BYTES
        self._lock = Lock()

    def take_header(self, path: Path, size: int) -> None:
        """Counts the bytes of a header, or of an answer about one.

        Raises:
            CorruptCheckpointError: the total exceeds the headers of any real model.
        """
        with self._lock:
            self._headers -= size
            left = self._headers
        if left < 0:
            raise CorruptCheckpointError(
                "The headers of the checkpoint's files are implausibly large in total",
                file=path,
                expected=f"at most {HEADER_BYTES} bytes for all headers",
                found=f"{HEADER_BYTES - left} bytes up to and including this file",
                advice=DOWNLOAD_AGAIN,
            )

    def parsed(self, parser: str, path: Path, what: str, seen: FileState) -> dict[str, Any]:
        """The answer of a parser in a child process, see `child.run_parser`.

        Args:
            seen: the file's state, which must be the same afterwards.

        Raises:
            CheckpointChangedError: the file was changed or replaced meanwhile.
            CheckpointError: see `child` and `run_parser`.
        """
        try:
            for readable, is_all in readable_prefixes(parser, path, seen.size):
                try:
                    with self.child(path) as (limits, descriptor):
                        answer = run_parser(parser, path, what, limits, descriptor, self.take_header)
                except CheckpointError:
                    if is_all:
                        raise
                    continue  # the header may be longer than what was fetched of it
                begins = answer.get("data")
                if is_all or (isinstance(begins, int) and begins <= readable):
                    return answer
            raise CorruptCheckpointError(f"The {what}'s header is implausibly large", file=path)
        finally:  # the answer, or the refusal, is valid only for an unchanged file
            with open_seen(path, seen):
                pass

    @contextlib.contextmanager
    def child(self, path: Path) -> Iterator[tuple[ParserLimits, int]]:
        """The limits of a child process that reads this file, and the opened file; its time is counted meanwhile.

        Raises:
            CorruptCheckpointError: the time for this checkpoint is used up.
            NotACheckpointError, CorruptCheckpointError: see `opened`.
        """
        with self._lock:
            left, headers = self._left, self._headers
        if left < 1:
            raise CorruptCheckpointError(
                "Reading the headers of the checkpoint's files took too long",
                file=path,
                expected=f"at most {self.seconds} seconds for all headers",
                advice="Close other programs and try again, or convert the model to safetensors first",
            )
        began = self._clock()
        try:
            with open_regular(path, self.folder) as (opened, _), for_another_process(path, opened) as descriptor:
                yield (
                    replace(LIMITS, seconds=int(min(LIMITS.seconds, left)), output=max(0, min(LIMITS.output, headers))),
                    descriptor,
                )
        finally:
            with self._lock:
                self._left -= self._clock() - began
