"""Collusion: recipients put their copies together, so that what marks each is diluted or outvoted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import EllipsisType

import numpy as np
import torch
from safetensors.torch import save_file

from irwm.attacks.rewrite import copy_companions
from irwm.checkpoint import Checkpoint, TensorEntry, open_checkpoint, read_tensor
from irwm.checkpoint.dtypes import TORCH
from irwm.checkpoint.layout import require_safetensors
from irwm.errors import OutputExistsError, ParameterError

STRATEGIES = ("mean", "median", "max", "min-max", "copy-paste")
# Numbers of all copies combined at once; bounds memory at about 0.3 GB beside the shard being written.
_NUMBERS_AT_ONCE = 32 << 20

# From (copies, rows, ...) to (rows, ...).
Combine = Callable[[torch.Tensor], torch.Tensor]


def collude(
    model_dirs: Sequence[str | Path],
    out_dir: str | Path,
    how: str = "mean",
    weights: Sequence[float] | None = None,
    seed: int = 0,
) -> Path:
    """Write one model folder, `out_dir`, out of several copies of a model.

    Every floating tensor is combined entry by entry; the result keeps the first copy's names, dtypes and files. Where
    all copies are equal they are copied bit for bit.

    Args:
        model_dirs: at least two model folders of equal tensors' names and shapes.
        out_dir: must not exist.
        how: "mean", "median" (of an even number, the mean of the middle two), "max", "min-max" (the midpoint of the
            smallest and the largest) or "copy-paste" (each entry from a copy drawn at random).
        weights: of a mean: each copy's weight, not negative; their sum is divided out.
        seed: seed of the draws.

    Raises:
        ParameterError: an unknown strategy, weights that do not fit, or copies of unequal tensors.
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError: a copy is in another format than safetensors.
        CheckpointError: a folder is not a checkpoint that is read.
    """
    combine = strategy(how, len(model_dirs), weights, seed)
    copies, out = [open_checkpoint(folder) for folder in model_dirs], Path(out_dir)
    for copy in copies:
        require_safetensors(copy.format, copy.path, "attacked")
    entries = [_entries(copy) for copy in copies]
    _check_alike(copies, entries)
    if out.exists():
        raise OutputExistsError("the output folder exists already", file=out, advice="Choose a new folder")
    out.mkdir(parents=True)
    try:
        for shard in copies[0].shards:
            names = [name for name, entry in entries[0].items() if entry.file == shard]
            tensors = {name: _combined([each[name] for each in entries], combine) for name in names}
            save_file(tensors, out / Path(shard).name, metadata={"format": "pt"})
        copy_companions(copies[0], out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return out


def strategy(how: str, copies: int, weights: Sequence[float] | None = None, seed: int = 0) -> Callable[[], Combine]:
    """What `collude` does to one tensor: a function that begins anew for every tensor.

    Raises:
        ParameterError: an unknown strategy, fewer than two copies, or weights that do not fit.
    """
    if copies < 2:
        raise ParameterError("it takes at least two copies to collude", found=str(copies))
    if how not in STRATEGIES:
        raise ParameterError("unknown strategy", expected=" or ".join(STRATEGIES), found=repr(how))
    shares = _shares(how, copies, weights)

    def mean(values: torch.Tensor) -> torch.Tensor:
        return torch.tensordot(shares.to(values.dtype), values, dims=1)

    def middle(values: torch.Tensor) -> torch.Tensor:
        ordered = values.sort(dim=0).values  # torch.median would take the lower one of an even number
        return (ordered[(copies - 1) // 2] + ordered[copies // 2]) / 2

    def begin() -> Combine:
        # The same draws for every tensor of a shape, so that a head stored beside the embedding stays its equal.
        generator = torch.Generator().manual_seed(seed)

        def copy_paste(values: torch.Tensor) -> torch.Tensor:
            return values.gather(0, torch.randint(copies, (1, *values.shape[1:]), generator=generator))[0]

        functions: dict[str, Combine] = {
            "mean": mean,
            "median": middle,
            "max": lambda values: values.amax(dim=0),
            "min-max": lambda values: (values.amin(dim=0) + values.amax(dim=0)) / 2,
            "copy-paste": copy_paste,
        }
        return functions[how]

    return begin


def _shares(how: str, copies: int, weights: Sequence[float] | None) -> torch.Tensor:
    if weights is None:
        return torch.full((copies,), 1 / copies, dtype=torch.float64)
    values = np.asarray(weights, dtype=np.float64)
    sound = values.shape == (copies,) and bool(np.isfinite(values).all()) and values.min() >= 0 and values.sum() > 0
    if how != "mean" or not sound:
        expected = f"{copies} numbers of at least 0 for a mean"
        raise ParameterError("the weights do not fit", expected=expected, found=f"{list(weights)} for {how!r}")
    return torch.from_numpy(values / values.sum())


def _entries(copy: Checkpoint) -> dict[str, TensorEntry]:
    """Every stored tensor of a checkpoint by name, in the order of its files."""
    parts = (part for tensor in copy.tensors.values() for part in tensor.parts)
    return {part.name: part for part in sorted(parts, key=lambda part: (str(part.file), part.start))}


def _check_alike(copies: Sequence[Checkpoint], entries: Sequence[dict[str, TensorEntry]]) -> None:
    """Refuse copies of unequal geometry, naming the first tensor that differs."""
    first = entries[0]
    for copy, other in zip(copies[1:], entries[1:], strict=True):
        for name in (*first, *other):
            shapes = [list(each[name].shape) if name in each else None for each in (first, other)]
            if shapes[0] != shapes[1]:
                raise ParameterError(
                    "these are not copies of one model",
                    file=copy.path,
                    tensor=name,
                    expected=f"shape {shapes[0]}" if shapes[0] is not None else "no such tensor",
                    found=f"shape {shapes[1]}" if shapes[1] is not None else "no such tensor",
                    advice=f"Combine copies of {copies[0].path}",
                )


def _combined(parts: Sequence[TensorEntry], begin: Callable[[], Combine]) -> torch.Tensor:
    """One tensor of all copies, combined block by block in the first copy's dtype."""
    first = parts[0]
    dtype = TORCH.get(first.dtype)
    if dtype is None or not dtype.is_floating_point:
        return read_tensor(first)  # which refuses a dtype that torch lacks
    combine, result = begin(), torch.empty(first.shape, dtype=dtype)
    for block in _blocks(first.shape, len(parts)):
        values = [read_tensor(part, None if block is ... else block) for part in parts]
        if all(torch.equal(values[0], other) for other in values[1:]):
            result[block] = values[0]  # rounding of the combination must not touch what is equal
        else:
            precise = torch.float64 if dtype == torch.float64 else torch.float32
            result[block] = combine(torch.stack([value.to(precise) for value in values])).to(dtype)
    return result


def _blocks(shape: tuple[int, ...], copies: int) -> Iterator[slice | EllipsisType]:
    """What to read at a time: some rows of every copy; of a single number, all of it."""
    if not shape:
        yield ...
        return
    row = max(1, int(np.prod(shape[1:], dtype=np.int64)))
    step = max(1, _NUMBERS_AT_ONCE // (row * copies))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))
