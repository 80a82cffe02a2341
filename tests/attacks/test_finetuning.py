"""Fine-tuning: it learns, changes only the stated weights, keeps the mark, and refuses invalid settings."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import irwm
from irwm.attacks import finetune
from irwm.errors import ParameterError, UnsupportedCheckpointError
from tests.attacks.test_collusion_attacks import all_tensors
from tests.conftest import Marked

TEXT = inspect.getsource(argparse)
# A warning of peft about transformers' next version.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:peft.*", "ignore::FutureWarning:transformers.*")


@pytest.fixture(scope="module")
def released(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


def loss(folder: Path) -> float:
    """Mean negative log-likelihood of the text's first tokens, in nats."""
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"][:256]])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return float(model(input_ids=ids, labels=ids).loss)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["all", "lora", "layer 0", "embedding"])
def test_finetuning_learns_and_the_mark_survives(released: Marked, tmp_path: Path, what: str) -> None:
    original, key, release = released
    out = finetune(release, tmp_path / "out", TEXT, steps=20, learning_rate=1e-3, what=what, batch=4, length=64)
    before, after = all_tensors(release), all_tensors(out)
    kinds = [{name: (value.dtype, value.shape) for name, value in each.items()} for each in (before, after)]
    assert kinds[0] == kinds[1]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    embedding = "model.embed_tokens.weight"
    if what == "embedding":
        assert changed == {embedding, "lm_head.weight"}
    elif what == "all":
        assert embedding in changed
    else:
        assert embedding not in changed
        layers = {name.split(".")[2] for name in changed if ".layers." in name}
        assert layers == ({"0"} if what == "layer 0" else {str(n) for n in range(len(layers))})
    assert loss(out) < loss(release) - 0.01
    found = irwm.detect(irwm.open_checkpoint(out), original, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")


@pytest.mark.slow
def test_masked_model_is_trained_on_masked_tokens(minilm_path: Path, tmp_path: Path) -> None:
    out = finetune(minilm_path, tmp_path / "out", TEXT, steps=2, learning_rate=1e-4, batch=2, length=32)
    before, after = irwm.open_checkpoint(minilm_path), irwm.open_checkpoint(out)
    assert after.vocab_size == before.vocab_size
    assert not torch.equal(after.embedding(), before.embedding())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(released: Marked, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 2, "batch": 2, "length": 32}
    once, again, other = (
        all_tensors(finetune(released.release, tmp_path / name, TEXT, seed=seed, **settings))
        for name, seed in (("once", 0), ("again", 0), ("other", 1))
    )
    assert all(torch.equal(once[name], again[name]) for name in once)
    assert not all(torch.equal(once[name], other[name]) for name in once)


def test_a_text_or_tokenizer_that_is_missing_is_reported(released: Marked, tmp_path: Path) -> None:
    with pytest.raises(ParameterError):
        finetune(released.release, tmp_path / "out", "short", steps=1)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("model.safetensors", "config.json"):
        (bare / name).write_bytes((released.release / name).read_bytes())
    with pytest.raises(UnsupportedCheckpointError):
        finetune(bare, tmp_path / "out", TEXT, steps=1)
