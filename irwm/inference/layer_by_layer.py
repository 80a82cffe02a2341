"""A model that is larger than the memory: the weights of each layer are read from the disk each time it runs."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def layers_of(model: PreTrainedModel) -> tuple[str, torch.nn.ModuleList]:
    """The name and the list of the layers: of all lists of modules, the one with the most weights."""
    lists = [(name, part) for name, part in model.named_modules() if isinstance(part, torch.nn.ModuleList)]
    return max(lists, key=lambda each: sum(value.numel() for value in each[1].parameters()))


def placement(model: PreTrainedModel) -> dict[str, str]:
    """accelerate's device map for this model, which may be on torch's device "meta": the layers stay on the disk."""
    name, layers = layers_of(model)
    found = {f"{name}.{number}": "disk" for number in range(len(layers))}
    # accelerate places a named module with all its parts, so no module that contains the layers is named.
    while name:
        name, _, own = name.rpartition(".")
        parent = model.get_submodule(name)
        parts = chain(parent.named_children(), parent.named_parameters(recurse=False))
        found |= {f"{name}.{part}".lstrip("."): "cpu" for part, _ in parts if part != own}
    return found


def recompute(model: PreTrainedModel) -> None:
    """Let a backward pass run each layer again, so that between the passes none of its weights is in memory."""
    for layer in layers_of(model)[1]:
        # Without `early_stop`, which ends the second run before accelerate has removed the last weight.
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, early_stop=False)
