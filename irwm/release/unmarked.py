"""Unmarked copies of a marked matrix, which a release must not contain.

Anyone who copies one over the marked matrix removes the mark and the fingerprint. Two checks search for them. Before
any file is written, every stored tensor is compared with the matrix by value, in any number format, under any name,
with padded rows or transposed. While the release is written, its bytes are searched for rows that the mark replaces,
which also finds a matrix in a file that is not a weights file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.checkpoint.dtypes import TORCH
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import PackedTensor, Tensor, TensorEntry
from irwm.errors import UnmarkedCopyError, printable

# Number of compared rows, and of columns of a transposed matrix.
SAMPLE = 64
# With less than this share of the matrix's rows, a tensor is too small to replace it.
LEAST_SHARE = 0.5
# Rows count as the same if their cosine is at least this. int4 codes reach .99; rows of other
# matrices stay below .5 in models with 64 columns and more.
LEAST_COSINE = 0.9
# Formats whose numbers are proportional to the row's, scales or not.
COMPARED = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8")
PLAIN = ("F64", "F32", "F16", "BF16")
ROWS_PER_READ = 8192
# The plain formats in which a row is searched for, and the number of its bytes used.
SEARCHED = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SEARCHED_BYTES = 1024
# Number of rows that are searched for. A copy of the matrix contains all of them; several rows also find a part of it.
SEARCHED_ROWS = 8
# Number of bytes that are looked up at once, and the maximum number of hits in a piece.
WORD, MOST_HITS = 8, 64
ADVICE = "Remove this tensor if the model does not use it, or save the model again with save_pretrained"
# A head that was trained starting from the embedding is close to it, and is a matrix of the model.
ADVICE_HEAD = "Mark the output head as well (using the setting `places`), or save it in the embedding's number format"


def require_no_unmarked_copy(matrix: Checkpoint, marked: Collection[str]) -> None:
    """Rejects a model in which a tensor would keep a marked matrix's original values.

    Args:
        matrix: the original with the matrix in the embedding's place: itself, or its `output_head`.
        marked: names of the tensors that the release changes.

    Raises:
        UnmarkedCopyError: names the first such tensor and its file.
    """
    ids, head = _sample(matrix.vocab_size), matrix.layout.head
    rows = matrix.embedding(ids)
    for tensor in matrix.tensors.values():
        if tensor.name not in marked and any(_same(rows, ids, *view) for view in _views(tensor, matrix)):
            raise UnmarkedCopyError(
                "A tensor contains the values of a marked matrix and would stay unmarked",
                file=tensor.file,
                tensor=printable(tensor.name, 200),
                expected="no second copy of this matrix in another shape or number format",
                found=f"{tensor.dtype} {tensor.shape} with the values of {matrix.layout.embedding.name}",
                advice=ADVICE_HEAD if head is not None and tensor.name == head.name else ADVICE,
            )


def _sample(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64))


def _views(tensor: Tensor, matrix: Checkpoint) -> Iterator[tuple[Tensor, bool]]:
    """The tensor as a matrix with the given number of columns, and as many rows (transposed: true)."""
    width, least = matrix.hidden_size, LEAST_SHARE * matrix.vocab_size
    size = math.prod(tensor.shape)
    if not tensor.shape or size % width or size // width < least:
        return
    height = size // width
    if isinstance(tensor, PackedTensor):
        if tensor.shape == (height, width):
            yield tensor, False
        if tensor.shape == (width, height):
            yield tensor, True
    elif tensor.dtype in COMPARED:
        yield replace(tensor, shape=(height, width)), False
        yield replace(tensor, shape=(width, height)), True


def _same(rows: torch.Tensor, ids: NDArray[np.int64], tensor: Tensor, transposed: bool) -> bool:
    """Whether most of the sampled rows (n, d) are the tensor's rows, or its columns, of the same numbers."""
    height = tensor.shape[1] if transposed else tensor.shape[0]
    there = ids[ids < height]
    if transposed:
        columns = min(SAMPLE, rows.shape[1])
        found, wanted = read_tensor(tensor, slice(0, columns)).float()[:, there].T, rows[: len(there), :columns]
    else:
        found, wanted = read_tensor(tensor, there).float(), rows[: len(there)]
    # In many models, the rows of each matrix share a large mean, which differs between matrices.
    found, wanted = found - found.mean(dim=0), wanted - wanted.mean(dim=0)
    cosines = torch.nn.functional.cosine_similarity(found.double(), wanted.double(), dim=1)
    return bool((cosines > LEAST_COSINE).float().mean() > LEAST_SHARE)


def holders(matrix: Checkpoint, row_ids: NDArray[np.int64] | None, places: Iterable[Checkpoint]) -> list[str]:
    """Names of the tensors that hold a marked matrix with the same values in a plain format; the matrix's own first.

    They are marked together with it, each in its own number format. Two tensors have the same values if converting one
    to the number format of the other gives the other.

    Args:
        matrix: the original with the matrix in the embedding's place: itself, or its `output_head`.
        row_ids: the rows to change, which are compared; None for all rows.
        places: all marked matrices, including this one. The others have another mark, and are not holders.
    """
    own, shape = matrix.layout.embedding.name, (matrix.vocab_size, matrix.hidden_size)
    apart = {place.layout.embedding.name for place in places}
    names, sample = [own], _sample(matrix.vocab_size)
    for tensor in matrix.tensors.values():
        plain = isinstance(tensor, TensorEntry) and tensor.dtype in PLAIN
        if tensor.name not in apart and plain and tensor.shape == shape and _equal(matrix, tensor, [sample]):
            ids = np.arange(matrix.vocab_size) if row_ids is None else row_ids
            if _equal(matrix, tensor, np.array_split(ids, -(-len(ids) // ROWS_PER_READ))):
                names.append(tensor.name)
    return names


def _equal(matrix: Checkpoint, tensor: Tensor, blocks: Iterable[NDArray[np.int64]]) -> bool:
    own = TORCH[matrix.tensors[matrix.layout.embedding.name].dtype]
    for ids in blocks:
        here, there = matrix.embedding(ids).to(own), read_tensor(tensor, ids)
        if not torch.equal(here.to(there.dtype), there) and not torch.equal(there.to(own), here):
            return False
    return True


class RowSearch:
    """Searches files, piece by piece, for original rows in every plain number format.

    Among the 8-byte words of a file, one at every (L - 7)th byte is looked up in the words of all rows. A row of L
    bytes always contains one of these.

    Args:
        rows: (n, d) float32, rows of the original that no file of the release may contain.
        columns: (n,) a coordinate in which each row changes. A part of the row around it is searched for, because the
            rest may be the same in the release.
    """

    def __init__(self, rows: torch.Tensor, columns: Sequence[int]) -> None:
        self._needles: list[bytes] = []
        for row, column in zip(rows, columns, strict=True):
            for dtype in SEARCHED:
                part = row[_around(column, len(row), dtype)].to(dtype)
                needle = part.contiguous().view(torch.uint8).numpy().tobytes()
                # With too few different bytes, as in an almost empty row, a row would be found anywhere.
                if len(needle) >= 32 and len(set(needle)) >= 16:
                    self._needles.append(needle)
        self._stride = min(map(len, self._needles), default=SEARCHED_BYTES) - WORD + 1
        words = [_words(needle, len(needle), 1) for needle in self._needles]
        self._words = np.unique(np.concatenate(words)) if words else np.empty(0, np.uint64)
        self._longest = max(map(len, self._needles), default=1)
        self._end = b""

    def check(self, piece: bytearray, size: int, first: bool, file: Path) -> None:
        """Searches the next piece of a file.

        Args:
            piece, size: the bytes, of which the first `size` are used.
            first: whether the file begins with them.
            file: the original's file, which an error names.

        Raises:
            UnmarkedCopyError: they hold one of the rows.
        """
        seam = (b"" if first else self._end) + piece[: min(size, self._longest - 1)]
        if self._holds(seam, 0, len(seam)) or any(self._holds(piece, *place) for place in self._places(piece, size)):
            raise UnmarkedCopyError(
                "A file in the release would contain unmarked rows of the original",
                file=file,
                expected="no row of the original that the mark replaces",
                found="one of these rows",
                advice="Remove this file from the original's folder, or save the model again with save_pretrained",
            )
        self._end = bytes(piece[max(0, size - self._longest + 1) : size])

    def _holds(self, piece: bytes | bytearray, begin: int, end: int) -> bool:
        return any(piece.find(needle, begin, end) >= 0 for needle in self._needles)

    def _places(self, piece: bytearray, size: int) -> Iterator[tuple[int, int]]:
        """Start and end of each part of the piece that may contain a row."""
        if size < WORD or not len(self._words):
            return
        words = _words(piece, size, self._stride)
        at = np.searchsorted(self._words, words).clip(max=len(self._words) - 1)
        hits = np.flatnonzero(self._words[at] == words) * self._stride
        if len(hits) > MOST_HITS:  # for example if a row and the file repeat the same bytes
            yield 0, size
            return
        for hit in hits.tolist():
            yield max(0, hit - self._longest), min(size, hit + self._longest)


def _words(data: bytes | bytearray, size: int, stride: int) -> NDArray[np.uint64]:
    """The words of 8 bytes that begin at every `stride`-th of the first `size` bytes."""
    count = (size - WORD) // stride + 1
    return np.ndarray((count,), np.dtype("<u8"), buffer=data, strides=(stride,)).astype(np.uint64)


def _around(column: int, width: int, dtype: torch.dtype) -> slice:
    """The coordinates around a column whose numbers take `SEARCHED_BYTES`; those of a longer dtype are within them."""
    size = SEARCHED_BYTES // dtype.itemsize
    start = max(0, min(column - size // 2, width - size))
    return slice(start, start + size)


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """The rows of a matrix that a mark replaces.

    Attributes:
        matrix: the original with the matrix in the embedding's place.
        ids: (l,) the rows.
        marked: (l, d) their new values.
        everywhere: noise changes all other rows too.
    """

    matrix: Checkpoint
    ids: NDArray[np.int64]
    marked: torch.Tensor
    everywhere: bool


def searched_for(marks: Sequence[ChangedRows]) -> RowSearch:
    """A search for original rows that no file of the release may contain: some that a mark replaces, per matrix."""
    rows, columns = [], []
    for mark in marks:
        originals = mark.matrix.embedding(mark.ids)
        changed = (mark.marked.to(originals) - originals).abs().argmax(dim=1).tolist()
        parts = [_around(column, originals.shape[1], SEARCHED[0]) for column in changed]
        gone = np.ones(len(changed), dtype=bool)
        for other in marks:
            # A head that began as a copy of the embedding keeps the rows that only the embedding's mark replaces.
            if other is not mark and not other.everywhere:
                theirs = other.matrix.embedding(mark.ids)
                differs = [not torch.equal(theirs[i, part], originals[i, part]) for i, part in enumerate(parts)]
                gone &= differs | np.isin(mark.ids, other.ids)
        places = np.flatnonzero(gone)
        chosen = places[:: max(1, len(places) // SEARCHED_ROWS)][:SEARCHED_ROWS]
        rows.append(originals[chosen])
        columns += [changed[i] for i in chosen]
    return RowSearch(torch.cat(rows), columns)
