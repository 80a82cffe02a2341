"""Fewer or more transformer layers: "depth pruning" (Men et al., arXiv:2403.03853) and "depth up-scaling" (Kim et al.,
arXiv:2312.15166)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
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
    count = count_layers(open_safetensors(model_dir))
    gone = set(layers)
    if not gone <= set(range(count)):
        expected = f"numbers from 0 to {count - 1}"
        raise ParameterError(
            "some of the layers to drop do not exist", file=model_dir, expected=expected, found=str(sorted(gone))
        )
    return stack_layers(model_dir, out_dir, [number for number in range(count) if number not in gone])


def stack_layers(model_dir: str | Path, out_dir: str | Path, order: Sequence[int]) -> Path:
    """Make a model whose layer i is the layer order[i] of this one; embedding, head and norms are copied.

    Args:
        model_dir, out_dir: as `drop_layers`.
        order: numbers of layers from 0, at least one; one layer may occur several times.

    Raises:
        ParameterError: a layer that the model does not have, or none.
        UnsupportedCheckpointError, OutputExistsError, CheckpointError: as `drop_layers`.
    """
    model = open_safetensors(model_dir)
    count = count_layers(model)
    if not order or not set(order) <= set(range(count)):
        expected = f"at least one number from 0 to {count - 1}"
        raise ParameterError(
            "this list of layers cannot be used", file=model.path, expected=expected, found=str(list(order))
        )
    with new_folder(out_dir) as out:
        copy_companions(model, out, described=True)
        config = json.dumps(_restacked(model.config, order, count), indent=2)
        (out / CONFIG_NAME).write_text(config, encoding="utf-8")
        kept: dict[str, str] = {}
        for shard in model.shards:
            tensors = _kept(load_file(shard), order)
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


def _restacked(config: ConfigJson, order: Sequence[int], count: int) -> ConfigJson:
    """The config with these layers, and lists with an entry for each layer in the same order."""

    def moved(name: str, value: Any) -> Any:
        if name in layer_counts():
            return len(order)
        if isinstance(value, list) and len(value) == count and name.startswith("layer"):
            return [value[number] for number in order]
        return value

    return {name: moved(name, value) for name, value in config.items()}


def _kept(tensors: Mapping[str, torch.Tensor], order: Sequence[int]) -> dict[str, torch.Tensor]:
    # A layer's number within a tensor's name: model.layers.3.…, encoder.layer.3.…, h.3.…
    numbered = re.compile(rf"^(?P<before>(?:.*\.)?(?:{'|'.join(layer_words())})\.)(?P<number>\d+)(?P<after>\..+)$")
    kept = {}
    for name, tensor in tensors.items():
        found = numbered.match(name)
        if found is None:
            kept[name] = tensor
            continue
        for place in (place for place, number in enumerate(order) if number == int(found["number"])):
            # Cloned, since safetensors refuses two names of one tensor.
            kept[f"{found['before']}{place}{found['after']}"] = tensor.clone()
    return kept
