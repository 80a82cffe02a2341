"""The files of a checkpoint, in every arrangement in use, and the refused cases with their differences listed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import find_files, open_checkpoint, shards
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
)
from tests.checkpoint.builders import EMBEDDING, hub_cache, read_index, split, unprivileged, write_index


def test_folder_with_one_file_is_opened(folder: Path) -> None:
    files = find_files(folder)
    assert files.path == files.folder == folder
    assert files.shards == (folder / "model.safetensors",)
    assert files.config["model_type"] == "llama"
    assert files.notes == ()
    assert set(files.tensors) == set(load_file(folder / "model.safetensors"))


def test_a_single_file_uses_the_config_next_to_it(folder: Path) -> None:
    files = find_files(folder / "model.safetensors")
    assert files.path == folder / "model.safetensors"
    assert files.folder == folder
    assert files.config["model_type"] == "llama"


def test_single_file_without_config_has_an_empty_one_with_a_note(folder: Path) -> None:
    (folder / "config.json").unlink()
    files = find_files(folder / "model.safetensors")
    assert files.config == {}
    assert "no config.json" in files.notes[0]


def test_indexed_shards_are_joined(tiny_path: Path, sharded: Path) -> None:
    files = find_files(sharded)
    assert [shard.name for shard in files.shards] == [f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)]
    assert set(files.tensors) == set(load_file(tiny_path / "model.safetensors"))


def test_numbered_shards_without_an_index_are_joined(tiny_path: Path, tmp_path: Path) -> None:
    files = find_files(split(tiny_path, tmp_path / "m", index=False))
    assert len(files.shards) == 3
    assert EMBEDDING in files.tensors


def test_a_file_of_any_name_is_the_model_if_it_is_the_only_one(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "weights v2.safetensors")
    assert find_files(folder).shards == (folder / "weights v2.safetensors",)


def test_one_of_several_shards_given_alone_is_read_with_a_note(sharded: Path) -> None:
    (note,) = find_files(sharded / "model-00002-of-00003.safetensors").notes
    assert "one of 3 shards" in note


def test_whole_file_and_shards_of_one_model_are_one_model(tiny_path: Path, sharded: Path) -> None:
    shutil.copy(tiny_path / "model.safetensors", sharded)
    model = open_checkpoint(sharded)
    assert len(model.shards) == 3
    assert model.notes == ()


@pytest.mark.parametrize("other", [EMBEDDING, "model.layers.0.self_attn.q_proj.weight", "a shape", "a name"])
def test_two_models_in_one_folder_are_refused_since_transformers_reads_the_whole_file(
    tiny_path: Path, sharded: Path, other: str
) -> None:
    tensors = load_file(tiny_path / "model.safetensors")
    if other == "a shape":
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    elif other == "a name":
        tensors["another"] = torch.ones(1)
    else:
        tensors[other][-1, -1] += 1
    save_file(tensors, sharded / "model.safetensors")
    with pytest.raises(CorruptCheckpointError, match="two different models") as caught:
        open_checkpoint(sharded)
    assert caught.value.file == str(sharded)
    assert "path of the one file" in str(caught.value.advice)
    assert open_checkpoint(sharded / "model.safetensors").layout.q is not None


def test_duplicate_shard_under_another_name_is_refused(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    (sharded / "model-00002-of-00003.safetensors").unlink()
    (sharded / "model-00002-of-00003.safetensors").symlink_to("model-00001-of-00003.safetensors")
    with pytest.raises(CorruptCheckpointError, match="one file"):
        find_files(sharded)


def test_tensor_count_of_all_shards_is_limited(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(find_files(sharded).tensors)
    monkeypatch.setattr(shards, "MAX_TENSORS", count)
    assert len(find_files(sharded).tensors) == count
    monkeypatch.setattr(shards, "MAX_TENSORS", count - 1)
    with pytest.raises(CorruptCheckpointError, match="more tensors"):
        find_files(sharded)


def test_other_weights_in_the_folder_are_noted(folder: Path) -> None:
    save_file({"a": torch.ones(1)}, folder / "consolidated.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    (note,) = find_files(folder).notes
    assert "consolidated.safetensors, pytorch_model.bin" in note


def test_index_naming_the_wrong_shard_is_refused(sharded: Path) -> None:
    index = read_index(sharded)
    index[EMBEDDING] = next(name for name in index.values() if name != index[EMBEDDING])
    write_index(sharded, index)
    with pytest.raises(CorruptCheckpointError, match="is in model-"):
        find_files(sharded)


@pytest.mark.parametrize("content", ["[]", '{"weight_map": []}', '{"weight_map": {}}', "{", '{"weight_map": {"a": 1}}'])
def test_malformed_index_is_refused(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        find_files(sharded)
    assert caught.value.file == str(sharded / "model.safetensors.index.json")


def test_index_naming_a_tensor_twice_is_refused(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}'
    )
    with pytest.raises(CorruptCheckpointError, match="twice"):
        find_files(sharded)


def test_shards_in_a_subfolder_are_allowed(sharded: Path) -> None:
    (sharded / "weights").mkdir()
    for shard in sharded.glob("*.safetensors"):
        shard.rename(sharded / "weights" / shard.name)
    write_index(sharded, {key: f"weights/{name}" for key, name in read_index(sharded).items()})
    assert len(find_files(sharded).shards) == 3


def test_several_unrelated_weight_files_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    save_file({"b": torch.ones(1)}, folder / "b.safetensors")
    with pytest.raises(CorruptCheckpointError, match=r"a\.safetensors, b\.safetensors"):
        find_files(folder)


def test_an_absurd_shard_number_is_cheap(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-999999.safetensors")
    with pytest.raises(CorruptCheckpointError, match="number 2 of 999999"):
        find_files(folder)


def test_folder_with_too_many_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_NAMES", len(os.listdir(folder)))
    find_files(folder)
    (folder / "one more").touch()
    with pytest.raises(NotACheckpointError, match="more files") as caught:
        find_files(folder)
    assert caught.value.file == str(folder)
    assert "weight file" in (caught.value.advice or "")
    assert find_files(folder / "model.safetensors").folder == folder


@pytest.mark.parametrize("index", [True, False])
def test_too_many_shards_are_refused(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: bool
) -> None:
    sharded = split(tiny_path, tmp_path / "m", index=index)
    monkeypatch.setattr(shards, "MAX_SHARDS", 3)
    assert len(find_files(sharded).shards) == 3
    monkeypatch.setattr(shards, "MAX_SHARDS", 2)
    with pytest.raises(CorruptCheckpointError, match="more pieces") as caught:
        find_files(sharded)
    assert caught.value.found == "3 weight files"


def test_the_first_faulty_shard_is_named_however_many_are_read_at_once(sharded: Path) -> None:
    for number in (2, 3):
        (sharded / f"model-0000{number}-of-00003.safetensors").write_bytes(b"")
    with pytest.raises(NotACheckpointError) as caught:
        find_files(sharded)
    assert caught.value.file == str(sharded / "model-00002-of-00003.safetensors")


def test_paths_that_are_not_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "notes.txt").write_text("hello")
    (tmp_path / "circle").symlink_to("circle")
    cases = ["nothing here", "empty", "text", "text/notes.txt", "text/notes.txt/below", "circle", "a\0b", "x" * 300]
    for case in cases:
        with pytest.raises(NotACheckpointError) as caught:
            find_files(tmp_path / case)
        assert caught.value.file is not None
    with pytest.raises(NotACheckpointError):
        find_files("")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "."])
def test_unreadable_files_are_refused(public_folder: Path, name: str) -> None:
    os.chmod(public_folder / name, 0)
    try:
        with unprivileged(), pytest.raises(NotACheckpointError, match="may not read") as caught:
            find_files(public_folder)
    finally:
        os.chmod(public_folder / name, 0o700)
    assert caught.value.file is not None
    assert caught.value.file.startswith(str(public_folder / name))


@pytest.mark.parametrize("content", [b"[]", b"{", b"", b"\xff{}", b"[" * 100_000])
def test_malformed_config_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        find_files(folder)
    assert caught.value.file == str(folder / "config.json")


def test_a_huge_config_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(CorruptCheckpointError, match="larger than any real one"):
        find_files(folder)


def test_a_config_with_infinity_is_read_as_python_tools_write_it(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"time_step_limit": [0.0, float("inf")]}))
    assert find_files(folder).config["time_step_limit"][1] == float("inf")


def test_a_folder_reached_through_a_link_is_resolved(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert find_files(tmp_path / "link").path == folder
    assert find_files(tmp_path / "link" / "model.safetensors").path == folder / "model.safetensors"


def test_a_hub_cache_is_read_through_its_links(tiny_path: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(tiny_path, tmp_path)
    assert find_files(snapshot).shards == (snapshot / "model.safetensors",)
    assert find_files(snapshot / "model.safetensors").config["model_type"] == "llama"


def test_a_hub_cache_whose_blob_store_is_a_link_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(tiny_path, tmp_path)
    blobs = snapshot.parent.parent / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="leads out"):
        find_files(snapshot)
