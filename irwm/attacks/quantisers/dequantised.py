"""A quantised copy of a model as a folder of plain numbers, so that the cost of its rounding can be measured."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from irwm.attacks.quantisers.converter import places
from irwm.attacks.rewrite import copy_companions, new_folder, open_safetensors
from irwm.checkpoint import Checkpoint, open_checkpoint, read_tensor
from irwm.checkpoint.formats import GGUF
from irwm.checkpoint.layout import CONFIG_NAME, WHOLE_NAME
from irwm.errors import CorruptCheckpointError
from irwm.release.partial import require_absent


def dequantised(copy: str | Path, model_dir: str | Path, out_dir: str | Path) -> Path:
    """Write the numbers that a quantised copy represents, with the names and files of the model it was made from.

    Tensors that the copy cannot hold, such as the heads of a BERT in a GGUF file, are taken from the model. The folder
    is float32, which holds every number that the copy's codes represent exactly.

    Args:
        copy: a GGUF file or a quantised folder, made from `model_dir`.
        model_dir: a model folder in safetensors, not quantised.
        out_dir: must not exist.

    Raises:
        CorruptCheckpointError: the copy lacks a tensor, or has one of another shape.
        UnsupportedCheckpointError: `model_dir` is in another format.
        OutputExistsError: `out_dir` exists.
        CheckpointError: one of the two is not a readable checkpoint.
    """
    model, other = open_safetensors(model_dir), open_checkpoint(copy)
    require_absent(Path(out_dir))  # before the work starts
    numbers = _of_gguf(model, other) if other.format is GGUF else _of_folder(model, other)
    with new_folder(out_dir) as out:
        copy_companions(model, out, described=True)
        config = {key: value for key, value in model.config.items() if key not in ("dtype", "torch_dtype")}
        (out / CONFIG_NAME).write_text(json.dumps(config | {"dtype": "float32"}, indent=2), encoding="utf-8")
        save_file(numbers, out / WHOLE_NAME, metadata={"format": "pt"})
    return out


def _of_folder(model: Checkpoint, other: Checkpoint) -> dict[str, torch.Tensor]:
    """Names are the same, except for a head that is the embedding, which some tools leave out."""
    found = {}
    for name, entry in model.tensors.items():
        theirs = other.tensors.get(name)
        value = read_tensor(entry if theirs is None else theirs)
        # Position numbers, which older models store, are not weights.
        dispensable = not value.is_floating_point() or (model.tied and name == "lm_head.weight")
        if theirs is None and not dispensable:
            raise _differs(other, name, str(tuple(entry.shape)), "no such tensor")
        found[name] = _fitting(value, entry.shape, other, name)
    return found


def _of_gguf(model: Checkpoint, other: Checkpoint) -> dict[str, torch.Tensor]:
    stored = {part.name: part for tensor in other.tensors.values() for part in tensor.parts}
    found = {name: _plain(read_tensor(entry)) for name, entry in model.tensors.items()}
    for place in places(model):
        entry = stored.get(place.name)
        if entry is None:
            raise _differs(other, place.name, str(tuple(place.shape)), "no such tensor")
        value = _fitting(read_tensor(entry), place.shape, other, place.name)
        found[place.source] = place.back(value).contiguous()
    if model.tied and "lm_head.weight" in found:
        found["lm_head.weight"] = found[model.layout.embedding.name].clone()
    return found


def _fitting(value: torch.Tensor, shape: tuple[int, ...], other: Checkpoint, name: str) -> torch.Tensor:
    if tuple(value.shape) != tuple(shape):
        raise _differs(other, name, str(tuple(shape)), str(tuple(value.shape)))
    return _plain(value)


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.float().contiguous() if value.is_floating_point() else value


def _differs(other: Checkpoint, name: str, expected: str, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "The copy was not made from this model", file=other.path, tensor=name, expected=expected, found=found
    )
