"""Finding the embedding where the tensors' names are nobody's: a thief may rename what nothing checks.

An embedding is among the tallest matrices there are, and an embedding is all that the verdict's own reading needs.
Which layer is first and what its matrices are for cannot be told from shapes alone; layer 0's q and k stay unknown
then. An untied output head has the embedding's shape, and a thief may add taller ones, so there may be several
candidates; alignment against an original decides between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from irwm.errors import UnknownFamilyError
from irwm.families.candidates import MOST_ROWS
from irwm.families.family import embedding_names
from irwm.families.schema import Layout, TensorRef

UNKNOWN_FAMILY = "unknown"
# A vocabulary has more entries than a model has hidden coordinates in every model published so far.
LEAST_TALLNESS = 1.5
# Characters of one family's names and prefixes; all families' take thousands.
LONGEST_REASON = 500


def unnamed(shapes: Mapping[str, tuple[int, ...]], refusal: UnknownFamilyError) -> Layout:
    """A layout that knows the embedding only.

    Args:
        shapes: shape of each tensor of plain numbers.
        refusal: why the names did not tell more; becomes a note.

    Raises:
        UnknownFamilyError: `refusal`, where no matrix could be the embedding.
    """
    tall = {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and shape[1] >= 2 and LEAST_TALLNESS * shape[1] <= shape[0] <= MOST_ROWS
    }
    endings = embedding_names()
    # Names that say embedding first, then the largest. Alignment, which knows the original, chooses among all of them.
    candidates = sorted(tall, key=lambda name: (not name.endswith(endings), -math.prod(tall[name]), name))
    if not candidates:
        raise refusal
    vocab_size, hidden_size = tall[candidates[0]]
    by = "name" if candidates[0].endswith(endings) else "shape"
    known = f"The embedding was recognised by its {by}, {vocab_size} × {hidden_size}"
    choice = f"; {len(candidates) - 1} more tensors could be it" if len(candidates) > 1 else ""
    # The list of what was tried is worth reading for one family, not for all of them.
    why = refusal.problem if len(refusal.problem) <= LONGEST_REASON else refusal.problem.split(";")[0]
    return Layout(
        family=UNKNOWN_FAMILY,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        heads=0,
        kv_heads=0,
        head_dim=0,
        embedding=TensorRef(candidates[0]),
        head=None,
        tied=False,
        position=None,
        token_type=None,
        embedding_norm=None,
        input_norm=None,
        q=None,
        k=None,
        q_bias=None,
        k_bias=None,
        q_norm=None,
        k_norm=None,
        embedding_scale=1.0,
        notes=(f"{known}{choice}. Layer 0's q and k were not recognised: {why}.",),
        alternatives=tuple(TensorRef(name) for name in candidates[1:]),
    )
