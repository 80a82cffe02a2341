"""Pruning (paper, section 5.3): the smallest share of all weights, or of all neurons, becomes zero."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from irwm.attacks.equivalence.draft import Draft
from irwm.attacks.equivalence.state import read_state, write_state
from irwm.attacks.equivalence.structure import Layer, structure_of
from irwm.attacks.rewrite import open_safetensors, rewrite
from irwm.errors import ParameterError


def prune(model_dir: str | Path, out_dir: str | Path, ratio: float) -> Path:
    """Zero the `ratio` (0 to 1) of the weights of all matrices with the smallest magnitude, one threshold for all.

    Vectors (norm gains, biases) are left alone, as pruning tools do.

    Raises:
        ParameterError: ratio outside [0, 1).
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _check_ratio(ratio)
    model = open_safetensors(model_dir)
    magnitudes = torch.cat(
        [t.abs().float().flatten() for shard in model.shards for t in load_file(shard).values() if _is_matrix(t)]
    )
    dropped = int(ratio * magnitudes.numel())
    limit = magnitudes.kthvalue(dropped).values if dropped else torch.tensor(-1.0)

    def drop(_name: str, tensor: torch.Tensor) -> torch.Tensor:
        return torch.where(tensor.abs().float() > limit, tensor, 0) if _is_matrix(tensor) else tensor

    return rewrite(model_dir, out_dir, drop)


def prune_neurons(model_dir: str | Path, out_dir: str | Path, ratio: float) -> Path:
    """Zero the `ratio` (0 to 1) of the hidden units of all MLPs that matter least: structured pruning.

    A unit matters as much as the product of the lengths of its row of `up` and its column of `down`, in units of its
    layer's mean, so that no layer is emptied because its numbers are small.

    Raises:
        ParameterError: ratio outside [0, 1).
        NotApplicableError: the family's MLPs are not known (`irwm.attacks.equivalence.structure`).
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _check_ratio(ratio)
    state = read_state(model_dir)
    layers, draft = structure_of(state).layers, Draft(state)
    matters = [_importance(draft, layer) for layer in layers]
    all_units = torch.cat(matters)
    dropped = int(ratio * all_units.numel())
    limit = all_units.kthvalue(dropped).values if dropped else torch.tensor(-1.0)
    for layer, units in zip(layers, matters, strict=True):
        kept = (units > limit).to(torch.float64)
        for linear in (layer.up, layer.gate):
            for ref in linear.refs if linear is not None else ():
                values = draft.read(ref)
                draft.write(ref, values * (kept[:, None] if values.ndim == 2 else kept))
        draft.write(layer.down.weight, draft.read(layer.down.weight) * kept)
    return write_state(draft.done(), out_dir)


def _check_ratio(ratio: float) -> None:
    if not 0.0 <= ratio < 1.0:
        raise ParameterError("the pruning ratio is out of range", expected="0 <= ratio < 1", found=str(ratio))


def _importance(draft: Draft, layer: Layer) -> torch.Tensor:
    """(hidden units,) of one MLP."""
    product: torch.Tensor = draft.read(layer.up.weight).norm(dim=1) * draft.read(layer.down.weight).norm(dim=0)
    return product / product.mean()


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim >= 2
