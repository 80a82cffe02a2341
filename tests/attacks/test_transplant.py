"""A release with another tokenizer: shared tokens keep their rows, and the mark is found through them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import irwm
from irwm.attacks import exchange_tokenizer
from irwm.errors import UnsupportedCheckpointError
from irwm.inference import compare, default_text, reference
from tests.conftest import Marked


@pytest.mark.parametrize("name", ["demo", "gemma", "gpt2", "minilm"])
def test_shared_tokens_keep_their_rows_and_new_ones_are_means(
    release_of: Callable[[str], Marked], tmp_path: Path, name: str
) -> None:
    original, key, release = release_of(name)
    out = exchange_tokenizer(release, tmp_path / "out", default_text(), 0.5)
    old, new = AutoTokenizer.from_pretrained(release), AutoTokenizer.from_pretrained(out)
    before, suspect = irwm.open_checkpoint(release).embedding().double(), irwm.open_checkpoint(out)
    after, ours, theirs = suspect.embedding().double(), old.get_vocab(), new.get_vocab()
    shared = sorted(ours.keys() & theirs.keys())
    assert 0 < len(shared) < len(theirs) == suspect.vocab_size < original.vocab_size
    assert torch.equal(after[[theirs[token] for token in shared]], before[[ours[token] for token in shared]])
    token = next(token for token in sorted(theirs.keys() - ours.keys()) if len(token) > 4 and token.isascii())
    pieces = [piece.id for piece in old.backend_tokenizer.model.tokenize(token.removeprefix("##"))]
    assert len(pieces) > 1
    assert after[theirs[token]] == pytest.approx(before[pieces].mean(dim=0), rel=1e-2, abs=1e-2)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == len(theirs)
    for special in ("bos", "eos", "pad"):
        value = config.get(f"{special}_token_id")
        assert value is None or new.convert_ids_to_tokens(value) == getattr(old, f"{special}_token")
    found = irwm.detect(suspect, original, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")


def test_model_runs_with_the_new_tokenizer(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    _, _, release = release_of("gpt2")
    out = exchange_tokenizer(release, tmp_path / "out", default_text(), 1.0)
    utility = compare(reference(release, default_text(), 2048), out)
    assert utility.change is not None
    assert abs(utility.change) < 0.3


def test_a_model_without_a_tokenizer_is_refused(demo_path: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(demo_path / name, bare / name)
    with pytest.raises(UnsupportedCheckpointError, match="no tokenizer"):
        exchange_tokenizer(bare, tmp_path / "out", "text", 0.5)
    assert not (tmp_path / "out").exists()
