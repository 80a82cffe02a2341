"""What reading one checkpoint may touch and take: one folder, so many seconds of child processes, so much of headers.

Limits that hold for each file alone let a folder of two thousand files take two thousand times as much.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock

from irwm.checkpoint.files import FileState, open_regular
from irwm.checkpoint.formats.child import LIMITS, Limits
from irwm.checkpoint.magic import DOWNLOAD_AGAIN
from irwm.errors import CorruptCheckpointError

# Of child processes, together. Loading torch takes a second or two of each; the largest real models in such a format
# have some 200 files.
SECONDS = LIMITS.seconds
SECONDS_PER_FILE = 3
MOST_COUNTED_FILES = 200
# Of the headers of all files, or what child processes answer about them. The largest that a model may have, of half a
# million tensors, take half of it.
HEADER_BYTES = 128 * 1024 * 1024


def elapsed() -> float:
    """Seconds of the system's clock. On Windows it never advances, and only the limit of each file holds."""
    return os.times().elapsed


class Reading:
    """One checkpoint that is being read, by several threads.

    Args:
        folder: the resolved folder that its files may not lead out of; None for a file that a person named.
        files: of how many weight files it consists.
        clock: seconds that never run backwards.
    """

    def __init__(self, folder: Path | None = None, files: int = 1, *, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self.folder = folder
        self.seconds = SECONDS + SECONDS_PER_FILE * min(files, MOST_COUNTED_FILES)
        self._left = float(self.seconds)
        self._headers = HEADER_BYTES
        self._lock = Lock()

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[tuple[int, FileState]]:
        """As `files.open_regular`, inside the folder."""
        with open_regular(path, self.folder) as found:
            yield found

    def take_header(self, path: Path, size: int) -> None:
        """Counts a header, or an answer about one, of so many bytes.

        Raises:
            CorruptCheckpointError: with it the files' headers are longer than those of any real model.
        """
        with self._lock:
            self._headers -= size
            left = self._headers
        if left < 0:
            raise CorruptCheckpointError(
                "The headers of the checkpoint's files are together longer than those of any real model",
                file=path,
                expected=f"at most {HEADER_BYTES} bytes for all of them",
                found=f"{HEADER_BYTES - left} bytes up to this file",
                advice=DOWNLOAD_AGAIN,
            )

    @contextlib.contextmanager
    def child(self, path: Path) -> Iterator[tuple[Limits, int]]:
        """What a child process may take that reads this file, and the opened file; its time is counted meanwhile.

        Raises:
            CorruptCheckpointError: nothing is left for this checkpoint.
            NotACheckpointError, CorruptCheckpointError: see `opened`.
        """
        with self._lock:
            left, room = self._left, self._headers
        if left < 1:
            raise CorruptCheckpointError(
                "The checkpoint's files kept their readers busy for longer than those of any real model",
                file=path,
                expected=f"{self.seconds} seconds for all of them",
                advice="Close other programs and try again, or convert the model to safetensors first",
            )
        began = self._clock()
        try:
            with self.opened(path) as (descriptor, _):
                yield (
                    replace(LIMITS, seconds=int(min(LIMITS.seconds, left)), output=max(0, min(LIMITS.output, room))),
                    descriptor,
                )
        finally:
            with self._lock:
                self._left -= self._clock() - began
