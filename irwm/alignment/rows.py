"""The rows of an embedding, in units that make their lengths about 1.

A residual stream may be scaled by any factor, 10⁻¹⁵ as well as 10⁶. In units of the typical row, no tolerance in the
following steps depends on the factor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import permutations

# Number of rows used for the typical length, and of compared rows, half of which match columns: a chance column cosine
# is about 1/sqrt(n), 0.02. Fewer long rows are read, SAMPLE_ENTRIES numbers in all; with the fewest it is 0.04.
SAMPLE_ROWS, SAMPLE_ENTRIES, FEWEST_SAMPLED = 4096, 1 << 22, 1024
MOST_PRECISE_COLUMNS = 1024
# The fewest rows that a median row is computed from, and the most numbers beyond them.
FEWEST_IN_MEDIAN, MOST_IN_MEDIAN = 1024, 1 << 22
_ROWS_PER_READ = 8192
# The most entries kept in memory for a search that reads all rows dozens of times.
MOST_HELD = 1 << 27
# Leading coordinates that are stored for longer rows; a search pairs rows by a quarter of them.
HELD_COORDINATES = 384
# Rows used for the directions of the principal components.
MOST_ROWS = 16384
# The seed of the samples that need no key.
PUBLIC = bytes(32)
# Leading coordinates that are stored for all rows of an original.
LEADING_COORDINATES = 256
# Nearest neighbours whose cosines identify a row: fewer are too similar between rows, more are no longer neighbours.
NEIGHBOURS = 24
# Entries of a block of similarities. On a CPU a block stays in the cache, since each entry is read three times; a GPU
# is faster with large blocks.
_BLOCK = {"cpu": 1 << 19, "other": 1 << 26}
# The fewest rows of a block: a product of fewer is slow.
_FEWEST_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one embedding, and values computed from them when first needed.

    Attributes:
        source: the checkpoint.
        length: the unit, the median length of sampled rows; 1 if no row has a length.
        row_constants: whether `level` subtracts each row's mean, for a model that ignores it.
        device: the device of the rows.
        kept: all level rows, (s, d) or (s, k) in other coordinates, zeros where unusable, and (s,) which are usable,
            for a search that reads them many times; None if they are read from the file each time.
    """

    source: Checkpoint
    length: float
    row_constants: bool
    device: str
    kept: tuple[torch.Tensor, torch.Tensor] | None = None

    @classmethod
    def of(cls, source: Checkpoint, row_constants: bool = False, device: str = "cpu") -> Rows:
        """The rows of a checkpoint's embedding, with their unit measured on a sample."""
        sample = source.embedding(draw(source.vocab_size, sample_size(source.hidden_size)), device=device)
        norms = torch.linalg.vector_norm(sample, dim=1, dtype=torch.float64)
        norms = norms[torch.isfinite(norms) & (norms > 0)]
        return cls(source, float(norms.median()) if len(norms) else 1.0, row_constants, device)

    @property
    def count(self) -> int:
        return self.source.vocab_size

    @property
    def width(self) -> int:
        return self.source.hidden_size if self.kept is None else self.kept[0].shape[1]

    def read(self, ids: NDArray[np.int64]) -> torch.Tensor:
        """(n, d) float32 rows in units of `length`."""
        return self.source.embedding(ids, device=self.device).div_(self.length)

    def level(self, ids: NDArray[np.int64]) -> torch.Tensor:
        """The same, minus each row's own mean if `row_constants`."""
        if self.kept is not None:
            return self.kept[0][torch.as_tensor(ids, device=self.device)]
        rows = self.read(ids)
        return rows - rows.mean(dim=1, keepdim=True) if self.row_constants else rows

    def project(self, basis: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, k) float32 level rows @ basis, in blocks, 0 if a row is unusable, and (n,) bool which are usable."""
        if self.kept is not None:
            return self.kept[0] @ basis, self.kept[1]
        ids = np.arange(self.count)
        values = torch.zeros(len(ids), basis.shape[1], device=self.device)
        usable = torch.zeros(len(ids), dtype=torch.bool, device=self.device)
        for start in range(0, len(ids), _ROWS_PER_READ):
            rows = self.level(ids[start : start + _ROWS_PER_READ])
            made = rows @ basis
            good = has_direction(rows) & is_finite(made)  # a planted row may be finite while its sums are not
            values[start : start + len(rows)] = made if good.all() else torch.where(good[:, None], made, 0)
            usable[start : start + len(rows)] = good
        return values, usable

    def held(self) -> Rows:
        """The same rows, all in memory. If that would take more than half a gigabyte, only their leading principal
        coordinates are stored, which preserve the angles between rows as far as they contain the variance."""
        if self.kept is not None:
            return self
        if self.count * self.width > MOST_HELD:
            return replace(self, kept=self.project(self.principal_components[:, :HELD_COORDINATES]))
        rows = self.level(np.arange(self.count))
        usable = has_direction(rows)
        return replace(self, kept=(torch.where(usable[:, None], rows, 0), usable))

    @cached_property
    def centre(self) -> torch.Tensor:
        """(d,) float32, the median of sampled level rows."""
        sample = self.level(draw(self.count, sample_size(self.width)))
        return median_row(_with_direction(sample))

    @cached_property
    def principal_components(self) -> torch.Tensor:
        """(d, d) float32, the principal components of a sample of the rows, most varied first."""
        sample = self.level(draw(self.count, MOST_ROWS))
        return principal_components(_with_direction(sample)).flip(1).float()

    @cached_property
    def leading_coordinates(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(s, 256 at most) float32, all rows in their leading principal components, and (s,) bool which are usable."""
        return self.project(self.principal_components[:, :LEADING_COORDINATES])

    @cached_property
    def neighbourhoods(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, 24) the cosines of each row with its nearest other rows, descending, and (n,) bool which rows are usable.

        Rotations and factors do not change them. Planted rows are near only to each other; trimming removes some.
        """
        values = self.level(np.arange(self.count))
        usable = has_direction(values)
        values = torch.where(usable[:, None], values, 0)
        values = values / values.norm(dim=1, keepdim=True).clamp_min(1e-12)
        count = min(NEIGHBOURS, max(1, len(values) - 1))
        found = torch.zeros(len(values), count, device=values.device)
        step = rows_at_once(len(values), values.device)
        for start in range(0, len(values), step):
            block = values[start : start + step] @ values.T
            block.diagonal(offset=start).fill_(-2.0)  # not itself
            found[start : start + step] = block.topk(count, dim=1).values
        return found, usable


class OriginalRows:
    """The rows of the original `model` on `device`, with and without each row's own mean, cached for all its
    suspects."""

    def __init__(self, model: Checkpoint, device: str = "cpu") -> None:
        self.model, self.device = model, device
        self._rows: dict[bool, Rows] = {}

    def rows(self, row_constants: bool) -> Rows:
        if row_constants not in self._rows:
            self._rows[row_constants] = Rows.of(self.model, row_constants, self.device)
        return self._rows[row_constants]


def sample_size(width: int) -> int:
    """How many rows a sample of this width has."""
    return min(SAMPLE_ROWS, max(FEWEST_SAMPLED, SAMPLE_ENTRIES // width))


def draw(count: int, wanted: int, secret: bytes = PUBLIC) -> NDArray[np.int64]:
    """Ascending numbers below `count`, at most `wanted`; always the same, so that equal files give equal results.

    An attacker may corrupt the rows of a public sample, of unused tokens, at no cost. The attacker does not know the
    rows of a sample that is derived from a `secret`.
    """
    if count <= wanted:
        return np.arange(count)
    order = permutations(derive(secret, b"irwm", b"irwm/v1/alignment-sample"), 1, count)[0]
    return np.sort(order[:wanted])


def rows_at_once(width: int, device: torch.device) -> int:
    """The number of rows of similarities to `width` others that are in memory at once."""
    return max(_FEWEST_AT_ONCE, _BLOCK["cpu" if device.type == "cpu" else "other"] // width)


def has_direction(rows: torch.Tensor) -> torch.Tensor:
    """(n,) bool: finite rows that are not constant, as pruning may leave them."""
    return is_finite(rows) & (rows.amax(dim=1) > rows.amin(dim=1))


def _with_direction(rows: torch.Tensor) -> torch.Tensor:
    good = has_direction(rows)
    return rows if good.all() else rows[good]  # copying all rows takes as long as the work on them


def is_finite(rows: torch.Tensor) -> torch.Tensor:
    """(n,) bool: rows without NaN or Inf, found by their extremes, which is ten times as fast."""
    return torch.isfinite(rows.amax(dim=1)) & torch.isfinite(rows.amin(dim=1))


def median_row(rows: torch.Tensor) -> torch.Tensor:
    """(d,) the (lower) median of every column of rows (n, d), n at least 1, of finite numbers. From millions of numbers
    only some rows are used, since a thousand rows give a median to 4% of a deviation."""
    rows = rows[:: max(1, len(rows) // max(FEWEST_IN_MEDIAN, MOST_IN_MEDIAN // rows.shape[1]))]
    if rows.device.type != "cpu":
        return rows.median(dim=0).values
    # Selection within contiguous columns takes a third of the time.
    middle = (len(rows) - 1) // 2
    return torch.from_numpy(np.partition(rows.T.contiguous().numpy(), middle, axis=1)[:, middle].copy())


def working_dtype(d: int) -> torch.dtype:
    """float64 if it is cheap; at d = 4096, float32 halves time and memory and leaves four digits."""
    return torch.float64 if d <= MOST_PRECISE_COLUMNS else torch.float32


def principal_components(rows: torch.Tensor) -> torch.Tensor:
    """(d, d) orthonormal directions of the rows (n, d), by ascending variance.

    Each row is used with unit length about the median row, so that a few planted long ones do not decide the
    directions.
    """
    if not len(rows):
        return torch.eye(rows.shape[1], device=rows.device)
    deviations = rows - median_row(rows)
    deviations /= deviations.norm(dim=1, keepdim=True).clamp_min(1e-12)  # in place: it is a quarter of a gigabyte
    deviations = deviations.to(working_dtype(rows.shape[1]))
    vectors: torch.Tensor
    _, vectors = torch.linalg.eigh(deviations.T @ deviations)
    return vectors
