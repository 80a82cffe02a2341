"""The fingerprint, with added instead of overwriting noise: guilty recipients are named, innocent ones are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

import irwm
from irwm.explore.capacity import Collusion
from irwm.tracing import trace_each
from tools.copies import copy_of, keys_for, with_noise, write_embedding
from tools.small_models import write_llama

ROWS, WIDTH, PLACES, SPREAD = 2500, 64, 4, 0.25
NAMES = ["ann", "bob", "cid", "dan"]
PARAMETERS = irwm.Parameters(
    positions=20, required_positions=12, constraints=4, scale="auto", noise_coordinates=PLACES, spread=SPREAD
)
Mixture = Callable[[torch.Tensor], torch.Tensor]
# Combinations of the colluders' copies (c, s, d), entry by entry.
MIXTURES: dict[str, Mixture] = {
    "mean": lambda copies: copies.mean(0),
    "median": lambda copies: copies.median(0).values,
    "min-max": lambda copies: (copies.amin(0) + copies.amax(0)) / 2,
    "maximum": lambda copies: copies.amax(0),
    "patchwork": lambda copies: copies.gather(
        0, torch.randint(len(copies), (1, *copies.shape[1:]), generator=torch.Generator().manual_seed(0))
    )[0],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    folder = tmp_path_factory.mktemp("fingerprinted") / "model"
    return irwm.open_checkpoint(write_llama(folder, vocab_size=ROWS, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def keys(model: irwm.Checkpoint) -> list[irwm.Key]:
    return keys_for(model, NAMES, PARAMETERS)


@pytest.fixture(scope="module")
def copies(model: irwm.Checkpoint, keys: list[irwm.Key]) -> torch.Tensor:
    return torch.stack([copy_of(model, key).float() for key in keys])


def test_a_row_changes_by_the_spread_and_no_more(model, keys, copies) -> None:
    before = model.embedding()
    touched = np.setdiff1d(np.arange(ROWS), keys[0].marked_rows)
    change = (copies[0] - before)[touched].norm(dim=1) / before[touched].norm(dim=1)
    assert change.median().item() == pytest.approx(SPREAD * math.sqrt(PLACES / WIDTH), rel=0.05)


def test_every_place_has_its_own_sign(model, keys, copies, tmp_path) -> None:
    """z reaches the root of the number of places; with one sign for each row it would be that of the rows."""
    suspect = write_embedding(model, copies[0], tmp_path / "ann")
    tracing = trace_each(irwm.Examination(suspect, model), keys)
    (ann,) = tracing.named
    assert ann.recipient == "ann"
    assert 0.85 * math.sqrt(ROWS * PLACES) < ann.z <= math.sqrt(ROWS * PLACES)
    assert ann.share == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_only_colluders_are_named_for_every_mixture(model, keys, copies, tmp_path, mixture) -> None:
    mixed = with_noise(MIXTURES[mixture](copies[:3]), 0.1)
    suspect = write_embedding(model, mixed, tmp_path / "suspect")
    tracing = trace_each(irwm.Examination(suspect, model), keys)
    assert {trace.recipient for trace in tracing.named} == {"ann", "bob", "cid"}


def test_theory_predicts_the_mean_of_copies(model, keys, copies, tmp_path) -> None:
    suspect = write_embedding(model, with_noise(copies[:3].mean(0), 0.1), tmp_path / "suspect")
    z = [trace.z for trace in irwm.trace(suspect, model, keys)[:3]]
    expected = Collusion(ROWS, WIDTH, PLACES, 3, 0.1, SPREAD).expected_z
    assert np.mean(z) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("damage", [0.0, 0.3])
def test_z_of_innocent_recipients_is_standard_normal(model, keys, copies, tmp_path: Path, damage: float) -> None:
    suspect = write_embedding(model, with_noise(copies[0], damage) if damage else copies[0], tmp_path / "suspect")
    z = trace_each(irwm.Examination(suspect, model), keys, decoys=1500).decoys
    assert z.size == 1500
    assert kstest(z, norm.cdf).pvalue > 1e-3
    assert np.abs(z).max() < 4.5


def test_single_owner_release_is_recognised(model, tmp_path) -> None:
    (key,) = keys_for(model, [""], PARAMETERS)
    release = irwm.insert(model, key, tmp_path / "release")
    assert release.verification.verdict == "found"
    (trace,) = irwm.trace(irwm.open_checkpoint(release.path), model, [key])
    assert trace.named
