"""Random choices that can be repeated: HKDF-SHA256 and a ChaCha20 keystream, from a secret or from a public seed.

A key that could be chosen freely could be searched position by position until an unmarked row "passes"; a derived
one can only be searched as a whole. ChaCha20 (RFC 8439) and HKDF (RFC 5869) are fixed standards, so a key made today
gives the same choices bit for bit in ten years; a library's random generator makes no such promise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

# A ChaCha20 block has 64 bytes; the first bytes of what the library calls the nonce are the block's number.
_WORDS_IN_BLOCK = 16
# Words sorted at once, few enough to stay in the cache.
_WORDS_AT_ONCE = 1 << 18


def derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """32 bytes of HKDF-SHA256 (RFC 5869) over `secret`."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=info).derive(secret)


def public_key(seed: int, info: str) -> bytes:
    """The key of a stream that anybody can draw again: 32 bytes of HKDF over a public seed of up to 127 bits."""
    return derive(seed.to_bytes(16, "little", signed=True), b"irwm", info.encode("ascii"))


def words(stream_key: bytes, count: int, first: int = 0) -> NDArray[np.uint64]:
    """`count` little-endian uint64 words of the ChaCha20 keystream under `stream_key`, from word `first` on.

    The nonce is zero: every purpose has its own key, so no key meets two nonces.
    """
    return words32(stream_key, 2 * first, 2 * count).view("<u8")


def words32(stream_key: bytes, first: int, count: int) -> NDArray[np.uint32]:
    """`count` little-endian uint32 words of the same keystream from word `first` on; earlier ones are not computed."""
    block, skipped = divmod(first, _WORDS_IN_BLOCK)
    encryptor = Cipher(algorithms.ChaCha20(stream_key, block.to_bytes(16, "little")), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(4 * (skipped + count))), dtype="<u4")[skipped:]


def permutations(stream_key: bytes, count: int, size: int) -> NDArray[np.int64]:
    """(count, size) index vectors: row j is the stable argsort of the stream's j-th run of `size` words.

    Ties among 64-bit words (odds below size^2 / 2^65) fall to the lower index, so the result is defined for every
    stream. `v[permutation]` is the paper's row vector times its permutation matrix.
    """
    orders = np.empty((count, size), dtype=np.int64)
    rows = max(1, _WORDS_AT_ONCE // max(size, 1))
    for first in range(0, count, rows):
        some = min(rows, count - first)
        orders[first : first + some] = stable_orders(words(stream_key, some * size, first * size).reshape(some, size))
    return orders


def stable_orders(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """(n, d) the stable argsort of every row of `numbers` (n, d), in a quarter of the time of `np.argsort`.

    Each number's lowest bits are replaced by its place, so that sorting the numbers themselves, for which processors
    have instructions, sorts the places too. Where two numbers agree in all other bits, `np.argsort` sorts the row.
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


@dataclass(frozen=True, slots=True, eq=False)
class NullOrders:
    """The public permutations behind every rank (Algorithm 3); a seed gives the same on every machine.

    The N shared orders act on each position's row after an order of the position's own. With the shared ones alone a
    key's parameters can be chosen for them: where few entries decide the statistic (one constraint, a huge scale), the
    N orders put some entries there more often than others, the same ones at every position, and thousands of positions
    add up to a "mark" in any model (tests/scheme/test_statistic.py does it).

    Attributes:
        shared: (N, d) int64.
        own: (l, d) int64, or more rows than are ranked.
    """

    shared: NDArray[np.int64]
    own: NDArray[np.int64]

    @classmethod
    def of(cls, seed: int, count: int, positions: int, size: int) -> NullOrders:
        """`count` shared orders of `size` numbers, and those of so many positions."""
        keys = (public_key(seed, f"irwm/v3/null-{name}") for name in ("shared", "positions"))
        return cls(*(permutations(key, number, size) for key, number in zip(keys, (count, positions), strict=True)))

    def __len__(self) -> int:
        return len(self.shared)

    def apart(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """(l, d) rows, each in its position's own order."""
        return np.take_along_axis(rows, self.own[: len(rows)], axis=1)
