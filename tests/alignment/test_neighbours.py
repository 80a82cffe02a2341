"""Certain pairs are nearest neighbours; the map by least squares is fitted to rows that the secret chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment.least_squares import LeastSquares, least_squares
from irwm.alignment.neighbours import certain_pairs, nearest
from irwm.alignment.rows import Rows
from tools.copies import write_embedding
from tools.small_models import write_llama


def rows(count: int, seed: int = 0) -> torch.Tensor:
    spread = torch.arange(1, 97).float() ** -0.5
    return torch.randn(count, 96, generator=torch.Generator().manual_seed(seed)) * spread


@pytest.mark.parametrize(("noise", "most_are_told"), [(0.001, True), (0.02, True), (0.5, False)])
def test_neighbours_equal_those_of_the_full_comparison(noise: float, most_are_told: bool) -> None:
    ours = rows(3000)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(1))
    theirs = 1.7 * (ours + noise * rows(3000, seed=2))[order]
    found = certain_pairs(theirs, ours)
    usable = torch.ones(3000, dtype=torch.bool)
    near = nearest(theirs, ours, usable, usable)
    told = found >= 0
    assert torch.equal(found[told], near.best[told])
    assert bool(near.mutual[told].all())
    assert (float(told.float().mean()) > 0.9) == most_are_told


def test_equal_rows_have_no_certain_partner() -> None:
    ours = rows(2000)
    ours[7] = ours[8]
    theirs = ours.clone()
    theirs[100] = theirs[101]
    found = certain_pairs(theirs, ours)
    assert found[7] == -1
    assert found[8] == -1
    assert set(found[[100, 101]].tolist()) <= {-1, 101}
    assert int((found == torch.arange(2000)).sum()) > 1900


def test_unrelated_rows_have_no_certain_partner() -> None:
    found = certain_pairs(rows(2500, seed=3), rows(3000))
    assert float((found >= 0).float().mean()) < 0.05


SECRET = bytes([5]) * 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    return irwm.open_checkpoint(write_llama(tmp_path_factory.mktemp("model") / "model", vocab_size=2400))


def fit(suspect: irwm.Checkpoint, model: irwm.Checkpoint, secret: bytes = SECRET) -> LeastSquares:
    made = least_squares(Rows.of(suspect), Rows.of(model), [np.arange(model.vocab_size)], secret)
    assert made is not None
    return made


def test_samples_are_derived_from_the_secret(model: irwm.Checkpoint) -> None:
    one, again, other = fit(model, model), fit(model, model), fit(model, model, bytes(32))
    assert all(np.array_equal(a, b) for a, b in zip(one.samples, again.samples, strict=True))
    assert not np.array_equal(one.samples[0], other.samples[0])
    assert not np.intersect1d(*one.samples).size


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.99, 1.0), (0.33, 0.75, 1.0), (1.0, 0.0, 0.4)])
def test_a_quarter_of_rows_agree_with_a_third_corrupted(
    model: irwm.Checkpoint, tmp_path: Path, share: float, low: float, high: float
) -> None:
    embedding = model.embedding()
    generator = torch.Generator().manual_seed(1)
    corrupted = torch.randperm(len(embedding), generator=generator)[: int(share * len(embedding))]
    drawn = torch.randn(len(corrupted), embedding.shape[1], generator=generator)
    turned, _ = torch.linalg.qr(torch.randn(embedding.shape[1], embedding.shape[1], generator=generator))
    embedding[corrupted] = drawn * embedding.std()
    suspect = write_embedding(model, embedding @ turned, tmp_path / "x")
    assert low <= fit(suspect, model).agreement <= high
