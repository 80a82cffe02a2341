"""The norms' gains moved into the matrices that read them, and other gains put in their place."""

from __future__ import annotations

from collections.abc import Callable

import torch

from irwm.attacks.equivalence.draft import Draft, generator, log_uniform
from irwm.attacks.equivalence.head import untied
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.survey import structure_of
from irwm.attacks.equivalence.transform import rms_norms, transform
from irwm.errors import ParameterError


@transform(rms_norms)
def fold_gains(state: State) -> State:
    """Multiplies each norm's gain into the columns of its readers and leaves a gain of one; a tied head becomes its
    own tensor, since it reads the last norm and the embedding does not."""
    return _with_gains(state, lambda size: torch.ones(size, dtype=torch.float64))


@transform(rms_norms)
def regain(state: State, seed: int = 0, spread: float = 2.0) -> State:
    """Replaces the gains by random ones between 1 / spread and spread, with the readers making up for it."""
    if not 1 <= spread < float("inf"):
        raise ParameterError("the spread of gains is out of range", expected="1 or more", found=str(spread))
    source = generator(seed)
    return _with_gains(state, lambda size: log_uniform(size, spread, source))


def _with_gains(state: State, gain: Callable[[int], torch.Tensor]) -> State:
    state = untied(state)
    structure, draft = structure_of(state), Draft(state)
    offset = structure.norm.offset
    for norm in structure.norms:
        new = gain(structure.hidden_size)
        ratio = (draft.read(norm.gain) + offset) / new
        for reader in norm.readers:
            draft.write(reader, draft.read(reader) * ratio)
        draft.write(norm.gain, new - offset)
    return draft.done()
