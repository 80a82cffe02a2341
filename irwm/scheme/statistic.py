"""The statistics of Algorithm 3 and their permutation null.

`sum` and `joint` are lengths of a linear map of the permuted, rescaled row, W e'. `sum` (the paper's line 19) adds the
t equations to one number; `joint` keeps them separate and measures their Mahalanobis length. A small value means that
the equations are satisfied. `difference` uses the change from the original instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.scheme.permutations import NullOrders

STATISTICS = ("joint", "sum", "difference")
# Floats in memory at once while the null is computed: on a CPU 2 MB, of a few coordinates, which stay in the cache
# between the gather that writes them and the product that reads them. A GPU is faster with larger pieces.
_CHUNK_FLOATS = {"cpu": 1 << 18, "other": 32 << 20}
_COORDINATES = 256


def sum_map(permuted: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """(1, d) map of the paper's statistic |sum_j A'_j · e'|, with the last t entries of e' multiplied by scale."""
    total: NDArray[np.float64] = _rescaled(permuted, scale).sum(axis=0, keepdims=True)
    return total


def joint_map(permuted: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """(t, d) map whose output's length is the Mahalanobis length of A' e' under random permutations of e.

    A uniformly random order of e's entries (mean removed) has covariance sigma^2 d/(d-1) (I - 11^T/d), so A' e' has
    C = M (I - 11^T/d) M^T up to the row's own variance, M = A' with the last t columns times scale. The map is
    L^-1 M with C = L L^T. Every equation is then weighted by its information: this is the likelihood-ratio statistic
    for white noise on the entries.
    """
    m = _rescaled(permuted, scale)
    centred = m - m.mean(axis=1, keepdims=True)
    factor = np.linalg.cholesky(centred @ centred.T)
    return np.asarray(np.linalg.solve(factor, m), dtype=np.float64)


def _rescaled(permuted: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    m = permuted.copy()
    m[:, -permuted.shape[0] :] *= scale
    return m


def normalised(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(l, d) rows divided by their permutation deviation, so that null values of different rows are comparable; a
    constant or non-finite row becomes NaN, because its order carries no information."""
    d = rows.shape[1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        deviation = rows.std(axis=1, keepdims=True) * math.sqrt(d / (d - 1))
        varied = np.ptp(rows, axis=1, keepdims=True) > 0
        scaled = rows / np.where(varied & (deviation > 0), deviation, np.nan)
    scaled[~np.isfinite(scaled).all(axis=1)] = np.nan
    return scaled


def lengths(weights: NDArray[np.float64], shuffled: NDArray[np.float64]) -> NDArray[np.float64]:
    """(l,) statistic at the key: the length of W e for rows (l, d) already in the key's order."""
    found: NDArray[np.float64] = np.linalg.norm(weights @ shuffled.T, axis=0)
    return found


def null_lengths(
    weights: NDArray[np.float64], shuffled: NDArray[np.float64], orders: NullOrders, device: str = "cpu"
) -> NDArray[np.float64]:
    """(l, N) statistic under N random orders of each row (Algorithm 3, lines 22 to 30)."""
    return null_lengths_of((weights,), shuffled, orders, device)[0]


def null_lengths_of(
    maps: Sequence[NDArray[np.float64]],
    shuffled: NDArray[np.float64],
    orders: NullOrders,
    device: str = "cpu",
    *,
    single: bool = False,
) -> list[NDArray[np.float64]]:
    """`null_lengths` for several maps of the same rows, whose columns are gathered together.

    Args:
        single: compute in float32, which takes half the time. Each length is then lowered by more than its rounding, so
            that ranks are those of float64 or larger.
    """
    dtype = torch.float32 if single else torch.float64
    null, done = np.empty((len(maps), len(shuffled), len(orders))), 0
    # The map of each output. One matrix product adds up the squares faster than separate sums over ten numbers.
    sums = np.repeat(np.eye(len(maps)), [len(each) for each in maps], axis=0)
    of_map = torch.as_tensor(sums, dtype=dtype, device=device)
    for chunk in null_maps(np.concatenate(maps), orders.apart(shuffled), orders, device, dtype):
        lengths = (chunk.square_() @ of_map).sqrt_()
        null[:, :, done : done + chunk.shape[1]] = lengths.permute(2, 0, 1).cpu().numpy()
        done += chunk.shape[1]
    if single:
        products = np.outer([np.linalg.norm(each) for each in maps], np.linalg.norm(shuffled, axis=1))
        null -= 4 * torch.finfo(dtype).eps * products[:, :, None]
    return list(null)


def null_maps(
    weights: NDArray[np.float64],
    shuffled: NDArray[np.float64],
    orders: NullOrders,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> Iterator[torch.Tensor]:
    """Yield (l, n, r) tensors W (e permuted), n of the shared permutations at a time.

    The map's columns are gathered once per permutation and multiplied with all rows in one matrix product, instead of
    gathering every row for every permutation. In the transposed map they are contiguous, so that a gather copies r
    numbers at once.
    """
    columns = torch.as_tensor(weights, dtype=dtype, device=device).T.contiguous()
    rows = torch.as_tensor(np.nan_to_num(shuffled), dtype=dtype, device=device)
    r, d = weights.shape
    on_cpu = columns.device.type == "cpu"
    height = min(d, _COORDINATES) if on_cpu else d
    step = max(1, _CHUNK_FLOATS["cpu" if on_cpu else "other"] // (r * height))
    parts = [rows[:, first : first + height].contiguous() for first in range(0, d, height)]
    pieces = torch.empty(min(step, len(orders)) * height, r, dtype=dtype, device=device)
    for start in range(0, len(orders), step):
        # Ordered by coordinate and then by permutation, so that one plain product covers all permutations.
        places = torch.as_tensor(orders.places[start : start + step], device=device).T.contiguous()
        outputs = torch.zeros(len(rows), places.shape[1] * r, dtype=dtype, device=device)
        for number, part in enumerate(parts):
            here = places[number * height : (number + 1) * height].flatten()
            gathered = torch.index_select(columns, 0, here, out=pieces[: len(here)])
            outputs.addmm_(part, gathered.view(part.shape[1], -1))
        yield outputs.view(len(rows), -1, r)


def ranks(observed: NDArray[np.float64], null: NDArray[np.float64]) -> NDArray[np.float64]:
    """(l,) permutation-test p-values (1 + #{null <= observed}) / (1 + N), NaN where observed is NaN.

    NaN is handled before any comparison: `null <= NaN` is false everywhere, so a missing value would look like the
    strongest evidence.
    """
    usable = np.isfinite(observed)
    result = np.full(observed.shape, np.nan)
    # A small tolerance, so that equal values that two routines round differently count against the mark.
    below = (null[usable] <= observed[usable, None] + 1e-9 * np.abs(observed[usable, None])).sum(axis=1)
    result[usable] = (1 + below) / (1 + null.shape[1])
    return result


def difference(
    suspect: NDArray[np.float64],
    original: NDArray[np.float64],
    permuted: NDArray[np.float64],
    row_permutations: NDArray[np.int64],
    scale: float,
    orders: NullOrders,
    device: str = "cpu",
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`difference`: minus the correlation of suspect − original with release − original, and its null.

    The null correlates the same change with the values that other row permutations would have written. (Permuting the
    change's coordinates instead is not a valid null: the values that a key writes depend on the row it overwrites, so
    pruning or shrinking an unmarked original correlates with every key; tests/scheme/test_statistic.py shows it.)

    Args:
        suspect, original: (l, d) rows in the original's order.
        permuted, row_permutations, scale: the key's A'_m, L_P1 and scale_wm.
        orders: the public permutations.

    Returns:
        observed (l,) and null (l, N); NaN if the suspect's row equals the original's, which makes it undefined.
    """
    t, d = permuted.shape
    change = suspect - original
    usable = np.isfinite(change).all(axis=1) & (np.ptp(np.nan_to_num(change), axis=1) > 0)
    change = np.where(usable[:, None], change, 0.0)
    shuffled_change = np.take_along_axis(change, row_permutations, axis=1)
    shuffled = np.take_along_axis(original, row_permutations, axis=1)
    solve = np.zeros((t, d))
    solve[:, :-t] = -np.linalg.solve(permuted[:, -t:], permuted[:, :-t]) / scale
    spread = change.std(axis=1) * d

    def correlation(
        written: NDArray[np.float64], overwritten: NDArray[np.float64], change_there: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Pearson correlation of the sparse written change (..., t) with the row's change, from the t entries."""
        u = written - overwritten
        mean = u.sum(axis=-1) / d
        deviation = np.sqrt(np.maximum((u**2).sum(axis=-1) / d - mean**2, 1e-300))
        found: NDArray[np.float64] = ((u * change_there).sum(axis=-1) - d * mean * change.mean(axis=1)) / deviation
        return found

    with np.errstate(invalid="ignore", divide="ignore"):
        observed = -correlation((solve @ shuffled.T).T, shuffled[:, -t:], shuffled_change[:, -t:]) / spread
        null = np.empty((len(change), len(orders)))
        done = 0
        shuffled, shuffled_change = orders.apart(shuffled), orders.apart(shuffled_change)
        for chunk in null_maps(solve, shuffled, orders, device):
            order = orders.shared[done : done + chunk.shape[1], -t:]
            written = chunk.transpose(0, 1).cpu().numpy()
            there = shuffled_change[:, order].transpose(1, 0, 2)
            over = shuffled[:, order].transpose(1, 0, 2)
            null[:, done : done + len(order)] = (-correlation(written, over, there) / spread).T
            done += len(order)
    observed[~usable] = np.nan
    null[~usable] = np.nan
    return observed, null
