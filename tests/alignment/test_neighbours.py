"""Certain pairs are nearest neighbours; if no pair is certain, none is returned."""

from __future__ import annotations

import pytest
import torch

from irwm.alignment.neighbours import certain_pairs, nearest


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
