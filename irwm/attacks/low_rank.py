"""Queries and keys of low rank, as a conversion to multi-head latent attention makes them (TransMLA, Meng et al.,
arXiv:2502.07864). The products of the factors are stored, so that the result is a model of the same family."""

from __future__ import annotations

from pathlib import Path

import torch

from irwm.attacks.equivalence.draft import Draft
from irwm.attacks.equivalence.state import read_state, write_state
from irwm.attacks.equivalence.structure import structure_of
from irwm.errors import ParameterError
from irwm.release.partial import require_absent


def factor_queries_and_keys(model_dir: str | Path, out_dir: str | Path, kept: float) -> Path:
    """Leave the leading share `kept` of the singular values of every layer's query and key projection.

    All heads of a projection share one low-rank input, as in multi-head latent attention. Biases do not change.

    Args:
        model_dir: a model folder in safetensors.
        out_dir: must not exist.

    Raises:
        ParameterError: a share outside (0, 1).
        NotApplicableError: a family whose tensors are not known.
        OutputExistsError, CheckpointError: as `irwm.attacks.rewrite.rewrite`.
    """
    if not 0.0 < kept < 1.0:
        raise ParameterError("the share is out of range", expected="above 0 and below 1", found=str(kept))
    require_absent(Path(out_dir))
    state = read_state(model_dir)
    draft = Draft(state)

    def leading(weight: torch.Tensor) -> torch.Tensor:
        u, values, v = torch.linalg.svd(weight, full_matrices=False)
        rank = max(1, int(kept * len(values)))
        product: torch.Tensor = u[:, :rank] * values[:rank] @ v[:rank]
        return product

    draft.change((each.weight for layer in structure_of(state).layers for each in (layer.q, layer.k)), leading)
    return write_state(draft.done(), out_dir)
