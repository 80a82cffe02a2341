"""Hidden states of a model, for `reef` and `seedprints`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.score import CannotRun


def opened(folder: Path) -> Any:
    """Open a model in float32.

    Raises:
        CannotRun: transformers cannot load it.
    """
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise CannotRun(f"transformers cannot load it: {error}") from error


@torch.no_grad()
def last_states(model: Any, inputs: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the states of each input's last token after the embedding and after every layer.

    Args:
        inputs: int64 (batch, length) each.

    Returns:
        (layers + 1, all inputs, d) float32; the last layer's have passed the final norm.

    Raises:
        CannotRun: an id that the model does not have.
    """
    parts, rows = [], len(model.get_input_embeddings().weight)
    for ids in inputs:
        if int(ids.max()) >= rows:
            raise CannotRun("the tokenizer has tokens that the model does not have")
        states = model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
        parts.append(torch.stack([each[:, -1] for each in states]))
    return torch.cat(parts, dim=1)
