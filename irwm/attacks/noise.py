"""White noise on the weights, the simplest attack on a mark."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from irwm.attacks.rewrite import rewrite
from irwm.errors import ParameterError


def add_noise(model_dir: str | Path, out_dir: str | Path, share: float, seed: int = 0) -> Path:
    """Add Gaussian noise of `share` times its own deviation to every matrix, embedding included.

    Vectors (norm gains, biases) are left alone. The same seed adds the same noise.

    Raises:
        ParameterError: a share that is negative or not finite.
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    if not (math.isfinite(share) and share >= 0.0):
        raise ParameterError("the noise is out of range", expected="a share of 0 or more", found=str(share))
    generator = torch.Generator().manual_seed(seed)

    def add(_name: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim < 2:
            return tensor
        values = tensor.float()
        # In place: an embedding of a billion numbers is held once as float32, in addition to its noise.
        return torch.randn(values.shape, generator=generator).mul_(share * values.std()).add_(values)

    return rewrite(model_dir, out_dir, add)
