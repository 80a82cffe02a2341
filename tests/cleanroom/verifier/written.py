"""Content of a release: noise, equations, marked rows and the whole matrix (docs/key-format.md, What is written)."""

from __future__ import annotations

import hashlib

import numpy as np

from .keys import PlaceKey
from .models import Checkpoint, Layer0, encode


class Original:
    """The original for one place of a key, with A, attempt and scale worked out."""

    def __init__(self, model: Checkpoint, key: PlaceKey) -> None:
        self.model, self.key = model, key
        self.name = model.matrix(key.name)
        self.single = model.array(self.name)
        self.rows = self.single.astype(np.float64)
        self.embedding = self.rows if key.name == "embedding" else model.array(model.embedding).astype(np.float64)
        self.layer0 = Layer0(model)
        query, reference, marked = key.tokens
        self.a = self.layer0.invariant(self._for_a(query), self._for_a(reference))
        self.attempt = self._attempt()
        self.scale, self.solutions, self.turned = self._solve()
        read = (model.array(model.embedding)[query], model.array(model.embedding)[reference], self.single[marked])
        rows = b"".join(np.ascontiguousarray(x, "<f4").tobytes() for x in read)
        self.rows_digest = hashlib.sha256(b"irwm/v3/rows\0" + rows)

    def _for_a(self, tokens: np.ndarray) -> np.ndarray:
        if self.key.name == "embedding" and self.key.m:
            return self.with_noise(tokens)
        return self.embedding[tokens]

    def with_noise(self, ids: np.ndarray) -> np.ndarray:
        """Rows with the recipient's noise, unrounded. Not called for marked rows."""
        key, rows = self.key, self.rows[ids]
        if not key.m:
            return rows.copy()
        places, signs = (x[ids] for x in key.noise())
        inside = key.into_basis(rows, ids)
        lengths = np.linalg.norm(rows, axis=1)
        at = np.arange(len(ids))[:, None]
        if key.spread > 0:
            inside[at, places] += signs * (key.spread * lengths / np.sqrt(key.d))[:, None]
        elif key.parameters["noise_level"] == "row":
            inside[at, places] = signs * (lengths / np.sqrt(key.d) * key.noise_sizes()[ids])[:, None]
        else:
            inside[at, places] = signs * self.global_size()
        result = key.out_of_basis(inside, ids)
        result[lengths == 0] = 0.0
        return result

    def global_size(self) -> float:
        """Noise of one size for all rows: the deviation of a sample of the embedding's numbers."""
        step = (self.key.s - 1) / 4095
        ids = np.unique([int(k * step) for k in range(4095)] + [self.key.s - 1])
        return float(self.embedding[ids].std(ddof=1))

    def permuted(self, attempt: int, a: np.ndarray | None = None) -> np.ndarray:
        """A' of an attempt."""
        return np.take_along_axis(self.a if a is None else a, self.key.constraint_permutations(attempt), axis=1)

    def _attempt(self) -> int:
        for attempt in range(1001):
            condition = float(np.linalg.cond(self.permuted(attempt)[:, -self.key.t :]))
            if condition < self.key.parameters["condition_limit"]:
                return attempt
        raise ValueError("no attempt has a condition below the limit")

    def _solve(self) -> tuple[float, np.ndarray, np.ndarray]:
        key = self.key
        marked, equations = key.tokens[2], self.permuted(self.attempt)
        y = key.into_basis(self.rows[marked], marked)
        v = np.take_along_axis(y, key.row_permutations, axis=1)
        x = -np.linalg.solve(equations[:, -key.t :], equations[:, : -key.t] @ v[:, : -key.t].T).T
        scale = key.parameters["scale"]
        if scale == "auto":
            scale = float(np.sqrt((x * x).mean() / (y * y).mean()))
        return float(scale), x, y

    def marked_rows(self) -> np.ndarray:
        """The marked rows as written, before rounding."""
        key = self.key
        marked, y = key.tokens[2], self.turned.copy()
        y[np.arange(key.l)[:, None], key.row_permutations[:, -key.t :]] = self.solutions / self.scale
        written = key.out_of_basis(y, marked)
        if key.name == "embedding" and self.model.drops_row_constants():
            ones = key.into_basis(np.ones((key.l, key.d)), marked)
            v = np.take_along_axis(ones, key.row_permutations, axis=1)
            equations = self.permuted(self.attempt)
            x = -np.linalg.solve(equations[:, -key.t :], equations[:, : -key.t] @ v[:, : -key.t].T).T
            ones[np.arange(key.l)[:, None], key.row_permutations[:, -key.t :]] = x / self.scale
            constant, change = key.out_of_basis(ones, marked), written - self.rows[marked]
            low = np.full(key.l, -np.abs(change).max())
            high = -low
            for _ in range(60):
                middle = (low + high) / 2
                above = np.median(change + middle[:, None] * constant, axis=1) > 0
                high, low = np.where(above, middle, high), np.where(above, low, middle)
            written = written + ((low + high) / 2)[:, None] * constant
        return written

    def written_rows(self) -> np.ndarray:
        """The whole matrix as the release holds it, before rounding."""
        marked, rows = self.key.tokens[2], self.rows.copy()
        if self.key.m:
            others = np.setdiff1d(np.flatnonzero(np.linalg.norm(self.rows, axis=1) > 0), marked)
            rows[others] = self.with_noise(others)
        rows[marked] = self.marked_rows()
        return rows

    def written_matrix(self) -> np.ndarray:
        """The same as bits of the file's dtype."""
        return encode(self.written_rows(), self.model.tensors[self.name][1])
