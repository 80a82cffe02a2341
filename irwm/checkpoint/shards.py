"""Which weight files make up a checkpoint: one file, an index's, or a numbered set.

A folder may hold weights in several ways at once, and its index is untrusted. Ambiguous folders are rejected with a
list of the differences: a verdict about weights that are never run is worthless.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from irwm.checkpoint.files import listed, require_inside, unreadable
from irwm.checkpoint.formats import FORMATS, Content, Format, ReadBudget
from irwm.checkpoint.formats.content import first_bytes
from irwm.checkpoint.formats.gguf_file import OF_A_PIECE
from irwm.checkpoint.magic import OTHER_WEIGHTS, advice_for, recognise_magic
from irwm.checkpoint.tensors import Tensor, same_bytes
from irwm.checkpoint.weight_sets import (
    SHARD,
    WeightSet,
    format_of,
    format_of_index,
    missing_of,
    numbered_like,
    read_index,
    weight_sets,
)
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError, printable

# The largest real models have about 200 pieces, and the folder about a hundred other files.
MAX_NAMES = 10_000
MAX_SHARDS = 2_000
# Of all shards together. A mixture of experts with a trillion parameters as codes and scales has about 200 000.
MAX_TENSORS = 500_000
# Shards whose headers are read in parallel. Each PyTorch file needs a process that first loads torch, which takes a
# second and a quarter of a gigabyte, and may take one more.
_SIDE_BY_SIDE = 2
EXPECTED = "a folder with a model's files, or a .safetensors, .bin, .pt, .pth or .gguf file"


@dataclass(frozen=True, slots=True)
class Shards:
    """The weight files of a checkpoint.

    Attributes:
        format: of the files.
        files: in the order of their names.
        weight_map: the file in which the index expects each tensor; None without an index.
        rival: a file with a whole model next to an index of other files; transformers would load this one.
        index: the index's name, if it is not the format's usual one.
        stale: an index's map of tensors to missing files, if `files` do not need it; else None.
    """

    format: Format
    files: tuple[Path, ...]
    weight_map: Mapping[str, str] | None
    rival: Path | None = None
    index: str | None = None
    stale: Mapping[str, str] | None = None


def shards_of_path(path: Path, notes: list[str]) -> Shards:
    """The weight files to open for a file's path: the file itself, those of an index, or its numbered set.

    Raises:
        NotACheckpointError: not a weight file.
        UnsupportedCheckpointError: weights of an unsupported format.
        CorruptCheckpointError: an index and its shards contradict each other, or a link leaves the folder.
    """
    folder, name = path.parent, path.name
    format = format_of_index(name)
    if format is not None:
        weight_map = read_index(path, format, folder)
        return _checked(folder, _indexed(folder, format, name, weight_map, names_of(folder)))
    parts = SHARD.fullmatch(name)
    if parts is not None and int(parts["total"]) > 1:
        sets = weight_sets(folder, names_of(folder))
        whole = next((each for each in sets if name in each.files and not missing_of(each.files)[0]), None)
        if whole is not None and whole.format is not None:
            notes.append(f"{printable(name)} is one of {len(whole.files)} shards; all of them are read.")
            files = tuple(folder / each for each in whole.files)
            return _checked(folder, Shards(whole.format, files, None))
        total = int(parts["total"])
        notes.append(f"{printable(name)} is one of {total} shards, but some are missing; only this one is read.")
    _, format = format_of(path)
    if format is None:
        raise _no_format(path)
    return Shards(format, (path,), None)


def shards_of_folder(folder: Path, notes: list[str]) -> Shards:
    """The shards of a folder.

    Raises:
        NotACheckpointError: unreadable, or without a model.
        UnsupportedCheckpointError: weights in unsupported formats.
        CorruptCheckpointError: shards and index contradict each other, or a link leaves the folder.
    """
    names = names_of(folder)
    sets = weight_sets(folder, names)
    models = [each for each in sets if each.format is not None and not each.is_adapter]
    models = [each for each in models if not each.is_hidden] or models
    for format in FORMATS:
        own = [each for each in models if each.format is format]
        if own or (format.index in names and not models):
            shards = _checked(folder, _chosen(folder, format, names, own))
            break
        if format.index in names:  # left from another format's model
            notes.append(f"{format.index} refers to missing files and was ignored.")
    else:
        raise _no_weights(folder, names, sets)
    if shards.stale is not None:
        notes.append(f"{format.index} refers to missing files. It was ignored because {_shown(shards)}.")
    _note_unread(folder, sets, shards, notes)
    return shards


def _shown(shards: Shards) -> str:
    names = listed(file.name for file in shards.files)
    one = len(shards.files) == 1
    return (
        f"{names} contains all the tensors listed in the index"
        if one
        else f"{names} contain all the tensors listed in the index"
    )


def _checked(folder: Path, shards: Shards) -> Shards:
    """The same shards, checked: no link leads out of the folder and no file occurs twice."""
    for shard in (*shards.files, *filter(None, (shards.rival,))):
        require_inside(shard, folder)
    _require_different(shards.files)
    if len(shards.files) > MAX_SHARDS:
        raise CorruptCheckpointError(
            "The model is split into too many files",
            file=folder,
            expected=f"at most {MAX_SHARDS} weight files",
            found=f"{len(shards.files)} weight files",
            advice="Save the model again in larger shards with save_pretrained(folder, max_shard_size='5GB')",
        )
    return shards


def holds_weights(folder: Path, *, beside_adapter: bool = False) -> bool:
    """Whether weights, or an index of weights, are directly in a folder.

    Args:
        beside_adapter: whether weights in a supported format, other than an adapter's, are.

    Raises:
        NotACheckpointError: it cannot be read, or holds more than any model's does.
    """
    names = names_of(folder)
    sets = weight_sets(folder, names)
    if beside_adapter:
        return any(each.format is not None and not each.is_adapter for each in sets)
    return bool(sets) or any(format_of_index(name) is not None for name in names)


def names_of(folder: Path) -> list[str]:
    """The names of the files and folders in a folder, sorted.

    Raises:
        NotACheckpointError: it cannot be read, or holds more than any model's does.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_NAMES + 1))
    except OSError as error:
        raise unreadable(folder, error) from error
    if len(names) > MAX_NAMES:
        raise NotACheckpointError(
            "The folder contains too many files",
            file=folder,
            expected=f"at most {MAX_NAMES} files and folders",
            found="more",
            advice="Use the path of the model's weight file, or move the model's files to a separate folder",
        )
    return names


def _chosen(folder: Path, format: Format, names: Sequence[str], sets: Sequence[WeightSet]) -> Shards:
    """The set of this format that transformers would load: an index's, the usual whole file, or the only one.

    Args:
        sets: the sets in the format.
    """
    whole = next((each for each in sets if each.files == (format.whole,) and each.index is None), None)
    if format.index in names:
        others = [each for each in sets if each.index is None and not missing_of(each.files)[0]]
        stands_in = whole or (others[0] if len(others) == 1 else None)
        weight_map = read_index(folder / str(format.index), format, folder)
        if stands_in is not None and any(not os.path.lexists(folder / name) for name in weight_map.values()):
            return Shards(format, tuple(folder / name for name in stands_in.files), None, stale=weight_map)
        shards = _indexed(folder, format, str(format.index), weight_map, names)
        rival = None if whole is None or folder / str(format.whole) in shards.files else folder / str(format.whole)
        return replace(shards, rival=rival)
    if whole is not None:
        return Shards(format, (folder / str(format.whole),), None)
    files = [name for each in sets for name in each.files]
    missing, extra = missing_of(files) if all(each.index is None for each in sets) else ([], [])
    if missing:
        raise _difference("The numbered set of shards is incomplete", folder, missing, extra or files)
    if len(sets) != 1:
        raise CorruptCheckpointError(
            "The folder contains several weight files but no index that says which of them belong together",
            file=folder,
            expected=f"{', '.join(filter(None, (format.index, format.whole)))}{', ' if format.whole else ''}"
            f"one {format.suffixes[0]} file, or one numbered set of them",
            found=listed(files),
            advice="Use the path of the file that you want to open, or move the other files to another folder",
        )
    (only,) = sets
    if only.index is not None:
        weight_map = read_index(folder / only.index, format, folder)
        return _indexed(folder, format, only.index, weight_map, names)
    return Shards(format, tuple(folder / name for name in only.files), None)


def _indexed(folder: Path, format: Format, index: str, weight_map: Mapping[str, str], names: Sequence[str]) -> Shards:
    """The shards that an index names. All must exist, and no other file may belong to the same numbered set.

    Args:
        names: of the files in the folder.
    """
    named = sorted(set(weight_map.values()))
    missing = [name for name in named if not os.path.lexists(folder / name)]
    extra = [name for name in numbered_like(named, names, format) if name not in named]
    if missing or extra:
        raise _difference("The shard index does not match the folder", folder / index, missing, extra)
    return Shards(format, tuple(folder / name for name in named), weight_map, index=index)


def _no_weights(
    folder: Path, names: Sequence[str], sets: Sequence[WeightSet]
) -> NotACheckpointError | UnsupportedCheckpointError:
    others = [name for each in sets for name in each.files if each.format is None]
    if others:
        return UnsupportedCheckpointError(
            "The folder contains weights only in unsupported formats",
            file=folder,
            expected=EXPECTED,
            found=listed(others),
            advice=advice_for(others[0]),
        )
    return NotACheckpointError(
        "The folder does not contain a model" if names else "The folder is empty",
        file=folder,
        expected=EXPECTED,
        found=listed(names) if names else "nothing",
        advice="Choose the folder that contains the model's files",
    )


def _no_format(path: Path) -> NotACheckpointError | UnsupportedCheckpointError:
    """The error for a file whose name is not a weight file's, by its first bytes."""
    foreign = recognise_magic(first_bytes(path)[0])
    if path.suffix.lower() in OTHER_WEIGHTS or (foreign is not None and foreign.is_model):
        return UnsupportedCheckpointError(
            "Weights in this format or with this file name are not supported",
            file=path,
            expected=EXPECTED,
            found=foreign.name if foreign is not None else f"a {path.suffix} file",
            advice=foreign.advice if foreign is not None and foreign.is_model else advice_for(path.name),
        )
    return NotACheckpointError(
        "The file is not a model",
        file=path,
        expected=EXPECTED,
        found=foreign.name if foreign is not None else "a file of unknown type",
        advice=foreign.advice if foreign is not None else "Choose a model's folder or its weight file",
    )


def _note_unread(folder: Path, sets: Sequence[WeightSet], shards: Shards, notes: list[str]) -> None:
    """Notes which other weights are in the folder, since another program may use them instead of the ones read here."""
    used = {*shards.files, *filter(None, (shards.rival,))}
    unread = sorted({name for each in sets for name in each.files if folder / name not in used})
    if unread:
        notes.append(f"Other weight files in the folder were not read: {listed(unread)}.")


def _require_different(files: tuple[Path, ...]) -> None:
    """Rejects files with two names: a small one linked two thousand times would give as many headers to store."""
    seen: dict[tuple[int, int], Path] = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError as error:
            raise unreadable(file, error) from error
        other = seen.setdefault((status.st_dev, status.st_ino), file)
        if other is not file and status.st_ino:  # some file systems have no inode numbers
            raise CorruptCheckpointError(
                "Two shards are the same file",
                file=file,
                expected="a different file for every shard",
                found=f"the same file as {printable(other.name, 80)}",
                advice="Download the model again",
            )


def rival_tensors(
    folder: Path, shards: Shards, rival: Path, tensors: Mapping[str, Tensor], budget: ReadBudget
) -> Mapping[str, Tensor]:
    """The tensors of the whole file next to an index, which must have the names, formats and shapes of the shards'.

    Raises:
        CorruptCheckpointError: they differ, so programs may load different models from the folder.
    """
    described = shards.format.read(rival, budget).tensors
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
        "The folder contains two different models: one split into shards and one in a single file",
        file=folder,
        expected=f"the same tensors in {rival.name}, which transformers would load, as in the shards",
        found=f"different: {differing}",
        advice="Use the path of the file that you want to open, or move the other model to another folder",
    )


def _contents(shards: Shards, budget: ReadBudget) -> Iterator[Content]:
    """The content of each file, in order; the first error stops the reading."""
    readers = ThreadPoolExecutor(min(_SIDE_BY_SIDE, os.cpu_count() or 1))
    try:
        yield from readers.map(lambda file: shards.format.read(file, budget), shards.files)
    finally:
        readers.shutdown(cancel_futures=True)


class _Joined:
    """The tensors of all shards by name. If a tensor is in two shards, the index names the shard to use."""

    def __init__(self, folder: Path, weight_map: Mapping[str, str] | None) -> None:
        self._folder, self._weight_map = folder, weight_map or {}
        self.tensors: dict[str, Tensor] = {}
        self.same: list[str] = []
        self.replaced: dict[str, str] = {}

    def add(self, name: str, entry: Tensor) -> None:
        first = self.tensors.setdefault(name, entry)
        if first is entry:
            return
        named = self._folder / self._weight_map[name] if name in self._weight_map else None
        if same_bytes(first, entry):
            self.same.append(name)
        elif named is None:
            raise CorruptCheckpointError(
                "A tensor is stored in two shards with different values",
                file=self._folder,
                tensor=name,
                expected="each tensor in only one shard, or an index that names the shard to use",
                found=listed([first.file.name, entry.file.name]),
                advice="Use the path of the shard that you want to open, or save the model again with save_pretrained",
            )
        else:
            other = first if entry.file == named else entry
            # Kept, so that a second embedding is read as one that may be the model's.
            second = f"{other.file.relative_to(self._folder).as_posix()}.{name}"
            self.tensors[second], self.replaced[second] = replace(other, name=second), name
        if entry.file == named:
            self.tensors[name] = entry

    def notes(self) -> Iterator[str]:
        if self.same:
            yield f"Two shards contain {listed(self.same, 3)} with the same values."
        if self.replaced:
            names = listed(self.replaced.values(), 3)
            yield f"Two shards contain {names} with different values. The shard named in the index is used."


def joined(folder: Path, shards: Shards, budget: ReadBudget) -> tuple[dict[str, Tensor], tuple[Content, ...]]:
    """All shards' tensors by name, using the shard that the index names; and the content of each file."""
    weight_map, index = shards.weight_map, folder / str(shards.index or shards.format.index)
    contents: list[Content] = []
    found = _Joined(folder, weight_map)
    tensors = found.tensors
    for content in _contents(shards, budget):
        contents.append(content if not contents else _without_settings(content))
        if len(tensors) + len(content.tensors) > MAX_TENSORS:
            raise CorruptCheckpointError(
                "The model has too many tensors", file=folder, expected=f"at most {MAX_TENSORS}"
            )
        for name, entry in content.tensors.items():
            found.add(name, entry)
    contents[0] = replace(contents[0], notes=(*contents[0].notes, *found.notes()))
    if shards.stale is not None and (lacking := [name for name in shards.stale if name not in tensors]):
        gone = sorted({shards.stale[name] for name in lacking})
        raise _difference("The shard index does not match the folder", index, gone, [])
    if weight_map is None:
        return tensors, tuple(contents)
    missing = [name for name in weight_map if name not in tensors]
    extra = [name for name in tensors if name not in weight_map and name not in found.replaced]
    if missing or extra:
        raise _difference("The shard index does not match the shards' headers", index, missing, extra)
    moved = [name for name, shard in weight_map.items() if tensors[name].file != folder / shard]
    if moved:
        raise CorruptCheckpointError(
            "The shard index lists the wrong shard for some tensors",
            file=index,
            found=listed(f"{name} is in {tensors[name].file.name}, not in {weight_map[name]}" for name in moved),
        )
    return tensors, tuple(contents)


def _without_settings(content: Content) -> Content:
    """A later file's content: a model's settings are those of its first file, and two thousand copies of a vocabulary
    do not fit in memory."""
    said = content.metadata
    return replace(content, metadata={name: said[name] for name in OF_A_PIECE if name in said})


def _difference(problem: str, file: Path, missing: list[str], extra: list[str]) -> CorruptCheckpointError:
    found = "; ".join(f"{label}: {listed(names)}" for label, names in (("missing", missing), ("extra", extra)) if names)
    return CorruptCheckpointError(
        problem, file=file, found=found, advice="Download the missing files, or move unrelated files to another folder"
    )
