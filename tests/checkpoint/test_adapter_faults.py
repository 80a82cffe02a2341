"""Adapters that were made for another base, have invalid settings, or are of an unsupported type."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import Checkpoint, adapter, open_checkpoint
from irwm.checkpoint.adapter import is_adapter
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.adapters import CONFIG, WEIGHTS, base, change_config, change_weights, copy, made, sound
from tools.small_models import write_llama

__all__ = ["base", "copy", "sound"]  # fixtures


def test_without_a_base_the_named_base_is_shown_and_not_opened(base: Checkpoint, sound: Path) -> None:
    with pytest.raises(UnsupportedCheckpointError, match="on top of the base model") as caught:
        open_checkpoint(sound)
    assert str(base.path) in str(caught.value.found)
    assert "base=" in str(caught.value.advice)


@pytest.mark.parametrize("place", ["/etc/passwd", "../elsewhere", "http://example.org/x", "\x1b[31m\u202e", "x" * 5000])
def test_base_named_by_a_hostile_adapter_is_only_shown(base: Checkpoint, copy: Path, place: str) -> None:
    change_config(copy, base_model_name_or_path=place)
    with pytest.raises(UnsupportedCheckpointError) as caught:
        open_checkpoint(copy)
    assert str(caught.value).isprintable()
    assert all(note.isprintable() and len(note) < 600 for note in open_checkpoint(copy, base=base).notes)


@pytest.mark.parametrize(
    ("settings", "tensor"),
    [
        ({"hidden_size": 32}, "embed_tokens"),
        ({"num_key_value_heads": 4}, "k_proj.lora_B"),
        ({"vocab_size": 500}, "embed"),
    ],
)
def test_a_base_of_another_geometry_is_refused(sound: Path, tmp_path: Path, settings: dict, tensor: str) -> None:
    other = open_checkpoint(write_llama(tmp_path / "other", **settings))
    if "vocab_size" in settings:
        change_weights(Path(shutil.copytree(sound, tmp_path / "a")), embed_tokens__base_layer__weight=None)
        sound = tmp_path / "a"
    with pytest.raises(CorruptCheckpointError, match="does not fit the base") as caught:
        open_checkpoint(sound, base=other)
    error = caught.value
    assert error.file == str(sound / WEIGHTS)
    assert error.tensor is not None
    assert tensor in error.tensor
    assert error.expected != error.found
    assert "trained on" in str(error.advice)


def test_a_base_of_another_family_is_refused(sound: Path, phi3_path: Path) -> None:
    with pytest.raises(CorruptCheckpointError, match="does not have") as caught:
        open_checkpoint(sound, base=open_checkpoint(phi3_path))
    assert "phi3" in str(caught.value.expected)
    assert "q_proj" in str(caught.value.found)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"peft_type": "IA3"}, UnsupportedCheckpointError, "type of adapter"),
        ({"peft_type": None}, UnsupportedCheckpointError, "type of adapter"),
        ({"use_qalora": True}, UnsupportedCheckpointError, "use_qalora"),
        ({"alora_invocation_tokens": [1]}, UnsupportedCheckpointError, "alora"),
        ({"layer_replication": [[0, 1]]}, UnsupportedCheckpointError, "layer_replication"),
        ({"lora_bias": True}, UnsupportedCheckpointError, "lora_bias"),
        ({"init_lora_weights": "pissa_niter_4"}, UnsupportedCheckpointError, "initialisation"),
        ({"init_lora_weights": ["x"]}, UnsupportedCheckpointError, "initialisation"),
        ({"alpha_pattern": {"(a+)+$": 3}}, UnsupportedCheckpointError, "alpha_pattern"),
        ({"alpha_pattern": [1]}, CorruptCheckpointError, "alpha_pattern"),
        ({"alpha_pattern": {"q_proj": "8"}}, CorruptCheckpointError, "alpha_pattern"),
        ({"lora_alpha": None}, CorruptCheckpointError, "lora_alpha"),
        ({"lora_alpha": 10**400}, CorruptCheckpointError, "lora_alpha"),
        ({"lora_alpha": float("nan")}, CorruptCheckpointError, "lora_alpha"),
        ({"use_rslora": "yes"}, CorruptCheckpointError, "use_rslora"),
        ({"trainable_token_indices": {"embed_tokens": [-1]}}, CorruptCheckpointError, "trainable_token_indices"),
        ({"trainable_token_indices": 7}, CorruptCheckpointError, "trainable_token_indices"),
    ],
    ids=str,
)
def test_an_unsupported_or_invalid_adapter_setting_is_refused(
    base: Checkpoint, copy: Path, settings: dict[str, Any], error: type[CheckpointError], said: str
) -> None:
    change_config(copy, **settings)
    with pytest.raises(error, match=said) as caught:
        open_checkpoint(copy, base=base)
    assert caught.value.file == str(copy / CONFIG)
    assert ("merge_and_unload" in str(caught.value.advice)) is (error is UnsupportedCheckpointError)


@pytest.mark.parametrize(
    "tensors",
    [
        {"q_proj__lora_A__weight": None},
        {"q_proj__lora_B__weight": None},
        {"q_proj__lora_A__weight": torch.ones(4, 63)},
        {"q_proj__lora_A__weight": torch.ones(4)},
        {"q_proj__lora_A__weight": torch.ones(())},
        {"q_proj__lora_A__weight": torch.ones(0, 64), "q_proj__lora_B__weight": torch.ones(64, 0)},
        {"q_proj__lora_B__weight": torch.ones(64, 5)},
        {"embed_tokens__lora_embedding_A": torch.ones(4, 599)},
        {"embed_tokens__lora_embedding_B": torch.ones(4, 64)},
        {"embed_tokens__base_layer__weight": torch.ones(600, 63)},
        {"embed_tokens__base_layer__weight": torch.ones(600)},
        {"embed_tokens__base_layer__weight": torch.ones(())},
    ],
    ids=str,
)
def test_mismatched_adapter_pieces_are_named(
    base: Checkpoint, copy: Path, tensors: dict[str, torch.Tensor | None]
) -> None:
    change_weights(copy, **tensors)
    with pytest.raises(CorruptCheckpointError, match="does not fit the base") as caught:
        open_checkpoint(copy, base=base)
    assert caught.value.file == str(copy / WEIGHTS)
    assert caught.value.tensor is not None


@pytest.mark.parametrize("ids", [[600, 1], [1], [1, 2, 3], [10**30, 1]])
def test_token_ids_without_matching_rows_are_refused(base: Checkpoint, tmp_path: Path, ids: list[int]) -> None:
    made(base.path, tmp_path, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [3, 9]})
    change_config(tmp_path, trainable_token_indices={"embed_tokens": ids})
    with pytest.raises(CorruptCheckpointError, match="does not fit the base"):
        open_checkpoint(tmp_path, base=base)


def test_a_tensor_of_an_unknown_kind_is_named(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    save_file(held | {"base_model.model.model.layers.0.self_attn.q_proj.lora_E": torch.ones(4)}, copy / WEIGHTS)
    with pytest.raises(UnsupportedCheckpointError, match="kind of tensor") as caught:
        open_checkpoint(copy, base=base)
    assert caught.value.found == "lora_E"


def test_unsupported_number_format_is_refused(base: Checkpoint, copy: Path) -> None:
    change_weights(copy, q_proj__lora_A__weight=torch.ones(4, 64, dtype=torch.int32))
    with pytest.raises(UnsupportedCheckpointError, match="number format") as caught:
        open_checkpoint(copy, base=base)
    assert caught.value.found == "I32"


def test_two_adapter_tensors_with_the_same_meaning_are_refused(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    (name,) = [name for name in held if name.endswith("q_proj.lora_A.weight")]
    twice = name.replace("lora_A.weight", "lora_A.default.weight")
    save_file(held | {twice: held[name].clone()}, copy / WEIGHTS)
    with pytest.raises(CorruptCheckpointError, match="two tensors"):
        open_checkpoint(copy, base=base)


def test_targets_missing_in_the_base_are_omitted_with_a_note(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    save_file(held | {"base_model.model.score.weight": torch.ones(2, 64)}, copy / WEIGHTS)
    assert "1 are not in the base" in " ".join(open_checkpoint(copy, base=base).notes)


def test_missing_or_damaged_file(base: Checkpoint, copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    with pytest.raises(CorruptCheckpointError, match="missing"):
        open_checkpoint(copy, base=base)
    (copy / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError):
        open_checkpoint(copy, base=base)
    (copy / CONFIG).write_text("[" * 100_000)
    with pytest.raises(CorruptCheckpointError):
        open_checkpoint(copy, base=base)
    (copy / CONFIG).unlink()
    with pytest.raises(NotACheckpointError):
        open_checkpoint(copy, base=base)


def test_a_link_out_of_the_folder_is_refused(base: Checkpoint, copy: Path, tmp_path: Path) -> None:
    for name in (WEIGHTS, CONFIG):
        (copy / name).rename(tmp_path / name)
        (copy / name).symlink_to(tmp_path / name)
        with pytest.raises(CorruptCheckpointError, match="leads out"):
            open_checkpoint(copy, base=base)
        (copy / name).unlink()
        (tmp_path / name).rename(copy / name)


def test_a_model_is_preferred_to_an_adapter_in_the_same_folder(base: Checkpoint, copy: Path) -> None:
    assert is_adapter(copy)
    assert not is_adapter(base.path)
    assert not is_adapter(copy / "nothing")
    assert open_checkpoint(copy, base=base).base is base
    shutil.copy(base.path / "config.json", copy)
    shutil.copy(base.path / "model.safetensors", copy)
    found = open_checkpoint(copy, base=base)
    assert (found.base, found.fingerprint) == (None, base.fingerprint)
    assert found.unread == ("adapter_model.safetensors",)


def test_a_base_is_ignored_for_a_full_model(base: Checkpoint, demo_path: Path) -> None:
    assert open_checkpoint(demo_path, base=base).fingerprint == open_checkpoint(demo_path).fingerprint


def test_a_config_that_vanishes_while_the_adapter_is_opened_is_a_typed_error(
    base: Checkpoint, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = adapter.changed

    def vanishing(*arguments: Any, **named: Any) -> Any:
        (copy / CONFIG).unlink(missing_ok=True)
        return changed(*arguments, **named)

    monkeypatch.setattr(adapter, "changed", vanishing)
    with pytest.raises(NotACheckpointError) as caught:
        open_checkpoint(copy, base=base)
    assert caught.value.file == str(copy / CONFIG)
