"""The MLP's hidden units in another order and, where they are gated, at another scale."""

from __future__ import annotations

import torch

from irwm.attacks.equivalence.draft import Draft, generator, log_uniform
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import structure_of
from irwm.attacks.equivalence.transform import transform
from irwm.errors import ParameterError


@transform()
def reorder_neurons(state: State, seed: int = 0, spread: float = 2.0) -> State:
    """Permutes each layer's hidden units. In a gated MLP, act(gate) * up is linear in `up`, so its rows are also
    multiplied by factors between 1 / spread and spread, and the columns of `down` divided."""
    if not 1 <= spread < float("inf"):
        raise ParameterError("the spread of factors is out of range", expected="1 or more", found=str(spread))
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    for layer in structure.layers:
        width = draft.read(layer.down.weight).shape[1]
        order = torch.randperm(width, generator=source)
        factors = torch.ones(width, dtype=torch.float64)
        if layer.gate is not None:
            factors = log_uniform(width, spread, source)
            for ref in layer.gate.refs:
                draft.write(ref, draft.read(ref)[order])
        for ref in layer.up.refs:
            rows = draft.read(ref)[order]
            draft.write(ref, rows * (factors[:, None] if rows.ndim == 2 else factors))
        draft.write(layer.down.weight, draft.read(layer.down.weight)[:, order] / factors)
    return draft.done()
