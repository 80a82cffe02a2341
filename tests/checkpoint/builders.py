"""Checkpoints for these tests: valid ones in every arrangement, and headers written byte by byte."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import open_checkpoint
from irwm.errors import CheckpointError, CorruptCheckpointError

EMBEDDING = "model.embed_tokens.weight"
QUERY, KEY = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"
# A name that would change a path, a terminal or a page.
ESCAPES = "../../etc/x\0\x1b[31m\u202e<script>alert(1)</script>"
# Number formats that are read as torch tensors, bit for bit.
READABLE = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
]


def entry(dtype: str, shape: list[Any], start: Any, stop: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def raw(path: Path, header: dict[str, Any] | str | bytes, data: bytes = b"", length: int | None = None) -> Path:
    """A file with the given header, valid or not; `length` overrides the length that is written before it."""
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def sparse(path: Path, shapes: Mapping[str, list[int]]) -> Path:
    """A file with float32 tensors of these shapes, of which only the header is on the disk."""
    header, stop = {}, 0
    for name, shape in shapes.items():
        start, stop = stop, stop + 4 * math.prod(shape)
        header[name] = entry("F32", shape, start, stop)
    raw(path, header)
    os.truncate(path, path.stat().st_size + stop)
    return path


def split(folder: Path, out: Path, shards: int = 3, *, index: bool = True) -> Path:
    """A copy of a one-file model with its tensors distributed over numbered shards."""
    out.mkdir(parents=True)
    tensors = load_file(folder / "model.safetensors")
    weight_map = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::shards]}
        save_file(part, out / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    if index:
        write_index(out, weight_map)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(folder / name, out / name)
    return out


def refused(path: Path, *kinds: type[CheckpointError]) -> CheckpointError:
    """The error of opening `path`; it must name a file and be printable, and opening must not allocate much memory."""
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


# What happens to a file that is in use, by its path and its content. A file is replaced by one with the same size and
# times.
CHANGES: dict[str, Callable[[Path, bytes], object]] = {
    "replaced": lambda path, content: os.replace(shutil.copy2(path, path.with_name("other")), path),
    "cut": lambda path, content: os.truncate(path, len(content) - 40),
    "longer": lambda path, content: path.write_bytes(content + b"x"),
    "removed": lambda path, content: path.unlink(),
    "touched": lambda path, content: os.utime(path, ns=(0, 12345)),
}


def change_config(folder: Path, name: str = "config.json", **settings: Any) -> dict[str, Any]:
    """Sets keys of a model's or adapter's config; returns all of it."""
    config = json.loads((folder / name).read_text()) | settings
    (folder / name).write_text(json.dumps(config))
    return config


def contradiction(path: Path) -> CorruptCheckpointError:
    """Why a checkpoint is examined only by its embedding, and not marked."""
    model = open_checkpoint(path)
    assert (model.family, model.layout.q, model.layout.k) == ("unknown", None, None)
    with pytest.raises(CorruptCheckpointError) as caught:
        model.require_markable()
    return caught.value


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def read_index(folder: Path) -> dict[str, str]:
    return json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]


def hub_cache(folder: Path, root: Path, below: str = "") -> Path:
    """The model as the Hugging Face hub caches it; returns its folder in the snapshot, which contains links only.

    `below` is the model's folder within the repository.
    """
    repository = root / "models--someone--model"
    snapshot = repository / "snapshots" / "033f1ad73e950e049fd521ae599b3e5573a1517d" / below
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in sorted(filter(Path.is_file, folder.iterdir())):
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


def tree(folder: Path) -> dict[str, bytes | None]:
    """The content of a folder: name to content, None for folders. Equal trees mean that no file was changed."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def unprivileged() -> Iterator[None]:
    """Runs the block as an unprivileged user if the tests run as root, to whom permissions do not apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
