"""Summaries of a detection for figures and reports: a few numbers per position, and the words of their hovers.

A null has `permutations` values for each position, too many for a page. A summary has seven of its quantiles, and the
value that decides whether the position counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irwm import Alignment
from irwm.evidence.finding import Reading
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.report.numbers import number, percent
from irwm.report.plots.theme import label
from irwm.scheme.parameters import Parameters

# Quantiles that summarise a null of any length: three nested bands and the median.
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 100
# Width of a bin of decoys, in powers of ten.
DECOY_BIN = 0.25
GONE = "gone or unusable: it has no rank and cannot count"


@dataclass(frozen=True, slots=True, eq=False)
class ReadingSummary:
    """The summary of a `Reading` for figures and reports; every array is over the positions in the key's order.

    Attributes:
        statistic, invariant, count, present, passes: as in `Reading`.
        permutations: N, values in each null.
        observed, ranks: (l,) as in `Reading`, NaN where the row is gone or unusable.
        bands: (l, 7) quantiles of each null at LEVELS, NaN in the same rows.
        thresholds: (l,) the null value that `observed` must stay below for the position to count, NaN in the same rows.
    """

    statistic: str
    invariant: str
    count: int
    present: int
    passes: bool
    permutations: int
    observed: NDArray[np.float64]
    ranks: NDArray[np.float64]
    bands: NDArray[np.float64]
    thresholds: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CosineHistogram:
    """Cosines of aligned rows with the original's, and with wrong rows, counted in equal bins.

    Attributes:
        edges: (bins + 1,) ascending.
        rows, decoys: (bins,) counts.
        median, decoy_median: medians of the cosines themselves, NaN where there are none.
        needed: what `median` must reach for "aligned".
        minor_components: the cosines were taken in the original's minor components, as after a rotation.
        reason: the alignment's own sentence.
    """

    edges: NDArray[np.float64]
    rows: NDArray[np.int64]
    decoys: NDArray[np.int64]
    median: float
    decoy_median: float
    needed: float
    minor_components: bool
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class DecoyHistogram:
    """Readings of wrong keys on the suspect, and of the right one; every value is log10 of a corrected chance.

    Attributes:
        edges: (bins + 1,) ascending, the last 0 (a chance of one).
        counts: (bins,) decoys in each bin, the upper edge of a bin belonging to it.
        smallest: the smallest of the decoys.
        suspect: the suspect's own, as of one key on one tensor like theirs.
        found_at, dismissed_above: the verdict's bounds.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    smallest: float
    suspect: float
    found_at: float
    dismissed_above: float


def decoy_histogram(log10_risk: NDArray[np.float64], suspect: float) -> DecoyHistogram:
    """The decoys' log10 risks (n,) in bins of equal width, from the smallest up to 0."""
    smallest = float(log10_risk.min())
    bins = max(1, math.floor(-smallest / DECOY_BIN) + 1)
    edges = -DECOY_BIN * np.arange(bins, -1, -1)
    places = np.clip(np.ceil(log10_risk / DECOY_BIN).astype(np.int64) + bins - 1, 0, bins - 1)
    return DecoyHistogram(
        edges=cast("NDArray[np.float64]", edges),
        counts=np.bincount(places, minlength=bins).astype(np.int64),
        smallest=smallest,
        suspect=suspect,
        found_at=FOUND_LOG10_RISK,
        dismissed_above=DISMISSED_LOG10_RISK,
    )


def summarise(reading: Reading, parameters: Parameters) -> ReadingSummary:
    """The numbers of a reading that figures and reports show."""
    null = np.asarray(reading.null, dtype=np.float64)
    usable = np.isfinite(reading.ranks) & np.isfinite(null).all(axis=1) & (null.shape[1] > 0)
    bands = np.full((null.shape[0], len(LEVELS)), np.nan)
    thresholds = np.full(null.shape[0], np.nan)
    if usable.any():
        bands[usable] = np.quantile(null[usable], LEVELS, axis=1).T
        # rank < beta means fewer than k null values at or below the observed one, k = ceil(beta (N + 1)) - 1; so the
        # a position stops counting at the k-th smallest of them.
        k = math.ceil(parameters.rank_threshold * (1 + null.shape[1])) - 1
        if k > 0:
            thresholds[usable] = np.partition(null[usable], k - 1, axis=1)[:, k - 1]
    return ReadingSummary(
        statistic=reading.statistic,
        invariant=reading.invariant,
        count=reading.count,
        present=reading.present,
        passes=reading.passes,
        permutations=null.shape[1],
        observed=np.asarray(reading.observed, dtype=np.float64),
        ranks=np.asarray(reading.ranks, dtype=np.float64),
        bands=bands,
        thresholds=thresholds,
    )


def cosine_histogram(alignment: Alignment) -> CosineHistogram:
    """The alignment's cosines in bins of equal width that cover [-1, 1] (0.02 each)."""
    edges = np.linspace(-1.0, 1.0, BINS + 1)

    def counted(cosines: NDArray[np.float64]) -> NDArray[np.int64]:
        finite = cosines[np.isfinite(cosines)]
        return np.histogram(np.clip(finite, -1.0, 1.0), edges)[0].astype(np.int64)

    decoys = alignment.decoy_cosines[np.isfinite(alignment.decoy_cosines)]
    return CosineHistogram(
        edges=edges,
        rows=counted(alignment.cosines),
        decoys=counted(alignment.decoy_cosines),
        median=alignment.similarity,
        decoy_median=float(np.median(decoys)) if decoys.size else math.nan,
        needed=alignment.needed_similarity,
        minor_components=alignment.rotation is not None,
        reason=alignment.reason,
    )


def position_name(i: int, marked_rows: ArrayLike | None, tokens: Mapping[int, str] | None) -> str:
    if marked_rows is None:
        return f"position {i + 1}"
    row = int(np.asarray(marked_rows)[i])
    text = f" “{label(tokens[row], 30)}”" if tokens and row in tokens else ""
    return f"position {i + 1}, token {row}{text}"


def position_text(s: ReadingSummary, i: int, parameters: Parameters) -> str:
    if not math.isfinite(s.observed[i]):
        return GONE
    quantiles = [f"{percent(q)}: {v:.4g}" for q, v in zip(LEVELS, s.bands[i], strict=True)]
    limit = f"must be below {s.thresholds[i]:.6g} (β = {parameters.rank_threshold:g})"
    if not math.isfinite(s.thresholds[i]):
        limit = f"too few permutations for any rank below β = {parameters.rank_threshold:g}"
    return (
        f"observed {s.observed[i]:.6g}, {counts(s.ranks[i], parameters.rank_threshold)}"
        f"<br>rank {rank(s.ranks[i], s.permutations)}"
        f"<br>{limit}"
        f"<br>chance: {', '.join(quantiles[:4])},<br>{', '.join(quantiles[4:])}"
    )


def counts(rank: float, threshold: float) -> str:
    return "counts" if rank < threshold else "does not count"


def rank(rank: float, permutations: int) -> str:
    return f"{rank:.6g} = {number(round(rank * (1 + permutations)))} of {number(1 + permutations)}"
