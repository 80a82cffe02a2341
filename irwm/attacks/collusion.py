"""Collusion: recipients combine their copies, so that each copy's mark is diluted or outvoted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from irwm.attacks.combine import Blocks, Combine, combine_folders
from irwm.errors import ParameterError

STRATEGIES = ("mean", "median", "max", "min-max", "copy-paste")


def collude(
    model_dirs: Sequence[str | Path],
    out_dir: str | Path,
    how: str = "mean",
    weights: Sequence[float] | None = None,
    seed: int = 0,
) -> Path:
    """Combine several copies of a model into one model folder, `out_dir`.

    Every floating tensor is combined entry by entry; the result keeps the first copy's names, dtypes and files. Tensors
    that are equal in all copies are copied bit for bit.

    Args:
        model_dirs: at least two model folders with equal tensor names and shapes.
        out_dir: must not exist.
        how: "mean", "median" (of an even number, the mean of the middle two), "max", "min-max" (the midpoint of the
            smallest and the largest) or "copy-paste" (each entry from a copy drawn at random).
        weights: for "mean": each copy's weight, not negative; they are normalised to sum to 1.
        seed: seed of the draws.

    Raises:
        ParameterError: an unknown strategy, weights that do not fit, or copies of unequal tensors.
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError: a copy is in another format than safetensors.
        CheckpointError: a folder is not a readable checkpoint.
    """
    return combine_folders(model_dirs, out_dir, strategy(how, len(model_dirs), weights, seed))


def strategy(how: str, copies: int, weights: Sequence[float] | None = None, seed: int = 0) -> Callable[..., Combine]:
    """The combination that `collude` applies to one tensor: a function that is called once for every tensor.

    Raises:
        ParameterError: an unknown strategy, fewer than two copies, or weights that do not fit.
    """
    if copies < 2:
        raise ParameterError("collusion needs at least two copies", found=str(copies))
    if how not in STRATEGIES:
        raise ParameterError("unknown strategy", expected=" or ".join(STRATEGIES), found=repr(how))
    shares = _shares(how, copies, weights)

    def mean(values: torch.Tensor) -> torch.Tensor:
        weighed: torch.Tensor = torch.tensordot(shares.to(values.dtype), values, dims=1)
        return weighed

    def middle(values: torch.Tensor) -> torch.Tensor:
        ordered = values.sort(dim=0).values  # for an even number torch.median would use the lower one
        return (ordered[(copies - 1) // 2] + ordered[copies // 2]) / 2

    def begin(_blocks: Blocks | None = None) -> Combine:
        # All tensors of one shape get the same draws, so that a head stored next to the embedding stays equal to it.
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
        expected = f"{copies} non-negative numbers, with the strategy mean"
        raise ParameterError("these weights cannot be used", expected=expected, found=f"{list(weights)} for {how!r}")
    return torch.from_numpy(values / values.sum())
