"""Fine-tuning a release on a text: all weights, LoRA, or a part of the model (paper, section 5.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from irwm.attacks.training import Schedule, trained
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference.reference import Progress

ALL, LORA, LAYER_0, EMBEDDING = "all", "lora", "layer 0", "embedding"
WHAT = (ALL, LORA, LAYER_0, EMBEDDING)
# Share of tokens that a masked language model has to guess, as in BERT's own training.
_MASKED = 0.15


def finetune(
    model_dir: str | Path,
    out_dir: str | Path,
    text: str,
    steps: int,
    learning_rate: float = 1e-5,
    what: str = ALL,
    lora_rank: int = 16,
    batch: int = 8,
    length: int = 128,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Train the model further with AdamW, in float32, and write it in its own dtype.

    A causal model learns to predict the next token; a masked one (BERT) the 15% of tokens that are masked.

    Args:
        model_dir: a model folder in safetensors that transformers opens, with its tokenizer.
        out_dir: must not exist.
        text: the training text; each step uses `batch` pieces of `length` tokens, drawn by `seed`.
        steps: optimizer steps; the rate falls from `learning_rate` to 0 by a half cosine over them.
        what: "all" weights; "lora": adapters of rank `lora_rank` on every linear layer, merged at the end; "layer 0":
            only the first layer, from which the invariant is computed; "embedding": only the embedding and the output
            head.
        progress: called with steps done, the total of steps and a description of the step.

    Raises:
        ParameterError: a number out of range, another `what`, or a text of fewer than `length` + 1 tokens.
        UnsupportedCheckpointError: another format, a model or tokenizer that transformers cannot open, or LoRA without
            the package peft.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    if what not in WHAT:
        raise ParameterError("unknown part to train", expected=" or ".join(WHAT), found=repr(what))
    if lora_rank < 1:
        raise ParameterError("the LoRA rank must be at least 1", found=str(lora_rank))
    schedule = Schedule(steps, learning_rate, batch, length, seed)
    return trained(model_dir, out_dir, text, _NextToken(what, lora_rank), schedule, device, progress)


def train_only(model: Any, trained_part: str) -> None:
    """Freeze all other weights of a model than those of "layer 0", or of its "embedding" and output head."""
    tables = [model.get_input_embeddings(), model.get_output_embeddings()]
    kept = {id(table.weight) for table in tables if table is not None}
    for name, parameter in model.named_parameters():
        first = ".layers.0." in name or ".layer.0." in name or ".h.0." in name
        parameter.requires_grad_(first if trained_part == LAYER_0 else id(parameter) in kept)


class _NextToken:
    """The objective that the model was first trained with."""

    def __init__(self, what: str, rank: int) -> None:
        self._what, self._rank = what, rank
        self._mask: int | None = None

    def begin(self, model: Any, tokenizer: Any) -> Any:
        self._mask = tokenizer.mask_token_id
        if self._what == LORA:
            try:
                from peft import LoraConfig, get_peft_model
            except ImportError as error:
                raise UnsupportedCheckpointError("LoRA needs the package peft", advice="pip install peft") from error
            adapters = LoraConfig(r=self._rank, lora_alpha=2 * self._rank, target_modules="all-linear")
            return get_peft_model(model, adapters)
        if self._what != ALL:
            train_only(model, self._what)
        return model

    def loss(self, model: Any, ids: torch.Tensor) -> torch.Tensor:
        shown, wanted = (ids, ids) if self._mask is None else _hidden(ids, self._mask)
        loss: torch.Tensor = model(input_ids=shown, labels=wanted).loss
        return loss

    def end(self, model: Any) -> Any:
        return model.merge_and_unload() if self._what == LORA else model


def _hidden(ids: torch.Tensor, mask: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs and the labels of a masked model; torch's loss ignores -100."""
    drawn = torch.rand(ids.shape) < _MASKED
    drawn[:, 0] = True  # at least one in each row: without labels the loss is NaN
    drawn = drawn.to(ids.device)
    return ids.masked_fill(drawn, mask), ids.masked_fill(~drawn, -100)
