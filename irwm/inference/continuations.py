"""Continuations of prompts, sampled from a model at temperature 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.inference.loading import typed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Logits of one batch: 128 MB of float32.
_LOGITS_AT_ONCE = 1 << 25


def batches_of_prompts(lengths: Sequence[int] | NDArray[np.int64], tokens: int, vocabulary: int) -> list[list[int]]:
    """Numbers of prompts of one length together, so that no batch needs padding.

    Args:
        lengths: tokens of each prompt.
        tokens: how many follow each.
        vocabulary: of which tokens there are logits.
    """
    found: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda each: (lengths[each], each)):
        most = max(1, _LOGITS_AT_ONCE // (vocabulary * (int(lengths[number]) + tokens)))
        if not found or lengths[found[-1][0]] != lengths[number] or len(found[-1]) == most:
            found.append([])
        found[-1].append(number)
    return found


@torch.no_grad()
def continuations(
    model: PreTrainedModel, prompts: Sequence[NDArray[np.int64]], tokens: int, seeds: Sequence[Sequence[int]]
) -> list[NDArray[np.int64]]:
    """Each prompt with up to `tokens` sampled tokens after it, (n + at most tokens,) int64.

    A continuation ends early with a token that ends the model's text.

    Args:
        prompts: (n,) int64 each, all of one length.
        tokens: at least 1.
        seeds: of each prompt, the numbers from which its tokens are drawn: they do not depend on the other prompts.

    Raises:
        UnsupportedCheckpointError: transformers cannot run the model on these tokens.
    """
    drawn = np.stack([np.random.default_rng(each).random(tokens) for each in seeds])
    at = torch.from_numpy(drawn).to(model.device)
    shown, known = torch.from_numpy(np.stack(prompts)).to(model.device), None
    with typed(Path(getattr(model, "name_or_path", "")), "this model cannot generate text"):
        for step in range(tokens):
            given = shown if known is None else shown[:, -1:]
            output = model(input_ids=given, past_key_values=known, use_cache=True)
            known = output.past_key_values
            below = output.logits[:, -1].float().softmax(-1).double().cumsum(-1)
            chosen = torch.searchsorted(below, at[:, step : step + 1] * below[:, -1:])
            shown = torch.cat([shown, chosen.clamp(max=below.shape[1] - 1)], dim=1)
    ends = _ends(model)
    return [_ended(each, len(prompts[0]), ends) for each in shown.cpu().numpy()]


def _ends(model: PreTrainedModel) -> list[int]:
    """The tokens that end the model's text."""
    settings = getattr(model, "generation_config", None) or model.config
    found = getattr(settings, "eos_token_id", None)
    return [] if found is None else [found] if isinstance(found, int) else list(found)


def _ended(sequence: NDArray[np.int64], start: int, ends: Sequence[int]) -> NDArray[np.int64]:
    """The sequence up to the first token after `start` that ends a text."""
    at = np.flatnonzero(np.isin(sequence[start:], ends))
    return sequence[: start + at[0] + 1] if at.size else sequence
