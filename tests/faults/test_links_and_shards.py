"""An index, links and shards that lead elsewhere or disagree, and paths that are not files (FAULTS 13 to 16)."""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import open_checkpoint, special_token_ids
from irwm.checkpoint.formats.child import run_parser
from irwm.checkpoint.formats.reading import Reading
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.errors import CheckpointError, CorruptCheckpointError, NotACheckpointError
from irwm.release import publish
from tests.checkpoint.builders import EMBEDDING, hub_cache, read_index, write_index
from tests.faults.helpers import refused
from tools.waiting import until


@pytest.mark.parametrize(
    "shard",
    [
        "../model/model.safetensors",
        "sub/../../model/model.safetensors",
        "/etc/passwd",
        "/etc/x.safetensors",
        "..\\model\\model.safetensors",
        "C:\\model.safetensors",
        "./model.safetensors",
        ".hidden/model.safetensors",
        "a//b.safetensors",
        "",
        "x.safetensors\0",
        "\u202ex.safetensors",
        "model.bin",
    ],
)
def test_fault_13_index_outside_the_folder_is_refused(folder: Path, sharded: Path, shard: str) -> None:
    index = read_index(sharded)
    index[EMBEDDING] = shard
    write_index(sharded, index)
    error = refused(sharded, CorruptCheckpointError)
    assert error.tensor == EMBEDDING
    assert error.found == shard


def test_fault_14_a_shard_linked_from_outside_is_refused(sharded: Path) -> None:
    shard = sharded / "model-00002-of-00003.safetensors"
    shard.rename(sharded.parent / "elsewhere.safetensors")
    shard.symlink_to("../elsewhere.safetensors")
    assert "leads out" in str(refused(sharded, CorruptCheckpointError))
    shard.unlink()
    shard.symlink_to("nowhere.safetensors")
    refused(sharded, NotACheckpointError)


def test_fault_14_a_subfolder_linked_from_outside_is_refused(sharded: Path) -> None:
    outside = sharded.parent / "outside"
    outside.mkdir()
    for shard in sharded.glob("*.safetensors"):
        shard.rename(outside / shard.name)
    (sharded / "sub").symlink_to(outside)
    write_index(sharded, {key: f"sub/{name}" for key, name in read_index(sharded).items()})
    assert "leads out" in str(refused(sharded, CorruptCheckpointError))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_fault_14_a_linked_config_or_index_is_refused(sharded: Path, name: str) -> None:
    (sharded / name).rename(sharded.parent / name)
    (sharded / name).symlink_to(sharded.parent / name)
    assert "leads out" in str(refused(sharded, CorruptCheckpointError))


def test_fault_14_links_inside_the_folder_and_of_a_hub_cache_are_allowed(sharded: Path, tmp_path: Path) -> None:
    shard = sharded / "model-00002-of-00003.safetensors"
    shard.rename(sharded / "stored.dat")
    shard.symlink_to("stored.dat")
    assert open_checkpoint(sharded).vocab_size == 600
    snapshot = hub_cache(sharded, tmp_path)
    assert open_checkpoint(snapshot).fingerprint == open_checkpoint(sharded).fingerprint


def test_fault_14_a_hub_cache_may_not_lead_past_its_blobs(folder: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(folder, tmp_path)
    other = shutil.copy(folder / "model.safetensors", tmp_path / "other.safetensors")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(other)
    assert "leads out" in str(refused(snapshot, CorruptCheckpointError))


@contextlib.contextmanager
def make_odd(path: Path, kind: str) -> Iterator[None]:
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            where = os.getcwd()
            os.chdir(path.parent)  # a socket's path may have 107 bytes only
            try:
                listener.bind(path.name)
            finally:
                os.chdir(where)
            yield
            return
    elif kind == "directory":
        path.mkdir()
    elif os.geteuid() == 0:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    else:
        path.symlink_to("/dev/zero")
    yield


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["FIFO", "socket", "directory", "device"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_fault_15_special_files_do_not_hang(folder: Path, tmp_path: Path, kind: str, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    with make_odd(folder / name, kind):
        if name == "tokenizer.json":
            model = open_checkpoint(folder)
            with pytest.raises(CheckpointError):
                special_token_ids(model)
            released = publish(model, tmp_path / "out", {})
            assert [left.rstrip("/") for left in released.left_out] in ([name], [])
        else:
            refused(folder)
        if name == "model.safetensors" and kind != "directory":
            assert "not a regular file" in str(refused(folder / name, NotACheckpointError))


@pytest.mark.timeout(10)
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/tty", "/proc/self/mem", "/proc/self/environ"])
def test_fault_15_system_files_are_refused(path: str, tmp_path: Path) -> None:
    refused(Path(path), NotACheckpointError)
    link = tmp_path / "x.safetensors"
    link.symlink_to(path)
    refused(link, NotACheckpointError)


def test_fault_16_missing_and_extra_shards_are_listed(sharded: Path) -> None:
    first = sharded / "model-00001-of-00003.safetensors"
    first.rename(sharded / "model-00004-of-00003.safetensors")
    text = str(refused(sharded, CorruptCheckpointError))
    assert "missing: model-00001-of-00003.safetensors" in text
    assert "extra: model-00004-of-00003.safetensors" in text


def test_fault_16_missing_shards_without_an_index_are_listed(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    (sharded / "model-00002-of-00003.safetensors").unlink()
    assert "number 2 of 3" in str(refused(sharded, CorruptCheckpointError))
    shutil.copy(sharded / "model-00003-of-00003.safetensors", sharded / "model-00004-of-00003.safetensors")
    text = str(refused(sharded, CorruptCheckpointError))
    assert "number 2 of 3" in text
    assert "extra: model-00004-of-00003.safetensors" in text


def test_fault_16_index_and_headers_that_disagree_are_listed(sharded: Path) -> None:
    index = read_index(sharded)
    shard = index.pop("model.norm.weight")
    write_index(sharded, index | {"model.ghost.weight": shard})
    text = str(refused(sharded, CorruptCheckpointError))
    assert "missing: model.ghost.weight" in text
    assert "extra: model.norm.weight" in text


def test_fault_16_a_tensor_in_two_shards_is_named_with_both(sharded: Path) -> None:
    index = read_index(sharded)
    home = sharded / index["model.norm.weight"]
    other = sharded / next(name for name in sorted(index.values()) if name != home.name)
    save_file(load_file(other) | {"model.norm.weight": torch.full((64,), 2.0)}, other)
    found = open_checkpoint(sharded)
    assert found.tensors["model.norm.weight"].file == home.resolve(), "the index names the shard that counts"
    assert "model.norm.weight, with different numbers" in " ".join(found.notes)
    (sharded / "model.safetensors.index.json").unlink()
    error = refused(sharded, CorruptCheckpointError)
    assert error.tensor == "model.norm.weight"
    assert home.name in str(error)
    assert other.name in str(error)


# Swaps a weights file, and the folder of another one, for links to a model outside and back, endlessly.
SWAPPER = """
import os, sys
file, folder, outside = sys.argv[1:]
while True:
    for path, target in ((file, outside + "/model.safetensors"), (folder, outside)):
        os.symlink(target, path + ".link")
        os.rename(path, path + ".kept")
        os.rename(path + ".link", path)
        os.unlink(path)
        os.rename(path + ".kept", path)
"""


OPENS, REFUSALS = 5000, 500


@pytest.mark.fault(75)
@pytest.mark.slow
def test_swapping_files_for_links_never_reads_outside(tmp_path: Path) -> None:
    model, outside = tmp_path / "model", tmp_path / "outside"
    (model / "part").mkdir(parents=True)
    outside.mkdir()
    save_file({"a": torch.zeros(2)}, model / "model.safetensors")
    save_file({"a": torch.zeros(2)}, model / "part" / "model.safetensors")
    save_file({"outside": torch.zeros(2)}, outside / "model.safetensors")
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, model / "model.safetensors", model / "part", outside], stderr=subprocess.PIPE
    )
    found: collections.Counter[str] = collections.Counter()

    def tried_often() -> bool:
        for path in (model / "model.safetensors", model / "part" / "model.safetensors"):
            try:
                found.update(list(read_safetensors(path, Reading(model)).tensors))
            except CheckpointError as error:
                found[type(error).__name__] += 1
        return found["a"] >= OPENS and found.total() - found["a"] >= REFUSALS

    try:
        until(tried_often, "opens that succeeded, and opens that met a link", lambda: str(found), longest_pause=0)
        assert swapper.poll() is None, "the swapper ended"
    finally:
        swapper.kill()
        swapper.communicate()
    assert found["outside"] == 0, found


@pytest.mark.fault(75)
def test_child_reads_the_opened_file_after_a_rename(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "x.bin")
    torch.save({"outside": torch.zeros(2)}, tmp_path / "y.bin")
    with Reading(tmp_path).child(tmp_path / "x.bin") as (limits, descriptor):
        (tmp_path / "y.bin").replace(tmp_path / "x.bin")
        answer = run_parser("torch_parser", tmp_path / "x.bin", "PyTorch file", limits, descriptor)
    assert [tensor[0] for tensor in answer["tensors"]] == ["a"]
