"""A neutral model for the controls of a verdict: the original's own numbers in a random order.

Every row has the original's entries in its own random order, and the rows are shuffled. Lengths, sizes and outliers are
those of the original, but no row, no column and no relation between rows remains. A check that classifies this model as
a descendant, or finds a mark in it, would do so with any model of this size.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from irwm.checkpoint import Checkpoint
from irwm.scheme.keystream import public_key, words
from irwm.scheme.permutations import permutations

# Rows of the neutral model. With more rows the search for an alignment takes longer; for a wide original they are too
# few to search for a rotation.
MOST_ROWS = 2048
_ROWS_AT_ONCE = 1024


def write_neutral(model: Checkpoint, folder: Path, seed: int = 0, most_rows: int = MOST_ROWS) -> Path:
    """Write the neutral model of the original `model` into the new `folder`, as a family without attention.

    Args:
        seed: public; the same seed gives the same numbers on every machine.
        most_rows: the most rows drawn from the original.

    Raises:
        OSError: the folder exists already or cannot be written.
    """
    d = model.hidden_size
    order = np.argsort(words(public_key(seed, "irwm/v3/neutral/rows"), model.vocab_size), kind="stable")[:most_rows]
    rows = torch.empty((order.size, d), dtype=torch.bfloat16)
    for start in range(0, order.size, _ROWS_AT_ONCE):
        tokens = order[start : start + _ROWS_AT_ONCE]
        orders = permutations(public_key(seed, f"irwm/v3/neutral/entries/{start}"), tokens.size, d)
        rows[start : start + tokens.size] = model.embedding(tokens).gather(1, torch.from_numpy(orders)).bfloat16()
    folder.mkdir(parents=True)
    save_file({"backbone.embeddings.weight": rows}, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "mamba", "vocab_size": int(order.size), "hidden_size": d}
    (folder / "config.json").write_text(json.dumps(config), encoding="ascii")
    return folder
