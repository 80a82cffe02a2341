"""The solved entries of every marked row (Algorithm 2, lines 15 to 24)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def solved_entries(
    rows: NDArray[np.float64], permuted: NDArray[np.float64], row_permutations: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(l, t) solutions x of A'[:, :d-t] e[:d-t] + A'[:, d-t:] x = 0 for every permuted row e (lines 19, 20).

    Args:
        rows: (l, d) original rows W_e[L_W].
        permuted: (t, d) A'_m. The paper's line prints A_m; only A'_m has the bounded condition.
        row_permutations: (l, d) L_P1.
    """
    t = permuted.shape[0]
    shuffled = np.take_along_axis(rows, row_permutations, axis=1)
    right = -permuted[:, :-t] @ shuffled[:, :-t].T
    return np.asarray(np.linalg.solve(permuted[:, -t:], right).T, dtype=np.float64)


def marked_values(
    rows: NDArray[np.float64], permuted: NDArray[np.float64], row_permutations: NDArray[np.int64], scale: float
) -> NDArray[np.float64]:
    """(l, d) rows that carry the mark, in the original order of coordinates (lines 15 to 24).

    Each row is restored by its own permutation; the paper's pi_w1 in line 23 is an error.
    """
    t = permuted.shape[0]
    marked = rows.copy()
    stored = solved_entries(rows, permuted, row_permutations) / scale
    np.put_along_axis(marked, row_permutations[:, -t:], stored, axis=1)
    return marked


def natural_scale(
    rows: NDArray[np.float64], permuted: NDArray[np.float64], row_permutations: NDArray[np.int64]
) -> float:
    """The scale at which the stored entries have the rows' own RMS, so that they are hidden best."""
    x = solved_entries(rows, permuted, row_permutations)
    return float(np.sqrt(np.mean(x**2) / np.mean(rows**2)))
