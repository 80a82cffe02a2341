"""Dropping transformer layers ("depth pruning", Men et al., arXiv:2403.03853): a smaller model without them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from irwm.attacks.rewrite import copy_companions, new_folder, open_safetensors
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.layout import CONFIG_NAME, INDEX_NAME, WHOLE_NAME
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.families.configvalues import ConfigJson
from irwm.families.family import layer_counts, layer_words


def drop_layers(model_dir: str | Path, out_dir: str | Path, layers: Collection[int]) -> Path:
    """Drop layers and renumber the others; embedding, head and norms are copied.

    Args:
        model_dir: a model folder in safetensors with a config.json that states the number of layers.
        out_dir: must not exist.
        layers: numbers of the layers to drop, from 0; at least one layer has to remain.

    Raises:
        ParameterError: a layer that the model does not have, or all of them.
        UnsupportedCheckpointError: another format, or the folder does not state its layers.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    model = open_safetensors(model_dir)
    count = count_layers(model)
    gone = sorted(set(layers))
    if not all(0 <= number < count for number in gone) or len(gone) == count:
        expected = f"numbers from 0 to {count - 1}, not all of them"
        raise ParameterError("the layers to drop do not fit", file=model.path, expected=expected, found=str(gone))
    stays = [number for number in range(count) if number not in gone]
    renumbered = {number: place for place, number in enumerate(stays)}
    with new_folder(out_dir) as out:
        copy_companions(model, out, described=True)
        config = json.dumps(_shortened(model.config, stays, count), indent=2)
        (out / CONFIG_NAME).write_text(config, encoding="utf-8")
        kept: dict[str, str] = {}
        for shard in model.shards:
            tensors = _kept(load_file(shard), renumbered)
            if tensors:
                save_file(tensors, out / shard.name, metadata={"format": "pt"})
                kept |= dict.fromkeys(tensors, shard.name)
        if set(kept.values()) != {WHOLE_NAME}:
            index = {"metadata": {}, "weight_map": dict(sorted(kept.items()))}
            (out / INDEX_NAME).write_text(json.dumps(index, indent=2), encoding="utf-8")
    return out


def count_layers(model: Checkpoint) -> int:
    """The number of layers that a model's config states.

    Raises:
        UnsupportedCheckpointError: it does not state the number.
    """
    counts = {model.config[name] for name in layer_counts() if isinstance(model.config.get(name), int)}
    if len(counts) != 1 or not (count := counts.pop()) > 0:
        raise UnsupportedCheckpointError(
            "the number of layers is not stated", file=model.path, expected=" or ".join(layer_counts())
        )
    return int(count)


def _shortened(config: ConfigJson, stays: list[int], count: int) -> ConfigJson:
    """The config with fewer layers; lists with an entry for each layer lose the entries of the dropped layers."""

    def cut(name: str, value: Any) -> Any:
        if name in layer_counts():
            return len(stays)
        if isinstance(value, list) and len(value) == count and name.startswith("layer"):
            return [value[number] for number in stays]
        return value

    return {name: cut(name, value) for name, value in config.items()}


def _kept(tensors: Mapping[str, torch.Tensor], renumbered: Mapping[int, int]) -> dict[str, torch.Tensor]:
    # A layer's number within a tensor's name: model.layers.3.…, encoder.layer.3.…, h.3.…
    numbered = re.compile(rf"^(?P<before>(?:.*\.)?(?:{'|'.join(layer_words())})\.)(?P<number>\d+)(?P<after>\..+)$")
    kept = {}
    for name, tensor in tensors.items():
        found = numbered.match(name)
        if found is None:
            kept[name] = tensor
        elif (number := int(found["number"])) in renumbered:
            kept[f"{found['before']}{renumbered[number]}{found['after']}"] = tensor
    return kept
