"""Summaries of a detection for figures and reports: a few numbers per position, and the words of their hovers.

A null has `permutations` values for each position, too many for a page. A summary has seven of its quantiles, and the
value that decides whether the position counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irwm import Alignment
from irwm.evidence.finding import Reading
from irwm.report.numbers import number, percent
from irwm.report.plots.theme import label
from irwm.scheme.parameters import Parameters, chance_of_counting

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


def risk_counts(log10_risk: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The decoys' log10 risks (n,) in bins of equal width, from the smallest up to 0: (bins + 1,) edges and counts.

    The upper edge of a bin belongs to it.
    """
    bins = max(1, math.floor(-float(log10_risk.min()) / DECOY_BIN) + 1)
    edges: NDArray[np.float64] = -DECOY_BIN * np.arange(bins, -1, -1, dtype=np.float64)
    places = np.clip(np.ceil(log10_risk / DECOY_BIN).astype(np.int64) + bins - 1, 0, bins - 1)
    return edges, np.bincount(places, minlength=bins)


def summarise(reading: Reading, parameters: Parameters) -> ReadingSummary:
    """The numbers of a reading that figures and reports show."""
    null = np.asarray(reading.null, dtype=np.float64)
    usable = np.isfinite(reading.ranks) & np.isfinite(null).all(axis=1) & (null.shape[1] > 0)
    bands = np.full((null.shape[0], len(LEVELS)), np.nan)
    thresholds = np.full(null.shape[0], np.nan)
    if usable.any():
        bands[usable] = np.quantile(null[usable], LEVELS, axis=1).T
        # rank < beta means fewer than k null values at or below the observed one, with k / (N + 1) the largest such
        # rank. So a position stops counting at the k-th smallest of them.
        k = round(chance_of_counting(parameters) * (1 + null.shape[1]))
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


def similarity_section(alignment: Alignment) -> dict[str, object]:
    """The similarities of an alignment, for its document's part: cosines in bins of equal width that cover [-1, 1]."""
    edges = np.linspace(-1.0, 1.0, BINS + 1)

    def counted(cosines: NDArray[np.float64]) -> NDArray[np.int64]:
        finite = cosines[np.isfinite(cosines)]
        return np.histogram(np.clip(finite, -1.0, 1.0), edges)[0].astype(np.int64)

    decoys = alignment.decoy_cosines[np.isfinite(alignment.decoy_cosines)]
    return {
        "reason": alignment.reason,
        "minor_components": alignment.rotation is not None,
        "median_cosine": alignment.similarity,
        "median_decoy_cosine": float(np.median(decoys)) if decoys.size else math.nan,
        "needed_median_cosine": alignment.needed_similarity,
        "histogram": {
            "edges": edges,
            "rows": counted(alignment.cosines),
            "decoys": counted(alignment.decoy_cosines),
        },
    }


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
