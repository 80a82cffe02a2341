"""Suspects whose embedding and output head were replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import irwm


def without_matrices(source: Path, out: Path) -> Path:
    """The model with random numbers instead of its embedding and output head."""
    shutil.copytree(source, out)
    layout, random = irwm.open_checkpoint(source).layout, torch.Generator().manual_seed(1)
    names = {layout.embedding.name, *([] if layout.head is None else [layout.head.name])}
    for file in out.glob("*.safetensors"):
        tensors = load_file(file)
        for name in names & set(tensors):
            old = tensors[name]
            tensors[name] = (torch.randn(old.shape, generator=random) * old.float().std()).to(old.dtype)
        save_file(tensors, file, metadata={"format": "pt"})
    return out
