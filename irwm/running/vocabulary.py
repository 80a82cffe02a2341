"""Which token of one model is which of another's, when the vocabulary was reordered, trimmed or padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import open_checkpoint, token_ids
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.running.reference import Reference
from irwm.running.text import Reading

# The new id of each old token, -1 for those that are gone.
TokenMap = Sequence[int] | NDArray[np.int64] | torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The other model's id of each token.

    Attributes:
        new: int64 (the reference's rows,), -1 where the token is gone or not known.
        plain: every token has the id it had, and there are no others.
    """

    new: torch.Tensor
    plain: bool

    def lacks(self, reference: Reference) -> int:
        """How many of the tokens that the reference was shown the other model does not have."""
        every = [torch.tensor(reference.ids), *(reading.shown for reading in reference.readings)]
        return int((self.new[torch.cat(every).unique()] < 0).sum())

    def reading(self, reading: Reading) -> Reading:
        """The same reading in the other model's ids."""
        return replace(reading, shown=self.new[reading.shown], wanted=self.new[reading.wanted])


def match(reference: Reference, other: Path, rows: int, token_map: TokenMap | None) -> Match:
    """Match the columns of two models' outputs.

    Args:
        other: the folder, or GGUF file, of the model with `rows` rows.
        token_map: the new id of each old one, -1 for those that are gone; None: by the tokens' texts in both models'
            files.

    Raises:
        ParameterError: an id beyond the other model's rows, or fewer than the reference has.
        UnsupportedCheckpointError: the other model has no tokenizer, and no map was given.
    """
    size = reference.rows
    if token_map is not None:
        new = torch.as_tensor(token_map, dtype=torch.int64)
        if len(new) < size or (new.numel() and int(new.max()) >= rows):
            raise ParameterError(
                "the map of token ids does not fit the models",
                file=other,
                expected=f"{size} ids below {rows}",
                found=f"{len(new)} ids up to {int(new.max()) if new.numel() else -1}",
            )
        return _made(new[:size], size, rows)
    theirs = token_ids(open_checkpoint(other))
    if not theirs:
        raise UnsupportedCheckpointError(
            "no tokenizer beside the weights, so that nobody can tell which token is which",
            file=other,
            advice="Copy the original's tokenizer files into the folder, or say where each token went",
        )
    if theirs == reference.vocabulary:
        return _made(torch.where(torch.arange(size) < rows, torch.arange(size), -1), size, rows)
    new = torch.full((size,), -1, dtype=torch.int64)
    for token, old in reference.vocabulary.items():
        if old < size and theirs.get(token, rows) < rows:
            new[old] = theirs[token]
    return _made(new, size, rows)


def _made(new: torch.Tensor, size: int, rows: int) -> Match:
    return Match(new, plain=size == rows and torch.equal(new, torch.arange(size)))
