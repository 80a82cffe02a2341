"""PyTorch files for these tests: valid ones as torch.save writes them, and archives with arbitrary content."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from irwm.checkpoint import PackedTensor, read_tensor
from irwm.checkpoint.formats import Content

WHOLE, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


class Call:
    """Unpickled, it is the result of a call; the arguments are what `__reduce__` returns."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def saved(value: Any, path: Path) -> Path:
    torch.save(value, path)
    return path


def rezipped(
    path: Path,
    change: Callable[[dict[str, bytes]], Any] = lambda entries: None,
    compression: int = zipfile.ZIP_STORED,
    comment: bytes = b"",
) -> Path:
    """The archive written again by Python's zipfile, with its entries changed by `change`."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries = change(entries) or entries
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.comment = comment
    return path


def as_torch(folder: Path, out: Path, shards: int = 1, dtype: torch.dtype | None = None) -> Path:
    """The model as transformers saved it before 5.0 with safe_serialization=False; optionally in another dtype."""
    out.mkdir()
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor.to(dtype) if dtype else tensor for name, tensor in tensors.items()}
    weight_map = {}
    for number in range(shards):
        name = WHOLE if shards == 1 else f"pytorch_model-{number + 1:05d}-of-{shards:05d}.bin"
        part = {key: tensors[key] for key in sorted(tensors)[number::shards]}
        torch.save(part, out / name)
        weight_map |= dict.fromkeys(part, name)
    if shards > 1:
        (out / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    for file in folder.glob("*.json"):
        shutil.copy(file, out)
    return out


# The content of the files before they were damaged.
SAVED = {"a": torch.arange(16.0), "b": torch.ones(4, 4, dtype=torch.bfloat16)}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def assert_as_torch_loads_it(content: Content, path: Path, under: str | None = None) -> None:
    loaded = torch.load(path, weights_only=True)
    expected = {name: t for name, t in (loaded[under] if under else loaded).items() if isinstance(t, torch.Tensor)}
    assert set(content.tensors) == set(expected)
    for name, tensor in expected.items():
        found = content.tensors[name]
        assert found.shape == tuple(tensor.shape)
        if isinstance(found, PackedTensor):
            assert torch.equal(read_tensor(found), tensor.float())
        else:
            assert read_tensor(found).dtype == tensor.dtype
            assert torch.equal(bits(read_tensor(found)), bits(tensor))
