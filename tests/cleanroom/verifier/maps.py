"""From a suspect's rows to the original's coordinates (docs/maps.md), for rows at their own ids."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .keys import draw


def lower_median(x: np.ndarray, axis: int | None = None) -> np.ndarray:
    """The smaller of the middle two."""
    x = x.ravel() if axis is None else x
    at = (x.shape[axis or 0] - 1) // 2
    return np.partition(x, at, axis=axis or 0).take(at, axis=axis or 0)


def sample_size(width: int) -> int:
    """How many rows a sample has."""
    return min(4096, max(1024, 2**22 // width))


def median_row(rows: np.ndarray) -> np.ndarray:
    """The lower median of each column over every k-th row."""
    n, width = rows.shape
    return lower_median(rows[:: max(1, n // max(1024, 2**22 // width))], axis=0)


def matrix_length(rows: np.ndarray) -> float:
    """The length of a matrix's rows: a lower median over its sample."""
    lengths = np.linalg.norm(rows[draw(len(rows), sample_size(rows.shape[1]))].astype(np.float64), axis=1)
    return float(lower_median(lengths[lengths > 0]))


def unit_rows(rows: np.ndarray, length: float, wider: int) -> np.ndarray:
    """Rows divided by the length in float32."""
    unit = rows.astype(np.float32) / np.float32(length)
    return unit.astype(np.float64) if wider <= 1024 else unit


def usable(theirs: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Rows that are finite, hold more than one value and are not much longer than others.

    With `among` the median length is that of rows that also hold more than one value."""
    finite = np.isfinite(theirs).all(1)
    varied = (theirs != theirs[:, :1]).any(1)
    lengths = np.linalg.norm(np.where(finite[:, None], theirs, 0).astype(np.float64), axis=1)
    counted = finite & varied if among is not None else finite
    if not counted.any():
        return counted
    return finite & varied & (lengths <= 20 * lower_median(lengths[counted]))


def factor(theirs: np.ndarray, ours: np.ndarray) -> float:
    """maps.md, factor(theirs, ours)."""
    n, d = ours.shape
    step = max(1, n // min(2048, max(1, 2**20 // d)))
    theirs, ours = theirs[::step], ours[::step]
    numbers = np.abs(ours).ravel()
    z = lower_median(numbers[:: max(1, numbers.size // 100_000)])
    large = np.abs(ours) >= z
    with np.errstate(divide="ignore", invalid="ignore"):
        found = float(lower_median((theirs / ours)[large]))
    return found if found > 0 else float(np.linalg.norm(theirs) / np.linalg.norm(ours))


def cosines(a: np.ndarray, b: np.ndarray, axis: int = 1) -> np.ndarray:
    """Cosines of rows (or columns) with their counterparts."""
    lengths = np.linalg.norm(a, axis=axis) * np.linalg.norm(b, axis=axis)
    return (a * b).sum(axis) / np.maximum(lengths, 1e-300)


@dataclass
class Map:
    """The aligned map of one matrix."""

    kind: str  # "columns" or "turned"
    aligned: bool
    row_scale: float
    median_cosine: float
    columns: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    signs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    offsets: np.ndarray = field(default_factory=lambda: np.zeros(0))
    share: float = 1.0
    turn: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    compared: int = 0
    whole: float = 0.0  # a turn's cosine in all components
    shifted: bool = False  # whether "row constants" is a step

    def steps(self) -> set[str]:
        """Names of the undone steps, except "scale"."""
        if self.kind == "turned":
            return {"rotation"}
        moved = (self.columns != np.arange(len(self.columns))).any()
        steps = {"columns": moved, "signs": (self.signs < 0).any(), "offsets": self.offsets.any()}
        return {name for name, listed in (steps | {"row constants": self.shifted}).items() if listed}

    def __call__(self, e: np.ndarray, o: np.ndarray, constants: bool) -> np.ndarray:
        """Rows of the suspect in the original's coordinates."""
        e, o = e.astype(np.float64), o.astype(np.float64)
        if self.kind == "turned":
            return e @ self.turn
        e = e[:, self.columns] * self.signs - self.offsets
        if constants:
            e = e - np.median(e - self.row_scale * o, axis=1, keepdims=True)
        return e


def pairs(theirs: np.ndarray, ours: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """A sample of pairs in unit rows, and both lengths."""
    wider = max(theirs.shape[1], ours.shape[1])
    n = min(len(theirs), len(ours))
    ids = draw(n, wanted)
    ids = ids[usable(theirs[ids])]
    lengths = matrix_length(theirs), matrix_length(ours)
    return unit_rows(theirs[ids], lengths[0], wider), unit_rows(ours[ids], lengths[1], wider), *lengths


def by_columns(theirs: np.ndarray, ours: np.ndarray, constants: bool) -> Map | None:
    """Unchanged, or columns reordered and flipped."""
    d = ours.shape[1]
    if theirs.shape[1] != d:
        return None
    x, y, their_length, our_length = pairs(theirs, ours, sample_size(d))
    if len(x) < 16:
        return None
    shifted = False
    if constants:
        c = x.mean(1) / x.std(1, ddof=1) - y.mean(1) / y.std(1, ddof=1)
        shifted = float(np.median(np.abs(c - lower_median(c)))) > 0.1
        x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    a, b = x - median_row(x), y - median_row(y)
    unit = [m[::2] / np.maximum(np.linalg.norm(m[::2], axis=0), 1e-300) for m in (a, b)]
    columns, signs, share, matched = np.arange(d), np.ones(d), 1.0, False
    loose = np.flatnonzero((unit[0] * unit[1]).sum(0) < 0.3)
    if len(loose) > d / 20:
        loose = np.arange(d)
    if len(loose) and len(a[::2]) >= 128:
        table = unit[1][:, loose].T @ unit[0][:, loose]  # ours down, theirs across
        best, back = np.abs(table).argmax(1), np.abs(table).argmax(0)
        own = np.arange(len(loose))
        mutual = (back[best] == own) & (np.abs(table[own, best]) >= 0.3)
        columns[loose[mutual]] = loose[best[mutual]]
        columns[loose[~mutual]] = np.setdiff1d(loose, loose[best[mutual]])
        signs[loose[mutual]] = np.where(table[own, best][mutual] < 0, -1.0, 1.0)
        share, matched = 1 - int((~mutual).sum()) / d, True
    restored, own_rows = a[:, columns] * signs, b
    if matched:
        restored, own_rows = restored[1::2], b[1::2]
    scale = factor(restored, own_rows)
    offsets = median_row(x[:, columns] * signs - scale * y)
    if np.sqrt((offsets**2).mean()) < 0.1 * np.sqrt((restored**2).mean()):
        offsets = np.zeros(d)
    median = float(np.median(cosines(restored, own_rows)))
    aligned, scale = median >= 0.3 and share >= 0.9, scale * their_length / our_length
    offsets = offsets * their_length
    compared = len(restored)
    return Map("columns", aligned, scale, median, columns, signs, offsets, share, compared=compared, shifted=shifted)


def procrustes(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """The turn that maps theirs to ours."""
    u, _, v = np.linalg.svd(theirs.T @ ours, full_matrices=False)
    return u @ v


def by_turning(theirs: np.ndarray, ours: np.ndarray, constants: bool) -> Map | None:
    """Turned: an orthogonal map fitted to all pairs, or for wide models to all but every fourth."""
    wider = max(theirs.shape[1], ours.shape[1])
    x, y, their_length, our_length = pairs(theirs, ours, max(4096, 4 * wider))
    if len(x) < 2 * wider:
        return None
    wide = min(theirs.shape[1], ours.shape[1]) > 1024
    seen = np.arange(len(x)) % 4 != 0 if wide else np.ones(len(x), bool)
    turn = procrustes(x[seen], y[seen])
    part = seen if wide else np.arange(len(x)) % 2 == 0
    rest, fitted = ~part, [m[part] - median_row(m[part]) for m in (x, y)]
    a, b = (m[rest] - median_row(m[rest]) for m in (x, y))
    check = turn if wide else procrustes(*fitted)
    minor = components(ours, constants)[:, int(0.75 * ours.shape[1]) :]
    median = float(np.median(cosines(a @ check @ minor, b @ minor)))
    scale, whole = factor(x @ turn, y) * their_length / our_length, float(np.median(cosines(a @ check, b)))
    return Map("turned", median >= 0.25, scale, median, turn=turn, compared=int(rest.sum()), whole=whole)


def varied_rows(ours: np.ndarray, wanted: int, constants: bool) -> np.ndarray:
    """A sample of the original's rows, without constant and broken ones, less their own mean where that is dropped."""
    rows = ours[draw(len(ours), wanted)].astype(np.float64)
    rows = rows[np.isfinite(rows).all(1) & (rows != rows[:, :1]).any(1)]
    return rows - rows.mean(1, keepdims=True) if constants else rows


def components(ours: np.ndarray, constants: bool) -> np.ndarray:
    """Principal components of the original, in columns, by descending eigenvalue."""
    rows = varied_rows(ours, 16384, constants)
    rows = rows - median_row(rows)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1].astype(np.float32).astype(np.float64)


def align(theirs: np.ndarray, ours: np.ndarray, constants: bool) -> Map:
    """The first attempt that aligns, or else the better of both."""
    attempts = [m for m in (by_columns(theirs, ours, constants),) if m is not None]
    if not attempts or not attempts[0].aligned:
        attempts += [m for m in (by_turning(theirs, ours, constants),) if m is not None]
    good = [m for m in attempts if m.aligned]
    best = max(attempts, key=lambda m: m.median_cosine / (0.25 if m.kind == "turned" else 0.3))
    return good[0] if good else best


class LeastSquares:
    """Two affine maps, each for the rows that it was not fitted to."""

    def __init__(self, theirs: np.ndarray, ours: np.ndarray, secret: bytes) -> None:
        wider = max(theirs.shape[1], ours.shape[1])
        lengths = matrix_length(theirs), matrix_length(ours)
        sample = draw(min(len(theirs), len(ours)), 8 * wider, secret)
        self.first = np.zeros(len(ours), bool)
        self.first[sample[::2]] = True
        self.maps = []
        for half in (sample[::2], sample[1::2]):
            half = half[usable(theirs[half], half)]
            if len(half) < wider:
                raise ValueError("too few pairs for a least-squares map")
            x, y = unit_rows(theirs[half], lengths[0], wider), unit_rows(ours[half], lengths[1], wider)
            c, o = median_row(x), median_row(y)
            size = np.maximum(np.linalg.norm(x - c, axis=1, keepdims=True), 1e-12)
            x, y = (x - c) / size, (y - o) / size
            g = x.T @ x
            g += 1e-3 * np.diag(g).mean() * np.eye(len(g))
            m = np.linalg.solve(g, x.T @ y)
            self.maps.append((c * lengths[0], m * (lengths[1] / lengths[0]), o * lengths[1]))

    def __call__(self, e: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Rows of these tokens in the original's coordinates."""
        results = [(e.astype(np.float64) - c) @ m + o for c, m, o in self.maps]
        return np.where(self.first[ids][:, None], results[1], results[0])
