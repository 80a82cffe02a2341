"""Sums of recipients' sign patterns over a suspect's differences: one pure task, run here or on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint.matrix import Matrix
from irwm.evidence.differences import Difference
from irwm.scheme.noise import MEAN_SIZE, adds, place_words, placed

# Numbers of a block of differences, 16 MB as float64, and its rows: as float32 they fit into a core's cache.
_BLOCK_NUMBERS, _BLOCK_ROWS = 2 << 20, 128
# Rows of places computed at once, for several recipients if a block has few rows: one call costs as much as 100 rows.
_ROWS_AT_ONCE = 1024
_ROWS_PER_TASK = 8192

Span = tuple[int, int]


class Source(Protocol):
    """Rows that signs are summed over: a suspect's differences from the original, or a gradient."""

    @property
    def model(self) -> Matrix:
        """The original."""

    def read(self, tokens: NDArray[np.int64]) -> Difference:
        """The rows of these tokens (n,), and weights that were chosen without any recipient's signs."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Some recipients over some rows.

    Attributes:
        differences: the source of the rows.
        spans: half-open ranges of token ids.
        stream_keys: the recipients' noise keys; secret, so a task is sent only to trusted workers.
        coordinates: num_noise.
        size: `noise_size` of `Parameters`.
        deviation: sigma_E where noise has that size, else None.
    """

    differences: Source
    spans: tuple[Span, ...]
    stream_keys: tuple[bytes, ...] = field(repr=False)
    coordinates: int
    size: float | str
    deviation: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The result of a task; sums of tasks over other rows may be added.

    Attributes:
        signed: (r,) weighted sum of the difference at the recipient's places, each with the noise's sign there.
        squares: (r,) sum of squares of the terms with an independent random sign: one per place if noise is added, one
            per row if noise overwrites entries with alternating signs. Its root is the deviation of `signed`.
        gauged: (r,) the same sum as `signed`, with gauges as weights.
        whole: the mean of `gauged` for the recipient's own copy.
        rows: rows that were compared.
    """

    signed: NDArray[np.float64]
    squares: NDArray[np.float64]
    gauged: NDArray[np.float64]
    whole: float
    rows: int

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.signed + other.signed,
            self.squares + other.squares,
            self.gauged + other.gauged,
            self.whole + other.whole,
            self.rows + other.rows,
        )

    @property
    def z(self) -> NDArray[np.float64]:
        """(r,) `signed` in units of its deviation; NaN without any difference."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.squares > 0, self.signed / np.sqrt(self.squares), np.nan)

    @property
    def share(self) -> NDArray[np.float64]:
        """(r,) how much of the recipient's noise is there: 1 in their own copy, 1 / c in a mean of c copies."""
        return self.gauged / self.whole if self.whole > 0 else np.full(self.gauged.shape, np.nan)


def score(task: Task) -> Sums:
    """The sums of one task; pure, so that it may run in any process.

    A stream that is indistinguishable from fair coins without the key gives every sign, or the first sign of a
    recipient's noise in each row. So for a recipient whose copy was not used in the suspect the terms of `signed` have
    random signs, for any suspect. The odds depend only on this.
    """
    signed, squares, gauged = (np.zeros(len(task.stream_keys)) for _ in range(3))
    total = Sums(signed, squares, gauged, whole=0.0, rows=0)
    for first, last in blocks(task.spans, task.differences.model.hidden_size):
        total = total + _block(task, first, last)
    return total


def _block(task: Task, first: int, last: int) -> Sums:
    """The sums over the rows from `first` up to `last`."""
    d, count = task.differences.model.hidden_size, len(task.stream_keys)
    difference = task.differences.read(np.arange(first, last))
    flat, n = difference.values.ravel(), last - first
    signed, squares, gauged = np.empty(count), np.empty(count), np.empty(count)
    together = max(1, _ROWS_AT_ONCE // n)
    row_starts = np.tile(np.arange(n) * d, together)[:, None]
    for start in range(0, count, together):
        keys = task.stream_keys[start : start + together]
        words = [place_words(stream_key, first, n, task.coordinates) for stream_key in keys]
        positions, signs = placed(np.concatenate(words), task.coordinates, d, adds=adds(task.size))
        positions += row_starts[: len(positions)]
        found = (flat[positions] * signs).reshape(len(keys), n, -1)
        terms = found.sum(axis=2, dtype=np.float64)
        own = np.square(found, dtype=np.float64).sum(axis=2) if adds(task.size) else np.square(terms)
        here = slice(start, start + len(keys))
        gauged[here] = (terms * difference.gauges).sum(axis=1)
        signed[here] = (terms * difference.weights).sum(axis=1)
        squares[here] = (own * np.square(difference.weights)).sum(axis=1)
    sizes = difference.units * (task.size if isinstance(task.size, float) else MEAN_SIZE)
    if task.deviation is not None:
        sizes = np.where(difference.units > 0, task.deviation, 0.0)
    whole = task.coordinates * float(difference.gauges @ sizes)
    return Sums(signed, squares, gauged, whole, int((difference.units > 0).sum()))


def by_rows(task: Task) -> Iterator[Task]:
    """The task cut into tasks over fewer rows, whose sums add up to its own."""
    for first, last in task.spans:
        for start in range(first, last, _ROWS_PER_TASK):
            yield replace(task, spans=((start, min(start + _ROWS_PER_TASK, last)),))


def blocks(spans: Sequence[Span], d: int) -> Iterator[Span]:
    """The spans cut so that the differences of each fit in memory."""
    step = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // d))
    for first, last in spans:
        for start in range(first, last, step):
            yield start, min(start + step, last)
