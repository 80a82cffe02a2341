"""Rows that were read once, kept for the next step that asks for them.

An examination looks at the same rows for several reasons: a sample of them to align, the key's rows to see that they
stand where the alignment says, and again to read the mark. What it costs on a slow disk is then each row once.
"""

from __future__ import annotations

from threading import Lock

import torch

from irwm.checkpoint.files import open_seen
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import Tensor, TensorEntry

# Bytes that are kept of one tensor: all that a detection looks at in an embedding of 4 096 columns. Beyond them all are
# forgotten, since what asks for more looks at everything once.
MOST_KEPT = 80 << 20


class KeptRows:
    """Rows of one tensor, read through; safe to share between threads."""

    def __init__(self, entry: Tensor) -> None:
        self._entry = entry
        self._lock = Lock()
        height, row_bytes = entry.shape[0], entry.nbytes // max(1, entry.shape[0])
        self._most = min(height, MOST_KEPT // max(1, row_bytes))
        self._places: torch.Tensor | None = None  # of each row among those kept, -1 where it is not
        self._rows: torch.Tensor | None = None
        self._count = 0

    def __reduce__(self) -> tuple[type[KeptRows], tuple[Tensor]]:
        return KeptRows, (self._entry,)  # another process reads its own

    def read(self, numbers: torch.Tensor) -> torch.Tensor:
        """The rows of these numbers, an int64 tensor within the tensor's height, in the tensor's own dtype.

        Errors as `read_tensor`; that the file is still what it was is looked at also where nothing has to be read.
        """
        if not self._keeps(numbers):
            return read_tensor(self._entry, numbers)
        assert isinstance(self._entry, TensorEntry)
        with self._lock, open_seen(self._entry.file, self._entry.seen):
            return self._through(numbers)

    def _keeps(self, numbers: torch.Tensor) -> bool:
        """Whether rows are worth keeping: few enough, and no stretch of a table that is being read from end to end."""
        count = numbers.numel()
        if not isinstance(self._entry, TensorEntry) or not 0 < count <= self._most:
            return False
        return self._most == self._entry.shape[0] or count == 1 or int(numbers[-1] - numbers[0]) + 1 != count

    def _through(self, numbers: torch.Tensor) -> torch.Tensor:
        if self._places is None:
            self._places = torch.full((self._entry.shape[0],), -1, dtype=torch.int64)
        missing = torch.unique(numbers[self._places[numbers] < 0])
        if self._count + missing.numel() > self._most:
            self._places.fill_(-1)
            self._count, missing = 0, torch.unique(numbers)
        if missing.numel():
            new = read_tensor(self._entry, missing)
            if self._rows is None:  # takes no room until it is written to
                self._rows = torch.empty((self._most, *new.shape[1:]), dtype=new.dtype)
            first, self._count = self._count, self._count + missing.numel()
            self._rows[first : self._count] = new
            self._places[missing] = torch.arange(first, self._count)
        assert self._rows is not None
        return self._rows.index_select(0, self._places[numbers])
