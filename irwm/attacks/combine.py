"""Write one model folder from several models with the same tensors, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import EllipsisType

import numpy as np
import torch
from safetensors.torch import save_file

from irwm.attacks.rewrite import copy_companions, new_folder, open_safetensors
from irwm.checkpoint import Checkpoint, TensorEntry, read_tensor
from irwm.checkpoint.dtypes import TORCH
from irwm.errors import ParameterError

# Numbers of all models combined at once; bounds memory at about 0.3 GB in addition to the shard being written.
_NUMBERS_AT_ONCE = 32 << 20

# From (models, rows, ...) to (rows, ...).
Combine = Callable[[torch.Tensor], torch.Tensor]
# The blocks of one tensor, each (models, rows, ...), float32 or float64; may be called more than once.
Blocks = Callable[[], Iterator[torch.Tensor]]
# From a tensor's blocks to the function that combines it.
Begin = Callable[[Blocks], Combine]


def combine_folders(model_dirs: Sequence[str | Path], out_dir: str | Path, begin: Begin) -> Path:
    """Combine every floating tensor; the result keeps the first model's names, dtypes and files.

    Tensors that are equal in all models are copied bit for bit.

    Raises:
        ParameterError: models with different tensors.
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError: a model is in another format than safetensors.
        CheckpointError: a folder is not a readable checkpoint.
    """
    models = [open_safetensors(folder) for folder in model_dirs]
    entries = [_entries(model) for model in models]
    _check_alike(models, entries)
    with new_folder(out_dir) as out:
        for shard in models[0].shards:
            names = [name for name, entry in entries[0].items() if entry.file == shard]
            tensors = {name: _combined([each[name] for each in entries], begin) for name in names}
            save_file(tensors, out / shard.name, metadata={"format": "pt"})
        copy_companions(models[0], out)
    return out


def _entries(model: Checkpoint) -> dict[str, TensorEntry]:
    """Every stored tensor of a checkpoint by name, in the order of its files."""
    parts = (part for tensor in model.tensors.values() for part in tensor.parts)
    return {part.name: part for part in sorted(parts, key=lambda part: (str(part.file), part.start))}


def _check_alike(models: Sequence[Checkpoint], entries: Sequence[dict[str, TensorEntry]]) -> None:
    """Raise if the models differ in geometry; the error names the first tensor that differs."""
    first = entries[0]
    for model, other in zip(models[1:], entries[1:], strict=True):
        for name in (*first, *other):
            shapes = [list(each[name].shape) if name in each else None for each in (first, other)]
            if shapes[0] != shapes[1]:
                raise ParameterError(
                    "these are not copies of the same model",
                    file=model.path,
                    tensor=name,
                    expected=f"shape {shapes[0]}" if shapes[0] is not None else "no such tensor",
                    found=f"shape {shapes[1]}" if shapes[1] is not None else "no such tensor",
                    advice=f"Combine copies of {models[0].path}",
                )


def _combined(parts: Sequence[TensorEntry], begin: Begin) -> torch.Tensor:
    """One tensor of all models, combined block by block in the first one's dtype."""
    first = parts[0]
    dtype = TORCH.get(first.dtype)
    if dtype is None or not dtype.is_floating_point:
        return read_tensor(first)  # raises for a dtype that torch lacks
    precise = torch.float64 if dtype == torch.float64 else torch.float32
    places = list(_places(first.shape, len(parts)))

    def read(place: slice | EllipsisType) -> list[torch.Tensor]:
        return [read_tensor(part, None if place is ... else place) for part in parts]

    def blocks() -> Iterator[torch.Tensor]:
        return (torch.stack([value.to(precise) for value in read(place)]) for place in places)

    combine, result = begin(blocks), torch.empty(first.shape, dtype=dtype)
    for place in places:
        values = read(place)
        if all(torch.equal(values[0], other) for other in values[1:]):
            result[place] = values[0]  # equal numbers must not be changed by rounding
        else:
            result[place] = combine(torch.stack([value.to(precise) for value in values])).to(dtype)
    return result


def _places(shape: tuple[int, ...], models: int) -> Iterator[slice | EllipsisType]:
    """The parts to read at a time: some rows of every model; a scalar is read whole."""
    if not shape:
        yield ...
        return
    row = max(1, int(np.prod(shape[1:], dtype=np.int64)))
    step = max(1, _NUMBERS_AT_ONCE // (row * models))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))
