"""Reads a tensor, or only some of its rows, without reading the bytes in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint.dtypes import BLOCK_FORMATS, TORCH, dequantised
from irwm.checkpoint.files import announce, open_seen, read_into
from irwm.checkpoint.tensors import ROWS, PackedTensor, Tensor, TensorEntry
from irwm.errors import CheckpointError, DeviceMemoryError, RowIndexError, UnsupportedCheckpointError, lacks_memory

# Bytes that are cached per tensor: all that a detection reads from an embedding of 4 096 columns. When there are more,
# all are dropped, since code that reads more reads everything once. A tensor of at most `MOST_WHOLE` is kept whole, as
# layer 0's q, which is read for its digest and for its products.
MOST_KEPT, MOST_WHOLE = 56 << 20, 80 << 20
# Selects rows: None for all, a slice, or row numbers in any order with repeats.
Rows = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | slice | None


def row_numbers(rows: Rows, count: int, name: str = "") -> torch.Tensor:
    """The rows selected out of `count`, as an int64 tensor of shape (n,) on the CPU.

    Negative numbers are rejected, not counted from the end: a token id is never negative, so one is a mistake.

    Raises:
        RowIndexError: not a list of whole numbers, or one outside 0 to count - 1.
    """
    if rows is None:
        return torch.arange(count)
    if isinstance(rows, slice):
        rows = range(*rows.indices(count))
    if isinstance(rows, range):  # a million-row range must not become a million Python objects
        rows = torch.arange(rows.start, rows.stop, rows.step) if len(rows) else []
    try:
        # A copy, since an alias of a read-only NumPy array makes torch warn.
        numbers = rows.cpu() if isinstance(rows, torch.Tensor) else torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise RowIndexError("The rows are not a list of whole numbers", tensor=name, found=str(error)) from error
    if numbers.numel() == 0 and numbers.dim() == 1:
        return torch.empty(0, dtype=torch.int64)
    whole = not (numbers.dtype.is_floating_point or numbers.dtype.is_complex or numbers.dtype == torch.bool)
    if numbers.dim() != 1 or not whole:
        raise RowIndexError(
            "The rows are not a list of whole numbers",
            tensor=name,
            expected="a one-dimensional sequence of integers",
            found=f"a {numbers.dim()}-dimensional tensor of {numbers.dtype}",
        )
    numbers = numbers.to(torch.int64)
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if outside.numel():
        raise RowIndexError(
            "A row number is outside the tensor's range",
            tensor=name,
            expected=f"0 to {count - 1}",
            found=f"{int(outside[0])}" + (f" and {outside.numel() - 1} more" if outside.numel() > 1 else ""),
        )
    return numbers


def read_tensor(entry: Tensor, rows: Rows = None, *, public: bool = False) -> torch.Tensor:
    """The tensor, or some of its rows along the first dimension: plain numbers bit for bit, codes as float32.

    Args:
        entry: the tensor, from a header read before.
        rows: None for all; a slice; or row numbers in any order, repeats allowed. Only the bytes of these rows are
            read, each once, and neighbouring rows in one piece.
        public: whether a server may know which rows are read, so that only these are requested. It must not know the
            rows that a key chooses.

    Returns:
        A CPU tensor of the tensor's own dtype, float32 where it is quantised, of shape entry.shape with the first
        dimension replaced by the number of selected rows.

    Raises:
        RowIndexError: a row that the tensor lacks.
        UnsupportedCheckpointError: an unsupported number format.
        CheckpointChangedError: the file changed after its header was read.
        CheckpointError: the machine has too little memory for it.
        DeviceMemoryError: the GPU has too little memory for it.
    """
    with enough_memory(entry):
        return _read(entry, rows, public)


@contextmanager
def enough_memory(entry: Tensor) -> Iterator[None]:
    """Converts a failed allocation in the block to a typed error that names the tensor.

    A header may state far more numbers than a machine can hold, since a file may be sparse.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceMemoryError(
            "The GPU does not have enough memory for the tensor",
            file=entry.file,
            tensor=entry.name,
            expected=f"memory for a tensor of shape {entry.shape}",
            advice="Use the CPU, which is slower",
        ) from error
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise CheckpointError(
            "There is not enough memory to read the tensor",
            file=entry.file,
            tensor=entry.name,
            expected=f"memory for a tensor of shape {entry.shape}",
            advice="Close other programs, or use a machine with more memory",
        ) from error


def _read(entry: Tensor, rows: Rows, public: bool) -> torch.Tensor:
    if isinstance(entry, PackedTensor):
        return _read_packed(entry, rows, public)
    if entry.dtype not in TORCH and entry.dtype not in BLOCK_FORMATS:
        raise UnsupportedCheckpointError(
            f"The number format {entry.dtype} cannot be read",
            file=entry.file,
            tensor=entry.name,
            expected=", ".join(TORCH),
            found=entry.dtype,
            advice="Dequantise the model and save it as float32, float16 or bfloat16",
        )
    if rows is None:
        return _read_runs(entry, [(entry.start, entry.stop)], entry.shape, public)
    if not entry.shape:
        raise RowIndexError("A single number has no rows", file=entry.file, tensor=entry.name)
    wanted = row_numbers(rows, entry.shape[0], entry.name)
    if wanted.numel() == 0:
        return torch.empty((0, *entry.shape[1:]), dtype=TORCH.get(entry.dtype, torch.float32))
    ordered, position = torch.unique(wanted, return_inverse=True)  # sorted
    row_bytes = entry.nbytes // entry.shape[0]
    breaks = torch.nonzero(torch.diff(ordered) != 1).flatten()
    firsts = torch.cat([ordered[:1], ordered[breaks + 1]]).tolist()
    lasts = torch.cat([ordered[breaks], ordered[-1:]]).tolist()
    runs = [
        (entry.start + first * row_bytes, entry.start + (last + 1) * row_bytes)
        for first, last in zip(firsts, lasts, strict=True)
    ]
    values = _read_runs(entry, runs, (ordered.numel(), *entry.shape[1:]), public)
    if ordered.numel() == wanted.numel() and bool((position[1:] > position[:-1]).all()):
        return values
    return values[position]


def _read_packed(tensor: PackedTensor, rows: Rows, public: bool) -> torch.Tensor:
    """A packed weight's rows; only their own bytes are read if the format keeps a row's codes and scales together."""
    if rows is None:
        return tensor.decode({role: _read(entry, None, public) for role, entry in tensor.stored.items()})
    wanted = row_numbers(rows, tensor.shape[0], tensor.name)
    if wanted.numel() == 0:  # decoders never see an empty tensor
        return torch.empty((0, *tensor.shape[1:]))
    if not tensor.by_rows:
        return _read_packed(tensor, None, public)[wanted]
    chosen = {role: wanted if role in tensor.by_rows else None for role in tensor.stored}
    values = {role: _read(entry, chosen[role], public) for role, entry in tensor.stored.items()}
    return tensor.decode({**values, ROWS: wanted})


def _read_runs(entry: TensorEntry, runs: list[tuple[int, int]], shape: tuple[int, ...], public: bool) -> torch.Tensor:
    """The bytes of the given absolute ranges, joined and viewed as a tensor of `shape`."""
    content = torch.empty(sum(stop - start for start, stop in runs), dtype=torch.uint8)
    target = content.numpy().data
    done = 0
    with open_seen(entry.file, entry.seen) as descriptor:
        # Otherwise all of it: the server must not learn which rows are marked.
        announce(entry.file, runs if public else [(entry.start, entry.stop)])
        for start, stop in runs:
            read_into(descriptor, entry.file, start, target[done : done + stop - start])
            done += stop - start
    if entry.dtype in BLOCK_FORMATS:
        return dequantised(content, entry.dtype, shape)
    if entry.dtype == "BOOL":
        return (content != 0).reshape(shape)  # torch bools must be 0 or 1
    return content.view(TORCH[entry.dtype]).reshape(shape)


class RowCache:
    """Reads rows of one tensor and keeps them, so that each is read once; thread-safe.

    An examination reads the same rows for several reasons: a sample for the alignment, the key's rows to check their
    alignment, and the key's rows again to read the mark.
    """

    def __init__(self, entry: Tensor) -> None:
        self._entry = entry
        self._lock = Lock()
        height, row_bytes = entry.shape[0], entry.nbytes // max(1, entry.shape[0])
        self._most = height if entry.nbytes <= MOST_WHOLE else min(height, MOST_KEPT // max(1, row_bytes))
        self._places: torch.Tensor | None = None  # position of each row in the cache, -1 if absent
        self._rows: torch.Tensor | None = None
        self._count = 0

    def __reduce__(self) -> tuple[type[RowCache], tuple[Tensor]]:
        return RowCache, (self._entry,)  # another process has its own cache

    def read(self, numbers: torch.Tensor) -> torch.Tensor:
        """The rows of these numbers, an int64 tensor within the tensor's height, in the tensor's own dtype.

        Raises the errors of `read_tensor`. The file's state is checked even if all rows are cached.
        """
        if not self._keeps(numbers):
            return read_tensor(self._entry, numbers)
        assert isinstance(self._entry, TensorEntry)
        with self._lock, open_seen(self._entry.file, self._entry.seen):
            return self._through(numbers)

    def _keeps(self, numbers: torch.Tensor) -> bool:
        """Whether rows are worth keeping: few enough, and not part of a full read."""
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
            if self._rows is None:  # uses no memory until it is written to
                self._rows = torch.empty((self._most, *new.shape[1:]), dtype=new.dtype)
            first, self._count = self._count, self._count + missing.numel()
            self._rows[first : self._count] = new
            self._places[missing] = torch.arange(first, self._count)
        assert self._rows is not None
        return self._rows.index_select(0, self._places[numbers])
