"""Round-to-nearest quantisation (paper, section 5.3): every matrix is quantised to few bits and dequantised."""

from __future__ import annotations

from pathlib import Path

import torch

from irwm.attacks.rewrite import rewrite
from irwm.errors import ParameterError


def quantize(model_dir: str | Path, out_dir: str | Path, bits: int, group_size: int = 32) -> Path:
    """Quantise every matrix, embedding included, to `bits` with one absolute-maximum scale per `group_size` entries.

    The result is stored in the original dtype with at most 2**bits - 1 levels per group, as in a dequantised integer
    copy.

    Raises:
        ParameterError: bits outside 2 to 8, or a group size below 1.
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    if not 2 <= bits <= 8 or group_size < 1:
        raise ParameterError(
            "unknown quantisation",
            expected="2 to 8 bits and a group size of at least 1",
            found=f"{bits} bits, group size {group_size}",
        )
    levels = 2 ** (bits - 1) - 1

    def through(_name: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim < 2:
            return tensor
        flat = tensor.float().reshape(-1)
        padded = torch.nn.functional.pad(flat, (0, -flat.numel() % group_size)).reshape(-1, group_size)
        step = padded.abs().amax(dim=1, keepdim=True) / levels
        rounded = torch.where(step > 0, (padded / step).round() * step, 0.0)
        return rounded.reshape(-1)[: flat.numel()].reshape(tensor.shape)

    return rewrite(model_dir, out_dir, through)
