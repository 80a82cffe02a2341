"""Publishing: the right bytes, in the right places, with a valid manifest, or no release at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.errors import CancelledError, CheckpointChangedError, OutputExistsError, PublishError
from irwm.release import Patch, publish, read_manifest, sweep_partials, verify_manifest
from tests.checkpoint.builders import EMBEDDING, hub_cache, tree


def row_patch(model: Checkpoint, row: int, values: torch.Tensor) -> dict[Path, list[Patch]]:
    item = model.tensors[EMBEDDING]
    width = item.nbytes // item.shape[0]
    return {item.file: [Patch(item.start + row * width, values.numpy().tobytes())]}


def test_a_release_differs_in_the_patched_bytes_only(folder: Path, tmp_path: Path) -> None:
    model, values = open_checkpoint(folder), torch.randn(64)
    released = publish(model, tmp_path / "out", row_patch(model, 7, values))
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    before[EMBEDDING][7] = values
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("config.json", "README.md", "tokenizer.json"):
        assert (folder / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert released.path == tmp_path / "out"
    assert released.bytes_written == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]
    assert torch.equal(open_checkpoint(released.path).embedding([7])[0], values)


def test_sha256sum_verifies_it_without_any_tool_of_ours(model: Checkpoint, tmp_path: Path) -> None:
    released = publish(model, tmp_path / "out", row_patch(model, 0, torch.ones(64)))
    subprocess.run(["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=released.path, check=True)
    assert verify_manifest(released.path).ok
    assert read_manifest(released.path) == released.manifest


def test_patches_in_several_shards(sharded: Path, tmp_path: Path) -> None:
    model = open_checkpoint(sharded)
    patches: dict[Path, list[Patch]] = {}
    for item in model.tensors.values():
        patches.setdefault(item.file, []).append(Patch(item.stop - 4, bytes(4)))
    publish(model, tmp_path / "out", patches)
    copy = open_checkpoint(tmp_path / "out")
    assert set(copy.tensors) == set(model.tensors)
    for name in ("model.norm.weight", EMBEDDING):
        shard = copy.tensors[name].file
        assert load_file(shard)[name].flatten()[-1] == 0


def test_patches_across_the_borders_of_the_chunks(
    model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    border = 64 * 1024
    monkeypatch.setattr(sys.modules["irwm.release.publish"], "CHUNK", border)  # the function has the module's name
    start = min(tensor.start for tensor in model.tensors.values())
    patches = [
        Patch(border - 3, b"abcdef"),
        Patch(2 * border + 3, b"g"),
        Patch(start, b"h"),
        Patch(border + 3, b"i" * border),
    ]
    seen: list[tuple[int, int, str]] = []
    publish(model, tmp_path / "out", {model.shards[0]: patches}, progress=lambda *args: seen.append(args))
    expected = bytearray(model.shards[0].read_bytes())
    for patch in patches:
        expected[patch.start : patch.stop] = patch.data
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == bytes(expected)
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert done[-1] == seen[-1][1]
    assert "Writing model.safetensors" in {step[2] for step in seen}


def test_a_single_file_becomes_a_folder_with_its_companions(folder: Path) -> None:
    model = open_checkpoint(folder / "model.safetensors")
    publish(model, folder / "marked", {})  # its own folder is allowed
    files = {"SHA256SUMS", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert set(os.listdir(folder / "marked")) == files
    assert open_checkpoint(folder / "marked").fingerprint == model.fingerprint


def test_a_hub_cache_becomes_regular_files(tiny_path: Path, tmp_path: Path) -> None:
    model = open_checkpoint(hub_cache(tiny_path, tmp_path))
    publish(model, tmp_path / "out", row_patch(model, 3, torch.zeros(64)))
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert torch.count_nonzero(open_checkpoint(tmp_path / "out").embedding([3])) == 0
    assert torch.count_nonzero(model.embedding([3])) > 0


def test_files_that_are_not_copied_are_reported(folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"unmarked")
    (folder / "SHA256SUMS").write_text("stale")
    (folder / "docs").mkdir()
    (folder / "docs" / "README.md").write_text("card")
    released = publish(open_checkpoint(folder), tmp_path / "out", {})
    assert released.left_out == ("pytorch_model.bin",)
    assert "docs/README.md" in released.manifest.files
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()


def test_modes_follow_the_umask(model: Checkpoint, tmp_path: Path) -> None:
    os.chmod(model.path / "config.json", 0o400)
    old = os.umask(0o027)
    try:
        publish(model, tmp_path / "out", {})
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "out").iterdir()} == {0o640}


def test_verify_sees_the_written_model_and_can_abort(model: Checkpoint, tmp_path: Path) -> None:
    before = tree(tmp_path)

    def verify(path: Path) -> None:
        assert path == tmp_path / "out.partial"
        assert torch.equal(open_checkpoint(path).embedding([7])[0], torch.ones(64))
        assert not (path / "SHA256SUMS").exists()
        raise LookupError("the mark is not there")

    with pytest.raises(LookupError):
        publish(model, tmp_path / "out", row_patch(model, 7, torch.ones(64)), verify=verify)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("how", [1, 2, 5, 6, "interrupt"])
def test_a_stopped_release_leaves_nothing(model: Checkpoint, tmp_path: Path, how: int | str) -> None:
    """Stopped at one of its polls, or by an exception of its caller."""
    before, polls = tree(tmp_path), iter(range(1, 100))
    interrupt = Mock(side_effect=KeyboardInterrupt if how == "interrupt" else None)
    with pytest.raises((CancelledError, KeyboardInterrupt)):
        publish(model, tmp_path / "out", {}, progress=interrupt, cancelled=lambda: next(polls) == how)
    assert tree(tmp_path) == before


def test_a_second_publisher_is_refused_and_the_first_continues(model: Checkpoint, tmp_path: Path) -> None:
    def verify(_: Path) -> None:
        with pytest.raises(OutputExistsError):
            publish(model, tmp_path / "out", {})

    publish(model, tmp_path / "out", {}, verify=verify)
    assert verify_manifest(tmp_path / "out").ok
    with pytest.raises(OutputExistsError):
        publish(model, tmp_path / "out", {})


def competed(model: Checkpoint, home: Path, *, cleans: bool) -> int:
    if cleans:
        for _ in range(30):
            sweep_partials(home)
        return 3
    try:
        publish(model, home / "out", {})
    except OutputExistsError:
        return 1
    return 0


def test_one_of_many_simultaneous_publishers_wins(model: Checkpoint, tmp_path: Path) -> None:
    """Forked children compete for one target, while others remove old folders."""
    children = []
    for number in range(9):
        child = os.fork()
        if child == 0:
            code = 2
            with suppress(BaseException):
                code = competed(model, tmp_path, cleans=number % 3 == 2)
            os._exit(code)
        children.append(child)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert codes == [0, 1, 1, 1, 1, 1, 3, 3, 3]
    assert verify_manifest(tmp_path / "out").ok
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]


@pytest.mark.parametrize("edit", ["append", "touch", "replace", "remove"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_source_change_during_copying_stops_the_release(
    model: Checkpoint, tmp_path: Path, edit: str, name: str
) -> None:
    path = model.path / name

    def change(_: object = None, *__: object) -> None:
        if edit == "append":
            with path.open("ab") as file:
                file.write(b"x")
        elif edit == "touch":
            os.utime(path, ns=(1, 1))
        elif edit == "replace":
            (tmp_path / "new").write_bytes(path.read_bytes())
            status = path.stat()
            os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
            (tmp_path / "new").rename(path)
        else:
            path.unlink(missing_ok=True)

    with pytest.raises(CheckpointChangedError) as caught:
        publish(model, tmp_path / "out", {}, progress=change)
    assert caught.value.file == str(path)
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("name", ["none/out", "model/config.json/out", "out.partial", "x" * 300, "a\0b"])
def test_invalid_target_names_are_refused(model: Checkpoint, tmp_path: Path, name: str) -> None:
    before = tree(tmp_path)
    with pytest.raises(PublishError):
        publish(model, tmp_path / name, {})
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["/", ".", "..", "/tmp/..", "link"])
def test_targets_without_a_name_and_broken_links_count_as_existing(
    model: Checkpoint, tmp_path: Path, name: str
) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OutputExistsError):
        publish(model, tmp_path / name if name == "link" else name, {})
    assert not (tmp_path / "nowhere").exists()


def test_a_release_can_be_released_again(model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert publish(model, "one", {}).path == tmp_path / "one"
    second = publish(open_checkpoint(tmp_path / "one"), tmp_path / "two", {})
    assert second.left_out == ()
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
