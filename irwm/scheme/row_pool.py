"""Which embedding rows may carry the mark or give the invariant.

Special, unused, duplicate and near-zero rows are left out: fine-tuning rewrites them, trimming drops them, and a zero
row has no rank. The others are roughly ordered by frequency of use: BPE merges, WordPiece and SentencePiece
vocabularies are written in that order. Query and reference tokens come from the first quarter, so that an attacker who
trims them harms the model most. Marked rows come from all but the first eighth: a tied model's row is also a row of its
output head, and marking one that every sentence uses costs several percent of perplexity. If they came only from the
last three quarters, they would be easier to flatten: that costs an attacker little and would remove all marked rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, special_token_ids
from irwm.errors import CorruptCheckpointError, ParameterError

# A trained row below a tenth of the median length is left from initialisation or was pruned.
NEAR_ZERO_SHARE = 0.1
# Training never makes a row a thousand times as long as the median row. A row of that length was planted so that every
# mean and every fit that includes it fails.
ABSURD_LENGTH = 1000.0
# Share of the usable rows, in id order, that counts as frequent; for A at least four times the number drawn.
FREQUENT_SHARE = 0.25
FREQUENT_FACTOR = 4
# Share of the usable rows, the first in id order, that are never marked.
UNMARKED_SHARE = 0.125
_ROWS_PER_READ, _ROWS_AT_ONCE = 512, 128
# Lengths between which a sum of squares keeps float32's precision.
SMALLEST_BY_FLOAT32, LARGEST_BY_FLOAT32 = 1e-15, 1e15


@dataclass(frozen=True, slots=True)
class RowPool:
    """Usable rows of an embedding.

    Attributes:
        size: s, all rows.
        excluded: half-open id ranges (start, stop) that are not used, ascending.
    """

    size: int
    excluded: tuple[tuple[int, int], ...]

    def usable(self) -> NDArray[np.int64]:
        """Ascending ids of the usable rows."""
        keep = np.ones(self.size, dtype=bool)
        for start, stop in self.excluded:
            keep[start:stop] = False
        return np.flatnonzero(keep)

    def frequent(self, needed: int) -> NDArray[np.int64]:
        """The frequent part of the usable rows, large enough to draw `needed` tokens."""
        usable = self.usable()
        share = max(FREQUENT_FACTOR * needed, int(FREQUENT_SHARE * usable.size))
        return usable[: min(share, usable.size)]

    def markable(self, taken: NDArray[np.int64]) -> NDArray[np.int64]:
        """The usable rows after the most frequent eighth, ascending, except `taken`."""
        usable, free = self.usable(), np.ones(self.size, dtype=bool)
        free[taken] = False
        rest = usable[int(UNMARKED_SHARE * usable.size) :]
        return rest[free[rest]]


@lru_cache(maxsize=4)  # one pass over the embedding is enough for all keys of the same opened model
def row_pool(model: Checkpoint) -> RowPool:
    """The pool of `model`, from its tokenizer's special ids and one streamed pass over its embedding.

    An output head's pool also excludes the rows that the embedding's pool excludes: both contribute rows to A.

    Raises:
        CorruptCheckpointError: the embedding holds NaN or Inf, or rows of an absurd length; the first are listed.
    """
    size = model.vocab_size
    norms = np.empty(size)
    digests = np.empty(size, dtype=np.int64)
    # A random odd multiplier per column: two different rows have the same digest with odds of about 2^-60.
    mixer = torch.randint(-(2**62), 2**62, (model.hidden_size,), generator=torch.Generator().manual_seed(1)) | 1
    factors = mixer.numpy()
    for start, rows in _streamed(model):
        stop = start + len(rows)
        norms[start:stop] = _norms(rows).numpy()
        numbers = rows.view(torch.int32).numpy().astype(np.int64)
        digests[start:stop] = np.einsum("ij,j->i", numbers, factors)
    what = "the embedding" if model.whole is None else "the output head"
    broken = np.flatnonzero(~np.isfinite(norms))
    if broken.size:
        raise CorruptCheckpointError(
            f"{what} contains numbers that are not finite",
            file=model.path,
            tensor=model.layout.embedding.name,
            expected="finite numbers",
            found=f"rows with NaN or infinity: {broken.size} (first: {broken[:5].tolist()})",
            advice="Mark an intact copy of the model",
        )
    median = np.median(norms)
    absurd = np.flatnonzero(norms > ABSURD_LENGTH * median) if median > 0 else broken
    if absurd.size:
        raise CorruptCheckpointError(
            f"{what} contains rows that cannot result from training",
            file=model.path,
            tensor=model.layout.embedding.name,
            expected=f"rows at most {ABSURD_LENGTH:.0f} times as long as the median row",
            found=f"longer rows: {absurd.size} (first: {absurd[:5].tolist()})",
            advice="Use an intact copy of the model",
        )
    keep = norms > NEAR_ZERO_SHARE * median
    _, inverse, copies = np.unique(digests, return_inverse=True, return_counts=True)
    keep &= copies[inverse] == 1
    keep[[i for i in special_token_ids(model) if 0 <= i < size]] = False
    if model.whole is not None:
        usable = np.zeros(size, dtype=bool)
        usable[row_pool(model.whole).usable()] = True
        keep &= usable
    return RowPool(size, ranges(np.flatnonzero(~keep)))


def _streamed(model: Checkpoint) -> Iterator[tuple[int, torch.Tensor]]:
    """Blocks of the embedding's rows, small enough for the cache, each with its first id; a thread reads ahead."""

    def read(start: int) -> torch.Tensor:
        return model.embedding(range(start, min(start + _ROWS_PER_READ, model.vocab_size)))

    with ThreadPoolExecutor(1, "irwm-rows") as reader:
        following = reader.submit(read, 0)
        for start in range(0, model.vocab_size, _ROWS_PER_READ):
            rows = following.result()
            if start + _ROWS_PER_READ < model.vocab_size:
                following = reader.submit(read, start + _ROWS_PER_READ)
            for first in range(0, len(rows), _ROWS_AT_ONCE):
                yield start + first, rows[first : first + _ROWS_AT_ONCE]


def _norms(rows: torch.Tensor) -> torch.Tensor:
    """(n,) lengths; in float64, which takes ten times as long, only if squares may exceed float32's range."""
    norms = rows.norm(dim=1)
    usual = (norms > SMALLEST_BY_FLOAT32) & (norms < LARGEST_BY_FLOAT32)
    lengths: torch.Tensor = norms.double() if usual.all() else rows.double().norm(dim=1)
    return lengths


def ranges(ids: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Ascending ids as half-open ranges."""
    if ids.size == 0:
        return ()
    breaks = np.flatnonzero(np.diff(ids) > 1)
    starts = ids[np.concatenate(([0], breaks + 1))]
    stops = ids[np.concatenate((breaks, [ids.size - 1]))] + 1
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def require(available: int, needed: int, what: str, advice: str) -> None:
    """Raises ParameterError if the pool is smaller than needed."""
    if available < needed:
        raise ParameterError(
            f"the model has too few usable rows for the {what}",
            expected=f"at least {needed} rows",
            found=f"{available} rows",
            advice=advice,
        )


def check_ranges(excluded: Sequence[Sequence[int]], size: int) -> bool:
    """Whether `excluded` is ascending, disjoint and inside [0, size)."""
    edge = 0
    for pair in excluded:
        if len(pair) != 2 or not edge <= pair[0] < pair[1] <= size:
            return False
        edge = pair[1]
    return True
