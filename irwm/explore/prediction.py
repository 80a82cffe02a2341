"""Prediction of a mark: ranks under noise, sizes of stored entries and conditions, from a model's own rows.

Ranks. A marked row e, in the key's order, satisfies M e = 0, where M is A' with its last t columns times scale. An
attack that adds white noise n of k times the row's own deviation s gives M (e + n) = M n. Under a random order the same
noisy row, of deviation s sqrt(1 + k²), gives a vector of covariance s² (1 + k²) C, C = M M^T up to the entries' mean;
at the key the covariance is s² k² C. So with V = k² / (1 + k²), for entries that are nearly normal,

    joint²: V times chi-square of t degrees at the key, chi-square of t degrees by chance;
    sum²:   V times chi-square of 1 degree at the key,  chi-square of 1 degree by chance,

and a position's rank is below beta with odds F_f(F_f^-1(beta) / V), where F_f is the law of chi-square of f degrees:
t for `joint`, 1 for `sum`. It depends neither on the scale nor on the model. This is for the original's A; the noise
also changes the suspect's own A, so with that fewer positions count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtr, chdtri

from irwm.checkpoint import Checkpoint, special_token_ids
from irwm.errors import ParameterError
from irwm.scheme import statistic as stat
from irwm.scheme.basis import Basis
from irwm.scheme.condition import permute_rows, well_conditioned
from irwm.scheme.constraint_solution import marked_values, natural_scale, solved_entries
from irwm.scheme.invariant import invariant
from irwm.scheme.keystream import public_key
from irwm.scheme.noise import Noise
from irwm.scheme.permutations import NullOrders, permutations
from irwm.scheme.row_pool import NEAR_ZERO_SHARE, require

# Rows read from a model, spread evenly over its vocabulary: they represent its entries and take one or two megabytes.
SAMPLE_ROWS = 512
# Rows for a simulated share (its standard error is .035 at most), and random orders for each of their ranks.
SIMULATED_ROWS, SIMULATED_ORDERS = 200, 200
# Rows used to estimate the size of a try's solved entries.
SIZED_ROWS = 64
# Rows read beyond those needed, and rows read at a time.
_SPARE, _ROWS_PER_READ = 64, 1024


def counting_share(noise: ArrayLike, constraints: int, rank_threshold: float, statistic: str) -> NDArray[np.float64]:
    """Odds that a marked position counts after white noise of `noise` row deviations, by the law above.

    Args:
        noise: k, any shape, from 0.
        constraints: t.
        rank_threshold: beta.
        statistic: "joint" or "sum".

    Raises:
        ParameterError: another statistic, or a value outside its range.
    """
    k = np.asarray(noise, dtype=np.float64)
    freedom = _freedom(statistic, constraints)
    if not np.all(k >= 0.0) or not np.all(np.isfinite(k)) or not 0.0 < rank_threshold < 1.0:
        raise ParameterError(
            "the noise or the rank threshold is out of range",
            expected="a noise level of 0 or more, and beta between 0 and 1",
        )
    counts_below = chdtri(freedom, 1.0 - rank_threshold)  # by chance; chdtri inverts the upper tail
    with np.errstate(divide="ignore"):
        return np.asarray(chdtr(freedom, counts_below * (1.0 + k**-2.0)))


def _freedom(statistic: str, constraints: int) -> int:
    if statistic not in ("joint", "sum") or constraints < 1:
        raise ParameterError(
            "no formula is known for this statistic",
            expected="joint or sum, and t no less than 1",
            found=f"{statistic}, {constraints}",
        )
    return constraints if statistic == "joint" else 1


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Some rows of a model and its invariant, with public draws: typical of the rows that any key of the model uses.

    Attributes:
        tokens: (n,) ascending token ids of rows that could be marked.
        rows: (n, d) float64, the rows of these tokens.
        a_m: (T, d) standardised invariant of T query tokens; the first t rows serve t constraints.
        vocab_size: s of the model.
        seed: the seed of every draw.
    """

    tokens: NDArray[np.int64]
    rows: NDArray[np.float64] = field(repr=False)
    a_m: NDArray[np.float64] = field(repr=False)
    vocab_size: int
    seed: int

    @property
    def hidden_size(self) -> int:
        return int(self.rows.shape[1])

    @property
    def most_constraints(self) -> int:
        return int(self.a_m.shape[0])

    def orders(self, purpose: str, count: int) -> NDArray[np.int64]:
        """(count, d) public orders of a row's entries, different for every purpose."""
        return permutations(public_key(self.seed, f"irwm/explore/{purpose}"), count, self.hidden_size)

    def constraint_orders(self, attempt: int, constraints: int) -> NDArray[np.int64]:
        """(t, d) constraint permutations of one try of Algorithm 2."""
        return self.orders(f"try/{attempt}", constraints)

    def invariant_of(self, constraints: int) -> NDArray[np.float64]:
        """(t, d) A_m of this number of constraints.

        Raises:
            ParameterError: more than were sampled.
        """
        if not 1 <= constraints <= self.most_constraints:
            raise ParameterError(
                "this model's sample has fewer constraints (t)",
                expected=f"1 to {self.most_constraints}",
                found=str(constraints),
            )
        return self.a_m[:constraints]


def sample(model: Checkpoint, constraints: int, rows: int = SAMPLE_ROWS, device: str = "cpu", seed: int = 0) -> Sample:
    """A sample of `model`: at most `rows` of its rows, and A_m of `constraints` query tokens.

    Reads these rows, those of d reference tokens, and layer 0's q and k; never the whole embedding. Special, near-zero
    and duplicate rows are left out, as in a key.

    Raises:
        ParameterError: the model has too few usable rows.
        CheckpointError: its embedding or layer 0 cannot be used.
    """
    d, size = model.hidden_size, model.vocab_size
    if not 1 <= constraints < d:
        raise ParameterError(
            "the number of constraints (t) is out of range", expected=f"1 to {d - 1}", found=str(constraints)
        )
    # 1.5 times the needed number, since some rows are not usable.
    looked_at = min(size, _SPARE + (rows + d + constraints) * 3 // 2)
    wanted = np.unique(np.linspace(0, size - 1, looked_at).astype(np.int64))
    wanted = np.setdiff1d(wanted, np.array(sorted(special_token_ids(model)), dtype=np.int64))
    wanted = wanted[_usable(model, wanted)]
    require(wanted.size, d + constraints + 2, "required sample", "Choose a model with more tokens")
    order = permutations(public_key(seed, "irwm/explore/tokens"), 1, wanted.size)[0]
    query, reference = order[:constraints], order[constraints : constraints + d]
    kept = wanted[np.sort(order[constraints + d :][:rows])]
    a_m = invariant(model, wanted[query], wanted[reference], device=device).cpu().numpy()
    return Sample(kept, model.embedding(kept).double().numpy(), a_m, size, seed)


def _usable(model: Checkpoint, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) which of these rows could be marked: finite, not near zero, and not a copy of an earlier row."""
    lengths, seen, first = np.empty(tokens.size), set(), np.empty(tokens.size, dtype=bool)
    for start in range(0, tokens.size, _ROWS_PER_READ):
        here = slice(start, start + _ROWS_PER_READ)
        rows = model.embedding(tokens[here]).contiguous()
        lengths[here] = rows.double().norm(dim=1).numpy()
        for place, row in enumerate(rows.numpy(), start):
            digest = hash(row.tobytes())
            first[place] = digest not in seen
            seen.add(digest)
    finite = np.isfinite(lengths)
    if not finite.any():
        return finite
    with np.errstate(invalid="ignore"):
        return finite & first & (lengths > NEAR_ZERO_SHARE * np.median(lengths[finite]))


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A mark on a sample's rows in memory, exactly as insertion would write it, before rounding.

    Attributes:
        sample: the sample of rows.
        constraints: t.
        condition_limit: tau.
        scale: scale_wm; None for "auto", which makes stored entries as large as the rows' own.
    """

    sample: Sample
    constraints: int
    condition_limit: float
    scale: float | None = None

    @cached_property
    def permuted(self) -> NDArray[np.float64]:
        """(t, d) A'_m of the first try with cond(A2) below tau; raises ConditionError if there is none."""
        draw = partial(self.sample.constraint_orders, constraints=self.constraints)
        return well_conditioned(self.sample.invariant_of(self.constraints), draw, self.condition_limit)[1]

    @cached_property
    def row_orders(self) -> NDArray[np.int64]:
        return self.sample.orders("rows", len(self.sample.rows))

    @cached_property
    def natural_scale(self) -> float:
        """The scale at which stored entries have the rows' own RMS."""
        return natural_scale(self.sample.rows, self.permuted, self.row_orders)

    @property
    def scale_used(self) -> float:
        return self.natural_scale if self.scale is None else self.scale

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """(n * t,) |stored entry| over the RMS of its row: 1 is as large as the row's own numbers."""
        solved = solved_entries(self.sample.rows, self.permuted, self.row_orders)
        usual = np.sqrt(np.mean(self.sample.rows**2, axis=1, keepdims=True))
        found: NDArray[np.float64] = np.abs(solved / self.scale_used / usual).ravel()
        return found

    @cached_property
    def relative_size(self) -> float:
        """RMS of the stored entries over the RMS of the rows: natural_scale / scale."""
        return self.natural_scale / self.scale_used

    def shares(
        self, noise: Sequence[float], rank_threshold: float, rows: int = SIMULATED_ROWS, orders: int = SIMULATED_ORDERS
    ) -> dict[str, NDArray[np.float64]]:
        """Share of marked rows that count after each noise of k row deviations, by simulation, for `joint` and `sum`.

        Each row gets normal noise of the row's deviation times k, and is ranked by A of the original among `orders`
        random orders, as a detection ranks it.

        Returns:
            {"joint": (k,), "sum": (k,)}.
        """
        chosen = np.linspace(0, len(self.sample.rows) - 1, min(rows, len(self.sample.rows))).astype(np.int64)
        originals, row_orders = self.sample.rows[chosen], self.row_orders[chosen]
        marked = marked_values(originals, self.permuted, row_orders, self.scale_used)
        deviation = originals.std(axis=1, keepdims=True)
        null = NullOrders.of(self.sample.seed, orders, *originals.shape)
        maps = {
            "joint": stat.joint_map(self.permuted, self.scale_used),
            "sum": stat.sum_map(self.permuted, self.scale_used),
        }
        found: dict[str, list[float]] = {name: [] for name in maps}
        draw = np.random.Generator(np.random.PCG64(self.sample.seed))
        for k in noise:
            noisy = marked + k * deviation * draw.standard_normal(marked.shape)
            shuffled = stat.normalised(np.take_along_axis(noisy, row_orders, axis=1))
            for name, weights in maps.items():
                ranks = stat.ranks(stat.lengths(weights, shuffled), stat.null_lengths(weights, shuffled, null))
                found[name].append(float((ranks < rank_threshold).mean()))
        return {name: np.array(shares) for name, shares in found.items()}

    def seen(self, noise_coordinates: int, noise_level: float | str) -> float:
        """How well two recipients who compare copies can distinguish marked rows from others by the length of the
        difference, as area under the curve: 0.5 not at all, 1 perfectly. A marked row has noise only in the other copy;
        other rows have noise in both."""
        rows, tokens = self.sample.rows, self.sample.tokens
        deviation = float(rows.std()) if noise_level == "global" else None
        none = np.empty(0, dtype=np.int64)
        keys = [public_key(self.sample.seed, f"irwm/explore/copy/{i}") for i in (1, 2)]
        one, other = (
            Noise(Basis(), noise_coordinates, noise_level, key, deviation, none).over(rows, tokens) for key in keys
        )
        marked = marked_values(rows, self.permuted, self.row_orders, self.scale_used)
        lengths = np.concatenate([np.square(each - other).sum(axis=1) for each in (marked, one)])
        # Ties, such as between rows that do not differ at all, get their mean rank and so count half.
        from scipy.stats import rankdata  # a slow import that is needed only here

        ranks = rankdata(lengths)[: len(rows)]
        return float((ranks.sum() / len(rows) - (len(rows) + 1) / 2) / len(rows))


def tries(sample: Sample, constraints: int, count: int, sized: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The results of tries of the constraint permutations (Algorithm 2, lines 1 to 12).

    Returns:
        (count,) cond(A2) of each try in order, and (sized,) for each of the first tries the RMS of its solved entries
        over the RMS of the rows' own entries.
    """
    a_m = sample.invariant_of(constraints)
    rows = sample.rows[:SIZED_ROWS]
    row_orders = sample.orders("rows", len(rows))
    found, sizes = np.empty(count), np.empty(min(sized, count))
    for i in range(count):
        permuted = permute_rows(a_m, sample.constraint_orders(i, constraints))
        found[i] = np.linalg.cond(permuted[:, -constraints:])
        if i < sizes.size:
            sizes[i] = natural_scale(rows, permuted, row_orders)
    return found, sizes
