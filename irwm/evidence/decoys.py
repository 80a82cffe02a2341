"""Error rates measured on the suspect itself: thousands of wrong keys, read on its aligned rows like the right key.

A wrong key has rows, orders and equations that were never inserted. Making ten thousand whole keys would take hours on
a large model. So the decoys share the expensive parts, and have separate parts where ranks must be independent:

* a *bank* of the suspect's rows in the original's coordinates (and, for a key with noise, in its bases), without the
  marked rows of the right key;
* some fifty *maps*, each from its own constraint permutations of the original's A, with the key's condition limit
  (Algorithm 2) and the statistic of the verdict (`joint`);
* on each map two hundred *decoys* with as many positions as the key has; each decoy has its own rows from the bank and
  its own order for each of them.

All decoys of a map are ranked among the same N random orders, like all positions of a key. Each row of the bank is
shuffled first, so that the effective orders differ from row to row; a decoy shuffles it again. The N + 1 orders that a
rank compares are therefore independent and uniform, and the rank of a position is exactly uniform if the suspect holds
no mark of this kind.

Every choice follows from a public seed, and comparisons that are too close for float32 are repeated in float64, so the
same seed gives the same ranks on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaincc

from irwm.errors import ConditionError
from irwm.evidence.examination import Examination
from irwm.evidence.finding import COMBINATIONS, Finding
from irwm.keys.key import Key
from irwm.scheme import statistic as stat
from irwm.scheme.basis import Basis
from irwm.scheme.condition import well_conditioned
from irwm.scheme.keystream import derive, public_key, words
from irwm.scheme.parameters import FEWEST_PERMUTATIONS, Parameters, chance_of_counting
from irwm.scheme.permutations import permutations
from irwm.scheme.probabilities import LN10, binomial_tail_log, fisher_log10

Progress = Callable[[int, int, str], None]

NUMBER = 10_000
# Decoys that share a map and its null orders. With more, each decoy costs less, but they are less independent.
PER_MAP = 200
# Rows of the suspect that all decoys draw from, and those of one map.
BANK_ROWS, MAP_ROWS = 2048, 512
# Limits on the cost of a run if a key's settings are far above the paper's; the result states both numbers.
MOST_POSITIONS, MOST_PERMUTATIONS = 500, 1000
DOING = "Ranking decoy keys on the suspect"
_CHUNK_FLOATS = 16 << 20
# The number of close comparisons that are repeated at a time.
_PAIRS = 256
# Rounding of a float32 dot product in units of eps |W| |e|; far above the values for sums of a few thousand numbers.
_ROUNDING = 8.0
CONFIDENCE = 0.95  # of the interval for a share of decoys


@dataclass(frozen=True, slots=True, eq=False)
class Decoys:
    """The readings of wrong keys on one suspect; arrays are in the order in which the decoys were made.

    Attributes:
        seed: the public seed that every choice follows from.
        maps: sets of equations that the decoys share.
        bank_rows: rows of the suspect from which they drew.
        positions, permutations: l and N of each.
        counts: (n,) int64, positions whose rank is below beta.
        log10_p: (n,) log10 of Fisher's combination of the ranks.
        log10_p_count: (n,) log10 of the binomial tail of the count.
    """

    seed: int
    maps: int
    bank_rows: int
    positions: int
    permutations: int
    counts: NDArray[np.int64]
    log10_p: NDArray[np.float64]
    log10_p_count: NDArray[np.float64]

    @property
    def log10_risk(self) -> NDArray[np.float64]:
        """(n,) log10 of each decoy's corrected odds, as `verdict.log10_risk` gives them for a single key."""
        return np.minimum(0.0, np.minimum(self.log10_p, self.log10_p_count) + math.log10(COMBINATIONS))


def decoys(
    examination: Examination,
    key: Key,
    finding: Finding,
    number: int = NUMBER,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decoys | None:
    """Rank `number` wrong keys on the suspect, aligned and mapped as for `finding`.

    Args:
        examination, key: those of the finding.
        finding: gives the alignment; its numbers are not used.
        number: decoys; rounded up to whole maps.
        progress: called with decoys done, the total of decoys and a description of the step.

    Returns:
        The decoys, or None if they cannot be made: the suspect cannot be judged, too few of its rows are left, the key
        has too few permutations, or too few draws meet its condition limit.
    """
    params = key.parameters
    if not finding.judgeable or params.permutations < FEWEST_PERMUTATIONS:
        return None
    examination, key = examination.at(finding.place), key.at(finding.place) or key
    choices = key.choices()
    model, device = examination.original, examination.device
    noise = key.noise(model, choices)
    usable = np.setdiff1d(key.pool.usable(), choices.marked_rows)
    usable = usable[finding.alignment.rows[usable] >= 0]
    picked = np.argsort(words(public_key(seed, "irwm/v3/decoys/bank"), usable.size), kind="stable")[:BANK_ROWS]
    tokens = np.sort(usable[picked])
    rows, _ = examination.aligned_as(finding.alignment).rows(tokens, finding.reading.by, key.derivation.sample_key())
    a_m = examination.own_invariant(choices.query_tokens, choices.reference_tokens, noise.added(model))
    try:
        return ranked(rows, tokens, a_m, params, key.scale, noise.basis, number, seed, device, progress)
    except ConditionError:  # the key's own draw met the limit; others may not
        return None


def ranked(
    rows: NDArray[np.float64],
    tokens: NDArray[np.int64],
    a_m: NDArray[np.float64],
    params: Parameters,
    scale: float,
    basis: Basis | None = None,
    number: int = NUMBER,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    per_map: int = PER_MAP,
) -> Decoys | None:
    """`decoys` on given rows.

    Args:
        rows: (n, d) float64 rows of a suspect in the original's coordinates; rows that are not finite are left out.
        tokens: (n,) their tokens, which determine their bases.
        a_m: (t, d) standardised invariant of the original.
        scale: scale_wm as a number.
        basis: the release's, for a key with noise.
        per_map: decoys that share a map and its null; another number gives other decoys for the same seed.

    Raises:
        ConditionError: condition_limit was not reached.
    """
    sound = np.isfinite(rows).all(axis=1)
    rows, tokens = rows[sound], tokens[sound]
    bank = stat.normalised((basis or Basis()).into(rows, tokens))
    bank = bank[np.isfinite(bank).all(axis=1)]
    n, d = bank.shape
    positions, size = min(params.positions, MOST_POSITIONS), min(params.permutations, MOST_PERMUTATIONS)
    if n < max(positions, 1):
        return None
    shuffles = permutations(public_key(seed, "irwm/v3/decoys/shuffles"), n, d)
    shuffled = torch.as_tensor(np.take_along_axis(bank, shuffles, axis=1), device=device)
    maps = -(-number // per_map)
    ranks = np.empty((maps, per_map, positions))
    for m in range(maps):
        if progress is not None:
            progress(m * per_map, maps * per_map, DOING)
        one = _Map(public_key(seed, f"irwm/v3/decoys/map/{m}"), a_m, params.condition_limit, scale, device)
        ranks[m] = one.ranks(shuffled, per_map, positions, size)
    if progress is not None:
        progress(maps * per_map, maps * per_map, DOING)
    return _combined(ranks.reshape(-1, positions), params, seed, maps, n, size)


@dataclass(frozen=True, slots=True)
class _Map:
    """One set of equations and its decoys; `stream` is the key from which its choices are derived."""

    stream: bytes
    a_m: NDArray[np.float64]
    limit: float
    scale: float
    device: str

    def ranks(self, bank: torch.Tensor, number: int, positions: int, orders: int) -> NDArray[np.float64]:
        """(number, positions) ranks of the decoys' rows among `orders` random orders."""
        t, d = self.a_m.shape
        draw = lambda attempt: permutations(self._key(f"constraints/{attempt}"), t, d)  # noqa: E731
        _, permuted = well_conditioned(self.a_m, draw, self.limit)
        weights = torch.as_tensor(stat.joint_map(permuted, self.scale), device=self.device)
        here = permutations(self._key("rows"), 1, len(bank))[0, : max(MAP_ROWS, positions)]
        bank = bank[torch.as_tensor(here, device=self.device)]
        drawn = permutations(self._key("positions"), number, len(bank))[:, :positions]
        chosen = torch.as_tensor(drawn, device=self.device)
        observed = self._observed(weights, bank, chosen, positions)
        null = torch.as_tensor(permutations(self._key("null"), orders, d), device=self.device)
        below = _below(weights, bank, chosen.reshape(-1), observed.reshape(-1), null)
        # In numpy: torch divides whole numbers in float32, and a GPU rounds that quotient differently.
        return np.asarray((1 + below.cpu().numpy()) / (1 + orders)).reshape(observed.shape)

    def _observed(
        self, weights: torch.Tensor, bank: torch.Tensor, chosen: torch.Tensor, positions: int
    ) -> torch.Tensor:
        """(number, positions) float64 statistic of each decoy's rows in its own orders.

        A decoy's i-th row is ordered by the decoy's own order and then by that of place i. Given the decoy's order, the
        orders of its rows are independent and uniform, and this needs little sorting.
        """
        d = bank.shape[1]
        of_decoy = torch.as_tensor(permutations(self._key("decoys"), len(chosen), d), device=self.device)
        of_place = torch.as_tensor(permutations(self._key("places"), positions, d), device=self.device)
        found = torch.empty(chosen.shape, dtype=torch.float64, device=self.device)
        step = max(1, _CHUNK_FLOATS // (positions * d))
        for start in range(0, len(chosen), step):
            these = slice(start, start + step)
            order = of_decoy[these][:, of_place]
            rows = bank[chosen[these]].gather(2, order)
            found[these] = (rows @ weights.T).norm(dim=2)
        return found

    def _key(self, purpose: str) -> bytes:
        return derive(self.stream, b"irwm", f"irwm/v3/decoys/{purpose}".encode("ascii"))


def _below(
    weights: torch.Tensor, bank: torch.Tensor, chosen: torch.Tensor, observed: torch.Tensor, null: torch.Tensor
) -> torch.Tensor:
    """(n,) int64: null values at or below `observed` (n,), each for its row of the bank `chosen` (n,).

    Args:
        weights: (t, d) float64 map.
        bank: (b, d) float64 rows.
        null: (N, d) orders; the map's columns are gathered by them, so their inverses act on the rows.
    """
    t, d = weights.shape
    fast, columns = weights.float(), bank.float().T.contiguous()
    margin = _ROUNDING * torch.finfo(torch.float32).eps * float(weights.norm()) * float(bank.norm(dim=1).max())
    limit = observed + 1e-9 * observed  # the tolerance of irwm.scheme.statistic.ranks
    step = max(1, _CHUNK_FLOATS // (t * d))
    lengths = torch.empty((len(null), len(bank)), dtype=torch.float32, device=observed.device)
    for start in range(0, len(null), step):
        orders = null[start : start + step]
        outputs = (fast[:, orders].reshape(-1, d) @ columns).reshape(t, len(orders), -1)
        torch.sum(outputs.square_(), dim=0, out=lengths[start : start + step])
    ascending, order = lengths.sqrt_().T.contiguous().sort(dim=1)
    place, seen = _by_row(chosen, len(bank))
    below, upto = torch.empty_like(chosen), torch.empty_like(chosen)
    for counts, bound in ((below, limit - margin), (upto, limit + margin)):
        asked = torch.zeros((len(bank), int(seen.max()) + 1), dtype=torch.float32, device=observed.device)
        asked[chosen, place] = bound.float()
        counts.copy_(torch.searchsorted(ascending, asked, right=True)[chosen, place])
    # Null values within rounding of the observed value are computed again.
    whose = torch.repeat_interleave(torch.arange(len(chosen), device=chosen.device), upto - below)
    first = torch.cumsum(upto - below, 0) - (upto - below)
    at = below[whose] + torch.arange(len(whose), device=chosen.device) - first[whose]
    which = order[chosen[whose], at]
    for pairs in torch.arange(len(whose), device=chosen.device).split(_PAIRS):
        rows = bank[chosen[whose[pairs]]]
        exact = torch.einsum("tpd,pd->tp", weights[:, null[which[pairs]]], rows).norm(dim=0)
        below.index_add_(0, whose[pairs], (exact <= limit[whose[pairs]]).long())
    return below


def _by_row(chosen: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(n,) the number of earlier readings of the same row, and (rows,) how many readings each row has."""
    seen = torch.bincount(chosen, minlength=rows)
    by_row = torch.sort(chosen, stable=True).indices
    starts = torch.cumsum(seen, 0) - seen
    place = torch.empty_like(chosen)
    place[by_row] = torch.arange(len(chosen), device=chosen.device) - starts[chosen[by_row]]
    return place, seen


def _combined(
    ranks: NDArray[np.float64], params: Parameters, seed: int, maps: int, bank_rows: int, permutations: int
) -> Decoys:
    """The decoys' ranks (n, l) as counts and combined p-values."""
    positions = ranks.shape[1]
    counts = (ranks < params.rank_threshold).sum(axis=1)
    with np.errstate(divide="ignore"):
        combined = np.log10(gammaincc(positions, -np.log(ranks).sum(axis=1)))
    for i in np.flatnonzero(combined < -250.0):  # scipy's tail ends with the range of doubles
        combined[i] = fisher_log10(ranks[i])
    chance = chance_of_counting(replace(params, permutations=permutations))
    tails = [binomial_tail_log(count, positions, chance) / LN10 for count in range(positions + 1)]
    return Decoys(
        seed=seed,
        maps=maps,
        bank_rows=bank_rows,
        positions=positions,
        permutations=permutations,
        counts=counts.astype(np.int64),
        log10_p=np.minimum(0.0, combined),
        log10_p_count=np.array(tails)[counts],
    )


def share_below(risks: NDArray[np.float64], level: float) -> dict[str, float]:
    """How many of the risks are at or below 10**level, and the share's central 95% interval (Clopper-Pearson)."""
    n, k = int(risks.size), int((risks <= level).sum())
    low, high = clopper_pearson(k, n)
    return {"log10_risk": level, "count": k, "share": k / n, "low": low, "high": high}


def clopper_pearson(k: int, n: int) -> tuple[float, float]:
    """The exact interval for a share, given k of n."""
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return low, high
