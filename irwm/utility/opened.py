"""A model folder opened with transformers, to be run or trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from irwm.errors import UnsupportedCheckpointError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that can be run.

    Attributes:
        model: float32, in evaluation mode; masked or causal.
        tokenizer: the one beside the weights.
        masked: whether it guesses hidden tokens (BERT) instead of the next one.
        dtype: in which the weights are stored.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    masked: bool
    dtype: torch.dtype


def open_model(folder: str | Path, device: str = "cpu") -> Opened:
    """Open a local folder of weights, config and tokenizer; nothing is downloaded and no code in it is run.

    The arithmetic is float32 on the weights as stored: bfloat16 sums would differ from machine to machine.

    Raises:
        UnsupportedCheckpointError: transformers cannot open the model or its tokenizer.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    folder = Path(folder)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        masked = any(name.endswith("ForMaskedLM") for name in config.architectures or ()) or config.model_type == "bert"
        kind = AutoModelForMaskedLM if masked else AutoModelForCausalLM
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UnsupportedCheckpointError(
            "transformers cannot run this model", file=folder, found=str(error)[:300]
        ) from error
    stored = config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32
    return Opened(model.to(device).eval(), tokenizer, masked, stored)
