"""A suspect's answers: the tokens that it generated and, if the server gives them, their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irwm.checkpoint import Checkpoint
from irwm.errors import AnswersError

# Servers round, so that the logarithm of a probability of 1 may be slightly above 0.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Texts that a suspect generated, as the original's tokens. Sequences are counted from 0.

    Attributes:
        sequences: (n,) int64 each, at least 2 tokens: the prompt, then what was generated.
        prompt_lengths: of each sequence, how many of its tokens are the prompt, less than n. They carry no evidence,
            and neither does the first token of a sequence without a prompt.
        log_probabilities: None, or for each sequence (n - prompt length,) float64: natural logarithms, at most 0 and
            finite, of the probabilities that the suspect gave to the tokens that it generated.

    Raises:
        AnswersError: the parts do not fit together, or have values that are out of range.
    """

    sequences: Sequence[NDArray[np.int64]]
    prompt_lengths: Sequence[int]
    log_probabilities: Sequence[NDArray[np.float64]] | None = None

    def __post_init__(self) -> None:
        sequences = [_tokens(number, each) for number, each in enumerate(self.sequences)]
        if not sequences:
            raise AnswersError("there are no answers", expected="at least one sequence", found="none",
                               advice="Provide the tokens of each prompt and its answer")  # fmt: skip
        _require_one_each("prompt lengths", self.prompt_lengths, len(sequences))
        lengths = [
            _prompt(number, *each) for number, each in enumerate(zip(self.prompt_lengths, sequences, strict=True))
        ]
        given = self.log_probabilities
        if given is not None:
            _require_one_each("log-probabilities", given, len(sequences))
            sizes = [len(each) - prompt for each, prompt in zip(sequences, lengths, strict=True)]
            given = tuple(_logarithms(number, *each) for number, each in enumerate(zip(given, sizes, strict=True)))
        object.__setattr__(self, "sequences", tuple(sequences))
        object.__setattr__(self, "prompt_lengths", tuple(lengths))
        object.__setattr__(self, "log_probabilities", given)

    @property
    def firsts(self) -> tuple[int, ...]:
        """Of each sequence, the first token that carries evidence: generated, and not without any token before it."""
        return tuple(max(1, length) for length in self.prompt_lengths)

    @property
    def tokens(self) -> int:
        """How many tokens carry evidence."""
        return sum(len(each) - first for each, first in zip(self.sequences, self.firsts, strict=True))

    def check_tokens(self, original: Checkpoint) -> None:
        """Rejects tokens that the original does not have.

        Raises:
            AnswersError
        """
        for number, each in enumerate(self.sequences):
            if each.max() >= original.vocab_size:
                raise AnswersError(
                    f"sequence {number} contains a token that the original does not have",
                    file=original.path,
                    expected=f"token IDs from 0 to {original.vocab_size - 1}",
                    found=str(each.max()),
                    advice="Encode the text of the answers with the original's tokenizer",
                )


def _require_one_each(what: str, given: Sequence[Any], count: int) -> None:
    if len(given) != count:
        raise AnswersError(
            f"the number of {what} does not match the number of sequences",
            expected=f"{count}, one for each sequence",
            found=str(len(given)),
            advice="Provide one for each sequence, in the same order",
        )


def _tokens(number: int, given: ArrayLike) -> NDArray[np.int64]:
    values = _array(given)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise AnswersError(
            f"sequence {number} is not a list of token IDs", expected="whole numbers",
            found=f"{values.dtype}, number of dimensions: {values.ndim}",
            advice="Encode the text of the answers with the original's tokenizer",
        )  # fmt: skip
    if values.size < 2:
        raise AnswersError(
            f"sequence {number} is too short", expected="at least 2 tokens, including the prompt",
            found=str(values.size), advice="Leave this sequence out",
        )  # fmt: skip
    # Compared before the conversion, in which a number that is too large would become negative.
    if values.min() < 0 or values.max() > np.iinfo(np.int64).max:
        found = values.min() if values.min() < 0 else values.max()
        raise AnswersError(
            f"sequence {number} contains a number that is not a token ID", expected="0 or more", found=str(found),
            advice="Encode the text of the answers with the original's tokenizer",
        )  # fmt: skip
    return _kept(values.astype(np.int64))


def _prompt(number: int, given: Any, sequence: NDArray[np.int64]) -> int:
    whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    if not whole or not 0 <= given < len(sequence):
        raise AnswersError(
            f"the prompt length of sequence {number} is out of range",
            expected=f"a whole number from 0 to {len(sequence) - 1}, so that at least one token was generated",
            found=repr(given)[:40],
            advice="Provide the number of tokens in the prompt, and leave out sequences without an answer",
        )
    return int(given)


def _logarithms(number: int, given: ArrayLike, size: int) -> NDArray[np.float64]:
    values = _array(given)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise AnswersError(
            f"the log-probabilities of sequence {number} are not a list of numbers", expected="one list of numbers",
            found=f"{values.dtype}, number of dimensions: {values.ndim}",
            advice="Provide one number for each generated token",
        )  # fmt: skip
    if len(values) != size:
        raise AnswersError(
            f"the log-probabilities of sequence {number} do not match its tokens",
            expected=f"{size}, one for each generated token", found=str(len(values)),
            advice="Leave out the log-probabilities of the prompt",
        )  # fmt: skip
    wrong = np.flatnonzero(~np.isfinite(values) | (values > _ROUNDING))
    if wrong.size:
        raise AnswersError(
            f"sequence {number} has values that are not log-probabilities",
            expected="finite numbers no greater than 0",
            found=f"{values[wrong[0]]} for generated token {wrong[0]}",
            advice="Take the natural logarithm of each probability, and leave out sequences with missing values",
        )
    return _kept(np.minimum(values.astype(np.float64), 0.0))


def _array(given: ArrayLike) -> NDArray[Any]:
    """An array; one of objects for a list that is no table, whose dtype every caller rejects."""
    try:
        return np.asarray(given)
    except ValueError:
        return np.empty(0, dtype=object)


def _kept(values: NDArray[Any]) -> NDArray[Any]:
    """The same array, read-only."""
    values.setflags(write=False)
    return values
