"""Faulty, hostile and vanishing files, a crash at any moment, and a full disk (FAULTS 1 to 24, 39 to 43)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import tracemalloc
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.checkpoint import (
    Patch,
    open_checkpoint,
    publish,
    read_header,
    read_tensor,
    special_token_ids,
    sweep_partials,
    verify_manifest,
)
from irwm.checkpoint.tensors import stream_tensor
from irwm.errors import (
    CheckpointChangedError,
    CheckpointError,
    CorruptCheckpointError,
    DiskSpaceError,
    NotACheckpointError,
    OutputExistsError,
    PublishError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.builders import (
    EMBEDDING,
    entry,
    hub_cache,
    raw,
    read_index,
    split,
    tree,
    unprivileged,
    write_index,
)

ESCAPES = "../../etc/x\0\x1b[31m\u202e<script>alert(1)</script>"


@pytest.fixture
def folder(tiny_path: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_path, tmp_path / "model")


@pytest.fixture
def sharded(tiny_path: Path, tmp_path: Path) -> Path:
    return split(tiny_path, tmp_path / "sharded")


def weights(folder: Path, content: bytes) -> Path:
    """A model folder whose only weight file has the given content."""
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def refused(path: Path, *kinds: type[CheckpointError]) -> CheckpointError:
    """The error of opening `path`; it must name a file and be printable, and nothing may have been allocated for it."""
    tracemalloc.start()
    try:
        with pytest.raises(kinds or CheckpointError) as caught:
            open_checkpoint(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024 * 1024
    assert caught.value.file is not None
    assert str(caught.value).isprintable()
    return caught.value


# --- what a "safetensors" file can be instead, and how its header can lie


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\1\0\0\0\0\0\0", "too short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer"),
        (b"\n<!DOCTYPE html><html><title>Sign in</title></html>", "web page"),
        (b"<HTML>", "web page"),
        (b'{"error": "gated"}', "JSON"),
        (b"Access to model is restricted.\n", "text file"),
    ],
)
def test_fault_01_what_stands_in_for_the_weights_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in str(refused(weights(tmp_path / "m", content), NotACheckpointError))


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 2**32, 1000])
def test_fault_02_header_length_beyond_the_file_allocates_nothing(tmp_path: Path, length: int) -> None:
    content = struct.pack("<Q", length) + b"{" + b" " * 100
    error = refused(weights(tmp_path / "m", content), CorruptCheckpointError)
    assert str(length) in str(error)


def test_fault_03_a_header_of_99_megabytes_is_refused_at_a_lower_cap(tmp_path: Path) -> None:
    path = weights(tmp_path / "m", struct.pack("<Q", 99_000_000) + b"{") / "model.safetensors"
    os.truncate(path, 100_000_000)
    assert "larger than any real one" in str(refused(path, CorruptCheckpointError))


def test_fault_03_more_tensors_than_any_model_has_are_refused(tmp_path: Path) -> None:
    item = json.dumps(entry("U8", [0], 0, 0), separators=(",", ":"))
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "model.safetensors"
    raw(path, "{" + ",".join(f'"{i}":{item}' for i in range(200_001)) + "}")
    with pytest.raises(CorruptCheckpointError, match="more tensors"):
        read_header(path)
    raw(path, '{"a":[' + "{}," * 1_000_000 + "{}]}")
    with pytest.raises(CorruptCheckpointError, match="more tensors"):
        read_header(path)
    raw(path, '{"a":[' + "[]," * 10_000_000 + "[]]}")
    with pytest.raises(CorruptCheckpointError, match="more tensors"):
        read_header(path)


@pytest.mark.parametrize("second", [(0, 4), (4, 8)])
def test_fault_04_and_05_a_name_twice_is_refused_even_for_the_same_bytes(
    tmp_path: Path, second: tuple[int, int]
) -> None:
    item, other = json.dumps(entry("F32", [1], 0, 4)), json.dumps(entry("F32", [1], *second))
    raw(tmp_path / "x.safetensors", f'{{"w": {item}, "w": {other}}}', bytes(second[1]))
    error = refused(tmp_path / "x.safetensors", CorruptCheckpointError)
    assert error.tensor == "w"
    assert "twice" in str(error)


@pytest.mark.parametrize(
    ("ranges", "size", "words"),
    [
        ([(0, 4), (0, 4)], 4, "overlap"),
        ([(0, 4), (2, 6)], 6, "overlap"),
        ([(0, 4), (8, 12)], 12, "hole"),
        ([(4, 8), (8, 12)], 12, "hole"),
        ([(0, 4), (4, 8)], 9, "Bytes follow"),
        ([(0, 4), (4, 8)], 7, "cut short"),
    ],
)
def test_fault_06_overlap_hole_and_trailing_bytes(tmp_path: Path, ranges: list, size: int, words: str) -> None:
    header = {f"t{i}": entry("F32", [1], *pair) for i, pair in enumerate(ranges)}
    raw(tmp_path / "x.safetensors", header, bytes(size))
    assert words in str(refused(tmp_path / "x.safetensors", CorruptCheckpointError))


def test_fault_06_an_archive_behind_the_last_tensor(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.safetensors", "a") as archive:
        archive.writestr("payload.py", "print()")
    assert "Bytes follow" in str(refused(folder, CorruptCheckpointError))


@pytest.mark.parametrize(
    "shape", [[3], [-1], [1.5], [1.0], ["1"], [True], [None], [2**31, 2**31, 4], [2**62, 4], [1, [1]]], ids=str
)
def test_fault_07_shapes_that_do_not_fit_or_are_no_numbers(tmp_path: Path, shape: list) -> None:
    raw(tmp_path / "x.safetensors", {"w": entry("F32", shape, 0, 4)}, bytes(4))
    assert refused(tmp_path / "x.safetensors", CorruptCheckpointError).tensor == "w"


@pytest.mark.parametrize("shape", [[0, 2**63], [0, 2**62, 2**62], [2**63, 0]], ids=str)
def test_fault_08_an_empty_tensor_with_overflowing_strides(tmp_path: Path, shape: list) -> None:
    raw(tmp_path / "x.safetensors", {"w": entry("F32", shape, 0, 0), "v": entry("F32", [1], 0, 4)}, bytes(4))
    assert refused(tmp_path / "x.safetensors", CorruptCheckpointError).tensor == "w"


@pytest.mark.parametrize("dtype", ["F7", "float32", "", "\x1b[31m", 7, None])
def test_fault_09_an_unknown_dtype_is_named(tmp_path: Path, dtype: object) -> None:
    raw(tmp_path / "x.safetensors", {"w": entry(dtype, [1], 0, 4)}, bytes(4))  # type: ignore[arg-type]
    error = refused(tmp_path / "x.safetensors", UnsupportedCheckpointError)
    assert error.tensor == "w"
    assert str(dtype).encode("unicode_escape").decode() in str(error)


def test_fault_09_bf16_is_read_exactly(tmp_path: Path) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    save_file({"w": every.view(torch.bfloat16)}, tmp_path / "x.safetensors")
    found = read_tensor(read_header(tmp_path / "x.safetensors").tensors["w"])
    assert torch.equal(found.view(torch.int16), every)
    widened = found.float().view(torch.int32) >> 16
    finite = torch.isfinite(found)
    assert torch.equal(widened[finite].to(torch.int16), every[finite])


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested"),
        (b"\xef\xbb\xbf{}", "begin with"),
        (b'{"\xff": 1}', "UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a"', "JSON"),
        (b"[]", "begin with"),
    ],
)
def test_fault_10_deep_json_byte_order_mark_and_bad_utf8(tmp_path: Path, header: bytes, words: str) -> None:
    raw(tmp_path / "x.safetensors", header)
    assert words in str(refused(tmp_path / "x.safetensors", CorruptCheckpointError))


def test_fault_11_a_hostile_tensor_name_is_only_ever_a_key(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"NAME": torch.ones(3)}, folder / "model.safetensors")
    content = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header[ESCAPES] = header.pop("NAME")
    raw(folder / "model.safetensors", header, content[8 + length :])
    model = open_checkpoint(folder)
    assert read_tensor(model.tensors[ESCAPES]).tolist() == [1, 1, 1]
    publish(model, tmp_path / "out", {})
    assert ESCAPES in open_checkpoint(tmp_path / "out").tensors
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]
    header[ESCAPES]["dtype"] = "F99"
    raw(folder / "model.safetensors", header, content[8 + length :])
    error = refused(folder, UnsupportedCheckpointError)
    assert error.tensor == ESCAPES


def test_fault_11_a_hostile_folder_name_cannot_speak_in_a_message(tiny_path: Path, tmp_path: Path) -> None:
    name = "a\x1b[31m\u202e<script>"
    folder = shutil.copytree(tiny_path, tmp_path / name)
    assert open_checkpoint(folder).family == "llama"
    publish(open_checkpoint(folder), tmp_path / (name + "out"), {})
    assert verify_manifest(tmp_path / (name + "out")).ok
    (folder / "model.safetensors").write_bytes(b"")
    assert "\x1b" not in str(refused(folder))
    (folder / "model.safetensors").rename(folder / "\x1b[31m-00001-of-00002.safetensors")
    refused(folder, CorruptCheckpointError)


@pytest.mark.parametrize("metadata", [{"a": 1}, {"a": None}, {"a": {}}, [], "text", 1, None])
def test_fault_12_metadata_that_is_not_text(tmp_path: Path, metadata: object) -> None:
    raw(tmp_path / "x.safetensors", {"__metadata__": metadata, "w": entry("F32", [1], 0, 4)}, bytes(4))
    assert "__metadata__" in str(refused(tmp_path / "x.safetensors", CorruptCheckpointError))


# --- an index and links that lead elsewhere


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
def test_fault_13_an_index_that_leads_out_of_the_folder(folder: Path, sharded: Path, shard: str) -> None:
    index = read_index(sharded)
    index[EMBEDDING] = shard
    write_index(sharded, index)
    error = refused(sharded, CorruptCheckpointError)
    assert error.tensor == EMBEDDING
    assert error.found == shard


def test_fault_14_a_shard_linked_from_outside_is_refused(folder: Path, sharded: Path) -> None:
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


# --- files that are no files, change, or disappear


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
def test_fault_15_what_is_no_regular_file_does_not_hang(folder: Path, tmp_path: Path, kind: str, name: str) -> None:
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
    save_file(load_file(other) | {"model.norm.weight": torch.ones(64)}, other)
    error = refused(sharded, CorruptCheckpointError)
    assert error.tensor == "model.norm.weight"
    assert home.name in str(error)
    assert other.name in str(error)


def test_fault_17_a_file_truncated_after_opening(folder: Path) -> None:
    model = open_checkpoint(folder)
    os.truncate(folder / "model.safetensors", 2000)
    for use in (model.embedding, lambda: model.embedding([1]), lambda: model.fingerprint):
        with pytest.raises(CheckpointChangedError) as caught:
            use()
        assert caught.value.file == str(folder / "model.safetensors")


@pytest.mark.parametrize("how", ["truncate", "edit"])
def test_fault_17_a_file_truncated_or_edited_between_two_reads(tmp_path: Path, how: str) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(6_000_000)}, path)
    stream = stream_tensor(read_header(path).tensors["w"])
    next(stream)
    if how == "truncate":
        os.truncate(path, 9_000_000)
    else:
        with path.open("r+b") as file:
            file.seek(20_000_000)
            file.write(b"x")
        os.utime(path, ns=(1, 1))  # whatever the clock's grain, another time than before
    with pytest.raises(CheckpointChangedError):
        list(stream)


def test_fault_17_a_file_replaced_or_removed_after_opening(folder: Path) -> None:
    model = open_checkpoint(folder)
    (folder / "model.safetensors").rename(folder / "old")
    with pytest.raises(CheckpointChangedError):
        model.embedding([1])
    shutil.copy2(folder / "old", folder / "model.safetensors")
    with pytest.raises(CheckpointChangedError, match="another file"):
        model.embedding([1])


# --- code that wants to run; that in PyTorch files is in test_torch_files.py


def test_fault_22_remote_code_is_ignored_and_that_is_said(folder: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Config"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_evil.py").write_text(f"open({str(canary)!r}, 'w')\n")
    model = open_checkpoint(folder)
    assert any("auto_map" in note and "not run" in note for note in model.notes)
    assert torch.isfinite(model.embedding([1])).all()
    publish(model, tmp_path / "out", {})
    assert not canary.exists()


# --- names and places


def test_fault_23_unicode_and_case_colliding_names_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    names = ["Card.md", "card.md", *(unicodedata.normalize(form, "é.md") for form in ("NFC", "NFD")), "模型 🙂.txt"]
    for number, name in enumerate(names):
        (folder / name).write_text(str(number))
    home = tmp_path / "données 模型"
    folder.rename(home)
    released = publish(open_checkpoint(home), tmp_path / "Ausgabe für 顧客", {})
    for number, name in enumerate(names):
        assert (released.path / name).read_text() == str(number)
    done = subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=released.path, check=False)
    assert done.returncode == 0


def test_fault_23_very_long_paths_are_served_or_refused_by_name(folder: Path, tmp_path: Path) -> None:
    deep = tmp_path
    while len(str(deep)) < 3500:
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    shutil.copytree(folder, deep / "model")
    assert publish(open_checkpoint(deep / "model"), deep / "out", {}).path == deep / "out"
    with pytest.raises(NotACheckpointError, match="longer"):
        open_checkpoint(deep / ("d" * 200) / ("e" * 200) / ("f" * 200) / ("g" * 200))
    with pytest.raises(PublishError, match="longer"):
        publish(open_checkpoint(folder), tmp_path / ("n" * 250), {})
    with pytest.raises(NotACheckpointError, match="longer"):
        open_checkpoint(tmp_path / ("n" * 300))


@pytest.mark.parametrize("where", [".", "inside", "config.json", "../model", "../model/inside", "sub/inside", ".."])
def test_fault_24_an_output_that_is_in_or_around_the_input_is_refused(folder: Path, where: str) -> None:
    (folder / "sub").mkdir()
    before = tree(folder.parent)
    with pytest.raises(OutputExistsError):
        publish(open_checkpoint(folder), folder / where, {})
    assert tree(folder.parent) == before


def test_fault_24_a_link_does_not_hide_that_the_output_is_inside(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    with pytest.raises(OutputExistsError, match="inside"):
        publish(open_checkpoint(folder), tmp_path / "alias" / "out", {})


def test_fault_39_a_model_larger_than_memory_opens_and_gives_its_rows(folder: Path) -> None:
    rows, width = 4_000_000, 16_384
    shapes = {
        "model.embed_tokens.weight": [rows, width],  # 262 GB, sparse on disk
        "model.layers.0.self_attn.q_proj.weight": [width, width],
        "model.layers.0.self_attn.k_proj.weight": [width, width],
        "model.layers.0.input_layernorm.weight": [width],
    }
    header, at = {}, 0
    for name, shape in shapes.items():
        stop = at + 4 * torch.Size(shape).numel()
        header[name], at = entry("F32", shape, at, stop), stop
    path = raw(folder / "model.safetensors", header)
    os.truncate(path, path.stat().st_size + at)
    config = json.loads((folder / "config.json").read_text())
    heads = {"num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128}
    config |= {"vocab_size": rows, "hidden_size": width, **heads}
    (folder / "config.json").write_text(json.dumps(config))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = open_checkpoint(folder)
    assert model.bytes_total > 262e9
    assert model.embedding([0, rows - 1]).shape == (2, width)
    assert model.read(model.layout.q, rows=slice(0, 8)).shape == (8, width)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100e6
    with pytest.raises(DiskSpaceError, match=r"26\d\.\d GB"):
        publish(model, folder.parent / "out", {})
    assert os.listdir(folder.parent) == ["model"]


# --- disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB. Where this user may not mount one, a user namespace's is not reachable from here, so
    the limit on file sizes stands in for it."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
        return
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield place
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def fill_up(place: Path, left: int) -> None:
    """Leaves `left` bytes free, for real."""
    if os.path.ismount(place):
        (place / "filler").write_bytes(bytes(max(0, shutil.disk_usage(place).free - left)))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (left, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def full_disk(place: Path) -> tuple[type[PublishError], ...]:
    return (DiskSpaceError,) if os.path.ismount(place) else (PublishError,)


def test_fault_40_too_little_room_is_said_before_anything_is_copied(folder: Path, small_disk: Path) -> None:
    fill_up(small_disk, 100_000)
    polled: list[int] = []
    with pytest.raises(full_disk(small_disk)) as caught:
        publish(open_checkpoint(folder), small_disk / "out", {}, progress=lambda *step: polled.append(step[0]))
    assert not (small_disk / "out").exists()
    assert not (small_disk / "out.partial").exists()
    if os.path.ismount(small_disk):
        assert polled == []
        assert "bytes)" in (caught.value.expected or "")
        assert "100" in (caught.value.found or "") or "98" in (caught.value.found or "")


@pytest.mark.parametrize("at", [1, 2, 3, "verify"])
def test_fault_40_a_disk_that_fills_up_while_writing(folder: Path, small_disk: Path, at: int | str) -> None:
    model, polls = open_checkpoint(folder), iter(range(1, 1000))
    # A page of slack, so that the small files fit and a later write is the one to fail.
    left = {1: 0, 2: 0, 3: 200_000, "verify": 0}[at]

    def meanwhile() -> bool:
        if next(polls) == at:
            fill_up(small_disk, left)
        return False

    def verify(_: Path) -> None:
        if at == "verify":
            fill_up(small_disk, 0)

    with pytest.raises(full_disk(small_disk)):
        publish(model, small_disk / "out", {}, cancelled=meanwhile, verify=verify)
    assert not (small_disk / "out").exists()
    assert not (small_disk / "out.partial").exists()
    assert open_checkpoint(folder).fingerprint == model.fingerprint


def test_fault_40_an_earlier_release_on_a_full_disk_stays_intact(folder: Path, small_disk: Path) -> None:
    publish(open_checkpoint(folder), small_disk / "old", {})
    fill_up(small_disk, 300_000)
    with pytest.raises(full_disk(small_disk)):
        publish(open_checkpoint(folder), small_disk / "new", {})
    assert verify_manifest(small_disk / "old").ok


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_fault_40_and_43_every_refusal_of_a_write_is_typed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    model = open_checkpoint(folder)
    before = tree(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    expected = DiskSpaceError if code in (errno.ENOSPC, errno.EDQUOT) else PublishError
    with pytest.raises(expected):
        publish(model, tmp_path / "out", {})
    monkeypatch.undo()
    assert tree(tmp_path) == before


# --- crashes

CALLS = ("mkdir", "open", "write", "fsync", "close", "rename", "unlink")


def in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a forked child and returns its wait status; 0 for a child that came to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(9)
    return os.waitpid(child, 0)[1]


def complete_or_absent(out: Path, source: Path) -> bool:
    """Whether the target is there; if so it must be whole, and anything partial must be sweepable."""
    there = out.exists()
    if there:
        assert verify_manifest(out).ok
        assert (out / "SHA256SUMS").exists()
        assert open_checkpoint(out).vocab_size == 600
    partial = out.with_name(out.name + ".partial")
    left = [partial] if partial.exists() else []
    assert sweep_partials(out.parent) == left
    assert not partial.exists()
    assert sorted(os.listdir(source)) == ["config.json", "generation_config.json", "model.safetensors"]
    return there


def killed_at(folder: Path, out: Path, call: str, count: int) -> bool:
    """Publishes in a child that kills itself with SIGKILL before its `count`-th system call of a kind."""
    model = open_checkpoint(folder)
    original, seen = getattr(os, call), iter(range(1, 10_000))

    def deadly(*args: object, **kwargs: object) -> object:
        if next(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    def work() -> None:
        setattr(os, call, deadly)
        publish(model, out, {})

    status = in_child(work)
    assert os.WIFSIGNALED(status) or status == 0, f"{call} {count}: the child raised"
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("call", CALLS)
def test_fault_41_killed_before_any_system_call_the_target_is_absent_or_complete(
    folder: Path, tmp_path: Path, call: str
) -> None:
    outcomes = []
    for count in range(1, 200):
        out = tmp_path / f"out{count}"
        killed = killed_at(folder, out, call, count)
        outcomes.append(complete_or_absent(out, folder))
        if not killed:
            break
    assert outcomes[-1] is True  # the one that lived
    assert outcomes[0] is (call == "unlink")  # a lock file is all that is unlinked, once the release is there


def test_fault_41_killed_at_random_moments(folder: Path, tmp_path: Path) -> None:
    model = open_checkpoint(folder)
    start = model.tensors[EMBEDDING].start
    patches = {model.shards[0]: [Patch(start, b"marked!!")]}
    generator = torch.Generator().manual_seed(41)
    for number in range(16):
        out = tmp_path / f"out{number}"
        pause = float(torch.rand((), generator=generator)) * 0.03
        child = os.fork()
        if child == 0:
            try:
                publish(model, out, patches)
            finally:
                os._exit(0)
        signal.sigtimedwait([signal.SIGUSR2], pause)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if complete_or_absent(out, folder):
            assert (out / "model.safetensors").read_bytes()[start : start + 8] == b"marked!!"


def test_fault_41_a_dead_runs_partial_is_taken_over_by_the_next(folder: Path, tmp_path: Path) -> None:
    assert killed_at(folder, tmp_path / "out", "rename", 1)
    assert (tmp_path / "out.partial" / "SHA256SUMS").exists()
    publish(open_checkpoint(folder), tmp_path / "out", {})
    assert verify_manifest(tmp_path / "out").ok
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("after", [False, True])
def test_fault_42_a_failure_at_each_fsync_and_rename_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: bool
) -> None:
    model, before = open_checkpoint(folder), tree(tmp_path)
    original = getattr(os, call)
    for count in range(1, 100):
        seen = iter(range(1, 1000))

        def failing(*args: object, seen: Iterator[int] = seen, count: int = count) -> object:
            number = next(seen)
            result = original(*args) if after or number != count else None
            if number == count:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return result

        monkeypatch.setattr(os, call, failing)
        try:
            publish(model, tmp_path / "out", {})
            failed = False
        except PublishError:
            failed = True
        monkeypatch.undo()
        if not failed:
            break
        if call == "rename" and after:
            # The rename took place and then reported failure, as a network disk may: whole, or gone, but never half.
            assert not (tmp_path / "out").exists() or verify_manifest(tmp_path / "out").ok
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert tree(tmp_path) == before
    assert count >= (2 if call == "rename" else 6)
    assert verify_manifest(tmp_path / "out").ok


def test_fault_43_a_read_only_disk_is_said(folder: Path, small_disk: Path) -> None:
    mounted = os.path.ismount(small_disk)
    if mounted:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    else:
        os.chmod(small_disk, 0o555)
    with pytest.raises(PublishError, match="read-only" if mounted else "may not write"):
        publish(open_checkpoint(folder), small_disk / "out", {})
    assert os.listdir(small_disk) == []


def test_fault_43_a_folder_that_one_may_not_write_to_is_said(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        source = shutil.copytree(folder, Path(root, "model")).resolve()
        for file in source.iterdir():
            os.chmod(file, 0o644)
        (source.parent / "shelf").mkdir()
        os.chmod(source.parent / "shelf", 0o555)
        os.chmod(root, 0o755)
        model = open_checkpoint(source)
        with unprivileged(), pytest.raises(PublishError, match="may not write"):
            publish(model, source.parent / "shelf" / "out", {})
        assert os.listdir(source.parent / "shelf") == []


def test_fault_43_another_disk_than_the_sources_is_fine(folder: Path, small_disk: Path) -> None:
    assert verify_manifest(publish(open_checkpoint(folder), small_disk / "out", {}).path).ok


@contextlib.contextmanager
def all_but(free: int) -> Iterator[None]:
    """Uses up the process's file descriptors but for `free` of them."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(free):
            os.close(spare.pop())
        yield
    finally:
        for descriptor in spare:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_fault_43_no_file_handle_left_is_said(folder: Path) -> None:
    model = open_checkpoint(folder)
    with all_but(0):
        for use in (lambda: open_checkpoint(folder), lambda: model.embedding([0]), lambda: model.fingerprint):
            with pytest.raises(irwm.IrwmError, match="Too many"):
                use()


def test_fault_43_publishing_with_few_file_handles_succeeds_or_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "notes.txt").write_text("x")
    model, before, outcomes = open_checkpoint(folder), tree(tmp_path), []
    for free in range(16):
        caught = None
        with all_but(free):
            try:
                publish(model, tmp_path / "out", {})
            except irwm.IrwmError as error:
                caught = error
        outcomes.append(caught is None)
        if caught is not None:
            assert "Too many" in str(caught)
            assert tree(tmp_path) == before
        else:
            assert verify_manifest(tmp_path / "out").ok
            shutil.rmtree(tmp_path / "out")
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}
