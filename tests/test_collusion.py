"""Recipients who collude: all are named for every strategy, and comparing their copies shows them nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from benchmarks.hiding import classifier_auc, copies, dictionary_auc, lengths_auc, one_basis_for_all
from irwm.attacks.collusion import STRATEGIES, strategy
from irwm.scheme.parameters import many_recipients
from irwm.tracing import trace_each
from tests.scheme.test_basis import dense
from tools.copies import copy_of, keys_for, other_names, write_embedding
from tools.small_models import write_llama

COPIES = 8
DAMAGES = {
    "as they are": None,
    "noise": lambda folder, out: irwm.attacks.add_noise(folder, out, 0.3, seed=5),
    "int8": lambda folder, out: irwm.attacks.quantize(folder, out, 8),
    "int4": lambda folder, out: irwm.attacks.quantize(folder, out, 4),
    "pruned": lambda folder, out: irwm.attacks.prune(folder, out, 0.3),
}
# Noise that hides marked rows and replaces numbers.
HIDDEN = many_recipients(256, hides_rows=True)
# Allowed error of the estimated number of copies. A mean holds an eighth of each copy's fingerprint; outliers in a row
# weigh more in a maximum and less in a median.
ESTIMATE = {"mean": 0.05, "copy-paste": 0.05, "weighted": 0.05, "median": 0.2, "max": 0.3, "min-max": 0.3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    folder = tmp_path_factory.mktemp("collusion") / "model"
    return irwm.open_checkpoint(write_llama(folder, vocab_size=4000, hidden_size=256, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def keys(model: irwm.Checkpoint) -> list[irwm.Key]:
    return keys_for(model, [f"guilty {i}" for i in range(COPIES)])


@pytest.fixture(scope="module")
def held(model: irwm.Checkpoint, keys: list[irwm.Key]) -> torch.Tensor:
    """(copies, s, d): the numbers that the colluders hold."""
    return torch.stack([copy_of(model, key).float() for key in keys])


@pytest.mark.slow
@pytest.mark.parametrize("how", [*STRATEGIES, "weighted"])
def test_only_colluders_are_named(model, keys, held, tmp_path: Path, how: str) -> None:
    weights = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0] if how == "weighted" else None
    mixed = strategy("mean" if weights else how, COPIES, weights)()(held)
    plain = write_embedding(model, mixed, tmp_path / "plain")
    everyone = [*other_names(keys[0], [f"innocent {i}" for i in range(300)]), *keys]
    for name, damage in DAMAGES.items():
        suspect = irwm.open_checkpoint(damage(plain.path, tmp_path / name)) if damage else plain
        tracing = trace_each(irwm.Examination(suspect, model), everyone)
        assert {trace.recipient for trace in tracing.named} == {key.recipient for key in keys}, name
        # A share is read with a relative error of 1 / z, so their mean cannot be more precise.
        readable = 3 / math.sqrt(sum(trace.z**2 for trace in tracing.named))
        assert tracing.colluders == pytest.approx(COPIES, rel=max(ESTIMATE[how], readable)), name
        assert np.abs(tracing.decoys).max() < 5.0


def test_shares_reflect_the_weights(model, keys, held, tmp_path: Path) -> None:
    weights = np.array([1, 1, 1, 1, 2, 2, 2, 6]) / 16
    suspect = write_embedding(model, strategy("mean", COPIES, weights.tolist())()(held), tmp_path / "weighted")
    shares = [trace.share for trace in irwm.trace(suspect, model, keys)]
    assert shares == pytest.approx(weights, abs=0.015)


def test_subtracted_copy_still_names_another_colluder(model, keys, held, tmp_path: Path) -> None:
    """Weights that sum to 1 cannot all be small: a subtracted copy is not named, an added one is."""
    suspect = write_embedding(model, held[0] + held[1] - held[2], tmp_path / "subtracted")
    traces = irwm.trace(suspect, model, keys)
    assert [trace.recipient for trace in traces if trace.named] == ["guilty 0", "guilty 1"]
    assert traces[2].z < -10


def test_marks_of_two_colluders_are_found(model, keys, held, tmp_path: Path) -> None:
    suspect = write_embedding(model, held[:2].mean(dim=0), tmp_path / "two")
    found = list(irwm.detect_each(irwm.Examination(suspect, model), keys[:3]))
    assert [finding.verdict for finding in found] == ["found", "found", "not found"]


# An observer's view.


@pytest.fixture(scope="module")
def demo(demo_path: Path) -> irwm.Checkpoint:
    return irwm.open_checkpoint(demo_path)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("t", [8, 3])
def test_two_copies_hardly_reveal_the_marked_rows(demo: irwm.Checkpoint, t: int) -> None:
    made = copies(demo, replace(HIDDEN, constraints=t, noise_coordinates=t), 32)
    assert classifier_auc(made) <= 0.6
    assert lengths_auc(made[:16]) <= 0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "least"),
    [(replace(HIDDEN, noise_coordinates=0), 0.99), (many_recipients(256), 0.9)],
    ids=["without noise", "with a fingerprint"],
)
def test_two_copies_reveal_rows_that_noise_does_not_hide(
    demo: irwm.Checkpoint, params: irwm.Parameters, least: float
) -> None:
    """What docs/collusion.md says that a fingerprint cannot do."""
    assert classifier_auc(copies(demo, params, 8)) > least


@pytest.mark.slow
def test_noise_of_one_size_reveals_marks_by_row_length(demo: irwm.Checkpoint) -> None:
    """Why sizes vary: with the paper's single size the same observers see more than they should."""
    made = copies(demo, replace(HIDDEN, noise_level="global"), 16)
    assert classifier_auc(made) > 0.6
    assert lengths_auc(made) > 0.6


@pytest.mark.slow
def test_shared_basis_can_be_learned_from_two_copies_but_row_bases_cannot(tmp_path: Path) -> None:
    model = irwm.open_checkpoint(write_llama(tmp_path / "model", vocab_size=6000, dtype=torch.float32))
    params = irwm.Parameters(constraints=3, noise_coordinates=3, spread=0.0)
    (key,) = keys_for(model, ["recipient 0"], params)
    with one_basis_for_all():
        true = dense(key.noise(model, key.choices()).basis, 64, 0)
        auc, learned = dictionary_auc(copies(model, params, 2), 3)
    assert np.abs(learned.T @ true).max(axis=0).min() > 0.95
    assert auc > 0.8
    auc, learned = dictionary_auc(copies(model, params, 2), 3)
    assert np.abs(learned.T @ true).max(axis=0).max() < 0.75
    assert auc < 0.6
