"""The equations of Algorithm 2: constraint permutations with cond(A2) < tau (lines 1 to 12), and the solved entries of
every marked row (lines 15 to 24), as pure array functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from irwm.errors import ConditionError

# Standardised rows meet a sensible limit within a few tries; a thousand failures mean the limit is out of reach.
MAX_TRIES = 1000


def permute_rows(a_m: NDArray[np.float64], permutations: NDArray[np.int64]) -> NDArray[np.float64]:
    """A'_m: row j of the (t, d) invariant under its own permutation (line 4)."""
    return np.take_along_axis(a_m, permutations, axis=1)


def well_conditioned(
    a_m: NDArray[np.float64], draw: Callable[[int], NDArray[np.int64]], limit: float
) -> tuple[int, NDArray[np.float64]]:
    """The first try whose last t columns have cond(A2) < limit, and A'_m of that try.

    Args:
        a_m: (t, d) standardised invariant.
        draw: try number to (t, d) constraint permutations.
        limit: tau.

    Raises:
        ConditionError: no try of MAX_TRIES met the limit; the message says what was reached.
    """
    t = a_m.shape[0]
    best = np.inf
    for attempt in range(MAX_TRIES):
        permuted = permute_rows(a_m, draw(attempt))
        condition = float(np.linalg.cond(permuted[:, -t:]))
        if condition < limit:
            return attempt, permuted
        best = min(best, condition)
    raise ConditionError(
        f"no draw of permutations was stable enough in {MAX_TRIES} tries",
        expected=f"cond(A2) below condition_limit = {limit:g}",
        found=f"{best:.3g} at best",
        advice="Raise condition_limit or use fewer constraints",
    )


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

    Each row goes back by its own permutation; the paper's pi_w1 in line 23 is a slip.
    """
    t = permuted.shape[0]
    marked = rows.copy()
    stored = solved_entries(rows, permuted, row_permutations) / scale
    np.put_along_axis(marked, row_permutations[:, -t:], stored, axis=1)
    return marked


def natural_scale(
    rows: NDArray[np.float64], permuted: NDArray[np.float64], row_permutations: NDArray[np.int64]
) -> float:
    """The scale at which the stored entries have the rows' own RMS, so that they hide best."""
    x = solved_entries(rows, permuted, row_permutations)
    return float(np.sqrt(np.mean(x**2) / np.mean(rows**2)))
