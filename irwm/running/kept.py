"""A model's outputs put by: exact, and in bounded memory.

Outputs of 4096 tokens over a vocabulary of 128 000 are 2 GB in float32. Half-precision numbers would halve that and
drown what a mark does to a model: rounding a log-probability of -10 to float16 moves it by 0.004, a thousand times the
divergence to be measured. Running the reference again for each model that is compared would hold two models in memory
and take twice the time. So they are kept as they are, and beyond `IN_MEMORY` bytes in an unnamed temporary file.
"""

from __future__ import annotations

import weakref
from tempfile import SpooledTemporaryFile

import torch

IN_MEMORY = 256 * 1024 * 1024


class Kept:
    """float32 tensors (n, width), appended in turn and read by number. The file goes with the object."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - closed by the finalizer
        self._at: list[tuple[int, torch.Size]] = []
        weakref.finalize(self, self._file.close)

    def add(self, outputs: torch.Tensor) -> None:
        """Puts (n, width) by.

        Raises:
            OSError: the temporary folder is full.
        """
        self._file.seek(0, 2)
        self._at.append((self._file.tell(), outputs.shape))
        self._file.write(outputs.to("cpu", torch.float32).contiguous().numpy().tobytes())

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, number: int) -> torch.Tensor:
        """The tensor put by as the `number`th, exactly as it was."""
        start, shape = self._at[number]
        self._file.seek(start)
        content = bytearray(self._file.read(shape.numel() * 4))
        return torch.frombuffer(content, dtype=torch.float32).reshape(shape)
