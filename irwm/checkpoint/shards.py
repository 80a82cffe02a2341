"""Which weight files make up a checkpoint: one file, an index's, or a numbered set.

A folder may hold weights in several ways at once, and its index may say anything. Ambiguous folders are refused, with
the difference listed: a verdict about weights that are never run is worth nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from irwm.checkpoint.files import listed, read_json_object, require_inside, unreadable
from irwm.checkpoint.formats import FORMATS, Content, Format, Reading
from irwm.checkpoint.formats.content import first_bytes
from irwm.checkpoint.formats.gguf_file import OF_A_PIECE
from irwm.checkpoint.magic import OTHER_WEIGHTS, SAVE_ADVICE, recognise_magic
from irwm.checkpoint.tensors import Tensor
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError, printable

# The largest real index is some 10 MB.
_MAX_INDEX_BYTES = 64 * 1024 * 1024
# The largest real models come in some 200 pieces, with a hundred files beside them.
MAX_NAMES = 10_000
MAX_SHARDS = 2_000
# Of all shards together; a mixture of experts of a trillion parameters in codes and scales has some 200 000.
MAX_TENSORS = 500_000
# Shards whose headers are read in parallel. Each PyTorch file needs a process that loads torch first, which takes a
# second and a quarter of a gigabyte, and may take one more.
_SIDE_BY_SIDE = 2
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<total>\d{1,6})\.[A-Za-z]+", re.DOTALL)
# Files of trainers that have the suffixes of weights.
_NO_WEIGHTS = re.compile(
    r"(training_args|optimizer|scheduler|rng_state|scaler|trainer_state|random_states).*", re.ASCII
)
EXPECTED = "a folder with a model's files, or a .safetensors, .bin, .pt, .pth or .gguf file"


@dataclass(frozen=True, slots=True)
class Shards:
    """The weight files of a checkpoint.

    Attributes:
        format: of the files.
        files: in the order of their names.
        weight_map: which tensor the index expects in which file; None where there is no index.
        rival: a whole model's file beside the index that names others; transformers would load this one.
    """

    format: Format
    files: tuple[Path, ...]
    weight_map: Mapping[str, str] | None
    rival: Path | None = None


def shard_of_path(path: Path, notes: list[str]) -> Shards:
    """One weight file by its path.

    Raises:
        NotACheckpointError: not a weight file.
        UnsupportedCheckpointError: weights of a format that is not read.
    """
    format = next((format for format in FORMATS if format.owns(path.name)), None)
    if format is None:
        raise _no_format(path)
    parts = _SHARD.fullmatch(path.name)
    if parts is not None and int(parts["total"]) > 1:
        notes.append(
            f"{printable(path.name)} is one of {int(parts['total'])} shards; only this one is read. "
            "Give the folder to read all of them."
        )
    return Shards(format, (path,), None)


def shards_of_folder(folder: Path, notes: list[str]) -> Shards:
    """The shards of a folder.

    Raises:
        NotACheckpointError: unreadable, or nothing that is a model.
        UnsupportedCheckpointError: weights in formats that are not read.
        CorruptCheckpointError: shards and index contradict each other, or a link leaves the folder.
    """
    names = _names(folder)
    for format in FORMATS:
        weights = [name for name in names if format.owns(name) and not _NO_WEIGHTS.fullmatch(name)]
        if format.index in names or weights:
            shards = _shards(folder, format, names, weights)
            break
    else:
        raise _no_weights(folder, names)
    for shard in (*shards.files, *filter(None, (shards.rival,))):
        require_inside(shard, folder)
    _require_different(shards.files)
    _note_unread(folder, names, shards, notes)
    return shards


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_NAMES + 1))
    except OSError as error:
        raise unreadable(folder, error) from error
    if len(names) > MAX_NAMES:
        raise NotACheckpointError(
            "The folder holds more files than any model's does",
            file=folder,
            expected=f"at most {MAX_NAMES} files and folders",
            found="more",
            advice="Give the path of the model's weight file, or put the model's files into a folder of their own",
        )
    return names


def _shards(folder: Path, format: Format, names: list[str], weights: list[str]) -> Shards:
    if format.index in names:
        weight_map = _read_index(folder, format)
        files = _indexed_shards(folder, format, weight_map, weights)
        whole = folder / str(format.whole)
        rival = whole if format.whole in weights and whole not in files else None
        shards = Shards(format, files, weight_map, rival)
    elif format.whole in weights:
        shards = Shards(format, (folder / format.whole,), None)
    else:
        shards = Shards(format, _unindexed_shards(folder, format, weights), None)
    if len(shards.files) > MAX_SHARDS:
        raise CorruptCheckpointError(
            "The model is in more pieces than any real one",
            file=folder,
            expected=f"at most {MAX_SHARDS} weight files",
            found=f"{len(shards.files)} weight files",
            advice="Save the model again in larger pieces, with save_pretrained(folder, max_shard_size='5GB')",
        )
    return shards


def _read_index(folder: Path, format: Format) -> dict[str, str]:
    """The index's weight_map: tensor name to shard name, every shard name a plain path below the folder."""
    path = folder / str(format.index)
    weight_map = read_json_object(path, _MAX_INDEX_BYTES, "shard index", folder=folder, strict=True).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptCheckpointError(
            "The shard index has no weight_map", file=path, expected="an object of tensor name to file name"
        )
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain(name, format):
            raise CorruptCheckpointError(
                "The shard index leads out of the folder or to a name no shard has",
                file=path,
                tensor=tensor,
                expected=f"the name of a {format.suffixes[0]} file in the folder",
                found=str(name),
                advice="Do not use this model: an index with such a path was made to read other files",
            )
    return weight_map


def _is_plain(name: str, format: Format) -> bool:
    """Whether a shard's name in an index is a plain relative path; links are judged once it is resolved."""
    pieces = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and not PurePosixPath(name).is_absolute()
        and not any(piece == "" or piece.startswith(".") for piece in pieces)
        and format.owns(name)
    )


def _indexed_shards(
    folder: Path, format: Format, weight_map: Mapping[str, str], weights: list[str]
) -> tuple[Path, ...]:
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
        raise _difference("The shard index and the folder do not agree", folder / str(format.index), missing, extra)
    return tuple(folder / name for name in named)


def _unindexed_shards(folder: Path, format: Format, weights: list[str]) -> tuple[Path, ...]:
    """The shards of a folder without an index: one file, or a complete numbered set and nothing else."""
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
            expected=", ".join(filter(None, (format.index, format.whole)))
            + f" one {format.suffixes[0]} file, or one numbered set of them",
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


def _no_weights(folder: Path, names: list[str]) -> NotACheckpointError | UnsupportedCheckpointError:
    others = [name for name in names if Path(name).suffix.lower() in OTHER_WEIGHTS]
    if others:
        return UnsupportedCheckpointError(
            "The folder holds weights only in formats that are not read",
            file=folder,
            expected=EXPECTED,
            found=listed(others),
            advice=SAVE_ADVICE,
        )
    return NotACheckpointError(
        "The folder holds no model" if names else "The folder is empty",
        file=folder,
        expected=EXPECTED,
        found=listed(names) if names else "nothing",
        advice="Choose the folder that holds the model's files",
    )


def _no_format(path: Path) -> NotACheckpointError | UnsupportedCheckpointError:
    """The error for a file whose name is not a weight file's, by its first bytes."""
    foreign = recognise_magic(first_bytes(path)[0])
    if path.suffix.lower() in OTHER_WEIGHTS or (foreign is not None and foreign.is_model):
        return UnsupportedCheckpointError(
            "Weights in this format, or under this name, are not read",
            file=path,
            expected=EXPECTED,
            found=foreign.name if foreign is not None else f"a {path.suffix} file",
            advice=foreign.advice if foreign is not None and foreign.is_model else SAVE_ADVICE,
        )
    return NotACheckpointError(
        "The file is not a model",
        file=path,
        expected=EXPECTED,
        found=foreign.name if foreign is not None else "a file of an unknown kind",
        advice=foreign.advice if foreign is not None else "Give a model's folder or its weight file",
    )


def _note_unread(folder: Path, names: list[str], shards: Shards, notes: list[str]) -> None:
    """Says which other weights lie in the folder, since another program may prefer them to the ones read here."""
    used = {shard.name for shard in (*shards.files, *filter(None, (shards.rival,))) if shard.parent == folder}
    kinds = OTHER_WEIGHTS | {".safetensors"}
    unread = [
        name
        for name in names
        if name not in used and Path(name).suffix.lower() in kinds and not _NO_WEIGHTS.fullmatch(name)
    ]
    if unread:
        notes.append(f"Other weight files in the folder were not read: {listed(unread)}.")


def _require_different(files: tuple[Path, ...]) -> None:
    """No file under two names: a small one linked two thousand times would be as many headers to hold."""
    seen: dict[tuple[int, int], Path] = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError as error:
            raise unreadable(file, error) from error
        other = seen.setdefault((status.st_dev, status.st_ino), file)
        if other is not file and status.st_ino:  # some file systems number nothing
            raise CorruptCheckpointError(
                "Two shards are one file",
                file=file,
                expected="a different file for every shard",
                found=f"the same file as {printable(other.name, 80)}",
                advice="Download the model again",
            )


def rival_tensors(
    folder: Path, shards: Shards, rival: Path, tensors: Mapping[str, Tensor], reading: Reading
) -> Mapping[str, Tensor]:
    """The tensors of the whole file beside an index, which must have the names, formats and shapes of the shards'.

    Raises:
        CorruptCheckpointError: they differ, so that it depends on the program which model the folder holds.
    """
    described = shards.format.read(rival, reading).tensors
    missing = [name for name in tensors if name not in described]
    extra = [name for name in described if name not in tensors]
    pairs = ((name, described[name], tensors[name]) for name in described.keys() & tensors.keys())
    other = [name for name, one, two in pairs if (one.dtype, one.shape) != (two.dtype, two.shape)]
    if missing or extra or other:
        raise two_models(folder, rival, listed([*missing, *extra, *other]))
    return described


def two_models(folder: Path, rival: Path, differing: str) -> CorruptCheckpointError:
    """The error for a folder whose index and whole file are different models."""
    return CorruptCheckpointError(
        "The folder holds two different models, one in the shards of an index and one in a whole file",
        file=folder,
        expected=f"the same tensors in {rival.name}, which transformers would load, as in the indexed shards",
        found=f"differing: {differing}",
        advice="Give the path of the one file you mean, or move the other model away",
    )


def _contents(shards: Shards, reading: Reading) -> Iterator[Content]:
    """The content of each file, in order; the first error ends the reading."""
    readers = ThreadPoolExecutor(min(_SIDE_BY_SIDE, os.cpu_count() or 1))
    try:
        yield from readers.map(lambda file: shards.format.read(file, reading), shards.files)
    finally:
        readers.shutdown(cancel_futures=True)


def joined(folder: Path, shards: Shards, reading: Reading) -> tuple[dict[str, Tensor], tuple[Content, ...]]:
    """All shards' tensors by name, each in one shard only and, where there is an index, in the shard it says;
    and what each file holds."""
    weight_map, index = shards.weight_map, folder / str(shards.format.index)
    contents: list[Content] = []
    tensors: dict[str, Tensor] = {}
    for shard, content in zip(shards.files, _contents(shards, reading), strict=True):
        contents.append(content if not contents else _without_settings(content))
        if len(tensors) + len(content.tensors) > MAX_TENSORS:
            raise CorruptCheckpointError(
                "The model has more tensors than any real one", file=folder, expected=f"at most {MAX_TENSORS}"
            )
        for name, entry in content.tensors.items():
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
        return tensors, tuple(contents)
    missing = [name for name in weight_map if name not in tensors]
    extra = [name for name in tensors if name not in weight_map]
    if missing or extra:
        raise _difference("The shard index and the shards' headers do not agree", index, missing, extra)
    moved = [name for name, entry in tensors.items() if entry.file != folder / weight_map[name]]
    if moved:
        raise CorruptCheckpointError(
            "The shard index names other shards for some tensors than the ones they are in",
            file=index,
            found=listed(f"{name} is in {tensors[name].file.name}, not in {weight_map[name]}" for name in moved),
        )
    return tensors, tuple(contents)


def _without_settings(content: Content) -> Content:
    """A later file's content: a model's settings are those of its first file, and two thousand times a vocabulary is
    more than memory holds."""
    said = content.metadata
    return replace(content, metadata={name: said[name] for name in OF_A_PIECE if name in said})


def _difference(problem: str, file: Path, missing: list[str], extra: list[str]) -> CorruptCheckpointError:
    found = "; ".join(f"{label}: {listed(names)}" for label, names in (("missing", missing), ("extra", extra)) if names)
    return CorruptCheckpointError(
        problem, file=file, found=found, advice="Download the missing files, or move away what does not belong"
    )
