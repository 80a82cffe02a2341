"""Noise (Algorithm 4): identifies who leaked a copy and, if it replaces numbers, hides a mark from recipients.

In the basis B every row outside the recipient's L_W gets noise at `noise_coordinates` places. Places, signs and sizes
are derived from the recipient's own key: noise that is equal for all would cancel in the difference of two copies.

*Added* (`spread` is above 0), each place gets plus or minus that share of the row's deviation, added to its value, with
a separate sign: a spread-spectrum fingerprint (Cox et al. 1997), which costs little and is read from all rows together.
It does not hide marked rows from recipients who compare copies.

*Written over* (`noise_level` "row" or "global"), as in the paper, the places are alternately set to plus and minus one
size. The paper's size is one number, sigma_E. Solved entries vary more: they come from A2^-1, whose few weakest
directions make the entries of some marked rows large and of others small, and an observer without B still sees their
length. So by default the size varies from row to row like theirs (docs/collusion.md measures both).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.checkpoint.matrix import Matrix
from irwm.scheme import keystream
from irwm.scheme.basis import Basis, Float
from irwm.scheme.derivation import Derivation
from irwm.scheme.parameters import Parameters
from irwm.scheme.row_pool import LARGEST_BY_FLOAT32, SMALLEST_BY_FLOAT32

# Rows used to estimate sigma_E, the single deviation of the embedding: a million numbers give an accuracy of 1/1000.
DEVIATION_ROWS = 4096
# Mean of `sizes_of`: the factor between a sign pattern's sum over this noise and its sum over noise of size 1.
MEAN_SIZE = math.sqrt(math.pi) / 2
# When noise is read, a difference with less than this share of the usual variance gets no greater weight: it may
# be rounding.
LEAST_VARIANCE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """One recipient's noise on one original.

    Attributes:
        basis: B_i of every row; the identity if the mark is not hidden.
        coordinates: num_noise, 0 without noise.
        size: `noise_size` of `Parameters`.
        stream_key: the purpose key that the places are derived from.
        deviation: sigma_E if it is the size, as in the paper; else None.
        untouched: (l,) ascending L_W, the rows with the mark and without noise.
    """

    basis: Basis
    coordinates: int
    size: float | str
    stream_key: bytes = field(repr=False)
    deviation: float | None
    untouched: NDArray[np.int64] = field(repr=False)

    def over(self, rows: NDArray[Float], tokens: NDArray[np.int64]) -> NDArray[Float]:
        """(n, d) noisy rows of W_e, for the original rows (n, d) of these tokens (n,), computed in their precision.

        A row of zeros stays zero: its deviation is 0, and noise of size sigma_E would turn padding into words.
        """
        if not self.coordinates or not len(rows):
            return rows.copy()
        d = rows.shape[1]
        squares = np.einsum("ij,ij->i", rows, rows)
        if not ((squares > SMALLEST_BY_FLOAT32**2) & (squares < LARGEST_BY_FLOAT32**2)).all():
            squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        deviations = np.sqrt(squares) / np.sqrt(d)
        kept = np.isin(tokens, self.untouched) | ~(deviations > 0)
        positions, signs = places(self.stream_key, tokens, self.coordinates, d, adds=adds(self.size))
        noise = signs * self._sizes(deviations, tokens)[:, None]
        # Added noise is converted alone, which takes half as long as converting the rows to the basis and back.
        inside: NDArray[Float] = np.zeros_like(rows) if adds(self.size) else self.basis.into(rows.copy(), tokens)
        np.put_along_axis(inside, positions, noise, axis=1)
        noisy: NDArray[Float] = self.basis.out_of(inside, tokens)
        if adds(self.size):
            noisy += rows
        noisy[kept] = rows[kept]
        return noisy

    def _sizes(self, deviations: NDArray[np.float64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) sizes of the noise of rows with these deviations ||row|| / sqrt(d) (n,)."""
        if isinstance(self.size, float):
            return deviations * self.size
        if self.deviation is not None:
            return np.full(tokens.size, self.deviation)
        return deviations * sizes_of(self.stream_key, tokens)

    def added(self, model: Checkpoint) -> AddedNoise | None:
        """The noise on the rows that A is computed from, in the form that the invariant takes; None without noise, and
        for noise in an output head, which A does not read."""
        if not self.coordinates or model.whole is not None:
            return None
        settings = self.coordinates, self.size, self.deviation
        return AddedNoise(self, model, (self.stream_key, self.basis.sign_key, self.untouched.tobytes(), settings))


@dataclass(frozen=True, slots=True)
class AddedNoise:
    """The change of a model's rows by noise, in float64; see `Noise.added`.

    Attributes:
        noise: the noise.
        model: the original.
        equal_by: the noise's own values; two that agree in them and in the model are equal.
    """

    noise: Noise = field(compare=False, repr=False)
    model: Checkpoint
    equal_by: tuple[object, ...] = field(repr=False)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """(n, d) values to add to the rows of the tokens (n,)."""
        rows = self.model.embedding(tokens).double().numpy()
        return torch.from_numpy(self.noise.over(rows, tokens.numpy()) - rows)


def noise_of(derivation: Derivation, params: Parameters, model: Matrix, marked_rows: NDArray[np.int64]) -> Noise:
    """The noise of a recipient's copy of `model`, a matrix of the original."""
    basis = Basis.derive(derivation.basis_key(), model.hidden_size) if params.hidden else Basis()
    if not params.noise_coordinates:
        return Noise(basis, 0, params.noise_size, b"", None, np.empty(0, dtype=np.int64))
    return Noise(
        basis=basis,
        coordinates=params.noise_coordinates,
        size=params.noise_size,
        stream_key=derivation.noise_key(),
        deviation=embedding_deviation(model) if params.noise_level == "global" else None,
        untouched=np.sort(marked_rows),
    )


def adds(size: float | str) -> bool:
    """Whether noise of this `noise_size` is added to a row's values, instead of replacing them."""
    return not isinstance(size, str)


def places(
    stream_key: bytes, tokens: NDArray[np.int64], coordinates: int, d: int, *, adds: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The places of the noise of the rows of `tokens` (n,) in the basis, and its signs (docs/key-format.md).

    The d coordinates are divided into as many ranges of nearly equal length as there are noise coordinates. Each range
    gets one, so no two are on the same coordinate. A random rotation of all places prevents that a range always gets
    the same sign.

    Returns:
        (n, coordinates) int64 positions, and (n, coordinates) signs, 1 or -1: separate for each place if noise is
        added, else alternating.
    """
    first = int(tokens.min())
    words = place_words(stream_key, first, int(tokens.max()) + 1 - first, coordinates)
    return placed(words[tokens - first], coordinates, d, adds=adds)


def place_words(stream_key: bytes, first: int, count: int, coordinates: int) -> NDArray[np.uint32]:
    """(count, coordinates + 1) words of the stream, for `count` rows from row `first` on."""
    each = coordinates + 1
    return keystream.words32(stream_key, first * each, count * each).reshape(count, each)


def placed(
    words: NDArray[np.uint32], coordinates: int, d: int, *, adds: bool
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """`places` from `place_words` (n, coordinates + 1), whose rows may belong to several recipients.

    A word's lowest bit is a sign and the 31 others are a place, so that places say nothing about signs.
    """
    lowest = (words & 1).astype(np.int8)
    words = (words >> 1).astype(np.int64)
    edges = np.arange(coordinates + 1) * d // coordinates
    positions = (words[:, 1:] * np.diff(edges)) >> 31
    positions += edges[:-1]
    positions += (words[:, :1] * d) >> 31
    np.subtract(positions, d, out=positions, where=positions >= d)
    if adds:
        return positions, 1 - 2 * lowest[:, 1:]
    return positions, 1 - 2 * (lowest[:, :1] ^ (np.arange(coordinates, dtype=np.int8) & 1))


def sizes_of(stream_key: bytes, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n,) sizes of the noise of tokens (n,), in units of the row's deviation, with mean square 1 (docs/key-format.md).

    They follow Rayleigh's law, the length of two normal numbers: with cond(A2) below 30, two directions account for
    nearly all of the length of a row's solved entries, for every t.
    """
    first = int(tokens.min())
    own_key = keystream.derive(stream_key, b"irwm", b"irwm/v3/noise-size")
    words = keystream.words32(own_key, first, int(tokens.max()) + 1 - first)
    sizes: NDArray[np.float64] = np.sqrt(-np.log((words[tokens - first] + 1.0) / 2.0**32))
    return sizes


@lru_cache(maxsize=4)  # one number per model, for all its keys and recipients
def embedding_deviation(model: Matrix) -> float:
    """sigma_E, from at most `DEVIATION_ROWS` rows spread evenly over the vocabulary."""
    rows = np.unique(np.linspace(0, model.vocab_size - 1, DEVIATION_ROWS).astype(np.int64))
    return float(model.embedding(rows).double().std())
