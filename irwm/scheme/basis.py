"""The secret orthogonal basis that marks and noise are written in (Algorithms 4 to 6), a different one for every row.

Marks and noise are written in coordinates of e_i B_i, so that without the key, the changed numbers of a row cannot be
identified. The paper has one B for all rows. Two copies of a release then differ by vectors that are sparse in the same
basis, and thousands of sparse vectors reveal their basis: maximising the sum of fourth powers finds B from two copies
within a minute, and with B the marks (`python -m benchmarks.hiding` does it). Rows with different bases cannot be
pooled in this way.

Each basis must be secret, orthogonal and cheap at d = 4096; none needs to be dense in memory. Ours is
B_i = D_i C P D'_i C, with the row's own random signs D_i and D'_i, a random order P and the orthonormal cosine
transform C: O(d log d) a row. It belongs to the release and not to the recipient, so a suspect is converted once
for all recipients (Algorithm 6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from irwm.scheme import keystream

# float32 or float64.
Float = TypeVar("Float", np.float32, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Orthogonal (d, d) matrices B_i, stored as an order and the key of a stream of signs; without these, the identity.

    Attributes:
        order: (d,) int64, P as an index vector: (x P)[j] = x[order[j]].
        sign_key: the key of the stream of signs.
    """

    order: NDArray[np.int64] | None = field(default=None, repr=False)
    sign_key: bytes = field(default=b"", repr=False)

    @classmethod
    def derive(cls, stream_key: bytes, d: int) -> Basis:
        """The basis derived from a purpose key (docs/key-format.md)."""
        order = np.argsort(keystream.words(stream_key, d), kind="stable")
        return cls(order, keystream.derive(stream_key, b"irwm", b"irwm/v3/row-signs"))

    def into(self, rows: NDArray[Float], tokens: NDArray[np.int64]) -> NDArray[Float]:
        """(n, d) rows e_i B_i of the tokens i (n,), in the precision of the rows; a row that is not finite gives a row
        that is not finite."""
        if self.order is None:
            return rows
        outer, inner = self.signs(tokens)
        from scipy.fft import dct  # takes a quarter of a second to import, and is not needed for marks in the open

        mixed = np.take(dct(rows * outer, norm="ortho", axis=1, overwrite_x=True), self.order, axis=1)
        mixed *= inner
        return np.asarray(dct(mixed, norm="ortho", axis=1, overwrite_x=True))

    def out_of(self, rows: NDArray[Float], tokens: NDArray[np.int64]) -> NDArray[Float]:
        """(n, d) rows e_i B_i^T, converted back from the basis, in the precision of the rows."""
        if self.order is None:
            return rows
        outer, inner = self.signs(tokens)
        back = np.empty_like(self.order)
        back[self.order] = np.arange(self.order.size)
        from scipy.fft import idct

        mixed = idct(rows, norm="ortho", axis=1)
        mixed *= inner
        mixed = idct(np.take(mixed, back, axis=1), norm="ortho", axis=1, overwrite_x=True)
        mixed *= outer
        return np.asarray(mixed)

    def signs(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """(n, d) 1 or -1 twice, the diagonals of D_i and D'_i of the tokens i (n,)."""
        assert self.order is not None
        d = self.order.size
        each = -(-d // 32)  # words of a diagonal; a row's second diagonal follows its first
        words = np.empty((tokens.size, 2 * each), dtype="<u4")
        # Consecutive tokens are read together, which is the fastest way to read the stream.
        ends = np.flatnonzero(np.diff(tokens, append=-1) != 1) + 1
        for start, stop in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=False):
            count = (stop - start) * 2 * each
            run = keystream.words32(self.sign_key, int(tokens[start]) * 2 * each, count)
            words[start:stop] = run.reshape(stop - start, -1)
        signs = np.unpackbits(words.view(np.uint8), bitorder="little").view(np.int8).reshape(tokens.size, 2, 32 * each)
        signs *= -2  # a bit 0 is 1, a bit 1 is -1
        signs += 1
        return signs[:, 0, :d], signs[:, 1, :d]
