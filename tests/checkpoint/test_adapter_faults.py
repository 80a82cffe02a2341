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
from irwm.errors import CheckpointError, CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError
from tests.checkpoint.adapters import CONFIG, WEIGHTS, base, change_weights, copy, made, sound
from tests.checkpoint.builders import change_config, refused
from tools.small_models import write_llama

__all__ = ["base", "copy", "sound"]  # fixtures


def refused_on(base: Checkpoint, folder: Path, *kinds: type[CheckpointError]) -> CheckpointError:
    with pytest.raises(kinds or CorruptCheckpointError) as caught:
        open_checkpoint(folder, base=base)
    return caught.value


@pytest.mark.fault(32)
def test_without_a_base_the_named_base_is_shown_and_not_opened(base: Checkpoint, sound: Path) -> None:
    error = refused(sound, UnsupportedCheckpointError)
    assert str(base.path) in str(error.found)
    assert "base=" in str(error.advice)


@pytest.mark.parametrize("place", ["/etc/passwd", "../elsewhere", "http://example.org/x", "\x1b[31m\u202e", "x" * 5000])
def test_base_named_by_a_hostile_adapter_is_only_shown(base: Checkpoint, copy: Path, place: str) -> None:
    change_config(copy, CONFIG, base_model_name_or_path=place)
    refused(copy, UnsupportedCheckpointError)
    assert all(note.isprintable() and len(note) < 600 for note in open_checkpoint(copy, base=base).notes)


@pytest.mark.parametrize(
    ("settings", "tensor"),
    [
        ({"hidden_size": 32}, "embed_tokens"),
        ({"num_key_value_heads": 4}, "k_proj.lora_B"),
        ({"vocab_size": 500}, "embed"),
    ],
)
def test_a_base_of_another_geometry_is_refused(copy: Path, tmp_path: Path, settings: dict, tensor: str) -> None:
    other = open_checkpoint(write_llama(tmp_path / "other", **settings))
    if "vocab_size" in settings:
        change_weights(copy, {"embed_tokens.base_layer.weight": None})
    error = refused_on(other, copy)
    assert error.file == str(copy / WEIGHTS)
    assert tensor in str(error.tensor)
    assert error.expected != error.found


def test_a_base_of_another_family_is_refused(sound: Path, phi3_path: Path) -> None:
    error = refused_on(open_checkpoint(phi3_path), sound)
    assert "phi3" in str(error.expected)
    assert "q_proj" in str(error.found)


UNSUPPORTED: list[dict[str, Any]] = [
    *({"peft_type": "IA3"}, {"peft_type": None}, {"use_qalora": True}, {"alora_invocation_tokens": [1]}),
    *({"layer_replication": [[0, 1]]}, {"lora_bias": True}, {"alpha_pattern": {"(a+)+$": 3}}),
    *({"init_lora_weights": "pissa_niter_4"}, {"init_lora_weights": ["x"]}),
]
INVALID: list[dict[str, Any]] = [
    *({"alpha_pattern": [1]}, {"alpha_pattern": {"q_proj": "8"}}, {"lora_alpha": None}, {"lora_alpha": 10**400}),
    *({"lora_alpha": float("nan")}, {"use_rslora": "yes"}, {"trainable_token_indices": {"embed_tokens": [-1]}}),
    {"trainable_token_indices": 7},
]


@pytest.mark.parametrize("settings", [*UNSUPPORTED, *INVALID], ids=str)
def test_an_unsupported_or_invalid_adapter_setting_is_refused(
    base: Checkpoint, copy: Path, settings: dict[str, Any]
) -> None:
    change_config(copy, CONFIG, **settings)
    unsupported = settings in UNSUPPORTED
    error = refused_on(base, copy, UnsupportedCheckpointError if unsupported else CorruptCheckpointError)
    assert error.file == str(copy / CONFIG)
    assert ("merge_and_unload" in str(error.advice)) is unsupported


@pytest.mark.parametrize(
    "tensors",
    [
        {"q_proj.lora_A.weight": None},
        {"q_proj.lora_B.weight": None},
        {"q_proj.lora_A.weight": torch.ones(4, 63)},
        {"q_proj.lora_A.weight": torch.ones(4)},
        {"q_proj.lora_A.weight": torch.ones(())},
        {"q_proj.lora_A.weight": torch.ones(0, 64), "q_proj.lora_B.weight": torch.ones(64, 0)},
        {"q_proj.lora_B.weight": torch.ones(64, 5)},
        {"embed_tokens.lora_embedding_A": torch.ones(4, 599)},
        {"embed_tokens.lora_embedding_B": torch.ones(4, 64)},
        {"embed_tokens.base_layer.weight": torch.ones(600, 63)},
        {"embed_tokens.base_layer.weight": torch.ones(600)},
        {"embed_tokens.base_layer.weight": torch.ones(())},
    ],
    ids=str,
)
def test_mismatched_adapter_pieces_are_named(base: Checkpoint, copy: Path, tensors: dict) -> None:
    change_weights(copy, tensors)
    error = refused_on(base, copy)
    assert error.file == str(copy / WEIGHTS)
    assert error.tensor is not None


@pytest.fixture(scope="module")
def tokens(base: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of two tokens' rows."""
    folder = tmp_path_factory.mktemp("tokens")
    made(base.path, folder, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [3, 9]})
    return folder


@pytest.mark.parametrize("ids", [[600, 1], [1], [1, 2, 3], [10**30, 1]])
def test_token_ids_without_matching_rows_are_refused(base: Checkpoint, tokens: Path, ids: list[int]) -> None:
    assert open_checkpoint(tokens, base=base).base is base
    change_config(tokens, CONFIG, trainable_token_indices={"embed_tokens": ids})
    error = refused_on(base, tokens)
    change_config(tokens, CONFIG, trainable_token_indices={"embed_tokens": [3, 9]})
    assert error.tensor is not None


def test_tensors_of_an_unknown_kind_or_number_format_are_named(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    save_file(held | {"base_model.model.model.layers.0.self_attn.q_proj.lora_E": torch.ones(4)}, copy / WEIGHTS)
    assert refused_on(base, copy, UnsupportedCheckpointError).found == "lora_E"
    save_file(held, copy / WEIGHTS)
    change_weights(copy, {"q_proj.lora_A.weight": torch.ones(4, 64, dtype=torch.int32)})
    assert refused_on(base, copy, UnsupportedCheckpointError).found == "I32"


def test_two_adapter_tensors_with_the_same_meaning_are_refused(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    (name,) = [name for name in held if name.endswith("q_proj.lora_A.weight")]
    twice = name.replace("lora_A.weight", "lora_A.default.weight")
    save_file(held | {twice: held[name].clone()}, copy / WEIGHTS)
    assert refused_on(base, copy).tensor in (name, twice)


def test_targets_missing_in_the_base_are_omitted_with_a_note(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    save_file(held | {"base_model.model.score.weight": torch.ones(2, 64)}, copy / WEIGHTS)
    assert "1 are not in the base" in " ".join(open_checkpoint(copy, base=base).notes)


def test_missing_or_damaged_file(base: Checkpoint, copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    refused_on(base, copy)
    (copy / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    refused_on(base, copy, CheckpointError)
    (copy / CONFIG).write_text("[" * 100_000)
    refused_on(base, copy)
    (copy / CONFIG).unlink()
    refused_on(base, copy, NotACheckpointError)


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_link_out_of_the_folder_is_refused(base: Checkpoint, copy: Path, tmp_path: Path, name: str) -> None:
    (copy / name).rename(tmp_path / name)
    (copy / name).symlink_to(tmp_path / name)
    assert refused_on(base, copy).found == str(tmp_path / name)


def test_a_model_is_preferred_to_an_adapter_in_the_same_folder(base: Checkpoint, copy: Path) -> None:
    assert is_adapter(copy)
    assert not is_adapter(base.path)
    assert not is_adapter(copy / "nothing")
    assert open_checkpoint(copy, base=base).base is base
    shutil.copy(base.path / "config.json", copy)
    shutil.copy(base.path / "model.safetensors", copy)
    found = open_checkpoint(copy, base=base)
    assert (found.base, found.fingerprint) == (None, base.fingerprint), "the given base is ignored"
    assert found.unread == ("adapter_model.safetensors",)


def test_a_config_that_vanishes_while_the_adapter_is_opened_is_a_typed_error(
    base: Checkpoint, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = adapter.changed

    def vanishing(*arguments: Any, **named: Any) -> Any:
        (copy / CONFIG).unlink(missing_ok=True)
        return changed(*arguments, **named)

    monkeypatch.setattr(adapter, "changed", vanishing)
    assert refused_on(base, copy, NotACheckpointError).file == str(copy / CONFIG)
