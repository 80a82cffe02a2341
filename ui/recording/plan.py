"""The plan of a recording: its requests and how many it takes. This module sends nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm.answers.random_prompts import LONGEST, Prompts
from irwm.checkpoint import Checkpoint
from irwm.report.numbers import number
from ui.recording.common_scale import parts_of
from ui.recording.dialects import APIS, OPENAI, address
from ui.recording.errors import RecordingError
from ui.recording.journal import Journal
from ui.recording.sending import Pace, checked_url, host_of

# Numbers of log-probabilities to try until the server accepts one: the whole vocabulary, else the usual limits.
TOPS = (1000, 100, 20, 5)
MOST_ANSWERS = 1_000_000
# An answer with at least this share of the tokens counts as complete: the probabilities of some tokens may
# be too small for the server's numbers.
NEARLY_ALL = 0.99
# The first tokens of a prompt follow too little text: many prompts begin alike.
FIRST_PLACES = 3
# Size of an answer with all of a large vocabulary and the bytes of each token.
_BYTES_PER_TOKEN, _MOST_RESPONSE = 512, 256 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A recording before it begins.

    Attributes:
        url: the server's address.
        model: its name there.
        api: one of `dialects.APIS`.
        original: the unmarked original.
        answers: n, how many answers are wanted.
        tokens: (v,) the chosen tokens, the first of them the reference; None for the whole vocabulary.
        prompts: the prompts.
        top: how many log-probabilities are requested; None to try.
        inside: take an answer at every token of a prompt, not only after it.
        pace: the rate and the time limits.
    """

    url: str
    model: str
    api: str
    original: Checkpoint
    answers: int
    tokens: NDArray[np.int64] | None
    prompts: Prompts
    top: int | None
    inside: bool
    pace: Pace

    @property
    def wanted(self) -> NDArray[np.int64]:
        """(v,) the tokens of the columns."""
        return np.arange(self.original.vocab_size) if self.tokens is None else self.tokens

    @property
    def tops(self) -> tuple[int, ...]:
        """The numbers of log-probabilities to try, in this order."""
        if self.top is not None:
            return (self.top,)
        size = self.original.vocab_size
        return (size, *(top for top in TOPS if top < size))

    @property
    def most_bytes(self) -> int:
        """Largest size of an answer."""
        places = LONGEST if self.inside else 1
        return min((1 << 20) + _BYTES_PER_TOKEN * self.original.vocab_size * places, _MOST_RESPONSE)

    @property
    def settings(self) -> dict[str, object]:
        """The settings that must stay the same when a recording is resumed."""
        return {
            "endpoint": self.url,
            "model": self.model,
            "api": self.api,
            "original": self.original.fingerprint,
            "vocabulary": self.original.vocab_size,
            "choice_of_tokens": hashlib.sha256(self.wanted.astype("<i8").tobytes()).hexdigest(),
            "seed": self.prompts.seed,
            "top": self.top,
            "inside": self.inside,
        }

    def requests(self, told: int | None) -> int:
        """How many requests are needed in all, if the server gives this many tokens at a time; None for all."""
        if told is None or told >= len(self.wanted):
            return self.answers
        return self.answers * len(parts_of(len(self.wanted), told))

    def kept(self, journal: Journal) -> int:
        """How many complete answers a journal holds."""
        server = journal.server
        if server is None or server.whole:
            return journal.rows
        return len(journal.complete(len(parts_of(len(self.wanted), server.told))))

    def document(self, kept: int) -> dict[str, object]:
        """The plan as JSON values.

        Args:
            kept: answers that an earlier run recorded already.
        """
        return {
            "host": host_of(self.url),
            "url": self.url,
            "model": self.model,
            "answers": self.answers,
            "answers_kept": kept,
            "tokens": len(self.wanted),
            "prompt_seed": self.prompts.seed,
            "prompt_characters": LONGEST,
            "requests": self.requests(None),
            "requests_if_told": {str(top): count for top, count in self._if_told.items()},
            "requests_a_second": self.pace.rate,
            "sent": self.sent,
        }

    @property
    def _if_told(self) -> dict[int, int]:
        """How many requests are needed if the server gives fewer tokens at a time than all, by that number."""
        if self.top is None:
            return {top: self.requests(top) for top in self.tops[1:]}
        return {self.top: self.requests(self.top)} if self.top < len(self.wanted) else {}

    @property
    def sent(self) -> str:
        """The data that leaves the machine, in one sentence."""
        return (
            f"It sends the model's name and short prompts in English (at most {LONGEST} characters each). If it asks "
            "for a few tokens at a time, it also sends their IDs. It never sends keys or weights."
        )

    def words(self, kept: int) -> str:
        """The plan as text for the user."""
        told = [
            f"{number(count)} if the server returns {number(most)} at a time" for most, count in self._if_told.items()
        ]
        if self.top is None or self.top >= len(self.wanted):
            every = f"all {number(len(self.wanted))} tokens"
            told.insert(0, f"{number(self.requests(None))} if the server returns {every} at once")
        fewer = ", or fewer, because each prompt yields several answers" if self.inside else ""
        there = f"; already recorded: {number(kept)}" if kept else ""
        return (
            f"This command asks {host_of(self.url)} for {number(self.answers)} answers{there}. Number of requests: "
            f"{', '.join(told)}{fewer}; at most {self.pace.rate:g} per second. {self.sent}"
        )


def plan(
    original: Checkpoint, *, endpoint: str, model: str, api: str = OPENAI, answers: int | None = None,
    tokens: NDArray[np.int64] | None = None, text: str, seed: int = 0, top: int | None = None, inside: bool = False,
    pace: Pace | None = None,
) -> Plan:  # fmt: skip
    """A checked plan.

    Args:
        original: the unmarked original that the served model is compared with later.
        endpoint: the server's address as typed by a user.
        answers: None for one and a half times the original's width.
        tokens: (v,) chosen tokens, None for the whole vocabulary.
        text: prose from which prompts are made.

    Raises:
        RecordingError: a value cannot be used.
    """
    url = checked_server(endpoint, model, api, APIS)
    width = original.hidden_size
    wanted = -(-3 * width // 2) if answers is None else answers
    if not width < wanted <= MOST_ANSWERS:
        useful = f"more than {width} (the original's width) and at most {MOST_ANSWERS}"
        raise RecordingError(
            "the number of answers is out of range", expected=useful,
            found=str(wanted), advice="One and a half times the width is a good choice",
        )  # fmt: skip
    if tokens is not None and not 2 * width <= tokens.size:
        raise RecordingError(
            "there are too few tokens", expected=f"at least {2 * width}, preferably {4 * width}", found=str(tokens.size)
        )
    if top is not None and not 2 <= top <= original.vocab_size:
        raise RecordingError(
            "the number of log-probabilities is out of range", expected=f"2 to {original.vocab_size}", found=str(top)
        )
    prompts = checked_prompts(seed, text)
    if inside and api != OPENAI:
        raise RecordingError(
            "this API returns log-probabilities only for tokens after the prompt", advice="Leave out --inside"
        )
    return Plan(
        url=url, model=model, api=api, original=original, answers=wanted, tokens=tokens,
        prompts=prompts, top=top, inside=inside, pace=pace or Pace(),
    )  # fmt: skip


def checked_server(endpoint: str, model: str, api: str, known: tuple[str, ...]) -> str:
    """The address for the requests.

    Raises:
        RecordingError: the endpoint, the model's name or the type of API cannot be used.
    """
    if api not in known:
        raise RecordingError("this API is not supported", expected=" or ".join(known), found=api)
    url = address(api, checked_url(endpoint))
    if not model or not model.isprintable() or len(model) > 500:
        raise RecordingError("this is not a model name", found=model)
    return url


def checked_prompts(seed: int, text: str) -> Prompts:
    """The prompts of a seed.

    Raises:
        RecordingError: the seed cannot be used.
    """
    if not 0 <= seed < 2**63:
        raise RecordingError("the seed is out of range", expected="0 to 2^63 - 1", found=str(seed))
    return Prompts(seed, text)
