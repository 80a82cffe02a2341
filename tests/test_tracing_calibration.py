"""Calibration of tracing: innocent recipients against any change of another's copy or of the original."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm
from transformers import AutoModelForCausalLM, AutoTokenizer

import irwm
from irwm.inference import default_text
from irwm.tracing import trace_each
from tools.copies import copy_of, keys_for, other_names, with_noise, write_embedding, z_of
from tools.small_models import write_llama

INNOCENTS = 3000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    folder = tmp_path_factory.mktemp("calibrated") / "model"
    return irwm.open_checkpoint(write_llama(folder, vocab_size=1700, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def keys(model: irwm.Checkpoint) -> list[irwm.Key]:
    return keys_for(model, ["ann", "bob"])


@pytest.fixture(scope="module")
def anns_copy(model: irwm.Checkpoint, keys: list[irwm.Key]) -> torch.Tensor:
    return copy_of(model, keys[0]).float()


def require_standard_normal(*scores: np.ndarray) -> None:
    for z in scores:
        assert kstest(z, norm.cdf).pvalue > 1e-4
        assert abs(z.mean()) < 4.5 / math.sqrt(z.size)
        assert abs(z.std() - 1) < 4.5 / math.sqrt(2 * z.size)


def heavy(e: torch.Tensor) -> torch.Tensor:
    damaged = e.clone()
    damaged[torch.arange(6) * 311 + 7] *= 1000.0
    return damaged


def pruned(e: torch.Tensor, share: float) -> torch.Tensor:
    return torch.where(e.abs() > e.abs().flatten().kthvalue(int(share * e.numel())).values, e, 0)


def rounded(e: torch.Tensor, levels: int) -> torch.Tensor:
    groups = e.reshape(-1, 32)
    step = groups.abs().amax(dim=1, keepdim=True) / levels
    return ((groups / step).round() * step).reshape(e.shape)


def along_one_direction(e: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.linspace(-2, 2, e.shape[0]), torch.sin(torch.arange(e.shape[1]))
    return 0.3 * e.std() * torch.outer(rows, columns)


DAMAGES = {
    "as it is": lambda e: e,
    "noise": lambda e: with_noise(e, 0.3),
    "int4": lambda e: rounded(e, 7),
    "pruned": lambda e: pruned(e, 0.3),
    "a few rows a thousand times longer": heavy,
    "one constant added to every row": lambda e: e + 0.5 * e.std() * torch.linspace(-1, 1, e.shape[1]),
    "one direction in every row": lambda e: e + along_one_direction(e),
    "half of the rows longer": lambda e: torch.cat((1.05 * e[: len(e) // 2], e[len(e) // 2 :])),
}


@pytest.mark.sweep
@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("whose", ["another recipient's copy", "the unmarked original"])
def test_innocent_scores_are_standard_normal_and_none_is_named(
    model, keys, anns_copy, tmp_path: Path, whose: str, damage: str
) -> None:
    base = anns_copy.clone() if whose.startswith("another") else model.embedding()
    base[:1400] *= 1.01  # so that the original, too, differs from itself
    suspect = write_embedding(model, DAMAGES[damage](base), tmp_path / "suspect")
    innocent = [*other_names(keys[0], [f"innocent {i}" for i in range(INNOCENTS)]), keys[1]]
    tracing = trace_each(irwm.Examination(suspect, model), innocent)
    assert tracing.alignment.aligned
    assert tracing.named == ()
    require_standard_normal(z_of(tracing.traces), tracing.decoys)
    assert abs(float((z_of(tracing.traces) ** 4).mean()) - 3.0) < 0.8


# Changes to a trained model that nobody leaked: weights changed through files, and another release's copy.
RELATIVES: dict[str, Callable[[Path, Path], Path]] = {
    "pruned": lambda path, out: irwm.attacks.prune(path, out, 0.3),
    "int8": lambda path, out: irwm.attacks.quantize(path, out, 8),
    "noise": lambda path, out: irwm.attacks.add_noise(path, out, 0.3),
    "another release's copy": lambda path, out: copy_of_another_release(path, out),
}


def copy_of_another_release(path: Path, out: Path) -> Path:
    """The copy of a customer of another owner of the same original."""
    model = irwm.open_checkpoint(path)
    (key,) = keys_for(model, ["own"], secret=bytes([9]) * 32)
    return write_embedding(model, copy_of(model, key), out).path


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("relative", RELATIVES)
@pytest.mark.parametrize("which", ["demo_path", "gemma_path", "phi3_path"])
def test_innocent_scores_on_related_trained_models(
    request: pytest.FixtureRequest, tmp_path: Path, which: str, relative: str
) -> None:
    path = request.getfixturevalue(which)
    model = irwm.open_checkpoint(path)
    (own,) = keys_for(model, ["own"])
    innocent = [*other_names(own, [f"innocent {i}" for i in range(999)]), own]
    suspect = irwm.open_checkpoint(RELATIVES[relative](path, tmp_path / "suspect"))
    tracing = trace_each(irwm.Examination(suspect, model), innocent, decoys=100)
    assert tracing.named == ()
    require_standard_normal(z_of(tracing.traces))


@pytest.mark.slow
def test_fine_tuned_original_names_none_of_300_recipients(demo_path: Path, tmp_path: Path) -> None:
    """Training moves the weights in its own directions, and no recipient's signs are among them.

    Mean and deviation of 300 standard normal numbers stay within 4.5 of their deviations, that is 0.26 of 0 and
    0.18 of 1, except in one case in a hundred thousand.
    """
    model = irwm.open_checkpoint(demo_path)
    suspect = irwm.open_checkpoint(fine_tuned(demo_path, tmp_path / "tuned"))
    before, after = model.embedding(), suspect.embedding()
    changed = float((after - before).norm() / before.norm())
    assert 0.005 < changed < 0.2, "trained enough to be another model, and not so much that it breaks"
    (own,) = keys_for(model, ["never issued"])
    tracing = trace_each(
        irwm.Examination(suspect, model), [*other_names(own, [f"never issued {i}" for i in range(299)]), own]
    )
    assert tracing.alignment.aligned
    assert tracing.rows > 0.9 * model.vocab_size
    assert tracing.named == ()
    require_standard_normal(z_of(tracing.traces), tracing.decoys)


def fine_tuned(path: Path, out: Path, steps: int = 6) -> Path:
    """The model trained further with all its weights, by AdamW at 1e-3, on the text that was held out from it."""
    text = default_text()
    tokens = torch.tensor(AutoTokenizer.from_pretrained(path)(text, verbose=False)["input_ids"])
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = tokens[step * 256 : (step + 1) * 256].reshape(2, 128)
        model(input_ids=batch, labels=batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(out)
    return out
