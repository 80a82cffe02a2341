"""Merging with other models of the same base: linear, SLERP, task arithmetic, TIES and DARE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from irwm.attacks.combine import Begin, Blocks, Combine, combine_folders
from irwm.errors import ParameterError

METHODS = ("linear", "slerp", "task arithmetic", "ties", "dare")
# Those that add differences to a base.
_BASED = ("task arithmetic", "ties", "dare")
# Two tensors whose directions differ by less are interpolated linearly, with the same result.
_PARALLEL = 1e-6


def merge(
    model_dirs: Sequence[str | Path],
    out_dir: str | Path,
    method: str = "linear",
    weights: Sequence[float] | None = None,
    base_dir: str | Path | None = None,
    density: float = 0.5,
    seed: int = 0,
) -> Path:
    """Merge several fine-tuned copies of one base into one model folder, `out_dir`.

    Every floating tensor is merged; the result keeps the first model's names, dtypes and files.

    Args:
        model_dirs: model folders with equal tensor names and shapes; two for "slerp", two or more for "linear", one or
            more with a base.
        out_dir: must not exist.
        method: "linear": sum of w_i theta_i over the sum of the w_i (Wortsman et al., arXiv:2203.05482). "slerp": each
            tensor along the great circle between two, at the share w_2 / (w_1 + w_2) (Shoemake 1985). "task
            arithmetic": theta_0 + sum of w_i (theta_i - theta_0) (Ilharco et al., arXiv:2212.04089). "ties": keeps only
            the share `density` of the largest numbers of each difference, and of these only those with the sign of
            their weighted sum (Yadav et al., arXiv:2306.01708). "dare": the same with numbers drawn at random and
            divided by `density` (Yu et al., arXiv:2311.03099).
        weights: one number for each model; equal weights that sum to 1 if None. For methods with a base they are not
            normalised and may be negative.
        base_dir: theta_0, the common base; only for "task arithmetic", "ties" and "dare".
        density: for "ties" and "dare", above 0 and at most 1.
        seed: seed of the draws of "dare".

    Raises:
        ParameterError: an unknown method, weights, a base, a density or a number of models that do not fit, or
            different tensors.
        OutputExistsError, UnsupportedCheckpointError, CheckpointError: as `irwm.attacks.combine.combine_folders`.
    """
    if method not in METHODS:
        raise ParameterError("unknown merging method", expected=" or ".join(METHODS), found=repr(method))
    based = method in _BASED
    fewest, most = (1, math.inf) if based else (2, 2 if method == "slerp" else math.inf)
    if not fewest <= len(model_dirs) <= most:
        expected = f"{fewest}" if fewest == most else f"{fewest} or more"
        raise ParameterError(
            f"{method} does not work with this number of models", expected=expected, found=str(len(model_dirs))
        )
    if based != (base_dir is not None):
        raise ParameterError(
            f"a base is required for {', '.join(_BASED)}, and only for these methods",
            expected="a base folder" if based else "none",
            found=str(base_dir),
        )
    if not 0 < density <= 1:
        raise ParameterError("the density is out of range", expected="above 0 and at most 1", found=str(density))
    shares = _weights(weights, len(model_dirs), signed=based)
    if based and base_dir is not None:
        # The first model's dtypes and files are kept, so the base comes last.
        begin = _linear([*shares, 1.0 - sum(shares)])
        if method != "task arithmetic":
            begin = _thinned(shares, density, seed if method == "dare" else None)
        return combine_folders([*model_dirs, base_dir], out_dir, begin)
    total = sum(shares)
    if method == "slerp":
        return combine_folders(model_dirs, out_dir, _slerp(shares[1] / total))
    return combine_folders(model_dirs, out_dir, _linear([share / total for share in shares]))


def _weights(weights: Sequence[float] | None, models: int, *, signed: bool) -> list[float]:
    values = [1 / models] * models if weights is None else [float(weight) for weight in weights]
    sound = len(values) == models and all(map(math.isfinite, values))
    if not sound or (not signed and (min(values) < 0 or sum(values) <= 0)):
        kind = "" if signed else " that are not negative and not all 0"
        raise ParameterError("these weights cannot be used", expected=f"{models} numbers{kind}", found=str(weights))
    return values


def _linear(shares: Sequence[float]) -> Begin:
    def begin(_blocks: Blocks) -> Combine:
        return lambda values: torch.tensordot(torch.tensor(shares, dtype=values.dtype), values, dims=1)

    return begin


def _slerp(share: float) -> Begin:
    """Spherical interpolation of a tensor as one vector, at `share` of the way from the first to the second."""

    def begin(blocks: Blocks) -> Combine:
        products = torch.zeros(3, dtype=torch.float64)
        for block in blocks():
            one, other = block.double().flatten(1)
            products += torch.stack([one @ one, other @ other, one @ other])
        one, other, both = products.tolist()
        angle = math.acos(max(-1.0, min(1.0, both / math.sqrt(one * other)))) if one > 0 and other > 0 else 0.0
        if math.sin(angle) < _PARALLEL:
            return _linear([1 - share, share])(blocks)
        return _linear([math.sin((1 - share) * angle) / math.sin(angle), math.sin(share * angle) / math.sin(angle)])(
            blocks
        )

    return begin


def _thinned(shares: Sequence[float], density: float, seed: int | None) -> Begin:
    """TIES, or DARE with a seed: weighted differences to the last model, thinned, where their signs agree."""

    def begin(blocks: Blocks) -> Combine:
        generator, least = None, torch.zeros(len(shares))
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
        else:
            sizes = torch.cat([(block[:-1] - block[-1]).abs().flatten(1) for block in blocks()], dim=1)
            kept = max(1, int(density * sizes.shape[1]))
            least = sizes.kthvalue(sizes.shape[1] - kept + 1, dim=1).values

        def combine(values: torch.Tensor) -> torch.Tensor:
            changes, ones = values[:-1] - values[-1], [1] * (values.ndim - 1)
            if generator is None:
                keep = changes.abs() >= least.to(changes.dtype).reshape(-1, *ones)
            else:
                keep = torch.rand(changes.shape, generator=generator) < density
                changes = changes / density
            changes = torch.where(keep, torch.tensor(shares, dtype=values.dtype).reshape(-1, *ones) * changes, 0.0)
            agree = changes.sign() == changes.sum(dim=0).sign()
            merged: torch.Tensor = values[-1] + torch.where(agree, changes, 0.0).sum(dim=0)
            return merged

        return combine

    return begin
