"""The files of a checkpoint in every arrangement in use, and the refusals with their differences listed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import find_files, open_checkpoint, shards
from irwm.errors import CorruptCheckpointError, NotACheckpointError
from tests.checkpoint.builders import EMBEDDING, QUERY, change_config, read_index, refused, unprivileged, write_index

INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"


def shard(number: int, count: int = 3) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"


# --- one file


def test_folder_with_one_file_is_opened(folder: Path) -> None:
    files = find_files(folder)
    assert files.path == files.folder == folder
    assert files.shards == (folder / "model.safetensors",)
    assert files.config["model_type"] == "llama"
    assert files.notes == ()
    assert set(files.tensors) == set(load_file(folder / "model.safetensors"))


def test_a_single_file_uses_the_config_next_to_it_if_there_is_one(folder: Path) -> None:
    files = find_files(folder / "model.safetensors")
    assert (files.path, files.folder) == (folder / "model.safetensors", folder)
    assert files.config["model_type"] == "llama"
    (folder / "config.json").unlink()
    files = find_files(folder / "model.safetensors")
    assert files.config == {}
    assert "config.json" in files.notes[0]


def test_a_file_of_any_name_is_the_model_if_it_is_the_only_one(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    assert find_files(folder).shards == (folder / "a.safetensors",)
    save_file({"b": torch.ones(1)}, folder / "b.safetensors")
    assert refused(folder, CorruptCheckpointError).found == "a.safetensors, b.safetensors"


def test_other_weights_in_the_folder_are_noted(folder: Path) -> None:
    save_file({"a": torch.ones(1)}, folder / "consolidated.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    (note,) = find_files(folder).notes
    assert "consolidated.safetensors, pytorch_model.bin" in note


def test_a_folder_reached_through_a_link_is_resolved(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert find_files(tmp_path / "link").path == folder
    assert find_files(tmp_path / "link" / "model.safetensors").path == folder / "model.safetensors"


# --- shards


@pytest.mark.parametrize("arrangement", ["index", "numbers", "a subfolder", "next to the whole file"])
def test_shards_are_joined(tiny_path: Path, sharded: Path, arrangement: str) -> None:
    if arrangement == "numbers":
        (sharded / INDEX).unlink()
    elif arrangement == "a subfolder":
        (sharded / "weights").mkdir()
        for file in sharded.glob("*.safetensors"):
            file.rename(sharded / "weights" / file.name)
        write_index(sharded, {key: f"weights/{name}" for key, name in read_index(sharded).items()})
    elif arrangement == "next to the whole file":
        shutil.copy(tiny_path / "model.safetensors", sharded)
    files = find_files(sharded)
    assert [file.name for file in files.shards] == [shard(number) for number in (1, 2, 3)]
    assert set(files.tensors) == set(load_file(tiny_path / "model.safetensors"))
    assert files.notes == ()


def test_one_of_several_shards_given_alone_is_read_with_a_note(sharded: Path) -> None:
    holding = sharded / read_index(sharded)[EMBEDDING]
    assert "one of 3 shards" in " ".join(find_files(holding).notes)
    (sharded / INDEX).unlink()
    next(file for file in sharded.glob("*.safetensors") if file != holding).unlink()
    assert "some are missing" in " ".join(open_checkpoint(holding).notes)


@pytest.mark.parametrize("other", [EMBEDDING, QUERY, "a shape", "a name"])
def test_two_models_in_one_folder_are_refused(tiny_path: Path, sharded: Path, other: str) -> None:
    tensors = load_file(tiny_path / "model.safetensors")
    if other == "a shape":
        tensors[NORM] = tensors[NORM][:-1].clone()
    elif other == "a name":
        tensors["another"] = torch.ones(1)
    else:
        tensors[other][-1, -1] += 1
    save_file(tensors, sharded / "model.safetensors")
    error = refused(sharded, CorruptCheckpointError)
    assert error.file == str(sharded)
    assert str(error.found).startswith("different: ")
    assert open_checkpoint(sharded / "model.safetensors").layout.q is not None


@pytest.mark.fault(13)
@pytest.mark.parametrize(
    "path",
    [
        *("../model/model.safetensors", "sub/../../model/model.safetensors", "/etc/passwd", "/etc/x.safetensors"),
        *("..\\model\\model.safetensors", "C:\\model.safetensors", "./model.safetensors", ".hidden/model.safetensors"),
        *("a//b.safetensors", "", "x.safetensors\0", "\u202ex.safetensors", "model.bin"),
    ],
)
def test_an_index_that_leads_out_of_the_folder_is_refused(folder: Path, sharded: Path, path: str) -> None:
    write_index(sharded, read_index(sharded) | {EMBEDDING: path})
    error = refused(sharded, CorruptCheckpointError)
    assert (error.tensor, error.found) == (EMBEDDING, path)


@pytest.mark.parametrize(
    "content",
    [
        *("[]", '{"weight_map": []}', '{"weight_map": {}}', "{", '{"weight_map": {"a": 1}}'),
        '{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}',
    ],
)
def test_malformed_index_is_refused(sharded: Path, content: str) -> None:
    (sharded / INDEX).write_text(content)
    assert refused(sharded, CorruptCheckpointError).file == str(sharded / INDEX)


@pytest.mark.fault(16)
def test_missing_and_extra_shards_are_listed(sharded: Path) -> None:
    (sharded / shard(1)).rename(sharded / shard(4))
    assert refused(sharded, CorruptCheckpointError).found == f"missing: {shard(1)}; extra: {shard(4)}"


@pytest.mark.fault(16)
def test_missing_shards_without_an_index_are_listed(folder: Path, sharded: Path) -> None:
    (sharded / INDEX).unlink()
    (sharded / shard(2)).unlink()
    shutil.copy(sharded / shard(3), sharded / shard(4))
    found = str(refused(sharded, CorruptCheckpointError).found)
    assert "number 2 of 3" in found
    assert f"extra: {shard(4)}" in found
    (folder / "model.safetensors").rename(folder / "model-00001-of-999999.safetensors")  # which must cost little
    assert "number 2 of 999999" in str(refused(folder, CorruptCheckpointError).found)


@pytest.mark.fault(16)
def test_index_and_headers_that_disagree_are_listed(sharded: Path) -> None:
    index = read_index(sharded)
    write_index(sharded, {name: file for name, file in index.items() if name != NORM} | {"ghost": index[NORM]})
    assert refused(sharded, CorruptCheckpointError).found == f"missing: ghost; extra: {NORM}"
    other = next(name for name in index.values() if name != index[NORM])
    write_index(sharded, index | {NORM: other})
    assert str(refused(sharded, CorruptCheckpointError).found).startswith(f"{NORM} is in {index[NORM]}, not in ")


@pytest.mark.fault(16)
def test_the_index_selects_the_shard_of_a_tensor_in_two(sharded: Path) -> None:
    home = sharded / read_index(sharded)[NORM]
    other = next(file for file in sorted(sharded.glob("*.safetensors")) if file != home)
    tensors = load_file(other)
    save_file(tensors | {NORM: load_file(home)[NORM]}, other)
    assert f"{NORM} with the same values" in " ".join(find_files(sharded).notes)
    save_file(tensors | {NORM: torch.full((64,), 2.0)}, other)
    found = find_files(sharded)
    assert found.tensors[NORM].file == home.resolve()
    assert f"{other.name}.{NORM}" in found.tensors
    assert f"{NORM} with different values" in " ".join(found.notes)
    (sharded / INDEX).unlink()
    error = refused(sharded, CorruptCheckpointError)
    assert error.tensor == NORM
    assert set(str(error.found).split(", ")) == {home.name, other.name}
    assert error.advice


def test_duplicate_shard_under_another_name_is_refused(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    (sharded / shard(2)).unlink()
    (sharded / shard(2)).symlink_to(shard(1))
    assert refused(sharded, CorruptCheckpointError).found == f"the same file as {shard(1)}"


def test_the_first_faulty_shard_is_named_no_matter_how_many_are_read_at_once(sharded: Path) -> None:
    for number in (2, 3):
        (sharded / shard(number)).write_bytes(b"")
    assert refused(sharded, NotACheckpointError).file == str(sharded / shard(2))


# --- limits


def test_tensor_count_of_all_shards_is_limited(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(find_files(sharded).tensors)
    monkeypatch.setattr(shards, "MAX_TENSORS", count)
    assert len(find_files(sharded).tensors) == count
    monkeypatch.setattr(shards, "MAX_TENSORS", count - 1)
    assert refused(sharded, CorruptCheckpointError).expected == f"at most {count - 1}"


def test_folder_with_too_many_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_NAMES", len(os.listdir(folder)))
    find_files(folder)
    (folder / "one more").touch()
    error = refused(folder, NotACheckpointError)
    assert (error.file, error.found) == (str(folder), "more")
    assert find_files(folder / "model.safetensors").folder == folder


@pytest.mark.parametrize("index", [True, False])
def test_too_many_shards_are_refused(sharded: Path, monkeypatch: pytest.MonkeyPatch, index: bool) -> None:
    if not index:
        (sharded / INDEX).unlink()
    monkeypatch.setattr(shards, "MAX_SHARDS", 3)
    assert len(find_files(sharded).shards) == 3
    monkeypatch.setattr(shards, "MAX_SHARDS", 2)
    assert refused(sharded, CorruptCheckpointError).found == "3 weight files"


# --- paths and configs


def test_paths_that_are_not_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "notes.txt").write_text("hello")
    (tmp_path / "circle").symlink_to("circle")
    for case in ("nothing", "empty", "text", "text/notes.txt", "text/notes.txt/below", "circle", "a\0b", "x" * 300):
        refused(tmp_path / case, NotACheckpointError)
    with pytest.raises(NotACheckpointError):
        find_files("")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "."])
def test_unreadable_files_are_refused(public_folder: Path, name: str) -> None:
    os.chmod(public_folder / name, 0)
    try:
        with unprivileged():
            error = refused(public_folder, NotACheckpointError)
    finally:
        os.chmod(public_folder / name, 0o700)
    assert error.found == "Permission denied"
    assert str(error.file).startswith(str(public_folder / name))


@pytest.mark.parametrize("content", [b"[]", b"{", b"", b"\xff{}", b"[" * 100_000], ids=lambda content: str(content[:9]))
def test_malformed_config_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert refused(folder, CorruptCheckpointError).file == str(folder / "config.json")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_config_in_another_encoding_comes_with_advice(folder: Path, encoding: str) -> None:
    (folder / "config.json").write_text("{}", encoding=encoding)
    assert "UTF-8 without a byte order mark" in str(refused(folder, CorruptCheckpointError).advice)


def test_a_huge_config_is_not_read(folder: Path) -> None:
    os.truncate(folder / "config.json", 2**40)
    assert refused(folder, CorruptCheckpointError).found == f"{2**40} bytes"


def test_a_config_with_infinity_is_read_as_python_tools_write_it(folder: Path) -> None:
    assert change_config(folder, time_step_limit=[0.0, float("inf")]) == find_files(folder).config
