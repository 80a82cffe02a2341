"""What a LayerNorm behind the embedding forgives: constants per row, and what one table gives and another takes."""

from __future__ import annotations

import torch

from irwm.attacks.equivalence.draft import Draft, generator
from irwm.attacks.equivalence.head import free_tables
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.survey import structure_of
from irwm.attacks.equivalence.transform import layer_norm, transform


@transform(layer_norm)
def shift_rows(state: State, seed: int = 0, size: float = 1.0) -> State:
    """Adds to all entries of each word's row one random number, of `size` times the table's deviation; the LayerNorm
    subtracts the mean over the entries and with it the number."""
    state = free_tables(state)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    words = draft.read(structure.embedding)
    shift = torch.randn(len(words), 1, generator=source, dtype=torch.float64)
    draft.write(structure.embedding, words + size * words.std() * shift)
    return draft.done()


@transform(layer_norm)
def shift_tables(state: State, seed: int = 0, size: float = 1.0) -> State:
    """Adds one random vector, of `size` times the table's deviation, to every word's row and subtracts it from every
    position's; each text's embedding is the sum of one row of either."""
    state = free_tables(state)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    words, positions = structure.tables[0], structure.tables[1]
    shift = torch.randn(structure.hidden_size, generator=source, dtype=torch.float64)
    shift = size * draft.read(words).std() * shift
    draft.change([words], lambda w: w + shift)
    draft.change([positions], lambda w: w - shift)
    return draft.done()
