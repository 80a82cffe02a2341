"""Columns restored by cosine similarity and by orthogonal Procrustes, which is scored only in the minor components."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment import rotation as of_rotation
from irwm.alignment.columns import by_cosine
from irwm.alignment.result import ALIGNED_COSINE, MINOR_COSINE
from irwm.alignment.rotation import Rotation, best_rotation, by_procrustes, leading_count, polar_factor, procrustes
from irwm.alignment.rows import principal_components
from irwm.alignment.sample import Sample, centred, factor, row_cosines


def embedding(path: Path) -> torch.Tensor:
    return irwm.open_checkpoint(path).embedding(range(300, 4096)).double()


def fit_to(each: Sample) -> Rotation:
    minor = principal_components(each.ours).flip(1)[:, leading_count(each.ours.shape[1]) :]
    return by_procrustes(each, minor)


def rotation(d: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).Q


def test_a_rotation_and_a_factor_are_recovered(demo_path: Path) -> None:
    ours = embedding(demo_path)
    turn = rotation(ours.shape[1])
    fit = fit_to(sample(2.5 * ours @ turn, ours))
    assert fit.fits
    matrix, scale = best_rotation(sample(2.5 * ours @ turn, ours))
    assert np.abs(matrix - turn.T.numpy()).max() < 1e-6
    assert scale == pytest.approx(2.5, rel=1e-6)
    assert abs(float(np.median(fit.decoy_cosines))) < 0.05


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_rotation_with_noise_stays_above_the_threshold(demo_path: Path, share: float) -> None:
    ours = embedding(demo_path)
    noise = share * ours.std() * torch.randn(ours.shape, generator=torch.Generator().manual_seed(2))
    assert fit_to(sample((ours + noise) @ rotation(ours.shape[1]), ours)).fits


def test_independently_trained_models_agree_only_in_leading_components(gemma_path: Path, phi3_path: Path) -> None:
    """Same text, same tokenizer, other seed and architecture: a plain Procrustes score would call them related."""
    theirs, ours = embedding(phi3_path), embedding(gemma_path)
    a, b = centred(theirs), centred(ours)
    plain = float(np.median(row_cosines(a[1::2] @ procrustes(a[::2], b[::2]), b[1::2])[0]))
    assert plain > 0.6 * ALIGNED_COSINE
    fit = fit_to(sample(theirs, ours))
    assert not fit.fits
    assert float(np.median(fit.cosines)) < 0.5 * MINOR_COSINE


@pytest.mark.slow
def test_widened_stream_is_rotated_and_narrowed_together(demo_path: Path) -> None:
    """Orthonormal rows map d coordinates to d + 64 without changing a length: the model computes the same."""
    ours = embedding(demo_path)
    d = ours.shape[1]
    wide = rotation(d + 64)[:d]
    fit = fit_to(sample(ours @ wide, ours))
    assert fit.fits
    assert np.abs(best_rotation(sample(ours @ wide, ours))[0] - wide.T.numpy()).max() < 1e-6


def test_random_unrelated_model_scores_like_wrong_rows() -> None:
    generator = torch.Generator().manual_seed(3)
    theirs, ours = (torch.randn(2000, 96, generator=generator, dtype=torch.float64) for _ in range(2))
    fit = fit_to(sample(theirs, ours))
    # Fitting to wrong pairs from the start gives the same null as rotating wrong rows by a fit to right ones.
    decoy = fit_to(sample(theirs.roll(1, 0), ours))
    for cosines in (fit.cosines, fit.decoy_cosines, decoy.cosines):
        assert abs(float(np.median(cosines))) < 0.02
        assert float(np.std(cosines)) == pytest.approx(24**-0.5, rel=0.1)


@pytest.mark.slow
def test_a_few_planted_rows_do_not_choose_the_principal_components(demo_path: Path) -> None:
    ours = embedding(demo_path)
    planted = torch.cat((ours, 19 * ours.norm(dim=1).median() * torch.eye(8, ours.shape[1], dtype=ours.dtype)))
    clean, corrupted = (principal_components(rows).flip(1)[:, :16] for rows in (ours, planted))
    overlap = torch.linalg.svdvals(clean.T @ corrupted)
    assert float(overlap.min()) > 0.95


@pytest.mark.slow
def test_newton_polar_factor_equals_the_svd_factor() -> None:
    """Also if the smallest singular value is a millionth of the greatest; a singular matrix has none."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(300, 300, generator=generator, dtype=torch.float64) for _ in range(2))
    left, right = torch.linalg.qr(left).Q, torch.linalg.qr(right).Q
    values = torch.logspace(0, -6, 300, dtype=torch.float64)
    found = polar_factor((left * values) @ right)
    assert found is not None
    assert float((found - left @ right).abs().max()) < 1e-6
    values[-3:] = 0
    singular = (left * values) @ right
    singular[:, 5] = singular[:, 7]
    found = polar_factor(singular)
    assert found is None or float((found.T @ found - torch.eye(300)).abs().max()) < 1e-4


@pytest.fixture
def very_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """For models of more than a thousand columns: the rotation that was scored is the one that is used."""
    monkeypatch.setattr(of_rotation, "MOST_BY_SVD", 16)


@pytest.mark.slow
@pytest.mark.usefixtures("very_wide")
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_wide_models_use_the_scored_rotation(demo_path: Path, share: float) -> None:
    ours = embedding(demo_path)
    turn = rotation(ours.shape[1])
    noise = share * ours.std() * torch.randn(ours.shape, generator=torch.Generator().manual_seed(2))
    pairs = sample(2.5 * (ours + noise) @ turn, ours)
    fit = fit_to(pairs)
    assert fit.fits
    assert fit.turn is not None
    matrix, scale = best_rotation(pairs, fit.turn)
    assert np.abs(matrix.T @ matrix - np.eye(len(matrix))).max() < 1e-5
    assert scale == pytest.approx(2.5, rel=0.01 + 0.2 * share)
    # Nearly as good as the fit to all rows, which the held-out rows would have improved.
    apart = [float(np.linalg.norm(each - turn.T.numpy())) for each in (matrix, best_rotation(pairs)[0])]
    assert apart[0] <= 1.25 * apart[1] + 1e-4


@pytest.mark.usefixtures("very_wide")
def test_independently_trained_wide_models_do_not_align(gemma_path: Path, phi3_path: Path) -> None:
    for theirs, ours in ((phi3_path, gemma_path), (gemma_path, phi3_path)):
        fit = fit_to(sample(embedding(theirs), embedding(ours)))
        assert not fit.fits
        assert abs(float(np.median(fit.decoy_cosines))) < 0.05


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
