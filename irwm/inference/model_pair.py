"""Two models run on the same text: the correspondence of their tokens, and their outputs.

The vocabulary of the other model may have been reordered, trimmed or padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import open_checkpoint, token_ids
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference.loading import Weights, embedding_rows, open_weights
from irwm.inference.reference import Progress, Reference, restricted, run
from irwm.inference.text import Passage

# The new id of each old token, -1 for removed tokens.
TokenMap = Sequence[int] | NDArray[np.int64] | torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The other model's id of each token.

    Attributes:
        new: int64 (the reference's rows,), -1 where the token is gone or not known.
        plain: every token has the same id in both, and the other model has no further tokens.
    """

    new: torch.Tensor
    plain: bool

    def lacks(self, reference: Reference) -> int:
        """The number of tokens in the reference's input that the other model does not have."""
        every = [torch.tensor(reference.ids), *(passage.shown for passage in reference.passages)]
        return int((self.new[torch.cat(every).unique()] < 0).sum())

    def passage(self, passage: Passage) -> Passage:
        """The same passage in the other model's ids."""
        return replace(passage, shown=self.new[passage.shown], wanted=self.new[passage.wanted])


def match(reference: Reference, other: Path, rows: int, token_map: TokenMap | None) -> Match:
    """Match the columns of two models' outputs.

    Args:
        other: the folder, or GGUF file, of the model with `rows` rows.
        token_map: the new id of each old one, -1 for removed tokens; None to match the tokens' texts in both models'
            files.

    Raises:
        ParameterError: an id beyond the other model's rows, or fewer ids than the reference has.
        UnsupportedCheckpointError: the other model has no tokenizer, and no map was given.
    """
    size = reference.rows
    if token_map is not None:
        new = torch.as_tensor(token_map, dtype=torch.int64)
        if len(new) < size or (new.numel() and int(new.max()) >= rows):
            raise ParameterError(
                "the token ID map does not match the models",
                file=other,
                expected=f"{size} IDs below {rows}",
                found=f"{len(new)} IDs up to {int(new.max()) if new.numel() else -1}",
            )
        return _made(new[:size], size, rows)
    theirs = token_ids(open_checkpoint(other))
    if not theirs:
        raise UnsupportedCheckpointError(
            "there is no tokenizer next to the weights, so the tokens cannot be matched",
            file=other,
            advice="Copy the original's tokenizer files into the folder, or provide the new ID of each token",
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


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two models that can be run on the same text.

    Attributes:
        asked: the reference as given.
        reference: the same, or, if tokens of its text are gone, its model run over the other tokens.
        other, weights: the other model.
        match: the correspondence of the tokens.
        gone: the number of distinct tokens of the text that are gone.
    """

    asked: Reference
    reference: Reference
    other: Path
    weights: Weights
    match: Match
    gone: int

    def run(self, progress: Progress | None = None) -> Iterator[tuple[torch.Tensor, torch.Tensor, Passage]]:
        """For each passage: the reference's outputs, the other model's, and the passage in its ids."""
        total = len(self.reference.passages)
        given = [self.match.passage(passage) for passage in self.reference.passages]
        for number, outputs in enumerate(run(self.weights, given, self.reference.headless)):
            yield self.reference.outputs[number], outputs, given[number]
            if progress:
                progress(number + 1, total, "Running the model")


def pair_of(reference: Reference, other: Path, token_map: TokenMap | None) -> Pair:
    """Open the other model and match its tokens; errors as `compare`."""
    weights = open_weights(other, reference.device)
    if weights.masked != reference.masked or (weights.headless and not reference.headless):
        kinds = {(False, False): "next-token", (True, False): "masked", (True, True): "headless"}
        raise UnsupportedCheckpointError(
            "these two models make different kinds of predictions",
            file=other,
            expected=f"a {kinds[reference.masked, reference.headless]} model, like {reference.folder.name}",
            found=f"a {kinds[weights.masked, weights.headless]} model",
        )
    matched = match(reference, other, embedding_rows(weights.model), token_map)
    gone = matched.lacks(reference)
    left = restricted(reference, matched.new >= 0) if gone else reference
    if matched.lacks(left):
        raise UnsupportedCheckpointError(
            "the special tokens that this kind of model expects around a text are missing", file=other
        )
    return Pair(reference, left, other, weights, matched, gone)


def states(pair: Pair, progress: Progress | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """All last hidden states of two encoders, float64 (n, d) each.

    Raises:
        UnsupportedCheckpointError: they are of different length.
    """
    found = [(expected, outputs) for expected, outputs, _ in pair.run(progress)]
    ours, theirs = (torch.cat(part).double() for part in zip(*found, strict=True))
    if ours.shape != theirs.shape:
        raise UnsupportedCheckpointError(
            "the outputs of these two encoders have different lengths",
            file=pair.other,
            expected=str(ours.shape[1]),
            found=str(theirs.shape[1]),
        )
    return ours, theirs


def common_order(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor | None:
    """The one order of the other encoder's coordinates, int64 (d,), in which all its hidden states (n, d) resemble
    ours, if it is not the identity; None otherwise. The output of an encoder without a head is its stream itself, and
    an attacker who permutes the stream changes only this order."""
    if not torch.isfinite(theirs).all():
        return None
    order = torch.cdist(ours.T, theirs.T).argmin(dim=1)  # by distance, since some coordinates hardly vary
    plain = torch.arange(len(order))
    return order if not torch.equal(order, plain) and torch.equal(order.sort().values, plain) else None
