"""How many positions a verdict needs after damage: the formula compared with drawn ranks, and with real marks."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import chdtr

import irwm
from irwm.errors import ParameterError
from irwm.evidence.finding import COMBINATIONS, MAPS
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.explore.survival import NEEDED_LOG10_P, Survival
from irwm.scheme.probabilities import fisher_log10
from tools.copies import write_embedding
from ui.components.settings_form import positions_for, survival_sentence


def test_needed_p_matches_the_verdict() -> None:
    forms = 2  # the mark and the fingerprint
    assert pytest.approx(FOUND_LOG10_RISK - math.log10(COMBINATIONS * len(MAPS) * forms)) == NEEDED_LOG10_P


@pytest.mark.parametrize(("constraints", "noise"), [(2, 0.5), (8, 1.0), (10, 1.5), (64, 2.0)])
def test_simulated_ranks_are_found_as_often_as_predicted(constraints: int, noise: float) -> None:
    survival = Survival(constraints)
    l = survival.positions(noise)
    assert l is not None
    rng = np.random.default_rng(1)
    lengths = noise**2 / (1 + noise**2) * rng.chisquare(constraints, (2000, l))
    ranks = (rng.binomial(1000, chdtr(constraints, lengths)) + 1) / 1001
    found = np.mean([fisher_log10(each) <= NEEDED_LOG10_P for each in ranks])
    assert 0.96 <= found <= 1.0


def test_more_noise_needs_more_positions_and_survival_is_the_inverse() -> None:
    survival = Survival(8)
    needed = survival.positions_of([0.0, 0.2, 0.5, 1.0, 1.5, 2.0])
    assert needed == sorted(needed, key=int)
    for l in (20, 50, 500):
        noise = survival.noise(l)
        assert survival.positions(noise - 0.001) == l
        assert survival.positions(noise + 0.02) > l
    assert survival.positions(5.0) is None
    assert survival.noise(2) == 0.0  # two ranks of a thousand are no evidence, however small
    assert Survival(8, keys=10**6).positions(1.0) > needed[3]
    with pytest.raises(ParameterError):
        survival.positions(-1.0)


@pytest.mark.sweep
@pytest.mark.parametrize("positions", [20, 50])
def test_real_marks_survive_as_predicted(demo_path: Path, tmp_path: Path, positions: int) -> None:
    model = irwm.open_checkpoint(demo_path)
    params = irwm.Parameters(positions=positions, required_positions=positions // 2)
    key = irwm.generate_key(model, params, secret=bytes(range(32)), owner="us")
    survived = Survival(params.constraints).noise(positions)
    rows = irwm.open_checkpoint(irwm.insert(model, key, tmp_path / "release").path).embedding()
    deviations = rows.std(dim=1, keepdim=True)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(1)) * deviations
    for times, found in ((0.8, True), (2.0, False)):
        suspect = write_embedding(model, rows + times * survived * noise, tmp_path / f"{times}")
        assert (irwm.detect(suspect, model, key).verdict == "found") == found


def test_protect_chooses_positions_and_states_survival() -> None:
    usual = irwm.Parameters(constraints=10)
    assert positions_for(1.0, usual) == (50, 30)
    assert positions_for(1.5, usual) == (140, 84)
    assert "1.1 σ" in survival_sentence(usual)
    assert "σ" not in survival_sentence(irwm.Parameters(positions=2, required_positions=1))
    with pytest.raises(ParameterError):
        positions_for(3.0, irwm.Parameters(constraints=2))


def test_stated_damage_equivalents_are_correct() -> None:
    """Rounding to 4 bits by blocks of 32, and the smallest numbers set to zero, on normal numbers."""
    numbers = np.random.default_rng(0).normal(size=(20_000, 32))
    step = np.abs(numbers).max(axis=1, keepdims=True) / 7
    assert round(float((np.round(numbers / step) * step - numbers).std()), 1) == 0.1
    sizes = np.abs(numbers)
    for share, said in ((0.5, 0.3), (0.9, 0.7)):
        lost = np.where(sizes <= np.quantile(sizes, share), numbers, 0.0)
        assert abs(float(lost.std()) - said) < 0.06
