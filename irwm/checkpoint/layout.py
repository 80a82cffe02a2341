"""Which files make up a checkpoint: the shards, what each of them holds, and the config.

A folder may hold weights in several ways at once, and its index may say anything. Whatever is ambiguous is refused
with the difference listed, because a verdict about weights that nobody runs is worth nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from irwm.checkpoint.files import (
    listed,
    open_regular,
    read_into,
    read_json_object,
    require_inside,
    resolved,
    unreadable,
)
from irwm.checkpoint.magic import GGUF_ADVICE, MAGIC_BYTES, OTHER_WEIGHTS, SAVE_ADVICE, recognise_magic
from irwm.checkpoint.safetensors_file import TensorEntry, read_header
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError, printable

INDEX_NAME = "model.safetensors.index.json"
WHOLE_NAME = "model.safetensors"
CONFIG_NAME = "config.json"
_ADAPTER_NAMES = {"adapter_model.safetensors", "adapter_config.json"}
# The largest real index is some 10 MB, the largest real config some 100 kB (label maps).
_MAX_INDEX_BYTES = 64 * 1024 * 1024
_MAX_CONFIG_BYTES = 8 * 1024 * 1024
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<total>\d{1,6})\.safetensors", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of one checkpoint.

    Attributes:
        path: the folder, or the single .safetensors file, with the links of its parents resolved.
        folder: the folder that config and tokenizer are in; `path` itself or its parent.
        shards: the weight files, in the order of their names.
        tensors: every tensor of every shard by name.
        config: the JSON object in config.json; empty where there is none.
        notes: sentences a person should see.
    """

    path: Path
    folder: Path
    shards: tuple[Path, ...]
    tensors: Mapping[str, TensorEntry]
    config: Mapping[str, Any]
    notes: tuple[str, ...]


def find_files(path: str | Path) -> CheckpointFiles:
    """The files behind `path`, a folder or a .safetensors file. Reads headers, index and config, no weights.

    Raises:
        NotACheckpointError: nothing there, unreadable, or nothing that is a model.
        UnsupportedCheckpointError: weights in another format only, or an adapter without its base model.
        CorruptCheckpointError: shards, index and headers contradict each other, or a link leaves the folder.
        CheckpointChangedError: a file shrank while it was read.
    """
    if str(path) == "":
        raise NotACheckpointError("No path was given", advice="Choose a model's folder or its .safetensors file")
    path = Path(path)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    notes: list[str] = []
    if stat.S_ISDIR(mode):
        path = folder = resolved(path)
        shards, weight_map = _shards_of_folder(folder, notes)
    else:
        # Only the parents: a link in a hub cache is named after the model, its target after a hash.
        path = resolved(path.parent) / path.name
        folder = path.parent
        _require_safetensors_name(path)
        shards, weight_map = (path,), None
        _note_lone_shard(path, notes)
    tensors = _join(folder, shards, weight_map)
    config = _read_config(folder, notes)
    return CheckpointFiles(path, folder, shards, tensors, config, tuple(notes))


def _require_safetensors_name(path: Path) -> None:
    """Refuses a file of another name, saying what its first bytes are."""
    if path.suffix.lower() == ".safetensors":
        return
    with open_regular(path) as (descriptor, state):
        start = bytearray(min(state.size, MAGIC_BYTES))
        read_into(descriptor, path, 0, memoryview(start))
    foreign = recognise_magic(bytes(start))
    if path.suffix.lower() in OTHER_WEIGHTS or (foreign is not None and foreign.is_model):
        raise UnsupportedCheckpointError(
            "This version reads safetensors only",
            file=path,
            expected="a folder with .safetensors files, or one such file",
            found=foreign.name if foreign is not None else f"a {path.suffix} file",
            advice=GGUF_ADVICE if path.suffix.lower() == ".gguf" else SAVE_ADVICE,
        )
    raise NotACheckpointError(
        "The file is not a model",
        file=path,
        expected="a folder with .safetensors files, or one file whose name ends in .safetensors",
        found=foreign.name if foreign is not None else "a file of an unknown kind",
        advice=foreign.advice if foreign is not None else "Give a model's folder or its .safetensors file",
    )


def _note_lone_shard(path: Path, notes: list[str]) -> None:
    parts = _SHARD.fullmatch(path.name)
    if parts is not None and int(parts["total"]) > 1:
        notes.append(
            f"{printable(path.name)} is one of {int(parts['total'])} shards; only this one is read. "
            "Give the folder to read all of them."
        )


def _shards_of_folder(folder: Path, notes: list[str]) -> tuple[tuple[Path, ...], dict[str, str] | None]:
    """The shards of a folder and, where it has an index, which tensor the index expects in which of them."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise unreadable(folder, error) from error
    weights = [name for name in names if name.lower().endswith(".safetensors")]
    if INDEX_NAME in names:
        weight_map = _read_index(folder)
        shards = _indexed_shards(folder, weight_map, weights)
    elif WHOLE_NAME in weights:
        weight_map, shards = None, (folder / WHOLE_NAME,)
    elif weights:
        weight_map, shards = None, _unindexed_shards(folder, names, weights)
    else:
        raise _no_safetensors(folder, names)
    for shard in shards:
        require_inside(shard, folder)
    _note_unread(folder, names, shards, notes)
    return shards, weight_map


def _read_index(folder: Path) -> dict[str, str]:
    """The index's weight_map: tensor name to shard name, every shard name a plain path below the folder."""
    path = folder / INDEX_NAME
    require_inside(path, folder)
    weight_map = read_json_object(path, _MAX_INDEX_BYTES, "shard index", strict=True).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptCheckpointError(
            "The shard index has no weight_map", file=path, expected="an object of tensor name to file name"
        )
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain(name):
            raise CorruptCheckpointError(
                "The shard index leads out of the folder or to a name no shard has",
                file=path,
                tensor=tensor,
                expected="the name of a .safetensors file in the folder",
                found=str(name),
                advice="Do not use this model: an index with such a path was made to read other files",
            )
    return weight_map


def _is_plain(name: str) -> bool:
    """Whether a shard's name in an index is a plain relative path; links are judged once it is resolved."""
    pieces = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and not PurePosixPath(name).is_absolute()
        and not any(piece == "" or piece.startswith(".") for piece in pieces)
        and name.lower().endswith(".safetensors")
    )


def _indexed_shards(folder: Path, weight_map: Mapping[str, str], weights: list[str]) -> tuple[Path, ...]:
    """The shards the index names. Each must be there, and no file may pass for a further one of the same set."""
    named = sorted(set(weight_map.values()))
    missing = [name for name in named if not os.path.lexists(folder / name)]
    sets = {(parts["stem"], parts["total"]) for parts in map(_SHARD.fullmatch, named) if parts is not None}
    extra = [
        name
        for name in weights
        if name not in named
        and (parts := _SHARD.fullmatch(name)) is not None
        and (parts["stem"], parts["total"]) in sets
    ]
    if missing or extra:
        raise _difference("The shard index and the folder do not agree", folder / INDEX_NAME, missing, extra)
    return tuple(folder / name for name in named)


def _unindexed_shards(folder: Path, names: list[str], weights: list[str]) -> tuple[Path, ...]:
    """The shards of a folder without an index: one file, or a complete numbered set and nothing else."""
    if _ADAPTER_NAMES & set(names) and all(name in _ADAPTER_NAMES for name in weights):
        raise UnsupportedCheckpointError(
            "The folder holds an adapter, not a model",
            file=folder,
            found=listed(weights),
            advice="Merge it into its base model first, with peft's merge_and_unload, and save the result",
        )
    if len(weights) == 1:
        parts = _SHARD.fullmatch(weights[0])
        if parts is None or int(parts["total"]) == 1:
            return (folder / weights[0],)
    found = [_SHARD.fullmatch(name) for name in weights]
    numbered = [parts for parts in found if parts is not None]
    sets = {(parts["stem"], int(parts["total"])) for parts in numbered}
    if len(numbered) < len(weights) or len(sets) != 1:
        raise CorruptCheckpointError(
            "The folder holds several weight files and no index that says which belong together",
            file=folder,
            expected=f"{INDEX_NAME}, {WHOLE_NAME}, one .safetensors file, or one numbered set of them",
            found=listed(weights),
            advice="Give the path of the one file you mean, or move the others away",
        )
    total = sets.pop()[1]
    present = [int(parts["number"]) for parts in numbered]
    # Bounded by the names that exist, since the total is only what a name claims.
    missing = [f"number {n} of {total}" for n in range(1, min(total, len(present) + 8) + 1) if n not in present]
    extra = [parts.string for parts in numbered if not 1 <= int(parts["number"]) <= total]
    if missing or extra or len(present) != total:
        raise _difference("The numbered set of shards is not complete", folder, missing, extra or weights)
    return tuple(folder / name for name in weights)


def _no_safetensors(folder: Path, names: list[str]) -> NotACheckpointError | UnsupportedCheckpointError:
    others = [name for name in names if Path(name).suffix.lower() in OTHER_WEIGHTS]
    if others:
        gguf = all(name.lower().endswith(".gguf") for name in others)
        return UnsupportedCheckpointError(
            "The folder holds no .safetensors file, and this version reads no other format",
            file=folder,
            found=listed(others),
            advice=GGUF_ADVICE if gguf else SAVE_ADVICE,
        )
    return NotACheckpointError(
        "The folder holds no model" if names else "The folder is empty",
        file=folder,
        expected="a .safetensors file",
        found=listed(names) if names else "nothing",
        advice="Choose the folder that holds the .safetensors files",
    )


def _note_unread(folder: Path, names: list[str], shards: tuple[Path, ...], notes: list[str]) -> None:
    """Says which other weights lie in the folder, since another program may prefer them to the ones read here."""
    used = {shard.name for shard in shards if shard.parent == folder}
    kinds = OTHER_WEIGHTS | {".safetensors"}
    unread = [name for name in names if name not in used and Path(name).suffix.lower() in kinds]
    if WHOLE_NAME in unread:
        notes.append(
            f"The folder holds both {INDEX_NAME} and {WHOLE_NAME}. The indexed shards were read; transformers would "
            f"load {WHOLE_NAME} instead. Give the path of that file to examine it."
        )
        unread.remove(WHOLE_NAME)
    if unread:
        notes.append(f"Other weight files in the folder were not read: {listed(unread)}.")


def _join(folder: Path, shards: tuple[Path, ...], weight_map: Mapping[str, str] | None) -> dict[str, TensorEntry]:
    """All shards' tensors by name, each in one shard only and, where there is an index, in the shard it says."""
    tensors: dict[str, TensorEntry] = {}
    for shard in shards:
        for name, entry in read_header(shard).tensors.items():
            if name in tensors:
                raise CorruptCheckpointError(
                    "A tensor is in two shards",
                    file=folder,
                    tensor=name,
                    expected="every tensor in one shard",
                    found=listed([tensors[name].file.name, shard.name]),
                )
            tensors[name] = entry
    if weight_map is None:
        return tensors
    missing = [name for name in weight_map if name not in tensors]
    extra = [name for name in tensors if name not in weight_map]
    if missing or extra:
        raise _difference("The shard index and the shards' headers do not agree", folder / INDEX_NAME, missing, extra)
    moved = [name for name, entry in tensors.items() if entry.file != folder / weight_map[name]]
    if moved:
        raise CorruptCheckpointError(
            "The shard index names other shards for some tensors than the ones they are in",
            file=folder / INDEX_NAME,
            found=listed(f"{name} is in {tensors[name].file.name}, not in {weight_map[name]}" for name in moved),
        )
    return tensors


def _difference(problem: str, file: Path, missing: list[str], extra: list[str]) -> CorruptCheckpointError:
    found = "; ".join(f"{label}: {listed(names)}" for label, names in (("missing", missing), ("extra", extra)) if names)
    return CorruptCheckpointError(
        problem, file=file, found=found, advice="Download the missing files, or move away what does not belong"
    )


def _read_config(folder: Path, notes: list[str]) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not os.path.lexists(path):
        notes.append("There is no config.json; the model's family is told from its tensors alone.")
        return {}
    require_inside(path, folder)
    config = read_json_object(path, _MAX_CONFIG_BYTES, "config.json")
    if config.get("auto_map"):
        notes.append(
            "The config names Python code that comes with the model (auto_map). It was not run: IRWM Studio never "
            "runs code from a model."
        )
    return config
