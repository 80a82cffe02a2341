"""A served model as a suspect: from the log-probabilities of its answers to its output head (docs/answers.md).

The logits of an answer are W h: W (v, d) the output head, h the last layer's output for that prompt. A server gives
log-probabilities, which are logits minus one number per answer. Centred over the vocabulary, n answers are
C = H (W - w̄)^T, of rank d at most. The leading right singular directions of C, V (v, d), are W - w̄ up to an unknown
invertible (d, d) map. Detection fits a map from the suspect's to the original's coordinates, which cancels it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint.model import Checkpoint
from irwm.checkpoint.served_source import Heard
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of
from irwm.errors import AnswersError
from irwm.families import Layout, TensorRef

NAME = "output head, from answers"
# The family and the number format of this kind of suspect, as a report prints them.
ANSWERS = "answers"
# The largest share of missing values of a chosen token, or of an answer, before it is left out.
MOST_MISSING = 0.5
# No model gives a smaller log-probability; servers write such numbers for tokens that they forbid.
LEAST = -1e4
# How a soft cap is undone: tokens considered for each of the d directions, candidate sums per round, rounds, the first
# step as a share of the possible range, and how near to the cap a number is still used, as a share of the cap.
_CAP_TOKENS, _CAP_TRIES, _CAP_ROUNDS, _CAP_FIRST_STEP, _CAP_EDGE = 4, 9, 10, 0.2, 1e-9
# The smaller of the numbers of answers and tokens. A square of this size takes 2 GB of memory.
MOST_BOTH = 16_384
# Answers that are processed at a time.
_TOGETHER = 256
# Median deviations below the median of an answer. Tokens that never occur in text are at 12 in small models.
_ABSURD = 15.0
# From this share of an answer's tokens with equal values on, a note is given; the number of answers that are checked.
_MANY_ALIKE, _LOOKED_AT = 0.2, 64
# The drop of the singular values behind the last direction of a head from which on its width counts as visible.
GAP = 3.0


def suspect_from_answers(
    log_probabilities: NDArray[np.floating] | torch.Tensor,
    original: Checkpoint,
    token_ids: Sequence[int] | NDArray[np.int64] | None = None,
) -> Checkpoint:
    """The output head of a served model, as far as its answers reveal it.

    Its rows are in unknown coordinates. Detection maps them to the original's with a map that is fitted by least
    squares. The rest of the model is unknown, so lineage is based on these rows alone.

    Args:
        log_probabilities: (n, v) natural logarithms of the probabilities of v tokens in n answers to different prompts,
            floating point, at most 0; NaN or -inf where the server gave none.
        original: the unmarked original that the suspect is compared with.
        token_ids: (v,) the token of each column; None where column i is token i.

    Raises:
        AnswersError: too few answers or tokens, or values that are not log-probabilities; token ids are repeated
            or are not the original's; or the original's output head carries no mark.
        CheckpointError: the original cannot be read.
    """
    if not original.tied and original.output_head is None:
        raise AnswersError(
            "the original's output head is not stored, or its shape differs from the embedding's, so it carries no "
            "mark",
            file=original.path, expected="an output head", found=original.family,
            advice="Examine the suspect's weights",
        )  # fmt: skip
    table, width, cap = _usable_table(log_probabilities), original.hidden_size, soft_cap_of(original)
    tokens = _tokens(table.shape, original, token_ids)
    head = recovered_head(table, width, cap)
    rows = torch.from_numpy(head.rows)

    def decode(_stored: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return rows.clone()

    # Of the answers and not of the rows, whose last bits depend on the CPU.
    digest = hashlib.sha256(np.ascontiguousarray(table).data).hexdigest()
    named = hashlib.sha256(tokens.tobytes()).hexdigest()
    recipe = parameters_of(answers=digest, dtype=table.dtype.str, tokens=named, soft_cap=cap or 0.0)
    ref = TensorRef(NAME)
    nothing: dict[str, TensorEntry] = {}
    tensor = PackedTensor(NAME, ANSWERS, tuple(rows.shape), nothing, frozenset(), decode, recipe)
    return Checkpoint(
        path=Path(ANSWERS),
        config={},
        tensors={NAME: tensor},
        shards=(),
        notes=_notes(head, width, len(table), _told_alike(table)),
        layout=Layout(ANSWERS, vocab_size=len(rows), hidden_size=width, embedding=ref),
        bytes_total=0,
        tokens=tokens[head.columns],
        answers=Heard(len(table), head.answers, len(rows), head.width),
    )


@dataclass(frozen=True, slots=True, eq=False)
class RecoveredHead:
    """The output head as recovered from answers.

    Attributes:
        rows: (v', d) float32, the head's rows in unknown coordinates, d the requested width.
        columns: (v',) int64, the column of each row, ascending.
        answers: how many answers were used.
        width: the number of directions behind which the singular values fall steeply; None if there is no steep fall.
    """

    rows: NDArray[np.float32]
    columns: NDArray[np.int64]
    answers: int
    width: int | None


def recovered_head(
    log_probabilities: NDArray[np.floating] | torch.Tensor, width: int, soft_cap: float | None = None
) -> RecoveredHead:
    """The rows of an output head of this width, from answers alone.

    Args:
        log_probabilities: (n, v) natural logarithms, one answer a row and one token a column; NaN or -inf where the
            server gave none.
        width: d, the number of directions of the head.
        soft_cap: c, where the model replaces a logit x by c tanh(x / c).

    Raises:
        AnswersError: not a table of numbers, or too few answers or tokens are left.
    """
    values = _usable_table(log_probabilities)
    told = _possible(values, soft_cap)
    kept_answers, kept_columns = _complete(told, told & (values >= LEAST))
    left = len(kept_answers), len(kept_columns)
    require_enough(left, width, np.shape(log_probabilities))
    if min(left) > MOST_BOTH:
        raise AnswersError(
            "there are too many answers and tokens for this computation",
            expected=f"at most {MOST_BOTH} answers or at most {MOST_BOTH} tokens",
            found=f"{left[0]} answers and {left[1]} tokens",
            advice=f"Provide fewer answers, for example the first {3 * width}, or fewer tokens",
        )
    table: NDArray[np.float64] = values[np.ix_(kept_answers, kept_columns)].astype(np.float64)
    if soft_cap is not None:
        table = without_cap(table, soft_cap, width)
    _raise_absurd(table)
    table -= table.mean(axis=1, keepdims=True)
    few_answers = len(table) <= table.shape[1]
    lengths, directions = np.linalg.eigh(table @ table.T if few_answers else table.T @ table)
    sizes = np.sqrt(np.clip(lengths[::-1], 0.0, None))
    leading = directions[:, ::-1][:, :width]
    if few_answers:
        leading = table.T @ leading / np.maximum(sizes[:width], np.finfo(np.float64).tiny)
    return RecoveredHead(leading.astype(np.float32), kept_columns, len(table), width_of(sizes, width))


def soft_cap_of(original: Checkpoint) -> float | None:
    """The soft cap on the model's logits, as its config states it; None without one."""
    for config in (original.config, original.config.get("text_config")):
        cap = config.get("final_logit_softcapping") if isinstance(config, Mapping) else None
        if isinstance(cap, (int, float)) and math.isfinite(cap) and cap > 0:
            return float(cap)
    return None


def without_cap(values: NDArray[np.float64], cap: float, width: int) -> NDArray[np.float64]:
    """(n, v) logits minus one number per answer, from log-probabilities of capped logits c tanh(x / c).

    A log-probability is a capped logit minus the answer's own sum L. With L the cap is undone by c artanh(y / c).
    A wrong L slightly bends the whole answer out of the d directions of the logits. So L of each answer is the value
    that leaves the smallest part of it outside the d leading directions of all answers. The two are found alternately.
    """
    edge = _CAP_EDGE * cap
    low, high = -cap - values.min(axis=1) + edge, cap - values.max(axis=1) - edge
    if (low >= high).any():
        raise AnswersError(
            "these answers cannot have come from logits with the original's soft cap",
            expected=f"log-probabilities within one answer that differ by less than {2 * cap:g}",
            found=f"{np.ptp(values, axis=1).max():.1f}",
            advice="If the server returns probabilities without the soft cap, they are not from this model",
        )
    some = values[:, np.unique(np.linspace(0, values.shape[1] - 1, _CAP_TOKENS * width).astype(np.int64))]

    def logits(part: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
        bent = np.clip((part + sums[:, None]) / cap, -1 + _CAP_EDGE, 1 - _CAP_EDGE)
        return cap * np.arctanh(bent)

    def directions(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        x = logits(some, sums)
        x -= x.mean(axis=1, keepdims=True)
        unit: NDArray[np.float64] = x / np.linalg.norm(x, axis=1, keepdims=True)
        return unit

    sums = np.clip(-np.median(values, axis=1), low, high)
    step = _CAP_FIRST_STEP * (high - low)
    for _ in range(_CAP_ROUNDS):
        x = directions(sums)
        lengths, turns = np.linalg.eigh(x @ x.T)
        leading = turns[:, ::-1][:, :width]
        axes = (x.T @ leading) / np.sqrt(np.maximum(lengths[::-1][:width], np.finfo(np.float64).tiny))
        tried = np.clip(sums + np.linspace(-1, 1, _CAP_TRIES)[:, None] * step, low, high)
        outside = [1 - np.square(directions(each) @ axes).sum(axis=1) for each in tried]
        sums = tried[np.argmin(outside, axis=0), np.arange(len(sums))]
        step = step / 2
    return logits(values, sums)


def width_of(sizes: NDArray[np.float64], width: int = 1) -> int | None:
    """The number of directions in which answers vary: the position of the steepest fall of the descending singular
    values (n,), if it is steep.

    Args:
        width: d of the original. The first quarter of this many falls is ignored: every model's answers have a few
            directions that are far stronger than the others.
    """
    floor = np.finfo(np.float32).eps * sizes[0]
    there = int((sizes > floor).sum())
    first = max(width // 4, 1)
    if there < first:
        return there
    falls = np.maximum(sizes[first - 1 : -1], floor) / np.maximum(sizes[first:], floor)
    steepest = int(falls.argmax()) if falls.size else 0
    return steepest + first if falls.size and falls[steepest] >= GAP else None


def _usable_table(values: NDArray[np.floating] | torch.Tensor) -> NDArray[np.floating]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype is torch.bfloat16 else values).numpy()
    try:
        table = np.asarray(values)
    except ValueError as error:
        raise AnswersError(
            "this is not a table of answers",
            expected="a table (answers, tokens) of floating-point log-probabilities",
            found="rows of different lengths",
        ) from error
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.floating):
        raise AnswersError(
            "this is not a table of answers",
            expected="a table (answers, tokens) of floating-point log-probabilities",
            found=f"{table.dtype}, {' × '.join(map(str, table.shape))}",
        )
    above = np.isfinite(table) & (table > 1e-3)
    if above.any():
        raise AnswersError(
            "these are not log-probabilities", expected="values no greater than 0", found=f"{table[above].max():g}",
            advice="Take the natural logarithm of each probability; log_softmax converts logits",
        )  # fmt: skip
    return table


def _possible(values: NDArray[np.floating], soft_cap: float | None) -> NDArray[np.bool_]:
    """(n, v) which values were given; with a soft cap, excluding those that the model cannot produce."""
    told: NDArray[np.bool_] = np.isfinite(values)
    if soft_cap is not None and values.size:
        highest = np.where(told, values, -np.inf).max(axis=1, keepdims=True)
        told &= values > highest - 2 * (1 - 2 * _CAP_EDGE) * soft_cap
    return told


def _raise_absurd(told: NDArray[np.float64]) -> None:
    """Raises, in (n, v), values far below the rest of their answer to the limit of the usual range: rare tokens
    reported as impossible would be the strongest directions of all. Answers with mostly equal values are unchanged."""
    # A few at a time: a copy of a large table would not fit in memory.
    for start in range(0, len(told), _TOGETHER):
        some = told[start : start + _TOGETHER]
        middle = np.median(some, axis=1, keepdims=True)
        spread = np.median(np.abs(some - middle), axis=1, keepdims=True)
        np.maximum(some, np.where(spread > 0, middle - _ABSURD * spread, -np.inf), out=some)


def _told_alike(values: NDArray[np.floating]) -> float:
    """The largest share of an answer's tokens that have the same value, as the median over some answers; 0 if no answer
    has a value."""
    some = values[np.unique(np.linspace(0, len(values) - 1, _LOOKED_AT).astype(np.int64))] if len(values) else values
    shares = [
        np.unique(known, return_counts=True)[1].max() / known.size
        for known in (answer[np.isfinite(answer)] for answer in some)
        if known.size
    ]
    return float(np.median(shares)) if shares else 0.0


def _complete(told: NDArray[np.bool_], possible: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The answers and the columns that leave no gap: first incomplete answers are dropped, then incomplete tokens.

    Args:
        told, possible: (n, v) which values are given, and which of them a model can produce. A few impossible ones
            are raised later (`_raise_absurd`); an answer with many is dropped.
    """
    answers = np.flatnonzero(possible.mean(axis=1) > MOST_MISSING) if told.size else np.empty(0, dtype=np.int64)
    columns = np.flatnonzero(told[answers].all(axis=0)) if answers.size else np.empty(0, dtype=np.int64)
    return answers, columns


def require_enough(left: tuple[int, ...], width: int, given: tuple[int, ...]) -> None:
    """Rejects answers that are too few to recover a head of this width.

    Args:
        left: usable answers and tokens.
        given: all answers and tokens.

    Raises:
        AnswersError
    """
    answers, tokens = left
    if answers <= width:
        raise AnswersError(
            "there are too few answers",
            expected=f"more than {width}, the original's width",
            found=f"{answers} of {given[0]} answers contain the tokens' log-probabilities",
            advice="Send more prompts; a good number is one and a half times the width",
        )
    if tokens < 2 * width:
        raise AnswersError(
            "there are too few tokens",
            expected=f"at least {2 * width}, preferably {4 * width}",
            found=f"{tokens} of {given[1]} tokens are in every answer",
            advice="Request the same tokens each time; the most likely tokens of each answer are not enough",
        )


def _tokens(
    shape: tuple[int, ...], original: Checkpoint, token_ids: Sequence[int] | NDArray[np.int64] | None
) -> NDArray[np.int64]:
    columns = shape[1] if len(shape) == 2 else 0
    if token_ids is None:
        if columns > original.vocab_size:
            raise AnswersError(
                "the answers have more tokens than the original", expected=f"at most {original.vocab_size}",
                found=str(columns), advice="Provide the token ID of each column, or choose the right original",
            )  # fmt: skip
        return np.arange(columns)
    try:
        tokens = np.asarray(token_ids)
    except (ValueError, OverflowError) as error:
        raise _not_columns(columns, "not a list of numbers") from error
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise _not_columns(columns, f"{tokens.dtype}, {' × '.join(map(str, tokens.shape))}")
    if tokens.size != columns or np.unique(tokens).size != tokens.size:
        raise _not_columns(columns, f"{np.unique(tokens).size} different IDs among {tokens.size}")
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < original.vocab_size:
        raise AnswersError("a token is not in the original's vocabulary", expected=f"0 to {original.vocab_size - 1}",
                           found=f"{tokens.min()} to {tokens.max()}")  # fmt: skip
    return tokens.astype(np.int64)


def _not_columns(columns: int, found: str) -> AnswersError:
    return AnswersError("the tokens do not match the columns", expected=f"{columns} different token IDs", found=found)


def _notes(head: RecoveredHead, width: int, given: int, alike: float) -> tuple[str, ...]:
    notes = [
        f"The suspect is known only from {head.answers} answers. They determine {len(head.rows)} rows of its output "
        "head."
    ]
    if head.answers < given:
        notes.append(f"Answers left out because they contain too few values: {given - head.answers}.")
    if alike >= _MANY_ALIKE:
        notes.append(
            f"In a typical answer, {100 * alike:.0f}% of the tokens have the same value. Their true values are "
            "unknown, so a mark may not be detected."
        )
    directions = "1 direction" if head.width == 1 else f"{head.width} directions"
    if head.width is not None and head.width < width:
        notes.append(
            f"The answers vary in only {directions}, but the original has {width}. There are too few different "
            "answers, or the served model is narrower."
        )
    if head.width is not None and head.width > width:
        notes.append(
            f"The answers vary in {head.width} directions, but the original has {width}. The served model is wider, "
            "several models take turns answering, or something is added to every answer."
        )
    return tuple(notes)
