"""Other content in a "safetensors" file, and headers with false statements (FAULTS 1 to 12)."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import open_checkpoint, read_tensor
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError
from irwm.release import publish, verify_manifest
from tests.checkpoint.builders import entry, raw
from tests.faults.helpers import refused, weights

ESCAPES = "../../etc/x\0\x1b[31m\u202e<script>alert(1)</script>"


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
def test_fault_01_other_content_instead_of_weights_is_named(tmp_path: Path, content: bytes, words: str) -> None:
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
        read_safetensors(path)
    raw(path, '{"a":[' + "{}," * 1_000_000 + "{}]}")
    with pytest.raises(CorruptCheckpointError, match="more tensors"):
        read_safetensors(path)
    raw(path, '{"a":[' + "[]," * 10_000_000 + "[]]}")
    with pytest.raises(CorruptCheckpointError, match="more tensors"):
        read_safetensors(path)


@pytest.mark.parametrize("second", [(0, 4), (4, 8)])
def test_fault_04_and_05_duplicate_names_are_refused_even_for_equal_bytes(
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
def test_fault_06_overlaps_holes_and_trailing_bytes_are_refused(
    tmp_path: Path, ranges: list, size: int, words: str
) -> None:
    header = {f"t{i}": entry("F32", [1], *pair) for i, pair in enumerate(ranges)}
    raw(tmp_path / "x.safetensors", header, bytes(size))
    assert words in str(refused(tmp_path / "x.safetensors", CorruptCheckpointError))


def test_fault_06_archive_after_the_last_tensor_is_refused(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.safetensors", "a") as archive:
        archive.writestr("payload.py", "print()")
    assert "Bytes follow" in str(refused(folder, CorruptCheckpointError))


@pytest.mark.parametrize(
    "shape", [[3], [-1], [1.5], [1.0], ["1"], [True], [None], [2**31, 2**31, 4], [2**62, 4], [1, [1]]], ids=str
)
def test_fault_07_invalid_shapes_are_refused(tmp_path: Path, shape: list) -> None:
    raw(tmp_path / "x.safetensors", {"w": entry("F32", shape, 0, 4)}, bytes(4))
    assert refused(tmp_path / "x.safetensors", CorruptCheckpointError).tensor == "w"


@pytest.mark.parametrize("shape", [[0, 2**63], [0, 2**62, 2**62], [2**63, 0]], ids=str)
def test_fault_08_empty_tensor_with_overflowing_strides_is_refused(tmp_path: Path, shape: list) -> None:
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
    found = read_tensor(read_safetensors(tmp_path / "x.safetensors").tensors["w"])
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
def test_fault_10_deep_json_byte_order_marks_and_bad_utf8_are_refused(
    tmp_path: Path, header: bytes, words: str
) -> None:
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


def test_fault_11_hostile_folder_name_is_escaped_in_messages(tiny_path: Path, tmp_path: Path) -> None:
    name = "a\x1b[31m\u202e<script>"
    folder = shutil.copytree(tiny_path, tmp_path / name)
    assert open_checkpoint(folder).family == "llama"
    publish(open_checkpoint(folder), tmp_path / (name + "out"), {})
    assert verify_manifest(tmp_path / (name + "out")).ok
    (folder / "model.safetensors").write_bytes(b"")
    assert "\x1b" not in str(refused(folder))
    (folder / "model.safetensors").rename(folder / "\x1b[31m-00001-of-00002.safetensors")
    refused(folder, CorruptCheckpointError)


@pytest.mark.parametrize("metadata", [{"a": 1}, {"a": None}, {"a": {}}, [], "text", 1])
def test_fault_12_non_text_metadata_is_refused(tmp_path: Path, metadata: object) -> None:
    raw(tmp_path / "x.safetensors", {"__metadata__": metadata, "w": entry("F32", [1], 0, 4)}, bytes(4))
    assert "__metadata__" in str(refused(tmp_path / "x.safetensors", CorruptCheckpointError))
