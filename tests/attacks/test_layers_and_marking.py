"""Dropping layers, and a second mark over ours: the remaining model works, and the effect on the marks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import irwm
from irwm.attacks import drop_layers, mark_again, stack_layers, subtract_mark
from irwm.errors import KeyMismatchError, ParameterError, UnsupportedCheckpointError
from tests.attacks.models import TINY, edited
from tests.attacks.test_collusion_attacks import all_tensors
from tests.checkpoint.builders import split
from tests.conftest import Marked


@pytest.mark.parametrize("name", sorted(TINY))
def test_remaining_layers_load_and_match_the_original_layers(
    tiny_models: dict[str, Path], tmp_path: Path, name: str
) -> None:
    # A masked-language model has no pooler, which would be drawn at random.
    without = {"add_pooling_layer": False} if name == "bert" else {}
    whole = AutoModel.from_pretrained(tiny_models[name], **without).eval()
    out = drop_layers(tiny_models[name], tmp_path / "out", [0])
    smaller = AutoModel.from_pretrained(out, **without).eval()
    layers = whole.encoder.layer if name == "bert" else whole.h if name == "gpt2" else whole.layers
    del layers[0]
    whole.config.num_hidden_layers = smaller.config.num_hidden_layers
    assert smaller.config.num_hidden_layers == 1
    expected = whole.state_dict()
    assert smaller.state_dict().keys() == expected.keys()
    for tensor, value in smaller.state_dict().items():
        torch.testing.assert_close(value, expected[tensor])


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_repeated_layers_follow_the_given_order(tiny_models: dict[str, Path], tmp_path: Path, name: str) -> None:
    order = [0, 1, 0, 1, 1]
    out = stack_layers(tiny_models[name], tmp_path / "out", order)
    without = {"add_pooling_layer": False} if name == "bert" else {}
    one, deep = (AutoModel.from_pretrained(folder, **without) for folder in (tiny_models[name], out))
    stacks = [
        each.encoder.layer if name == "bert" else each.h if name == "gpt2" else each.layers for each in (one, deep)
    ]
    assert len(stacks[1]) == deep.config.num_hidden_layers == len(order)
    for place, number in enumerate(order):
        for expected, found in zip(stacks[0][number].parameters(), stacks[1][place].parameters(), strict=True):
            assert torch.equal(expected, found)
    for wrong in ([], [2]):
        with pytest.raises(ParameterError):
            stack_layers(tiny_models[name], tmp_path / "wrong", wrong)
    assert not (tmp_path / "wrong").exists()


def test_shards_keep_names_and_get_new_index(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    sharded = split(tiny_models["llama"], tmp_path / "sharded", 3)
    out = drop_layers(sharded, tmp_path / "out", [1])
    index = json.loads((out / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
    assert index.keys() == all_tensors(out).keys()
    assert not [name for name in index if ".layers.1." in name]
    assert AutoModel.from_pretrained(out).config.num_hidden_layers == 1


def test_folder_without_layer_count_is_refused(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    folder = edited(tiny_models["llama"], tmp_path / "uncounted", num_hidden_layers=None)
    with pytest.raises(UnsupportedCheckpointError):
        drop_layers(folder, tmp_path / "out", [0])


def test_both_marks_are_found_after_second_mark(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    original, ours, folder = release_of("demo")
    release = irwm.open_checkpoint(folder)
    his = irwm.generate_key(release, secret=b"\x01" * 32, owner="Rival")
    twice = irwm.open_checkpoint(mark_again(release.path, tmp_path / "twice", his))
    assert irwm.detect(twice, original, ours).verdict == "found"
    assert irwm.detect(twice, release, his).verdict == "found"
    assert irwm.detect(release, release, his).verdict == "not found"
    with pytest.raises(KeyMismatchError):
        mark_again(original.path, tmp_path / "wrong", his)


def test_model_with_a_subtracted_mark_keeps_ours(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    """The rival's mark added to it gives our release again, apart from rounding."""
    original, ours, folder = release_of("demo")
    his = irwm.generate_key(irwm.open_checkpoint(folder), secret=b"\x01" * 32, owner="Rival")
    claimed = subtract_mark(folder, tmp_path / "claimed", his)
    twice = mark_again(folder, tmp_path / "twice", his)
    assert irwm.detect(irwm.open_checkpoint(claimed), original, ours).verdict == "found"
    release, less, more = (irwm.open_checkpoint(each).embedding() for each in (folder, claimed, twice))
    rows = his.choices().marked_rows
    assert set(torch.nonzero((less != release).any(1)).flatten().tolist()) == set(rows.tolist())
    assert ((less + more - 2 * release).abs() <= 2**-8 * (less.abs() + more.abs())).all()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["claimed", "twice"], "the marked copy is removed"


def test_rival_without_key_generates_one(tiny_path: Path, tmp_path: Path) -> None:
    once, again = (mark_again(tiny_path, tmp_path / name) for name in ("once", "again"))
    tensors = [load_file(folder / "model.safetensors")["model.embed_tokens.weight"] for folder in (once, again)]
    assert not torch.equal(*tensors)


def test_the_mark_is_in_the_embedding_and_stays(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    original, key, release = release_of("demo")
    smaller = irwm.open_checkpoint(drop_layers(release, tmp_path / "smaller", [0, 2]))
    assert irwm.detect(smaller, original, key).verdict == "found"
