"""Dropping transformer layers ("depth pruning", Men et al., arXiv:2403.03853): a smaller model of what is left."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from irwm.attacks.rewrite import copy_companions
from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.layout import require_safetensors
from irwm.errors import OutputExistsError, ParameterError, UnsupportedCheckpointError
from irwm.families.family import layer_counts, layer_words

_INDEX = "model.safetensors.index.json"


def drop_layers(model_dir: str | Path, out_dir: str | Path, layers: Collection[int]) -> Path:
    """Leave layers out, and number those that stay anew; embedding, head and norms are copied.

    Args:
        model_dir: a model folder in safetensors with a config.json that states the number of layers.
        out_dir: must not exist.
        layers: numbers of the layers to leave out, from 0; at least one layer has to stay.

    Raises:
        ParameterError: a layer that the model does not have, or all of them.
        UnsupportedCheckpointError: another format, or the folder does not say what its layers are.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a checkpoint that is read.
    """
    model, out = open_checkpoint(model_dir), Path(out_dir)
    require_safetensors(model.format, model.path, "attacked")
    count, config = count_layers(model.path), _config(model.path)
    gone = sorted(set(layers))
    if not all(0 <= number < count for number in gone) or len(gone) == count:
        expected = f"numbers from 0 to {count - 1}, not all of them"
        raise ParameterError("the layers to drop do not fit", file=model.path, expected=expected, found=str(gone))
    if out.exists():
        raise OutputExistsError("the output folder exists already", file=out, advice="Choose a new folder")
    stays = [number for number in range(count) if number not in gone]
    renumbered = {number: place for place, number in enumerate(stays)}
    out.mkdir(parents=True)
    try:
        copy_companions(model, out)
        (out / _INDEX).unlink(missing_ok=True)
        (out / "config.json").write_text(json.dumps(_shortened(config, stays, count), indent=2), encoding="utf-8")
        kept: dict[str, str] = {}
        for shard in map(Path, model.shards):
            tensors = _kept(load_file(shard), renumbered)
            if tensors:
                save_file(tensors, out / shard.name, metadata={"format": "pt"})
                kept |= dict.fromkeys(tensors, shard.name)
        if set(kept.values()) != {"model.safetensors"}:
            index = {"metadata": {}, "weight_map": dict(sorted(kept.items()))}
            (out / _INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return out


def count_layers(model_dir: str | Path) -> int:
    """How many layers a model folder's config.json states.

    Raises:
        UnsupportedCheckpointError: it states none.
    """
    return _count(_config(Path(model_dir)), Path(model_dir))


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise UnsupportedCheckpointError("layers can only be dropped where a config.json counts them", file=folder)
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return config


def _count(config: Mapping[str, Any], folder: Path) -> int:
    counts = {config[name] for name in layer_counts() if isinstance(config.get(name), int)}
    if len(counts) != 1 or not (count := counts.pop()) > 0:
        raise UnsupportedCheckpointError(
            "the number of layers is not stated", file=folder / "config.json", expected=" or ".join(layer_counts())
        )
    return int(count)


def _shortened(config: Mapping[str, Any], stays: list[int], count: int) -> dict[str, Any]:
    """The config with fewer layers; lists with an entry for each layer lose those of the layers that go."""

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
