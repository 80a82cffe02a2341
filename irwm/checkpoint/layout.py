"""A checkpoint's tensors, config and notes for the user, from its files' headers; no weights are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from irwm.checkpoint.files import read_json_object, resolved, unreadable
from irwm.checkpoint.formats import GGUF, SAFETENSORS, Format, ReadBudget
from irwm.checkpoint.formats.content import Metadata
from irwm.checkpoint.formats.gguf_file import require_one_split
from irwm.checkpoint.formats.gguf_translation import translated
from irwm.checkpoint.magic import SAVE_ADVICE
from irwm.checkpoint.quantised import assembled
from irwm.checkpoint.shards import joined, rival_tensors, shards_of_folder, shards_of_path
from irwm.checkpoint.tensors import Tensor
from irwm.errors import CheckpointError, NotACheckpointError, UnsupportedCheckpointError
from irwm.families.configvalues import ConfigJson

INDEX_NAME = str(SAFETENSORS.index)
WHOLE_NAME = str(SAFETENSORS.whole)
CONFIG_NAME = "config.json"
# The largest real config is some 100 kB (label maps).
_MAX_CONFIG_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of one checkpoint.

    Attributes:
        path: the folder, or the single weight file, with the links of its parents resolved.
        folder: the folder that config and tokenizer are in; `path` itself or its parent.
        shards: the weight files, in the order of their names.
        tensors: every tensor of every shard by name.
        config: the JSON object in config.json; {} without one.
        notes: sentences for the user.
        format: the weight files' format.
        metadata: other metadata in the first file's header; for GGUF this includes the vocabulary.
        refused: by name, why a quantised weight could not be assembled.
        rival: a whole file next to the shards of an index; None without one.
        rivals: its tensors; {} without one.
    """

    path: Path
    folder: Path
    shards: tuple[Path, ...]
    tensors: Mapping[str, Tensor]
    config: ConfigJson
    notes: tuple[str, ...]
    format: Format
    metadata: Metadata
    refused: Mapping[str, CheckpointError] = field(default_factory=dict)
    rival: Path | None = None
    rivals: Mapping[str, Tensor] = field(default_factory=dict)


def find_files(path: str | Path) -> CheckpointFiles:
    """The files behind `path`, a folder or one weight file. Reads headers, index and config, no weights.

    Raises:
        NotACheckpointError: the path does not exist, is unreadable, or is not a model.
        UnsupportedCheckpointError: weights in unsupported formats.
        CorruptCheckpointError: shards, index and headers contradict each other, or a link leaves the folder.
        CheckpointChangedError: a file shrank while it was read.
    """
    if str(path) == "":
        raise NotACheckpointError("No path was given", advice="Choose a model's folder or its weight file")
    path = Path(path)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    notes: list[str] = []
    if stat.S_ISDIR(mode):
        path = folder = resolved(path)
        shards = shards_of_folder(folder, notes)
        budget = ReadBudget(folder, len(shards.files))
    else:
        # Only the links of the parents: a link in a hub cache is named after the model, its target after a hash.
        path = resolved(path.parent) / path.name
        folder = path.parent
        shards = shards_of_path(path, notes)
        budget = ReadBudget(folder, len(shards.files)) if len(shards.files) > 1 else ReadBudget()
    stored, contents = joined(folder, shards, budget)
    notes += dict.fromkeys(note for content in contents for note in content.notes)
    metadata = contents[0].metadata
    tensors: Mapping[str, Tensor]
    if shards.format is GGUF:  # it contains its config; files next to it may belong to another model
        require_one_split(shards.files, contents)
        tensors, config, said = translated(stored, metadata)
        return CheckpointFiles(path, folder, shards.files, tensors, config, (*notes, *said), shards.format, metadata)
    config = read_config(folder, notes)
    found = assembled(stored, config)
    rivals: Mapping[str, Tensor] = {}
    if shards.rival is not None:
        described = rival_tensors(folder, shards, shards.rival, stored, budget)
        rivals = assembled(described, config).tensors
    return CheckpointFiles(
        path,
        folder,
        shards.files,
        found.tensors,
        config,
        (*notes, *found.notes),
        shards.format,
        metadata,
        found.refused,
        shards.rival,
        rivals,
    )


def read_config(folder: Path, notes: list[str]) -> ConfigJson:
    path = folder / CONFIG_NAME
    if not os.path.lexists(path):
        notes.append("There is no config.json. The model's family was determined from its tensors alone.")
        return {}
    config = read_json_object(path, _MAX_CONFIG_BYTES, "config.json", folder=folder)
    if config.get("auto_map"):
        notes.append(
            "The config refers to Python code that comes with the model (auto_map). This code was not run: IRWM Studio "
            "never runs code from a model."
        )
    return config


def require_safetensors(format: Format, path: Path, done: str) -> None:
    """Rejects formats other than safetensors; `done` names the operation: "marked".

    Raises:
        UnsupportedCheckpointError: a PyTorch or GGUF file, or an adapter.
    """
    if format is not SAFETENSORS:
        raise UnsupportedCheckpointError(
            f"A {format.name} file can be examined but not {done}",
            file=path,
            expected="a safetensors checkpoint",
            found=format.name,
            advice=SAVE_ADVICE,
        )
