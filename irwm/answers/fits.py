"""Halves of the answers: the original is fitted to one and scores the other, without any key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from irwm.answers.answers import Answers
from irwm.errors import AnswersError, ParameterError
from irwm.inference.fitting import SOFT_PROMPT, WEIGHTS, Fits, Observed
from irwm.inference.likelihood import Step, Window, batches, windows

Progress = Callable[[int, int, str], None]

# Descriptions of steps.
RUNNING = "Running the original on the answers"
FITTING = {
    SOFT_PROMPT: "Fitting a soft prompt to the answers",
    WEIGHTS: "Fitting the original's weights to the answers",
}
# z is also computed from these shares of the tokens.
POINTS = (1 / 8, 1 / 4, 1 / 2, 1.0)
# Two for each half: one to fit to, one held out.
LEAST_ANSWERS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some of the answers, as inputs of the original.

    Attributes:
        answers: those of this part.
        windows: the inputs.
        groups: the same in groups that together are the first shares `POINTS` of the tokens, each in batches, in the
            order in which they are run.
    """

    answers: Answers
    windows: list[Window]
    groups: list[list[list[Window]]]

    @classmethod
    def of(cls, answers: Answers, context: int, vocabulary: int) -> Part:
        """Inputs of at most `context` tokens."""
        parts = windows([len(each) for each in answers.sequences], answers.firsts, context)
        ends = np.cumsum([part.stop - part.first for part in parts])
        edges = np.unique([0, *np.searchsorted(ends, np.multiply(POINTS, ends[-1])) + 1]).tolist()
        groups = [parts[start:stop] for start, stop in pairwise(edges)]
        return cls(answers, parts, [batches(group, vocabulary) for group in groups])

    @property
    def batches(self) -> list[list[Window]]:
        """All batches."""
        return [batch for group in self.groups for batch in group]

    @property
    def steps(self) -> int:
        """Steps of scoring it: each batch is run twice."""
        return 2 * len(self.batches)


class Steps:
    """Counts the steps of all stages for a progress callback. A stage that ends early is skipped to its end."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._planned = progress, total, 0

    def stage(self, steps: int, what: str) -> Step:
        """Return what to call after each step of the next stage."""
        done = self._planned
        self._planned += steps

        def step() -> None:
            nonlocal done
            done += 1
            if self._progress:
                self._progress(done, self._total, what)

        return step


def halves_of(answers: Answers, fits: Fits, context: int, vocabulary: int) -> tuple[Part, Part]:
    """Two random halves of the answers; inputs leave room for the soft prompt.

    Raises:
        AnswersError: fewer than `LEAST_ANSWERS` answers.
        ParameterError: a soft prompt of more than half of the context.
    """
    if len(answers.sequences) < LEAST_ANSWERS:
        raise AnswersError(
            "there are too few answers for a fit", expected=f"at least {LEAST_ANSWERS} sequences",
            found=str(len(answers.sequences)), advice="Provide more answers, or trace without fits",
        )  # fmt: skip
    vectors = fits.prompt if SOFT_PROMPT in fits.kinds else 0
    if vectors > context // 2:
        raise ParameterError(
            "the soft prompt is too long for this original",
            expected=f"at most {context // 2} vectors",
            found=str(vectors),
        )
    order = np.random.default_rng(fits.seed).permutation(len(answers.sequences))
    first, second = (Part.of(_some(answers, each), context - vectors, vocabulary) for each in (order[::2], order[1::2]))
    return first, second


def _some(answers: Answers, numbers: np.ndarray) -> Answers:
    """Those of these numbers."""
    given = answers.log_probabilities
    return Answers(
        [answers.sequences[i] for i in numbers],
        [answers.prompt_lengths[i] for i in numbers],
        None if given is None else [given[i] for i in numbers],
    )


def observed_of(part: Part, temperature: float) -> Observed:
    """What the original is fitted to: the log-probabilities of a part of the answers or, without any, their text."""
    answers, given = part.answers, part.answers.log_probabilities
    told = None
    if given is not None:
        told = [np.pad(each, (n, 0)) for each, n in zip(given, answers.prompt_lengths, strict=True)]
    return Observed(answers.sequences, part.windows, told, temperature)
