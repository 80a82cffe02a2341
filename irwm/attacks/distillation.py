"""Removing what the embedding holds while the model's own predictions are kept: the release teaches its copy.

`push_away` is bilevel removal (Pan et al., arXiv:2308.12319, for weights): it moves embedding and output head as far as
a bound on the divergence of the predictions allows, and all other weights may compensate. `learn_again` replaces a
share of the embedding by random numbers and learns it again from the release's predictions.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch

from irwm.attacks.finetuning import EMBEDDING, train_only
from irwm.attacks.training import Schedule, trained
from irwm.errors import ParameterError
from irwm.inference.reference import Progress

_STEP_NAME = "Distilling"
# The first step of `push_away`, in deviations of a table's rows: without it no direction leads away.
_FIRST_STEP = 0.01
# The cost of a divergence above the bound, in units of the bound.
_PENALTY = 20.0


def push_away(
    model_dir: str | Path,
    out_dir: str | Path,
    text: str,
    bound: float,
    schedule: Schedule,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Move embedding and output head as far away as possible, while the mean Kullback-Leibler divergence of the
    predictions from the release's stays near `bound` nats for each token.

    Args:
        model_dir: a causal model's folder in safetensors that transformers opens, with its tokenizer.
        out_dir: must not exist.

    Raises:
        ParameterError: a bound that is not positive.
        UnsupportedCheckpointError, OutputExistsError, CheckpointError: as `irwm.attacks.training.trained`.
    """
    if not 0.0 < bound < math.inf:
        raise ParameterError("the bound is out of range", expected="above 0", found=str(bound))
    return trained(model_dir, out_dir, text, _Away(bound), schedule, device, progress, _STEP_NAME)


def learn_again(
    model_dir: str | Path,
    out_dir: str | Path,
    text: str,
    share: float,
    schedule: Schedule,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Replace a share of embedding and output head by random rows of the same mean and covariance, and train only these
    tables until the predictions are close to the release's. With a share of 1 nothing of the old rows is left.

    Args:
        model_dir, out_dir: as `push_away`.

    Raises:
        ParameterError: a share outside (0, 1].
        UnsupportedCheckpointError, OutputExistsError, CheckpointError: as `irwm.attacks.training.trained`.
    """
    if not 0.0 < share <= 1.0:
        raise ParameterError("the share is out of range", expected="above 0 and at most 1", found=str(share))
    return trained(model_dir, out_dir, text, _Again(share), schedule, device, progress, _STEP_NAME)


class _Taught:
    """Towards the predictions that the model had before."""

    _teacher: Any

    def begin(self, model: Any, _tokenizer: Any) -> Any:
        self._teacher = copy.deepcopy(model).eval().requires_grad_(False)
        return model

    def divergence(self, model: Any, ids: torch.Tensor) -> torch.Tensor:
        """Mean Kullback-Leibler divergence of the predictions of these tokens (batch, length), in nats."""
        with torch.no_grad():
            wanted = self._teacher(input_ids=ids).logits.log_softmax(-1)
        found = model(input_ids=ids).logits.log_softmax(-1)
        mean: torch.Tensor = (wanted.exp() * (wanted - found)).sum(-1).mean()
        return mean

    def end(self, model: Any) -> Any:
        return model


class _Away(_Taught):
    def __init__(self, bound: float) -> None:
        self._bound = bound

    def begin(self, model: Any, tokenizer: Any) -> Any:
        super().begin(model, tokenizer)
        with torch.no_grad():
            for table in _tables(model):
                table.add_(_FIRST_STEP * table.std() * torch.randn(table.shape).to(table.device))
        return model

    def loss(self, model: Any, ids: torch.Tensor) -> torch.Tensor:
        above = (self.divergence(model, ids) / self._bound - 1).clamp_min(0)
        return _PENALTY * above - self._distance(model).log()

    def _distance(self, model: Any) -> torch.Tensor:
        """The squared change of the tables, in units of their variance."""
        pairs = zip(_tables(model), _tables(self._teacher), strict=True)
        return torch.stack([(table - old).square().mean() / old.var() for table, old in pairs]).mean()


class _Again(_Taught):
    def __init__(self, share: float) -> None:
        self._share = share

    def begin(self, model: Any, tokenizer: Any) -> Any:
        super().begin(model, tokenizer)
        train_only(model, EMBEDDING)
        with torch.no_grad():
            for table in _tables(model):
                table.add_(self._share * (_like(table) - table))
        return model

    def loss(self, model: Any, ids: torch.Tensor) -> torch.Tensor:
        return self.divergence(model, ids)


def _tables(model: Any) -> list[torch.nn.Parameter]:
    """The embedding, and the output head if it is another matrix."""
    inside, outside = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return [inside] if inside is outside else [inside, outside]


def _like(table: torch.Tensor) -> torch.Tensor:
    """Random rows with the mean and the covariance of these rows (s, d)."""
    mean = table.mean(dim=0)
    centred = table - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(table))
    drawn = torch.randn(table.shape).to(table.device) * variances.clamp_min(0).sqrt()
    rows: torch.Tensor = mean + drawn @ directions.T
    return rows
