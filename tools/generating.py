"""Copies that answer prompts: sampled tokens and the probabilities that the copy gave them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import irwm
from irwm.inference.loading import open_tokenizer, open_weights
from irwm.inference.text import default_text

PROMPT = 8


def prompts(original: Path, count: int, seed: int = 0) -> torch.Tensor:
    """(count, PROMPT) passages of the bundled text."""
    ids = torch.tensor(open_tokenizer(original)(default_text(), verbose=False).input_ids)
    starts = torch.randint(0, len(ids) - PROMPT, (count,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([ids[at : at + PROMPT] for at in starts.tolist()])


@torch.no_grad()
def served(
    copy: Path,
    asked: torch.Tensor,
    tokens: int,
    seed: int = 0,
    noise: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
) -> irwm.Answers:
    """What a copy adds to prompts (n, m), with the log-probability of each of `tokens` tokens.

    Args:
        noise: white noise on each matrix of the served weights, in units of its deviation.
        temperature: of the tokens and of the log-probabilities.
        top_p, top_k: the likeliest tokens that are drawn from; their log-probabilities are those among all tokens, as
            vLLM reports them. `top_k` of 1 is greedy decoding, 0 all tokens.
    """
    model, generator = open_weights(copy).model, torch.Generator().manual_seed(seed)
    for value in model.parameters() if noise else ():
        if value.dim() == 2:
            value.add_(noise * value.std() * torch.randn(value.shape, generator=generator))
    shown, known, told = asked, None, []
    for _ in range(tokens):
        found = model(shown if known is None else shown[:, -1:], past_key_values=known, use_cache=True)
        known, values = found.past_key_values, (found.logits[:, -1] / temperature).log_softmax(-1)
        drawn = torch.multinomial(_likeliest(values.exp(), top_p, top_k), 1, generator=generator)
        told.append(values.gather(1, drawn))
        shown = torch.cat([shown, drawn], 1)
    logarithms = np.minimum(torch.cat(told, 1).double().numpy(), 0.0)
    return irwm.Answers(list(shown.numpy()), [asked.shape[1]] * len(asked), list(logarithms))


def _likeliest(probabilities: torch.Tensor, top_p: float, top_k: int) -> torch.Tensor:
    """The same (n, v), with 0 for tokens that are not drawn from."""
    if top_p >= 1.0 and not top_k:
        return probabilities
    ordered, tokens = probabilities.sort(dim=1, descending=True)
    before = ordered.cumsum(1) - ordered
    kept = before < top_p
    if top_k:
        kept[:, top_k:] = False
    return torch.zeros_like(probabilities).scatter_(1, tokens, ordered * kept)


def text_of(answers: irwm.Answers) -> irwm.Answers:
    """The same without log-probabilities."""
    return irwm.Answers(answers.sequences, answers.prompt_lengths)
