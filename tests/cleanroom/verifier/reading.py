"""From rows in the original's coordinates to ranks, p, z and the verdict (docs/reading.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammainc, gammaln, log_ndtr, logsumexp

from .keys import PlaceKey, public_orders
from .written import Original

LN10 = math.log(10)
C0 = 3.1786555658869995


@dataclass
class Reading:
    """One reading of the ranks."""

    observed: np.ndarray
    null: np.ndarray
    ranks: np.ndarray
    beta: float

    @property
    def ranked(self) -> np.ndarray:
        """The ranks that are not missing."""
        return self.ranks[np.isfinite(self.ranks)]

    @property
    def count(self) -> int:
        """How many ranks count."""
        return int((self.ranked < self.beta).sum())

    def quantiles(self, levels: list[float]) -> np.ndarray:
        """The null's quantiles, position by position."""
        ordered = np.sort(self.null, axis=1)
        h = (ordered.shape[1] - 1) * np.asarray(levels)
        low = np.floor(h).astype(int)
        high = np.minimum(low + 1, ordered.shape[1] - 1)
        return ordered[:, low] + (h - low) * (ordered[:, high] - ordered[:, low])

    def thresholds(self) -> list[float | None]:
        """The limit below which an observed value counts."""
        n = self.null.shape[1]
        k = round(chance_of_counting(n, self.beta) * (n + 1))
        return [float(x) for x in np.sort(self.null, axis=1)[:, k - 1]] if k > 0 else [None] * len(self.null)


def read(original: Original, rows: np.ndarray, broken: np.ndarray, statistic: str, a: np.ndarray, seed: int) -> Reading:
    """Ranks of the marked rows, which are given in the original's coordinates."""
    key = original.key
    marked, n = key.tokens[2], int(key.parameters["permutations"])
    m = original.permuted(key.attempt, a)
    m[:, -key.t :] *= key.scale
    if statistic == "sum":
        w = m.sum(0, keepdims=True)
    else:
        centred = m - m.mean(1, keepdims=True)
        w = np.linalg.solve(np.linalg.cholesky(centred @ centred.T), m)
    shared, own = public_orders(seed, n, key.l, key.d)
    observed, null, ranks = np.full(key.l, np.nan), np.full((key.l, n), np.nan), np.full(key.l, np.nan)
    v = np.take_along_axis(key.into_basis(rows, marked), key.row_permutations, axis=1)
    for i in range(key.l):
        if broken[i] or not np.isfinite(rows[i]).all() or (rows[i] == rows[i, 0]).all():
            continue
        row = v[i] / v[i].std(ddof=1)
        observed[i] = np.linalg.norm(w @ row)
        null[i] = np.linalg.norm(row[own[i]][shared] @ w.T, axis=1)
        ranks[i] = (1 + int((null[i] <= observed[i] + 1e-9 * abs(observed[i])).sum())) / (1 + n)
    return Reading(observed, null, ranks, float(key.parameters["rank_threshold"]))


def chance_of_counting(n: int, beta: float) -> float:
    """q: the largest K / (N + 1) below beta."""
    k = int(beta * (n + 1)) + 2
    while k / (n + 1) >= beta:
        k -= 1
    return k / (n + 1)


def fisher(ranks: np.ndarray) -> float:
    """log10 of Fisher's p."""
    n, x = len(ranks), -float(np.log(ranks).sum()) if len(ranks) else 0.0
    if n == 0 or x == 0:
        return 0.0
    i = np.arange(n)
    return min(0.0, float(-x + logsumexp(i * math.log(x) - gammaln(i + 1))) / LN10)


def binomial(n: int, k: int, q: float) -> float:
    """log10 of the chance of k or more of n."""
    if k <= 0:
        return 0.0
    i = np.arange(k, n + 1)
    terms = gammaln(n + 1) - gammaln(i + 1) - gammaln(n - i + 1) + i * math.log(q) + (n - i) * math.log1p(-q)
    return min(0.0, float(logsumexp(terms)) / LN10)


def log10_p(reading: Reading, n: int) -> tuple[float, float]:
    """Both chances of a reading."""
    return fisher(reading.ranked), binomial(len(reading.ranked), reading.count, chance_of_counting(n, reading.beta))


def risk(both: tuple[float, float], c: float) -> float:
    """log10_risk(c)."""
    return min(0.0, min(0.0, min(both) + math.log10(2)) + math.log10(c))


def floors(n_ranks: int, n: int, beta: float) -> tuple[float, float]:
    """The smallest chances that n ranks can reach."""
    return fisher(np.full(n_ranks, 1 / (n + 1))), n_ranks * math.log10(chance_of_counting(n, beta))


def likelihood_ratio(ranks: np.ndarray) -> float:
    """log10 of the likelihood ratio (docs/evaluation.md)."""
    m, x = len(ranks), -float(np.log(ranks).sum())
    return (x - (m + 1) * math.log(x) + float(gammaln(m + 1)) + math.log(float(gammainc(m + 1, x)))) / LN10


def judge(reading: Reading, key: PlaceKey, c: float, aligned: bool) -> str:
    """The verdict's word for one reading of the ranks."""
    n = int(key.parameters["permutations"])
    found = risk(log10_p(reading, n), c)
    if n < 99:
        return "inconclusive"
    if found <= -6:
        return "found"
    lowest = math.log10(2 * c) + min(floors(len(reading.ranked), n, reading.beta))
    if not aligned or len(reading.ranked) == 0 or lowest > -6 or found <= -3:
        return "inconclusive"
    return "inconclusive" if reading.count >= key.parameters["required_positions"] else "not found"


def log10_of_z(z: float) -> float:
    """The chance of a z."""
    if math.isnan(z) or z <= 0:
        return 0.0
    return min(0.0, -z * z / 2 / LN10, (math.log(C0) + float(log_ndtr(-z))) / LN10)


class Noise:
    """A suspect's differences from the original, ready to be scored by any recipient's noise."""

    def __init__(self, original: Original, differences: np.ndarray, gone: np.ndarray) -> None:
        self.key, self.original = original.key, original
        key, s, d = original.key, original.key.s, original.key.d
        self.u = np.linalg.norm(original.rows, axis=1) / np.sqrt(d)
        with np.errstate(invalid="ignore"):
            out = gone | ~np.isfinite(differences).all(1) | (np.abs(differences) >= 1e15).any(1)
        self.u[out] = 0.0
        delta = np.where(out[:, None], 0.0, differences)
        changed = (delta != 0).any(1)
        inside = key.into_basis(delta, np.arange(s))
        inside[~changed] = 0.0
        h = s // 8
        if h <= 256:
            sample = np.arange(s)
        else:
            sample = np.concatenate([k * h + int(w) % (h - 255) + np.arange(256) for k, w in enumerate(key.run_words)])
        sample = sample[(self.u[sample] > 0) & (inside[sample] != inside[sample, :1]).any(1)]
        centre, usual = np.zeros(d), 0.0
        if len(sample):
            squares = (inside[sample] ** 2).mean(1)
            ordinary = sample[squares <= 100 * np.median(squares)]
            centre = inside[ordinary].mean(0) if len(ordinary) >= 32 else centre
            usual = float(np.median(((inside[ordinary] - centre) ** 2).mean(1)))
        inside[changed] -= centre
        var = (inside**2).mean(1)
        self.w = np.zeros(s)
        good = (self.u > 0) & (var > 0)
        self.w[good] = self.u[good] / np.maximum(var[good], 0.01 * usual)
        self.g = np.where(var <= 100 * usual, self.u, 0.0)
        self.inside = inside.astype(np.float32)
        self.rows = int((self.u > 0).sum())

    def score(self, purpose: str = "noise") -> tuple[float, float]:
        """z and share of one recipient's noise."""
        key = self.key
        places, signs = key.noise(purpose)
        values = np.take_along_axis(self.inside, places, axis=1).astype(np.float64)
        sums = (signs * values).sum(1)
        if key.spread > 0:
            squares, size = float((self.w**2 * (values**2).sum(1)).sum()), key.spread * self.u
        else:
            squares = float(((self.w * sums) ** 2).sum())
            level = key.parameters["noise_level"]
            size = (
                self.u * math.sqrt(math.pi) / 2
                if level == "row"
                else np.where(self.u > 0, self.original.global_size(), 0.0)
            )
        below = key.m * float((self.g * size).sum())
        z = float((self.w * sums).sum()) / math.sqrt(squares) if squares > 0 else math.nan
        return z, float((self.g * sums).sum()) / below if below else 0.0


def z_needed(limit: float) -> float:
    """The smallest z whose chance is at most a limit (log10)."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if log10_of_z(middle) <= limit else (middle, high)
    return high


def odds(p: dict[str, Any], chance: float) -> float:
    """Equations 1 and 2: log10 of the chance of at least rho of l."""
    return binomial(p["positions"], p["required_positions"], chance)
