"""Fits a model to answers of another one: a soft prompt, or its weights except the embedding and the output head."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.errors import ParameterError
from irwm.inference.likelihood import Step, Window, batches, predict
from irwm.inference.loading import embedding_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SOFT_PROMPT, WEIGHTS = "soft prompt", "weights"
# Models with at most this many weights outside of the embedding and the output head are fitted as a whole. In larger
# ones each linear layer gets a correction of low rank, because an optimizer keeps three more copies of what it fits.
MOST_WEIGHTS = 50_000_000
# Differences of log-probabilities beyond this many nats count by their size, smaller ones by their square: a server may
# report absurd numbers.
HUBER = 1.0
# One window in this many is held out. The fit is checked on them `CHECKS` times, and ends after `PATIENCE` checks in
# a row without an improvement.
HELD_OUT, CHECKS, PATIENCE = 8, 10, 3
# Learning rate of the logarithm of the temperature.
TEMPERATURE_RATE = 0.01


@dataclass(frozen=True, slots=True)
class Fits:
    """Which fits are tried, how long, and how fast.

    Attributes:
        kinds: `SOFT_PROMPT` (for an unknown context), `WEIGHTS` (for a fine-tuned or quantised model), or both, in this
            order.
        steps: of Adam, at most; the rates fall to 0 by a half cosine over them.
        tokens: predicted tokens of each step, at least.
        prompt: vectors of a soft prompt.
        prompt_rate: its learning rate, in units of the embedding's deviation.
        weights_rate, rank_rate: learning rates of weights, and of corrections of low rank.
        rank: of these corrections.
        seed: of every draw.

    Raises:
        ParameterError: an unknown kind, or a number that is not positive.
    """

    kinds: tuple[str, ...] = (SOFT_PROMPT, WEIGHTS)
    steps: int = 300
    tokens: int = 1024
    prompt: int = 40
    prompt_rate: float = 0.05
    weights_rate: float = 3e-4
    rank_rate: float = 1e-3
    rank: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.kinds or [each for each in (SOFT_PROMPT, WEIGHTS) if each in self.kinds] != list(self.kinds):
            expected = f"{SOFT_PROMPT!r}, {WEIGHTS!r}, or both in this order"
            raise ParameterError("unknown fits", expected=expected, found=repr(self.kinds))
        for name in ("steps", "tokens", "prompt", "prompt_rate", "weights_rate", "rank_rate", "rank"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name} of a fit must be positive", found=str(getattr(self, name)))


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What a model is fitted to.

    Attributes:
        sequences: (n,) int64 token ids each.
        parts: the windows that predict them, at least 2.
        told: of each sequence (n,) the log-probabilities that are to be explained, or None for its likelihood alone.
        temperature: that of these log-probabilities, where the fit starts. The fit adjusts it.
    """

    sequences: Sequence[NDArray[np.int64]]
    parts: Sequence[Window]
    told: Sequence[NDArray[np.float64]] | None
    temperature: float


@contextmanager
def fitted(
    model: PreTrainedModel, kind: str, observed: Observed, fits: Fits, step: Step
) -> Iterator[torch.Tensor | None]:
    """The model, fitted inside the context and restored after it; the value is the soft prompt (m, d), if there is one.

    Embedding and output head never change. What explains the held-out windows best is used, which may be the model as
    it was.

    Args:
        kind: `SOFT_PROMPT` or `WEIGHTS`.
        step: called after each step of the optimizer; its exceptions are propagated.

    Raises:
        UnsupportedCheckpointError: transformers cannot run the model on these tokens.
    """
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(fits.seed)
    if kind == SOFT_PROMPT:
        prompt = _SoftPrompt.of(model, fits.prompt, generator)
        improved = _optimise(model, [prompt.change], fits.prompt_rate, observed, fits, generator, step, prompt)
        yield prompt().detach() if improved else None
        return
    body = _body(model)
    # Weights of a model that is run layer by layer are on the disk, and cannot be changed.
    whole = sum(each.numel() for each in body) <= MOST_WEIGHTS and not any(each.is_meta for each in body)
    kept = [each.clone() for each in body] if whole else []
    added, handles = ([], []) if whole else _low_rank(model, fits.rank, generator)
    parameters, rate = (body, fits.weights_rate) if whole else (added, fits.rank_rate)
    try:
        _optimise(model, parameters, rate, observed, fits, generator, step, lambda: None)
        yield None
    finally:
        for handle in handles:
            handle.remove()
        if whole:
            _set(body, kept)


def _body(model: PreTrainedModel) -> list[torch.Tensor]:
    """All parameters except those of the embedding and the output head."""
    layers = (model.get_input_embeddings(), model.get_output_embeddings())
    fixed = {id(each) for layer in layers if layer is not None for each in layer.parameters()}
    return [each for each in model.parameters() if id(each) not in fixed]


@dataclass(frozen=True, slots=True, eq=False)
class _SoftPrompt:
    """Embeddings (m, d) of random tokens, and their change in units of the deviation of the embeddings."""

    start: torch.Tensor
    unit: torch.Tensor
    change: torch.Tensor

    @classmethod
    def of(cls, model: PreTrainedModel, count: int, generator: torch.Generator) -> _SoftPrompt:
        tokens = torch.randint(embedding_rows(model), (count,), generator=generator)
        start = model.get_input_embeddings()(tokens.to(model.device)).detach()
        return cls(start, start.std(), torch.zeros_like(start))

    def __call__(self) -> torch.Tensor:
        return self.start + self.unit * self.change


def _low_rank(
    model: PreTrainedModel, rank: int, generator: torch.Generator
) -> tuple[list[torch.Tensor], list[torch.utils.hooks.RemovableHandle]]:
    """Corrections of the linear layers' outputs, zero at first, and the hooks that add them."""
    body = {id(each) for each in _body(model)}
    added, handles = [], []
    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        transposed = type(layer).__name__ == "Conv1D"  # GPT-2's linear layer
        if weight is None or id(weight) not in body or not (isinstance(layer, torch.nn.Linear) or transposed):
            continue
        outputs, inputs = reversed(weight.shape) if transposed else weight.shape
        # The weight itself may be on the disk.
        down = torch.randn(rank, inputs, generator=generator).div_(math.sqrt(inputs)).to(model.device)
        up = torch.zeros(outputs, rank, device=model.device)
        handles.append(layer.register_forward_hook(_Correction(down, up)))
        added += [down, up]
    return added, handles


@dataclass(frozen=True, slots=True, eq=False)
class _Correction:
    """A hook that adds the product of two matrices (r, n) and (m, r) to a linear layer."""

    down: torch.Tensor
    up: torch.Tensor

    def __call__(self, _layer: torch.nn.Module, given: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        return output + given[0] @ self.down.T @ self.up.T


def _optimise(
    model: PreTrainedModel,
    parameters: Sequence[torch.Tensor],
    rate: float,
    observed: Observed,
    fits: Fits,
    generator: torch.Generator,
    step: Step,
    prompt: Callable[[], torch.Tensor | None],
) -> bool:
    """Give the parameters the values, of all checked ones, that explain the held-out windows best.

    Returns:
        Whether they explain them better than the model itself.
    """
    order = [observed.parts[i] for i in torch.randperm(len(observed.parts), generator=generator).tolist()]
    held = order[: max(1, len(order) // HELD_OUT)]
    draws = _drawn(order[len(held) :], fits.tokens, generator)
    log_temperature = torch.tensor(math.log(observed.temperature), device=model.device)
    best, kept, worse = _loss(model, observed, held, log_temperature, None), None, 0
    for each in [*parameters, log_temperature]:
        each.requires_grad_(True)
    optimizer = torch.optim.Adam(parameters, lr=rate)
    optimizer.add_param_group({"params": [log_temperature], "lr": TEMPERATURE_RATE})
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=fits.steps)
    start = [each.detach().clone() for each in parameters]
    for number in range(1, fits.steps + 1):
        optimizer.zero_grad(set_to_none=True)
        _loss(model, observed, next(draws), log_temperature, prompt, learn=True)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        step()
        if number % max(1, fits.steps // CHECKS) == 0 or number == fits.steps:
            now = _loss(model, observed, held, log_temperature, prompt)
            if now < best:
                best, kept, worse = now, [each.detach().clone() for each in parameters], 0
            elif (worse := worse + 1) == PATIENCE:
                break
    _set(parameters, start if kept is None else kept)
    for each in parameters:
        each.requires_grad_(False)
    return kept is not None


def _drawn(parts: Sequence[Window], tokens: int, generator: torch.Generator) -> Iterator[list[Window]]:
    """All windows in random order, again and again, in groups that predict at least `tokens` tokens."""
    group: list[Window] = []
    while True:
        for i in torch.randperm(len(parts), generator=generator).tolist():
            group.append(parts[i])
            if sum(part.stop - part.first for part in group) >= tokens:
                yield group
                group = []


def _loss(
    model: PreTrainedModel,
    observed: Observed,
    parts: Sequence[Window],
    log_temperature: torch.Tensor,
    prompt: Callable[[], torch.Tensor | None] | None,
    *,
    learn: bool = False,
) -> float:
    """Mean over the predicted tokens of some windows; adds its gradients to those of all variables if `learn`."""
    total, count = 0.0, sum(part.stop - part.first for part in parts)
    for batch in batches(parts, embedding_rows(model)):
        with torch.set_grad_enabled(learn):
            values = predict(model, observed.sequences, batch, prompt and prompt()).at(log_temperature.exp())
            if observed.told is None:
                loss = -values.sum() / count
            else:
                told = np.concatenate([observed.told[part.sequence][part.first : part.stop] for part in batch])
                wanted = torch.from_numpy(told).to(values)
                loss = torch.nn.functional.huber_loss(values, wanted, reduction="sum", delta=HUBER) / count
        if learn:
            loss.backward()
        total += loss.item()
    return total


@torch.no_grad()
def _set(parameters: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
