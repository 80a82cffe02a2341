"""Permutations from a keystream: a key's secret ones, and the public ones used for every rank (Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from irwm.scheme.keystream import public_key, words

# Words that are sorted at once, few enough to stay in the cache.
_WORDS_AT_ONCE = 1 << 18


def permutations(stream_key: bytes, count: int, size: int) -> NDArray[np.int64]:
    """(count, size) index vectors: row j is the stable argsort of the stream's j-th run of `size` words.

    Ties among 64-bit words (odds below size^2 / 2^65) are resolved to the lower index, so the result is defined for
    every stream. `v[permutation]` is the paper's row vector times its permutation matrix.
    """
    orders = np.empty((count, size), dtype=np.int64)
    rows = max(1, _WORDS_AT_ONCE // max(size, 1))
    for first in range(0, count, rows):
        some = min(rows, count - first)
        orders[first : first + some] = stable_orders(words(stream_key, some * size, first * size).reshape(some, size))
    return orders


def stable_orders(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """(n, d) the stable argsort of every row of `numbers` (n, d), in a quarter of the time of `np.argsort`.

    Each number's lowest bits are replaced by its position, so that sorting the numbers themselves, for which CPUs have
    instructions, sorts the positions too. If two numbers agree in all other bits, `np.argsort` sorts the row.
    """
    size = numbers.shape[1]
    bits = np.uint64(max(size - 1, 1).bit_length())
    places = np.uint64((1 << int(bits)) - 1)
    packed = (numbers & ~places) | np.arange(size, dtype=np.uint64)
    packed.sort(axis=1)
    rest = packed >> bits
    unsure = (rest[:, 1:] == rest[:, :-1]).any(axis=1)
    orders = (packed & places).astype(np.int64)
    orders[unsure] = np.argsort(numbers[unsure], axis=1, kind="stable")
    return orders


@dataclass(frozen=True, eq=False)
class NullOrders:
    """The public permutations used for every rank (Algorithm 3); a seed gives the same on every machine.

    The N shared orders act on each position's row after a separate order for the position. With only the shared ones, a
    key's parameters could be chosen for them: if few entries decide the statistic (one constraint, a huge scale), the N
    orders put some entries there more often than others, the same ones at every position, and thousands of positions
    add up to a "mark" in any model (tests/scheme/test_statistic.py demonstrates this).

    Attributes:
        shared: (N, d) int64.
        own: (l, d) int64, at least as many rows as are ranked.
    """

    shared: NDArray[np.int64]
    own: NDArray[np.int64]

    @classmethod
    def of(cls, seed: int, count: int, positions: int, size: int) -> NullOrders:
        """`count` shared orders of `size` numbers, and those of the given number of positions."""
        keys = (public_key(seed, f"irwm/v3/null-{name}") for name in ("shared", "positions"))
        return cls(*(permutations(key, number, size) for key, number in zip(keys, (count, positions), strict=True)))

    def __len__(self) -> int:
        return len(self.shared)

    def first(self, count: int) -> NullOrders:
        """The first `count` of the shared orders."""
        return NullOrders(self.shared[:count], self.own)

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """(N, d) int32, the inverses of the shared orders: the place of each coordinate in every order."""
        inverse = np.empty(self.shared.shape, dtype=np.int32)
        np.put_along_axis(inverse, self.shared, np.arange(self.shared.shape[1], dtype=np.int32)[None], axis=1)
        return inverse

    def apart(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """(l, d) rows, each in its position's own order."""
        return np.take_along_axis(rows, self.own[: len(rows)], axis=1)
