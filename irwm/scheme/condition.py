"""The condition of Algorithm 2, lines 1 to 12: constraint permutations with cond(A2) < tau."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from irwm.errors import ConditionError

# Standardised rows meet a sensible limit within a few tries; after a thousand failures the limit is out of reach.
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
        ConditionError: none of MAX_TRIES tries met the limit; the message gives the best value.
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
        f"none of the {MAX_TRIES} sets of permutations tried was stable enough",
        expected=f"cond(A2) below condition_limit = {limit:g}",
        found=f"{best:.3g} at best",
        advice="Raise condition_limit, or use fewer constraints",
    )
