"""Fine-tuning a release on a text, with all weights, with LoRA or with layer 0 alone (paper, section 5.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from irwm.attacks.rewrite import copy_companions, new_folder, open_safetensors
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference import open_model
from irwm.inference.loading import quiet
from irwm.inference.reference import Progress
from irwm.release.partial import require_absent

ALL, LORA, LAYER_0 = "all", "lora", "layer 0"
WHAT = (ALL, LORA, LAYER_0)
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

    A causal model learns to predict the next token; a masked one (BERT) the 15 % of tokens that are masked.

    Args:
        model_dir: a model folder in safetensors that transformers opens, with its tokenizer.
        out_dir: must not exist.
        text: the training text; each step uses `batch` pieces of `length` tokens, drawn by `seed`.
        steps: optimizer steps; the rate falls from `learning_rate` to 0 by a half cosine over them.
        what: "all" weights; "lora": adapters of rank `lora_rank` on every linear layer, merged at the end; "layer 0":
            only the first layer, from which the invariant is computed.
        progress: called with steps done, the total of steps and a description of the step.

    Raises:
        ParameterError: a number out of range, another `what`, or a text of fewer than `length` + 1 tokens.
        UnsupportedCheckpointError: another format, a model or tokenizer that transformers cannot open, or LoRA without
            the package peft.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    numbers = {"steps": steps, "lora_rank": lora_rank, "batch": batch, "length": length - 1}
    wrong = [name for name, value in numbers.items() if value < 1]
    if wrong or not (math.isfinite(learning_rate) and learning_rate > 0):
        raise ParameterError("fine-tuning needs positive numbers", found=", ".join(wrong) or f"rate {learning_rate}")
    if what not in WHAT:
        raise ParameterError("unknown part to train", expected=" or ".join(WHAT), found=repr(what))
    checkpoint = open_safetensors(model_dir)
    require_absent(Path(out_dir))  # before the work starts
    opened = open_model(checkpoint.path, device)
    tokenizer = opened.tokenizer
    ids = torch.tensor(tokenizer(text, verbose=False, add_special_tokens=False)["input_ids"], dtype=torch.long)
    if len(ids) <= length:
        raise ParameterError("the text is too short", expected=f"over {length} tokens", found=f"{len(ids)} tokens")
    with torch.random.fork_rng():  # fresh adapters and dropout draw from the global state, which is restored
        torch.manual_seed(seed)
        trained = _prepared(opened.model, what, lora_rank).to(device).train()
        _train(trained, _batches(ids, steps, batch, length, seed), tokenizer, steps, learning_rate, progress)
    if what == LORA:
        trained = trained.merge_and_unload()
    with new_folder(out_dir) as out:
        with quiet():
            trained.to("cpu", opened.dtype).save_pretrained(out)
        copy_companions(checkpoint, out, described=True)
    return out


def _prepared(model: Any, what: str, rank: int) -> Any:
    """The model with all other weights frozen."""
    if what == LORA:
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError as error:
            raise UnsupportedCheckpointError("LoRA needs the package peft", advice="pip install peft") from error
        return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
    if what == LAYER_0:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".layers.0." in name or ".layer.0." in name or ".h.0." in name)
    return model


def _batches(ids: torch.Tensor, steps: int, batch: int, length: int, seed: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(ids) - length, (batch,), generator=generator).tolist()
        yield torch.stack([ids[start : start + length] for start in starts])


def _train(
    model: Any, batches: Iterator[torch.Tensor], tokenizer: Any, steps: int, rate: float, progress: Progress | None
) -> None:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for step, ids in enumerate(batches, 1):
        ids = ids.to(model.device)
        shown, wanted = _hidden(ids, tokenizer) if tokenizer.mask_token_id is not None else (ids, ids)
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=shown, labels=wanted).loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        schedule.step()
        if progress:
            progress(step, steps, "Fine-tuning")


def _hidden(ids: torch.Tensor, tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs and the labels of a masked model; torch's loss ignores -100."""
    drawn = torch.rand(ids.shape) < _MASKED
    drawn[:, 0] = True  # at least one in each row: without labels the loss is NaN
    drawn = drawn.to(ids.device)
    return ids.masked_fill(drawn, tokenizer.mask_token_id), ids.masked_fill(~drawn, -100)
