"""Prompts under which the answers of copies say most about their fingerprints. They depend on the original alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm.answers.random_prompts import Prompts
from irwm.answers.responses import Prompt, prompt_tokens
from irwm.checkpoint import Checkpoint
from irwm.errors import AnswersError, ParameterError, UnsupportedCheckpointError
from irwm.inference.continuations import batches_of_prompts, continuations
from irwm.inference.likelihood import Window, context_of, information, matrix_of
from irwm.inference.loading import open_tokenizer, open_weights
from irwm.inference.text import default_text

# Prompts of the bundled pool: eight for each of the 64 answers that a recording asks for by default.
POOL = 512
# Continuations that a prompt is measured on, and the noises that each is measured with.
CONTINUATIONS, DRAWS = 2, 2

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class ChosenPrompts:
    """Prompts for a suspect, the most informative first.

    Attributes:
        prompts: as they were in the pool.
        information: of each, the Fisher information per generated token about the embedding and, in an untied model,
            the output head, with each row in units of its own deviation: the trace of `irwm.inference.likelihood`.
            A fingerprint of `spread` s in m of d coordinates moves the text by about s^2 m / (2 d) of that in nats.
        usual: the mean of the whole pool.
    """

    prompts: tuple[Prompt, ...]
    information: tuple[float, ...]
    usual: float


def choose_prompts(
    original: Checkpoint,
    budget: int,
    pool: Sequence[Prompt] | None = None,
    tokens: int = 16,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> ChosenPrompts:
    """The prompts of a pool after which generated tokens say most about the fingerprint of a copy.

    The original continues each prompt, and the Fisher information of what it generates is measured. No key has a part
    in that: prompts that depend on a recipient's signs would break the bound of `irwm.trace_answers`. The same
    arguments give the same prompts on the same machine.

    Args:
        original: the unmarked original, a folder that transformers opens. It is run in float32.
        budget: how many prompts are chosen, from 1 to the size of the pool.
        pool: texts or chats' messages, of which equal ones count once; None for 512 short texts from the bundled one.
        tokens: how long answers will be, at least 1. The shorter they are, the more depends on the prompts.
        seed: of the continuations and of the measurement, 0 or more.
        device: where the original is run.
        progress: called with steps done, the total of steps and a description of the step; its exceptions are
            propagated.

    Raises:
        ParameterError: a number out of range, an empty pool, or a prompt that is too long or has no tokens.
        AnswersError: the original's tokenizer has no chat template for messages, or has tokens beyond the embedding.
        UnsupportedCheckpointError: transformers cannot run the original or open its tokenizer, or it does not
            generate text.
        CheckpointError: a file cannot be read.
    """
    texts = _distinct(_bundled() if pool is None else pool)
    for what, value, least, most in (
        ("number of prompts", budget, 1, len(texts)),
        ("number of tokens", tokens, 1, None),
        ("seed", seed, 0, None),
    ):
        if value < least or (most is not None and value > most):
            known = f"at least {least}" if most is None else f"{least} to {most}, the number of different prompts"
            advice = "Provide a larger pool, or ask for fewer prompts" if most is not None else None
            raise ParameterError(f"the {what} is out of range", expected=known, found=str(value), advice=advice)
    encoded = _encoded(texts, original)
    scores = _scores(encoded, original, tokens, seed, device, progress)
    best = np.argsort(-scores, kind="stable")[:budget]
    return ChosenPrompts(tuple(texts[i] for i in best), tuple(float(scores[i]) for i in best), float(scores.mean()))


def _bundled() -> list[Prompt]:
    drawn = Prompts(0, default_text())
    return [drawn.prompt(number) for number in range(POOL)]


def _distinct(pool: Sequence[Prompt]) -> list[Prompt]:
    """The different prompts of a pool, in order."""
    if not pool:
        raise ParameterError("the pool of prompts is empty", expected="at least one prompt", found="none",
                             advice="Leave the pool out to use the bundled one")  # fmt: skip
    return list({repr(each): each for each in pool}.values())


def _encoded(texts: Sequence[Prompt], original: Checkpoint) -> list[NDArray[np.int64]]:
    """The tokens of each prompt, as a server reads them."""
    tokenizer = open_tokenizer(original.path)
    found = []
    for number, text in enumerate(texts):
        own = np.array(prompt_tokens(text, original, tokenizer), dtype=np.int64)
        if not own.size:
            raise ParameterError(
                f"prompt {number} of the pool has no tokens", expected="a text of at least one token",
                found=repr(text)[:80], advice="Remove it from the pool",
            )  # fmt: skip
        if own.max() >= original.vocab_size:
            raise AnswersError(
                f"prompt {number} of the pool contains a token that the original does not have", file=original.path,
                expected=f"token IDs from 0 to {original.vocab_size - 1}", found=str(own.max()),
                advice="Use the tokenizer that belongs to the original",
            )  # fmt: skip
        found.append(own)
    return found


def _scores(
    prompts: Sequence[NDArray[np.int64]], original: Checkpoint, tokens: int, seed: int, device: str,
    progress: Progress | None,
) -> NDArray[np.float64]:  # fmt: skip
    """(n,) mean information of the tokens after each prompt."""
    weights = open_weights(original.path, device)
    if weights.masked:
        raise UnsupportedCheckpointError(
            "an encoder does not generate text", file=original.path, expected="a model that generates text"
        )
    model, shape = weights.model, (original.vocab_size, original.hidden_size)
    heads = (False,) if original.output_head is None else (False, True)
    matrices = [matrix_of(model, head=head, shape=shape) for head in heads]
    _require_room(prompts, tokens, context_of(model))
    repeated = [*prompts] * CONTINUATIONS
    lengths = np.array([len(each) for each in repeated])
    together = batches_of_prompts(lengths, tokens, original.vocab_size)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, 2 * len(together), "Measuring prompts")

    shown: dict[int, NDArray[np.int64]] = {}
    for batch in together:
        found = continuations(model, [repeated[i] for i in batch], tokens, [(seed, i) for i in batch])
        shown.update(zip(batch, found, strict=True))
        step()
    sequences = [shown[i] for i in range(len(repeated))]
    ends = np.array([len(each) for each in sequences])
    parts = [[Window(i, 0, int(ends[i]), int(lengths[i])) for i in batch] for batch in together]
    values = information(model, matrices, sequences, parts, DRAWS, seed, step)
    sums = np.array([each[length:].sum() for each, length in zip(values, lengths, strict=True)])
    turns = (CONTINUATIONS, len(prompts))
    scores: NDArray[np.float64] = sums.reshape(turns).sum(axis=0) / (ends - lengths).reshape(turns).sum(axis=0)
    return scores


def _require_room(prompts: Sequence[NDArray[np.int64]], tokens: int, context: int) -> None:
    """Rejects prompts that leave no room for `tokens` more in the model's context."""
    if tokens >= context:
        raise ParameterError("the number of tokens is out of range", expected=f"at most {context - 1}",
                             found=str(tokens))  # fmt: skip
    for number, each in enumerate(prompts):
        if len(each) > context - tokens:
            raise ParameterError(
                f"prompt {number} of the pool is too long",
                expected=f"at most {context - tokens} tokens, so that {tokens} more fit into the model's context",
                found=f"{len(each)} tokens", advice="Shorten it, or ask for fewer tokens",
            )  # fmt: skip
