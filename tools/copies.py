"""Recipients' copies of a model, in memory and as folders, without writing unneeded files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks.equivalence import Step
from irwm.release.insertion import marked_rows
from irwm.release.patches import NoisyRows

SECRET = bytes([7]) * 32
# The attacker's disguises of the leaked copy in the browser tests and screenshots.
DISGUISES: list[Step] = ["rotate", "regain", "map_qk", "reorder_heads", ("reorder_tokens", {"tokenizer": "drop"})]


def keys_for(
    model: irwm.Checkpoint, names: Sequence[str], params: irwm.Parameters | None = None, secret: bytes = SECRET
) -> list[irwm.Key]:
    """Make keys with `generate_key`, one per recipient."""
    params = params or irwm.many_recipients(model.hidden_size)
    return [irwm.generate_key(model, params, secret=secret, owner="Owner", recipient=name) for name in names]


def other_names(key: irwm.Key, names: Sequence[str]) -> list[irwm.Key]:
    """Return the same key under other names, which is enough for tracing and costs nothing."""
    return [replace(key, recipient=name) for name in names]


def copy_of(model: irwm.Checkpoint, key: irwm.Key) -> torch.Tensor:
    """Return (s, d) the recipient's embedding in the model's dtype, exactly as `irwm.insert` writes it."""
    choices = key.choices()
    rows = marked_rows(model, key, choices)
    noisy = NoisyRows(model, key.noise(model, choices), choices.marked_rows, rows)
    return written_rows(noisy, 0, model.vocab_size, rows)


def written_rows(noisy: NoisyRows, first: int, last: int, like: torch.Tensor) -> torch.Tensor:
    """(n, d) the rows from `first` up to `last` that `noisy` writes, with the width and dtype of `like` (l, d)."""
    width = like.shape[1] * like.dtype.itemsize
    content = bytearray((last - first) * width)
    noisy.write(like.dtype, first * width, memoryview(content))
    return torch.frombuffer(content, dtype=like.dtype).view(last - first, -1)


def write_embedding(model: irwm.Checkpoint, embedding: torch.Tensor, folder: Path) -> irwm.Checkpoint:
    """Write a folder with the model's other tensors and this embedding, and open it."""
    folder.mkdir()
    for shard in model.shards:
        tensors = load_file(shard)
        name = model.layout.embedding.name
        if name in tensors:
            tensors[name] = embedding.to(tensors[name].dtype).contiguous()
        save_file(tensors, folder / shard.name, metadata={"format": "pt"})
    (folder / "config.json").write_bytes((model.path / "config.json").read_bytes())
    return irwm.open_checkpoint(folder)


def with_noise(embedding: torch.Tensor, share: float, seed: int = 0) -> torch.Tensor:
    """Add white noise of `share` deviations."""
    generator = torch.Generator().manual_seed(seed)
    values = embedding.float()
    return values + share * values.std() * torch.randn(values.shape, generator=generator)


def z_of(traces: Sequence[irwm.Trace]) -> np.ndarray:
    return np.array([trace.z for trace in traces])
