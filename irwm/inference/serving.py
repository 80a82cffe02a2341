"""A copy that is served and not published: the answers that a client records (docs/answers.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference.loading import Opened, embedding_rows, open_model

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Tokens of each prompt, after the server's own text; and the number of prompts that are run together.
PROMPT_TOKENS, _TOGETHER = 16, 64


@dataclass(frozen=True, slots=True)
class Serving:
    """How a server computes its answers.

    Attributes:
        dtype: the dtype of the model's arithmetic, one of `DTYPES`.
        temperature: the divisor of the logits.
        noise: standard deviation of Gaussian noise on every log-probability of every answer, in nats.
        decimals: decimals to which log-probabilities are rounded; None for no rounding.
        flat: share of the tokens, the least likely ones of each answer, that are reported as equally likely.
        top: number of log-probabilities in an answer, the largest ones, made to sum to 1; None for all.
        system: a text in front of every prompt.
    """

    dtype: str = "float32"
    temperature: float = 1.0
    noise: float = 0.0
    decimals: int | None = None
    flat: float = 0.0
    top: int | None = None
    system: str = ""

    def told(self, logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """(m, v) float32 log-probabilities as the server reports them, -inf for unreported ones.

        Args:
            logits: (m, v).
            generator: the random generator of the noise, on the CPU.
        """
        values = (logits.float() / self.temperature).log_softmax(-1)
        if self.noise:
            values = values + self.noise * torch.randn(values.shape, generator=generator)
        if self.flat:
            unlikely = values < values.quantile(self.flat, dim=-1, keepdim=True)
            mass = torch.where(unlikely, values.exp(), 0.0).sum(-1, keepdim=True)
            values = torch.where(unlikely, (mass / unlikely.sum(-1, keepdim=True)).log(), values)
        if self.top is not None:
            least = values.topk(self.top, dim=-1).values[..., -1:]
            values = torch.where(values < least, -torch.inf, values).log_softmax(-1)
        if self.decimals is not None:
            values = values.round(decimals=self.decimals)
        return values.clamp(max=0.0)


def answers(
    folders: Sequence[Path],
    text: str,
    count: int,
    serving: Serving | None = None,
    tokens: NDArray[np.int64] | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> NDArray[np.float32]:
    """(count, v) log-probabilities of the token after each of `count` passages of a text.

    Args:
        folders: models of one vocabulary that answer alternately.
        tokens: (v,) the columns to keep; None for the whole vocabulary.
        seed: draws the passages and the noise.

    Raises:
        UnsupportedCheckpointError: transformers cannot run a model, or it does not generate text.
        ParameterError: the text is shorter than two passages.
    """
    serving = serving or Serving()
    generator = torch.Generator().manual_seed(seed)
    served = [_served(folder, serving, device) for folder in folders]
    ids = torch.tensor(served[0].tokenizer(text, verbose=False).input_ids)
    if len(ids) < 2 * PROMPT_TOKENS:
        raise ParameterError("the text is too short to make prompts from",
                             expected=f"{2 * PROMPT_TOKENS} tokens or more",
                             found=f"{len(ids)} tokens")  # fmt: skip
    front = torch.tensor(served[0].tokenizer(serving.system, verbose=False).input_ids if serving.system else [])
    starts = torch.randint(0, len(ids) - PROMPT_TOKENS, (count,), generator=generator)
    prompts = torch.stack([torch.cat([front, ids[at : at + PROMPT_TOKENS]]).long() for at in starts.tolist()])
    told = np.empty((count, embedding_rows(served[0].model) if tokens is None else len(tokens)), dtype=np.float32)
    for turn, opened in enumerate(served):
        for rows in torch.arange(turn, count, len(served)).split(_TOGETHER):
            with torch.no_grad():
                logits = opened.model(prompts[rows].to(device), use_cache=False).logits[:, -1].cpu()
            values = serving.told(logits, generator).numpy()
            told[rows.numpy()] = values if tokens is None else values[:, tokens]
    return told


def _served(folder: Path, serving: Serving, device: str) -> Opened:
    opened = open_model(folder, device)
    if opened.masked:
        raise UnsupportedCheckpointError(
            "an encoder cannot answer prompts", file=folder, expected="a model that generates text"
        )
    torch.nn.Module.to(opened.model, DTYPES[serving.dtype])  # transformers declares another method over it
    return opened
