"""The map that does not depend on a score: the rows it is fitted to, and the meaning of its agreement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment.least_squares import LeastSquares, least_squares
from irwm.alignment.rows import Rows
from tools.copies import write_embedding
from tools.small_models import write_llama

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
