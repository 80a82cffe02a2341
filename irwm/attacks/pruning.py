"""Global magnitude pruning (paper, section 5.3): the smallest share of all weights becomes zero."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from irwm.attacks.rewrite import open_safetensors, rewrite
from irwm.errors import ParameterError


def prune(model_dir: str | Path, out_dir: str | Path, ratio: float) -> Path:
    """Zero the `ratio` (0 to 1) of the weights of all matrices with the smallest magnitude, one threshold for all.

    Vectors (norm gains, biases) are left alone, as pruning tools do.

    Raises:
        ParameterError: ratio outside [0, 1).
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    if not 0.0 <= ratio < 1.0:
        raise ParameterError("the pruning ratio is out of range", expected="0 <= ratio < 1", found=str(ratio))
    model = open_safetensors(model_dir)
    magnitudes = torch.cat(
        [t.abs().float().flatten() for shard in model.shards for t in load_file(shard).values() if _is_matrix(t)]
    )
    dropped = int(ratio * magnitudes.numel())
    limit = magnitudes.kthvalue(dropped).values if dropped else torch.tensor(-1.0)

    def drop(_name: str, tensor: torch.Tensor) -> torch.Tensor:
        return torch.where(tensor.abs().float() > limit, tensor, 0) if _is_matrix(tensor) else tensor

    return rewrite(model_dir, out_dir, drop)


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim >= 2
