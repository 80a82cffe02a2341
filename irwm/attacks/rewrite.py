"""Write a changed copy of a model folder, one shard at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.checkpoint.layout import CONFIG_NAME, INDEX_NAME, require_safetensors
from irwm.errors import OutputExistsError

Transform = Callable[[str, torch.Tensor], torch.Tensor]
# Endings of what lies beside the weights: config, tokenizer, chat template.
COMPANIONS = (".json", ".txt", ".model", ".jinja")


def rewrite(model_dir: str | Path, out_dir: str | Path, transform: Transform) -> Path:
    """Copy `model_dir` to the new folder `out_dir` with every floating tensor passed through `transform`.

    Tensors keep their names, shapes and dtypes. Companion files (config, tokenizer) are copied.

    Raises:
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError: it is in another format than safetensors.
        CheckpointError: `model_dir` is not a checkpoint that is read.
    """
    model, out = open_checkpoint(model_dir), Path(out_dir)
    require_safetensors(model.format, model.path, "attacked")
    if out.exists():
        raise OutputExistsError("the output folder exists already", file=out, advice="Choose a new folder")
    out.mkdir(parents=True)
    for shard in model.shards:
        tensors = load_file(shard)
        changed = {name: _change(name, tensor, transform) for name, tensor in tensors.items()}
        save_file(changed, out / Path(shard).name, metadata={"format": "pt"})
    copy_companions(model, out)
    return out


def _change(name: str, tensor: torch.Tensor, transform: Transform) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return transform(name, tensor).to(tensor.dtype).contiguous()


def add_companions(model: Checkpoint, out: Path) -> None:
    """Copy the tokenizer and the like beside weights that a library saved, with a config and, where there are several
    shards, a list of them that are newer than the model's own."""
    config = (out / CONFIG_NAME).read_bytes()
    index = (out / INDEX_NAME).read_bytes() if (out / INDEX_NAME).exists() else None
    copy_companions(model, out)
    (out / CONFIG_NAME).write_bytes(config)
    if index is None:
        (out / INDEX_NAME).unlink(missing_ok=True)
    else:
        (out / INDEX_NAME).write_bytes(index)


def copy_companions(model: Checkpoint, out: Path) -> None:
    """Copy config, tokenizer and the like beside the weights."""
    folder = model.path if model.path.is_dir() else model.path.parent
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix in COMPANIONS:
            shutil.copyfile(file, out / file.name)
