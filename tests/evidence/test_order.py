"""A key's finding must not depend on the keys that were tried before it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import irwm


@pytest.fixture(scope="module")
def exchanged(gemma_path: Path, tmp_path_factory: pytest.TempPathFactory):
    """A release in which a few of the first key's rows were exchanged, and two keys."""
    model = irwm.open_checkpoint(gemma_path)
    keys = [irwm.generate_key(model, secret=bytes([i]) * 32) for i in (1, 2)]
    root = tmp_path_factory.mktemp("exchanged")
    release = irwm.insert(model, keys[0], root / "release")
    second = keys[1].choices()
    read = np.concatenate((second.marked_rows, second.query_tokens, second.reference_tokens))
    only = np.setdiff1d(keys[0].choices().marked_rows, read)[:12]
    shutil.copytree(release.path, root / "x")
    tensors = load_file(root / "x" / "model.safetensors")
    rows = tensors["model.embed_tokens.weight"]
    rows[only] = rows[np.roll(only, 1)].clone()
    save_file(tensors, root / "x" / "model.safetensors", metadata={"format": "pt"})
    return model, keys, irwm.open_checkpoint(root / "x")


@pytest.mark.slow
def test_a_keys_finding_is_the_same_alone_and_in_any_order(exchanged) -> None:
    model, keys, suspect = exchanged
    alone = [irwm.detect(suspect, model, key, keys_tried=2) for key in keys]
    assert alone[0].verdict == "found"
    assert alone[0].alignment.settled
    assert not alone[1].alignment.settled
    forth = list(irwm.detect_each(irwm.Examination(suspect, model), keys))
    back = list(irwm.detect_each(irwm.Examination(suspect, model), keys[::-1]))[::-1]
    for one, first, last in zip(alone, forth, back, strict=True):
        for other in (first, last):
            assert np.array_equal(one.ranks, other.ranks)
            assert (one.verdict, one.reason) == (other.verdict, other.reason)
            assert one.alignment.undone == other.alignment.undone
