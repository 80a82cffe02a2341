"""Links that lead out of a checkpoint, special files with the names of its files, and files that are exchanged."""

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
from safetensors.torch import save_file

from irwm.checkpoint import find_files, open_checkpoint, special_token_ids
from irwm.checkpoint.formats.parser_child import run_parser
from irwm.checkpoint.formats.read_budget import ReadBudget
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.errors import CheckpointError, CorruptCheckpointError, NotACheckpointError
from irwm.release import publish
from tests.checkpoint.builders import hub_cache, read_index, refused, write_index
from tools.waiting import until

SHARD = "model-00002-of-00003.safetensors"


@pytest.mark.fault(14)
@pytest.mark.parametrize("name", [SHARD, "config.json", "model.safetensors.index.json"])
def test_a_linked_shard_config_or_index_is_refused(sharded: Path, name: str) -> None:
    (sharded / name).rename(sharded.parent / name)
    (sharded / name).symlink_to(f"../{name}")
    assert refused(sharded, CorruptCheckpointError).found == str(sharded.parent / name)
    (sharded / name).unlink()
    (sharded / name).symlink_to("nowhere")
    refused(sharded, NotACheckpointError)


@pytest.mark.fault(14)
def test_a_subfolder_linked_from_outside_is_refused(sharded: Path) -> None:
    outside = sharded.parent / "outside"
    outside.mkdir()
    for file in sharded.glob("*.safetensors"):
        file.rename(outside / file.name)
    (sharded / "sub").symlink_to(outside)
    write_index(sharded, {key: f"sub/{name}" for key, name in read_index(sharded).items()})
    assert str(refused(sharded, CorruptCheckpointError).found).startswith(str(outside))


@pytest.mark.fault(14)
def test_links_inside_the_folder_and_of_a_hub_cache_are_allowed(sharded: Path, tmp_path: Path) -> None:
    (sharded / SHARD).rename(sharded / "stored.dat")
    (sharded / SHARD).symlink_to("stored.dat")
    snapshot = hub_cache(sharded, tmp_path)
    assert open_checkpoint(snapshot).fingerprint == open_checkpoint(sharded).fingerprint
    assert find_files(snapshot / SHARD).config["model_type"] == "llama"


@pytest.mark.fault(14)
def test_a_hub_cache_may_not_lead_past_its_blobs(folder: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(folder, tmp_path)
    other = shutil.copy(folder / "model.safetensors", tmp_path / "other.safetensors")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(other)
    assert refused(snapshot, CorruptCheckpointError).found == str(other)
    blobs = snapshot.parent.parent / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    refused(snapshot, CorruptCheckpointError)


@contextlib.contextmanager
def special(path: Path, kind: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "socket":
            with contextlib.chdir(path.parent):  # a socket's path may have 107 bytes only
                listener.bind(path.name)
        elif kind == "directory":
            path.mkdir()
        elif os.geteuid() == 0:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
        else:
            path.symlink_to("/dev/zero")
        yield


@pytest.mark.fault(15)
@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["FIFO", "socket", "directory", "device"])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.gguf", "config.json"])
def test_special_files_are_refused_without_waiting(folder: Path, kind: str, name: str) -> None:
    for file in ("model.safetensors", name):
        (folder / file).unlink(missing_ok=True)
    with special(folder / name, kind):
        refused(folder, NotACheckpointError)
        if name != "config.json" and kind != "directory":
            assert refused(folder / name, NotACheckpointError).expected == "a regular file"


@pytest.mark.fault(15)
@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["FIFO", "socket", "directory", "device"])
def test_special_file_named_as_tokenizer_is_refused_when_it_is_needed(folder: Path, tmp_path: Path, kind: str) -> None:
    (folder / "tokenizer.json").unlink()
    with special(folder / "tokenizer.json", kind):
        model = open_checkpoint(folder)
        with pytest.raises(CheckpointError):
            special_token_ids(model)
        left = publish(model, tmp_path / "out", {}).left_out
        assert {name.rstrip("/") for name in left} <= {"README.md", "tokenizer.json"}


@pytest.mark.fault(15)
@pytest.mark.timeout(10)
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/tty", "/proc/self/mem", "/proc/self/environ"])
def test_system_files_are_refused(path: str, tmp_path: Path) -> None:
    refused(Path(path), NotACheckpointError)
    link = tmp_path / "x.safetensors"
    link.symlink_to(path)
    refused(link, NotACheckpointError)


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
                found.update(list(read_safetensors(path, ReadBudget(model)).tensors))
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
    with ReadBudget(tmp_path).child(tmp_path / "x.bin") as (limits, descriptor):
        (tmp_path / "y.bin").replace(tmp_path / "x.bin")
        answer = run_parser("torch_parser", tmp_path / "x.bin", "PyTorch file", limits, descriptor)
    assert [tensor[0] for tensor in answer["tensors"]] == ["a"]
