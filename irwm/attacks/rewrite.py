"""Read a model folder and write another one; shared by all attacks on folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.checkpoint.layout import CONFIG_NAME, INDEX_NAME, require_safetensors
from irwm.checkpoint.model import folder_of
from irwm.release.partial import require_absent

Transform = Callable[[str, torch.Tensor], torch.Tensor]
# Endings of the files next to the weights: config, tokenizer, chat template.
COMPANIONS = (".json", ".txt", ".model", ".jinja")


def open_safetensors(model_dir: str | Path) -> Checkpoint:
    """The model in `model_dir`, in the format that attacks read and write.

    Raises:
        UnsupportedCheckpointError: it is in another format than safetensors.
        CheckpointError: it is not a readable checkpoint.
    """
    model = open_checkpoint(model_dir)
    require_safetensors(model.format, model.path, "attacked")
    return model


@contextmanager
def new_folder(out_dir: str | Path) -> Iterator[Path]:
    """A new, empty folder at `out_dir`. If the block fails, the folder is removed.

    Raises:
        OutputExistsError: `out_dir` exists.
    """
    out = Path(out_dir)
    require_absent(out)
    out.mkdir(parents=True)
    try:
        yield out
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def rewrite(model_dir: str | Path, out_dir: str | Path, transform: Transform) -> Path:
    """Copy `model_dir` to the new folder `out_dir` with every floating tensor passed through `transform`.

    Tensors keep their names, shapes and dtypes. Companion files (config, tokenizer) are copied. Only one shard at a
    time is in memory.

    Raises:
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError, CheckpointError: as `open_safetensors`.
    """
    model = open_safetensors(model_dir)
    with new_folder(out_dir) as out:
        for shard in model.shards:
            tensors = load_file(shard)
            for name, tensor in tensors.items():
                if tensor.is_floating_point():
                    tensors[name] = transform(name, tensor).to(tensor.dtype).contiguous()
            save_file(tensors, out / shard.name, metadata={"format": "pt"})
        copy_companions(model, out)
    return out


def copy_companions(model: Checkpoint, out: Path, *, described: bool = False) -> None:
    """Copy config, tokenizer and other companions next to the weights.

    Args:
        described: the caller writes config and shard index of the new weights; the model's are not copied.
    """
    left_out = (CONFIG_NAME, INDEX_NAME) if described else ()
    for file in sorted(folder_of(model).iterdir()):
        if file.is_file() and file.suffix in COMPANIONS and file.name not in left_out:
            shutil.copyfile(file, out / file.name)
