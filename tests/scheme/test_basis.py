"""The structured basis compared with its dense form, and the properties of a basis."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from irwm.scheme import keystream
from irwm.scheme.basis import Basis

KEY = bytes(range(32))
TOKENS = np.array([7, 8, 3, 128_255, 0])
SIZES = [2, 3, 7, 64, 101, 384, 509, 896]  # odd and prime ones too: no family's d need be a power of two


def dense(basis: Basis, d: int, token: int) -> np.ndarray:
    """B_i itself, (d, d), from the formulas of irwm/scheme/basis.py and not from its code."""
    assert basis.order is not None
    j, k = np.arange(d)[:, None], np.arange(d)[None, :]
    cosines = np.sqrt(2.0 / d) * np.cos(np.pi * (2 * j + 1) * k / (2 * d))
    cosines[:, 0] = np.sqrt(1.0 / d)
    selection = np.zeros((d, d))
    selection[basis.order, np.arange(d)] = 1.0
    outer, inner = (np.diag(signs[0].astype(np.float64)) for signs in basis.signs(np.array([token])))
    return outer @ cosines @ selection @ inner @ cosines


def some_rows(d: int, n: int = 5) -> np.ndarray:
    return np.random.default_rng(d).standard_normal((n, d))


@pytest.mark.parametrize("d", SIZES)
def test_fast_basis_equals_the_dense_orthogonal_product(d: int) -> None:
    basis, rows = Basis.derive(KEY, d), some_rows(d)
    inside, outside = basis.into(rows, TOKENS), basis.out_of(rows, TOKENS)
    for row, token, one, other in zip(rows, TOKENS, inside, outside, strict=True):
        matrix = dense(basis, d, int(token))
        assert np.abs(matrix.T @ matrix - np.eye(d)).max() < 1e-12
        assert np.abs(one - row @ matrix).max() < 1e-12
        assert np.abs(other - row @ matrix.T).max() < 1e-12


def test_every_column_is_spread_over_all_coordinates() -> None:
    assert np.abs(dense(Basis.derive(KEY, 512), 512, 3)).max() <= 7 / np.sqrt(512)


@pytest.mark.parametrize("others", [(bytes([2]) * 32, 5), (bytes([1]) * 32, 6)], ids=["secrets", "rows"])
def test_bases_of_different_secrets_or_rows_are_unrelated(others: tuple[bytes, int]) -> None:
    d = 256
    one, other = (dense(Basis.derive(key, d), d, token) for key, token in ((bytes([1]) * 32, 5), others))
    overlap = one.T @ other  # orthogonal itself; of random bases its entries have deviation 1 / sqrt(d)
    assert np.abs(overlap).max() < 8 / np.sqrt(d)
    assert np.array_equal(one, dense(Basis.derive(bytes([1]) * 32, d), d, 5))


def test_signs_of_a_row_do_not_depend_on_where_reading_begins() -> None:
    basis = Basis.derive(KEY, 100)
    whole = basis.signs(np.arange(300))
    some = np.array([299, 4, 5, 6, 6, 0, 250])
    for one, other in zip(basis.signs(some), whole, strict=True):
        assert np.array_equal(one, other[some])
        assert set(np.unique(other).tolist()) == {-1, 1}
        assert abs(other.mean()) < 5 / np.sqrt(other.size)
    assert basis.into(np.empty((0, 100)), some[:0]).shape == (0, 100)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_non_finite_row_does_not_corrupt_others(broken: float) -> None:
    basis, rows = Basis.derive(KEY, 64), some_rows(64)
    damaged = rows.copy()
    damaged[2, 5] = broken
    for turn in (basis.into, basis.out_of):
        with np.errstate(invalid="ignore"):
            result = turn(damaged, TOKENS)
        assert not np.isfinite(result[2]).any()
        assert np.array_equal(np.delete(result, 2, axis=0), np.delete(turn(rows, TOKENS), 2, axis=0))


def test_basis_without_noise_is_the_identity() -> None:
    rows = some_rows(16)
    assert np.array_equal(Basis().into(rows, TOKENS), rows)
    assert np.array_equal(Basis().out_of(rows, TOKENS), rows)


@pytest.mark.parametrize("first", [0, 1, 15, 16, 17, 31, 32, 1000, 1023, 1024])
@pytest.mark.parametrize("count", [1, 16, 57])
def test_keystream_words_do_not_depend_on_the_start(first: int, count: int) -> None:
    stream = Cipher(algorithms.ChaCha20(KEY, bytes(16)), mode=None).encryptor().update(bytes(4 * 2000))
    whole = np.frombuffer(stream, dtype="<u4")
    assert np.array_equal(keystream.words32(KEY, first, count), whole[first : first + count])


def test_keystream_beyond_the_first_two_counter_bytes() -> None:
    first = 16 * 2**17 + 3
    long = keystream.words(KEY, first // 2 + 10).view("<u4")
    assert np.array_equal(keystream.words32(KEY, first, 12), long[first : first + 12])
