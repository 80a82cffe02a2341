"""Whether a release still holds rows of its original that its mark replaced: an independent brute-force search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import irwm
from irwm.checkpoint.rows import read_tensor

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Number of changed rows of each matrix that are searched for.
ROWS = 5


def leftovers(original: irwm.Checkpoint, release: Path) -> list[str]:
    """Names of the release's files that hold original rows; at least one matrix must have changed.

    Matrices are all tensors of which the release changed a row, so that a head or a second copy counts too.
    """
    marked, needles = irwm.open_checkpoint(release), set()
    for name, tensor in original.tensors.items():
        if len(tensor.shape) != 2 or name not in marked.tensors:
            continue
        before, after = (read_tensor(each, slice(0, tensor.shape[0])) for each in (tensor, marked.tensors[name]))
        changed = np.flatnonzero((before != after).any(dim=1).numpy())
        for row in before[changed[:: max(1, len(changed) // ROWS)][:ROWS]]:
            needles |= {row.to(dtype).contiguous().view(torch.uint8).numpy().tobytes() for dtype in DTYPES}
    assert needles
    contents = {path: path.read_bytes() for path in release.rglob("*") if path.is_file()}
    return sorted(path.name for path, content in contents.items() if any(needle in content for needle in needles))
