"""Training a model folder further, in float32: the loop that fine-tuning and distillation share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from irwm.attacks.rewrite import copy_companions, new_folder, open_safetensors
from irwm.errors import ParameterError
from irwm.inference import open_model
from irwm.inference.loading import quiet
from irwm.inference.reference import Progress
from irwm.release.partial import require_absent


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long, on which pieces of the text, and how fast.

    Attributes:
        steps: optimizer steps of AdamW; the rate falls from `learning_rate` to 0 by a half cosine over them.
        batch, length: each step uses this many pieces of this many tokens.
        seed: seed of every draw.

    Raises:
        ParameterError: a number that is not positive.
    """

    steps: int
    learning_rate: float
    batch: int = 8
    length: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = {"steps": self.steps, "batch": self.batch, "length": self.length - 1}
        wrong = [name for name, value in numbers.items() if value < 1]
        if wrong or not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            found = ", ".join(wrong) or f"rate {self.learning_rate}"
            raise ParameterError(
                "the learning rate, the number of steps and the batch size must be positive, and the length at least 2",
                found=found,
            )


class Objective(Protocol):
    """The trained weights and their loss. Models and tokenizers are those of transformers."""

    def begin(self, model: Any, tokenizer: Any) -> Any:
        """The model to train, with all other weights frozen."""

    def loss(self, model: Any, ids: torch.Tensor) -> torch.Tensor:
        """The loss on these pieces of text (batch, length)."""

    def end(self, model: Any) -> Any:
        """The model to write."""


def trained(
    model_dir: str | Path,
    out_dir: str | Path,
    text: str,
    objective: Objective,
    schedule: Schedule,
    device: str = "cpu",
    progress: Progress | None = None,
    step_name: str = "Fine-tuning",
) -> Path:
    """Train the model in float32 and write it in its own dtype.

    Raises:
        ParameterError: a text of fewer than `length` + 1 tokens.
        UnsupportedCheckpointError: another format, or a model or tokenizer that transformers cannot open.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    checkpoint = open_safetensors(model_dir)
    require_absent(Path(out_dir))  # before the work starts
    opened = open_model(checkpoint.path, device)
    ids = torch.tensor(opened.tokenizer(text, verbose=False, add_special_tokens=False)["input_ids"], dtype=torch.long)
    if len(ids) <= schedule.length:
        expected = f"more than {schedule.length} tokens"
        raise ParameterError("the text is too short", expected=expected, found=f"{len(ids)} tokens")
    with torch.random.fork_rng():  # fresh weights and dropout draw from the global state, which is restored
        torch.manual_seed(schedule.seed)
        model = objective.begin(opened.model, opened.tokenizer).to(device).train()
        _train(model, ids, objective, schedule, progress, step_name)
    model = objective.end(model)
    with new_folder(out_dir) as out:
        with quiet():
            model.to("cpu", opened.dtype).save_pretrained(out)
        copy_companions(checkpoint, out, described=True)
    return out


def _train(
    model: Any, ids: torch.Tensor, objective: Objective, schedule: Schedule, progress: Progress | None, name: str
) -> None:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=schedule.learning_rate)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=schedule.steps)
    for step, pieces in enumerate(_pieces(ids, schedule), 1):
        optimizer.zero_grad(set_to_none=True)
        objective.loss(model, pieces.to(model.device)).backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        rates.step()
        if progress:
            progress(step, schedule.steps, name)


def _pieces(ids: torch.Tensor, schedule: Schedule) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(schedule.seed)
    for _ in range(schedule.steps):
        starts = torch.randint(len(ids) - schedule.length, (schedule.batch,), generator=generator).tolist()
        yield torch.stack([ids[start : start + schedule.length] for start in starts])
