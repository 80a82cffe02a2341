"""Splitting a text into inputs of a model: the tokens of each input, and the tokens to predict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference.loading import typed

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Tokens of one input, in every figure of this repository; a model with a shorter context gets inputs of its length.
WINDOW = 256
# Readings of a masked model's window; each token is masked in one of them, so a seventh at a time, like BERT's 15%.
PASSAGES = 7
# Tokens are shorter than this many characters, so this much text per token is sufficient.
_CHARACTERS = 100
# exp of larger numbers overflows and counts as infinite.
_LARGEST = 700.0
_DEFAULT = Path(__file__).with_name("heldout.txt")


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """One run of a model.

    Attributes:
        shown: int64 (length,), the input ids.
        at: int64 (m,), the places whose outputs count.
        wanted: int64 (m,), the token to predict at each; empty for an encoder, which predicts none.
        part: passages of one piece of text share a number.
    """

    shown: torch.Tensor
    at: torch.Tensor
    wanted: torch.Tensor
    part: int


def default_text() -> str:
    """The bundled text: prose from Python's documentation that the demo model was not trained on."""
    return _DEFAULT.read_text(encoding="utf-8")


def token_list(tokenizer: PreTrainedTokenizerBase, text: str, tokens: int, masked: bool) -> tuple[list[int], str]:
    """The ids of the text's beginning, at most `tokens`, and that beginning.

    A causal model gets the special tokens that its tokenizer adds around a text; a masked one gets them around each
    window (`passages`).

    Raises:
        ParameterError: fewer than 2 tokens.
    """
    text = text[: tokens * _CHARACTERS]
    with typed(Path(tokenizer.name_or_path), "this model's tokenizer cannot encode the text"):
        written = tokenizer(
            text, verbose=False, add_special_tokens=not masked, return_offsets_mapping=tokenizer.is_fast
        )
    ids = list(written["input_ids"])
    if len(ids) > tokens:
        ids = ids[:tokens]
        # One list of ids is decoded to one text.
        fast = tokenizer.is_fast
        text = text[: written["offset_mapping"][tokens - 1][1]] if fast else cast(str, tokenizer.decode(ids))
    if len(ids) < 2:
        raise ParameterError(
            "the text is too short to measure a model", expected="2 tokens or more", found=f"{len(ids)} tokens"
        )
    return ids, text


def exp_mean(loss: float) -> float:
    """exp of a mean loss in nats; infinite where that overflows or the loss is NaN."""
    return math.exp(loss) if loss < _LARGEST else math.inf


def window_of(model: PreTrainedModel) -> int:
    """Tokens of one input of this model."""
    context = getattr(model.config, "max_position_embeddings", None)
    return min(WINDOW, context) if isinstance(context, int) and context >= 4 else WINDOW


def causal(ids: Sequence[int], window: int) -> list[Passage]:
    """Windows that start with the last token of the previous one: every token but the first is predicted once."""
    found = []
    for part, start in enumerate(range(0, len(ids) - 1, window - 1)):
        chunk = torch.tensor(ids[start : start + window], dtype=torch.int64)
        found.append(Passage(chunk[:-1], torch.arange(len(chunk) - 1), chunk[1:], part))
    return found


def hidden(ids: Sequence[int], window: int, tokenizer: PreTrainedTokenizerBase, seed: int) -> list[Passage]:
    """A masked model's passages: `PASSAGES` of each window, with each token masked in one of them, drawn by `seed`.

    Raises:
        UnsupportedCheckpointError: the tokenizer has no mask token.
    """
    mask = tokenizer.mask_token_id
    if mask is None:
        raise UnsupportedCheckpointError("this masked model's tokenizer has no mask token")
    source = torch.Generator().manual_seed(seed)
    found = []
    for part, (chunk, first) in enumerate(_framed(ids, window, tokenizer)):
        length = len(chunk) - first - (tokenizer.sep_token_id is not None)
        group = torch.randperm(length, generator=source) % PASSAGES
        for turn in range(min(PASSAGES, length)):
            at = (group == turn).nonzero().flatten() + first
            found.append(Passage(chunk.index_fill(0, at, mask), at, chunk[at], part))
    return found


def encoded(ids: Sequence[int], window: int, tokenizer: PreTrainedTokenizerBase) -> list[Passage]:
    """An encoder's passages: each window whole, all of its hidden states wanted."""
    nothing = torch.zeros(0, dtype=torch.int64)
    return [
        Passage(chunk, torch.arange(len(chunk)), nothing, part)
        for part, (chunk, _) in enumerate(_framed(ids, window, tokenizer))
    ]


def _framed(ids: Sequence[int], window: int, tokenizer: Any) -> Iterator[tuple[torch.Tensor, int]]:
    """Windows between the tokens that begin and end a text, and the place of their first own token."""
    before = [] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id]
    after = [] if tokenizer.sep_token_id is None else [tokenizer.sep_token_id]
    size = window - len(before) - len(after)
    for start in range(0, len(ids), size):
        chunk = [*before, *ids[start : start + size], *after]
        yield torch.tensor(chunk, dtype=torch.int64), len(before)
