"""Columns restored by cosine similarity, on real rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment.columns import by_cosine
from irwm.alignment.sample import Sample, factor

NONE = np.empty(0, dtype=np.int64)


@pytest.fixture(scope="module")
def rows(demo_path: Path) -> torch.Tensor:
    return irwm.open_checkpoint(demo_path).embedding(range(300, 2300)).double()


def sample(theirs: torch.Tensor, ours: torch.Tensor) -> Sample:
    return Sample(theirs, ours, np.arange(len(ours)), NONE, 0)


def test_order_signs_scale_and_offsets_are_recovered_exactly(rows: torch.Tensor) -> None:
    rng = np.random.default_rng(0)
    d = rows.shape[1]
    order, signs = rng.permutation(d), rng.choice([-1.0, 1.0], d)
    offsets = rng.normal(size=d)
    fit = by_cosine(sample(3.0 * (rows * torch.from_numpy(signs))[:, order] + offsets, rows), row_constants=False)
    assert fit.fits
    assert np.array_equal(order[fit.columns], np.arange(d))
    assert np.array_equal(fit.signs, signs)
    assert fit.scale == pytest.approx(3.0, rel=1e-6)
    assert np.allclose(fit.offsets, fit.signs * offsets[fit.columns], atol=1e-6)
    assert fit.uniqueness == 1.0


def test_a_constant_per_row_is_ignored_if_the_model_ignores_it(rows: torch.Tensor) -> None:
    constants = 5 * rows.std() * torch.randn(len(rows), 1, generator=torch.Generator().manual_seed(0))
    shifted = sample(rows + constants, rows)
    assert not by_cosine(shifted, row_constants=False).fits
    fit = by_cosine(shifted, row_constants=True)
    assert fit.fits
    assert float(np.median(fit.cosines)) > 0.999


def test_rotation_is_not_mistaken_for_column_reordering(rows: torch.Tensor) -> None:
    d = rows.shape[1]
    turn = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    assert not by_cosine(sample(rows @ turn, rows), row_constants=False).fits


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_pruning_is_not_mistaken_for_scaling(rows: torch.Tensor, share: float) -> None:
    limit = rows.abs().flatten().quantile(share)
    assert factor(torch.where(rows.abs() > limit, rows, 0), rows) == pytest.approx(1.0)
    noisy = 0.2 * rows + 0.1 * rows.std() * torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))
    assert factor(noisy, rows) == pytest.approx(0.2, rel=0.05)
