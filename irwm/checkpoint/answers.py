"""A served model as a suspect: from the log-probabilities of its answers to its output head (docs/answers.md).

The logits of an answer are W h: W (v, d) the output head, h what the last layer gave for that prompt. A server tells
log-probabilities, which are logits less one number per answer. Centred over the vocabulary, n answers are
C = H (W - w̄)^T, of rank d at most. The leading right singular directions of C, V (v, d), are W - w̄ up to an unknown
invertible (d, d) map, and the map from the suspect's coordinates to the original's that detection fits takes that away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint.model import Checkpoint
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of
from irwm.errors import AnswersError
from irwm.families import Layout, TensorRef

NAME = "output head, from answers"
# Of a chosen token, or of an answer, so large a share may be missing before it is left out.
MOST_MISSING = 0.5
# Singular values fall by so much behind the last direction of a head, where its width shows at all.
GAP = 3.0


def suspect_from_answers(
    log_probabilities: NDArray[np.floating] | torch.Tensor,
    original: Checkpoint,
    token_ids: Sequence[int] | NDArray[np.int64] | None = None,
) -> Checkpoint:
    """The output head of a served model, as far as its answers tell it.

    Its rows are in unknown coordinates, which detection maps to the original's (the map that is fitted by least
    squares). Nothing else of the model is known: lineage rests on these rows alone.

    Args:
        log_probabilities: (n, v) natural logarithms of the probabilities of v tokens in n answers to different prompts,
            floating point, at most 0; NaN or -inf where the server told none.
        original: the unmarked original that the suspect is compared with. Its embedding must be its output head.
        token_ids: (v,) the token of each column; None where column i is token i.

    Raises:
        AnswersError: the answers are too few, tell too few tokens, or are no log-probabilities; tokens are named twice
            or are not the original's; or the original's output head carries no mark.
        CheckpointError: the original cannot be read.
    """
    if not original.tied:
        raise AnswersError(
            "the output head of this original is a tensor of its own, and only its embedding can carry a mark",
            file=original.path, expected="a model whose embedding is its output head", found=original.family,
            advice="Examine the suspect's weights",
        )  # fmt: skip
    tokens = _tokens(np.shape(log_probabilities), original, token_ids)
    head = recovered_head(log_probabilities, original.hidden_size)
    rows, notes = torch.from_numpy(head.rows), _notes(head, original.hidden_size, len(np.atleast_2d(log_probabilities)))

    def decode(_stored: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return rows.clone()

    digest = hashlib.sha256(head.rows.tobytes()).hexdigest()
    ref = TensorRef(NAME)
    nothing: dict[str, TensorEntry] = {}
    tensor = PackedTensor(
        NAME, "answers", tuple(rows.shape), nothing, frozenset(), decode, parameters_of(rows=digest)
    )  # fmt: skip
    return Checkpoint(
        path=Path("answers"),
        config={},
        tensors={NAME: tensor},
        shards=(),
        notes=notes,
        layout=Layout("answers", vocab_size=len(rows), hidden_size=original.hidden_size, embedding=ref),
        bytes_total=0,
        tokens=tokens[head.columns],
    )


@dataclass(frozen=True, slots=True, eq=False)
class RecoveredHead:
    """What answers give away of the output head.

    Attributes:
        rows: (v', d) float32, the head's rows in unknown coordinates, d the width asked for.
        columns: (v',) int64, which of the columns they are of, ascending.
        answers: how many answers were used.
        width: the number of directions behind which the singular values fall steeply; None where they do nowhere.
    """

    rows: NDArray[np.float32]
    columns: NDArray[np.int64]
    answers: int
    width: int | None


def recovered_head(log_probabilities: NDArray[np.floating] | torch.Tensor, width: int) -> RecoveredHead:
    """The rows of an output head of this width, from answers alone.

    Args:
        log_probabilities: (n, v) natural logarithms, one answer a row and one token a column; NaN or -inf where the
            server told none.
        width: d, how many directions the head has.

    Raises:
        AnswersError: not a table of numbers, or too few answers or tokens are left.
    """
    values = _usable_table(log_probabilities)
    kept_answers, kept_columns = _complete(np.isfinite(values))
    values = values[kept_answers][:, kept_columns].astype(np.float64)
    _require_enough(values.shape, width, np.shape(log_probabilities))
    values -= values.mean(axis=1, keepdims=True)
    lengths, directions = np.linalg.eigh(values @ values.T)
    sizes = np.sqrt(np.clip(lengths[::-1], 0.0, None))
    leading = directions[:, ::-1][:, :width]
    rows = values.T @ leading / np.maximum(sizes[:width], np.finfo(np.float64).tiny)
    return RecoveredHead(rows.astype(np.float32), kept_columns, len(values), width_of(sizes))


def width_of(sizes: NDArray[np.float64]) -> int | None:
    """Behind which of the descending singular values (n,) the steepest fall is, if it is steep."""
    floor = np.finfo(np.float32).eps * sizes[0]
    falls = np.maximum(sizes[:-1], floor) / np.maximum(sizes[1:], floor)
    steepest = int(falls.argmax())
    return steepest + 1 if falls[steepest] >= GAP else None


def _usable_table(values: NDArray[np.floating] | torch.Tensor) -> NDArray[np.floating]:
    table = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.floating):
        raise AnswersError(
            "these are not answers",
            expected="a table of log-probabilities, (answers, tokens), floating point",
            found=f"{table.dtype}, {' × '.join(map(str, table.shape))}",
        )
    above = np.isfinite(table) & (table > 1e-3)
    if above.any():
        raise AnswersError(
            "these are not log-probabilities", expected="numbers of at most 0", found=f"{table[above].max():g}",
            advice="Take the natural logarithm of each probability; logits are turned into it by log_softmax",
        )  # fmt: skip
    return table


def _complete(told: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The answers and the columns without a gap between them: first answers that tell little go, then tokens."""
    answers = np.flatnonzero(told.mean(axis=1) > MOST_MISSING) if told.size else np.empty(0, dtype=np.int64)
    columns = np.flatnonzero(told[answers].all(axis=0)) if answers.size else np.empty(0, dtype=np.int64)
    return answers, columns


def _require_enough(left: tuple[int, ...], width: int, given: tuple[int, ...]) -> None:
    answers, tokens = left
    if answers <= width:
        raise AnswersError(
            "there are too few answers",
            expected=f"more than {width}, the width of the original",
            found=f"{answers} of {given[0]} answers tell the tokens' log-probabilities",
            advice="Ask more prompts; one and a half times the width is a good number",
        )
    if tokens < 2 * width:
        raise AnswersError(
            "there are too few tokens",
            expected=f"at least {2 * width}, better {4 * width}",
            found=f"{tokens} of {given[1]} tokens are in every answer",
            advice="Ask for the same tokens each time; an answer's few likeliest tokens are not enough",
        )


def _tokens(
    shape: tuple[int, ...], original: Checkpoint, token_ids: Sequence[int] | NDArray[np.int64] | None
) -> NDArray[np.int64]:
    columns = shape[1] if len(shape) == 2 else 0
    if token_ids is None:
        if columns > original.vocab_size:
            raise AnswersError(
                "the answers have more tokens than the original", expected=f"at most {original.vocab_size}",
                found=str(columns), advice="Say which tokens the columns are, or take the right original",
            )  # fmt: skip
        return np.arange(columns)
    tokens = np.asarray(token_ids)
    fits = tokens.ndim == 1 and np.issubdtype(tokens.dtype, np.integer) and tokens.size == columns
    if not fits or np.unique(tokens).size != tokens.size:
        raise AnswersError("the tokens do not name the columns", expected=f"{columns} different token ids",
                           found=f"{np.unique(tokens).size} different ones of {tokens.size}")  # fmt: skip
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < original.vocab_size:
        raise AnswersError("a token is not one of the original's", expected=f"0 to {original.vocab_size - 1}",
                           found=f"{tokens.min()} to {tokens.max()}")  # fmt: skip
    return tokens.astype(np.int64)


def _notes(head: RecoveredHead, width: int, given: int) -> tuple[str, ...]:
    notes = [
        f"The suspect is known by {head.answers} answers alone. They tell {len(head.rows)} rows of its output head."
    ]
    if head.answers < given:
        notes.append(f"{given - head.answers} answers tell too little and were left out.")
    if head.width is not None and head.width < width:
        notes.append(
            f"The answers vary in {head.width} directions only, where the original has {width}: there are too few "
            "different ones, or the served model is narrower."
        )
    if head.width is not None and head.width > width:
        notes.append(
            f"The answers vary in {head.width} directions, where the original has {width}: the served model is wider, "
            "or several models answer by turns."
        )
    return tuple(notes)
