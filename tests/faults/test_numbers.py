"""Faulty numbers, shapes and orders in a suspect or an original (FAULTS 25 to 29, 33, 83)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks.rewrite import rewrite
from irwm.errors import CorruptCheckpointError, MarginError
from tests.checkpoint.builders import EMBEDDING, QUERY, change_config
from tools.small_models import write_llama


@pytest.fixture(scope="module")
def marked(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory):
    model = irwm.open_checkpoint(tiny_path)
    # In the embedding alone: damage to it leaves a mark in the output head intact.
    key = irwm.generate_key(model, irwm.Parameters(places=("embedding",)), secret=bytes(32))
    return model, key, irwm.insert(model, key, tmp_path_factory.mktemp("r") / "release")


def corrupt(release: Path, out: Path, tensor: str, change: Callable[[torch.Tensor], object]) -> irwm.Checkpoint:
    def through(name: str, value: torch.Tensor) -> torch.Tensor:
        if name == tensor:
            value = value.clone()
            change(value)
        return value

    return irwm.open_checkpoint(rewrite(release, out, through))


@pytest.mark.fault(25, 83)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 3e38])
def test_damage_in_rows_that_the_key_does_not_read_changes_no_verdict(marked, tmp_path, bad) -> None:
    model, key, release = marked
    rows = np.setdiff1d(np.arange(600), key.marked_rows)[::40].tolist()
    corrupted = corrupt(release.path, tmp_path / "x", EMBEDDING, lambda e: e.__setitem__((rows, 5), bad))
    sound = irwm.detect(irwm.open_checkpoint(release.path), model, key)
    found = irwm.detect(corrupted, model, key)
    assert (found.verdict, found.present) == ("found", 50)
    np.testing.assert_array_equal(found.ranks, sound.ranks)
    other = irwm.generate_key(model, secret=bytes([7]) * 32)
    assert irwm.detect(corrupted, model, other).verdict == "not found"
    if not np.isfinite(bad):
        assert any("NaN or Inf" in warning and str(rows[0]) in warning for warning in found.warnings)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_fault_25_marked_rows_that_are_not_finite_are_lost_and_the_rest_decides(marked, tmp_path, bad) -> None:
    model, key, release = marked
    for gone, verdict in ((3, "found"), (48, "inconclusive")):
        rows = key.marked_rows[:gone].tolist()
        suspect = corrupt(release.path, tmp_path / f"{gone}", EMBEDDING, lambda e, r=rows: e.__setitem__((r, 5), bad))
        found = irwm.detect(suspect, model, key)
        assert (found.verdict, found.present) == (verdict, 50 - gone)
        assert any(f"constant or contain NaN or Inf: {gone}" in warning for warning in found.warnings)


@pytest.mark.fault(27)
@pytest.mark.parametrize("value", [float("nan"), 0.5])
def test_fault_25_an_embedding_of_nan_or_of_a_constant_is_inconclusive(marked, tmp_path, value) -> None:
    model, key, release = marked
    found = irwm.detect(corrupt(release.path, tmp_path / "x", EMBEDDING, lambda e: e.fill_(value)), model, key)
    assert found.verdict == "inconclusive"
    assert found.log10_p == 0.0


def test_fault_25_broken_q_or_k_affects_only_the_papers_reading(marked, tmp_path) -> None:
    model, key, release = marked
    suspect = corrupt(release.path, tmp_path / "x", QUERY, lambda q: q.fill_(float("nan")))
    found = irwm.detect(suspect, model, key)
    assert found.verdict == "found"
    assert found.paper is None
    assert any("not finite" in warning for warning in found.warnings)
    assert irwm.detect(suspect, model, key, invariant="suspect").verdict == "inconclusive"


def test_fault_25_an_original_with_nan_is_refused(tiny_path, tmp_path) -> None:
    broken = corrupt(tiny_path, tmp_path / "x", EMBEDDING, lambda e: e[3].fill_(float("nan")))
    with pytest.raises(CorruptCheckpointError):
        irwm.generate_key(broken)


def test_fault_26_zero_and_duplicate_rows_are_never_used(tiny_path, tmp_path) -> None:
    def change(e: torch.Tensor) -> None:
        e[10:20] = 0
        e[30] = e[31]

    model = corrupt(tiny_path, tmp_path / "x", EMBEDDING, change)
    key = irwm.generate_key(model)
    choices = key.choices()
    used = set(np.concatenate((choices.marked_rows, choices.query_tokens, choices.reference_tokens)).tolist())
    assert not used & {*range(10, 20), 30, 31}


def test_fault_26_zeroed_rows_are_counted_as_missing(marked, tmp_path) -> None:
    model, key, release = marked
    rows = key.marked_rows[:5].tolist()
    suspect = corrupt(release.path, tmp_path / "x", EMBEDDING, lambda e: e.__setitem__(rows, 0.0))
    found = irwm.detect(suspect, model, key)
    assert np.isnan(found.ranks[:5]).all()
    assert found.present == 45
    assert found.verdict == "found"


def test_fault_28_a_mark_that_float16_cannot_hold_is_refused(tmp_path) -> None:
    path = write_llama(tmp_path / "half", dtype=torch.float16)
    model = corrupt(path, tmp_path / "large", EMBEDDING, lambda e: e.mul_(200_000))
    key = irwm.generate_key(model, irwm.Parameters.paper(scale=1.0), secret=bytes(32))  # the stored entries overflow
    with pytest.raises(MarginError, match="float16"):
        irwm.insert(model, key, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.partial"))


def test_fault_29_another_hidden_size_is_inconclusive(marked, tmp_path) -> None:
    model, key, _ = marked
    other = irwm.open_checkpoint(write_llama(tmp_path / "wide", hidden_size=128))
    found = irwm.detect(other, model, key)
    assert found.verdict == "inconclusive"
    assert "128" in found.reason
    assert "64" in found.reason
    assert found.ranks.shape == (50,)
    assert found.log10_p > -3  # still read through the least-squares map


def test_fault_29_padded_rows_do_not_matter(marked, tmp_path) -> None:
    model, key, release = marked
    folder = shutil.copytree(release.path, tmp_path / "padded")
    tensors = load_file(release.path / "model.safetensors")
    for name in (EMBEDDING, "lm_head.weight"):
        tensors[name] = torch.cat((tensors[name], torch.zeros(40, 64)))
    save_file(tensors, folder / "model.safetensors")
    change_config(folder, vocab_size=640)
    found = irwm.detect(irwm.open_checkpoint(folder), model, key)
    assert found.verdict == "found"
    assert any("40 rows beyond" in sentence for sentence in found.alignment.undone)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["keep", "drop"])
def test_fault_33_reordered_ids_are_reported(release_of, tmp_path: Path, tokenizer: str) -> None:
    model, key, release = release_of("demo")
    irwm.attacks.equivalence.reorder_tokens(release, tmp_path / "x", seed=1, tokenizer=tokenizer)
    found = irwm.detect(irwm.open_checkpoint(tmp_path / "x"), model, key)
    assert found.verdict == "found"
    assert any("token IDs were changed" in said for said in found.alignment.undone)
