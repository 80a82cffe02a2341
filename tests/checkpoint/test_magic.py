"""Files that contain something else than their names say are recognised by their first bytes."""

from __future__ import annotations

import pickle
import shutil
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.magic import recognise_magic
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError
from tests.checkpoint.builders import refused, tree
from tests.checkpoint.gguf_builders import finished, header, tensor
from tests.checkpoint.torch_files import WHOLE, as_torch

CONTENTS = {
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    "web page": b"\n<!DOCTYPE html><html><title>Sign in</title></html>",
    "JSON": b'{"error": "gated"}',
    "text file": b"Access to model is restricted.\n",
    "7z": b"7z\xbc\xaf\x27\x1c\0\4",
    "ZIP": b"PK\x05\x06" + bytes(60),
    "gzip": b"\x1f\x8b\x08" + bytes(60),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(60),
    "RAR": b"Rar!\x1a\7\1\0",
    "xz": b"\xfd7zXZ\0" + bytes(60),
    "tar": bytes(257) + b"ustar\00000",
    "pickle": pickle.dumps({"x": 1}, 4),
}
NAMES = ["model.safetensors", WHOLE, "model.gguf"]


@pytest.mark.fault(1, 19)
@pytest.mark.parametrize("kind", CONTENTS)
def test_content_of_another_kind_is_refused_with_its_advice(tmp_path: Path, kind: str) -> None:
    foreign = recognise_magic(CONTENTS[kind])
    assert foreign is not None
    assert kind in foreign.name
    for name in NAMES:
        (tmp_path / name).write_bytes(CONTENTS[kind])
        error = refused(tmp_path / name, UnsupportedCheckpointError if foreign.is_model else NotACheckpointError)
        assert (error.file, error.advice) == (str(tmp_path / name), foreign.advice)
        assert foreign.name in error.problem


@pytest.mark.fault(1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", b"PK\3", bytes(range(255))], ids=["empty", "three bytes", "unknown"])
def test_empty_and_unknown_content_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path, NotACheckpointError, CorruptCheckpointError)
    assert error.file == str(tmp_path / name)
    assert error.advice


@pytest.mark.fault(19)
def test_weights_with_the_suffix_of_another_format_are_refused_with_right_one(tiny_path: Path, tmp_path: Path) -> None:
    folder = as_torch(tiny_path, tmp_path / "model")
    shutil.copy(folder / WHOLE, folder / "model.safetensors")
    assert ".bin" in str(refused(folder, UnsupportedCheckpointError).advice)
    shutil.move(folder / "model.safetensors", folder / "x.bin")
    assert open_checkpoint(folder / "x.bin").vocab_size == 600
    shutil.copy(tiny_path / "model.safetensors", folder / "x.bin")
    assert ".safetensors" in str(refused(folder / "x.bin", UnsupportedCheckpointError).advice)
    (folder / "model.safetensors").write_bytes(b"GGUF\3\0\0\0" + bytes(60))
    assert ".gguf" in str(refused(folder / "model.safetensors", UnsupportedCheckpointError).advice)


@pytest.mark.fault(20)
def test_a_zip_named_as_safetensors_is_never_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "model" / "model.safetensors"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../slipped", "x")
        archive.writestr("bomb", bytes(50_000_000))
    before = tree(tmp_path)
    refused(path.parent, UnsupportedCheckpointError)
    assert tree(tmp_path) == before


@pytest.mark.fault(1)
@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_gguf_of_another_version_or_byte_order_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header([], [tensor("t", [8, 1], 0, 0)], version=version))
    error = refused(path, UnsupportedCheckpointError)
    assert error.found == f"version {version if version < 9 else 3}"
    assert ("big-endian" in str(error.advice)) is (version > 9)


@pytest.mark.fault(1)
def test_a_big_endian_file_of_the_gguf_package_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("t", np.zeros((1, 8), np.float32))
    assert "big-endian" in str(refused(finished(writer), UnsupportedCheckpointError).advice)
