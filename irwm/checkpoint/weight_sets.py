"""Which weight files of one folder belong together: those of an index, a numbered set, or one file alone.

File names decide, and an index if there is one. Weight files are not opened, except for the first bytes of files with
other names. The content of a set is read by `irwm.checkpoint.opening`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from irwm.checkpoint.files import read_json_object
from irwm.checkpoint.formats import FORMATS, Format
from irwm.checkpoint.formats.content import first_bytes
from irwm.checkpoint.magic import OTHER_WEIGHTS, PIECES, own_format, recognise_magic
from irwm.errors import CheckpointError, CorruptCheckpointError, NotACheckpointError

ADAPTER_CONFIG = "adapter_config.json"
# peft's names, then MLX's.
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "adapters.safetensors")
# One file of a numbered set.
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<total>\d{1,6})\.[A-Za-z]+", re.DOTALL)
# The largest real index is some 10 MB.
_MAX_INDEX_BYTES = 64 * 1024 * 1024
_INDEX = ".index.json"
# Trainers' files with the suffixes of weight files. Those of an optimizer are large, the others small.
_OPTIMIZER = re.compile(r"optim(izer)?([_-]?\d+)*\.(bin|pt|pth)", re.ASCII)
_OF_A_TRAINER = re.compile(
    r"(training_args|scheduler|scaler|rng_state|trainer_state|random_states)([_-]?\d+)*\.(bin|pt|pth|pkl)", re.ASCII
)
_MOST_OF_A_TRAINER = 4 * 1024 * 1024
# macOS writes a companion next to each file if the disk cannot store the file's attributes.
_APPLE_DOUBLE, _COMPANION = b"\x00\x05\x16\x07", "._"
# Files with other names are checked from this size on; the smallest models are far larger.
_LEAST_UNNAMED = 16 * 1024


@dataclass(frozen=True, slots=True)
class WeightSet:
    """Weight files of a folder that form one model.

    Attributes:
        format: None if the format is not supported.
        files: names in the folder, sorted; those of an index may be in folders below it.
        index: the name of the index that names them; None without one.
    """

    format: Format | None
    files: tuple[str, ...]
    index: str | None = None

    @property
    def name(self) -> str:
        """The name of the file that opens the set when given as a path."""
        return self.index or self.files[0]

    @property
    def is_adapter(self) -> bool:
        return self.name in ADAPTER_WEIGHTS

    @property
    def is_hidden(self) -> bool:
        return self.name.startswith(".")


def weight_sets(folder: Path, names: Sequence[str]) -> list[WeightSet]:
    """The weights in a folder, sorted by name.

    Trainers' states and companion files of macOS are left out. If some shards are missing, each shard is a separate
    set, so that the one with the embedding can be examined.

    Args:
        folder: resolved.
        names: of its files.
    """
    names = [name for name in names if not _is_of_a_trainer(folder / name) and not is_companion(folder / name, folder)]
    found: list[WeightSet] = []
    taken: set[str] = set()
    for name in names:
        format = format_of_index(name)
        if format is None:
            continue
        listed = _named_by(folder, name, format, names)
        if listed is not None:
            found.append(WeightSet(format, listed, name))
            taken |= {*listed, name}
    numbered: dict[tuple[str, str, Format], list[str]] = {}
    for name in names:
        if name in taken:
            continue
        known, format = format_of(folder / name, folder)
        if not known:
            continue
        parts = SHARD.fullmatch(name)
        if format is not None and parts is not None and int(parts["total"]) > 1:
            numbered.setdefault((parts["stem"], parts["total"], format), []).append(name)
        else:
            found.append(WeightSet(format, (name,)))
    for (_, _, format), members in numbered.items():
        whole = not missing_of(members)[0]
        found += [WeightSet(format, tuple(each)) for each in ([members] if whole else ([name] for name in members))]
    return sorted(found, key=lambda each: each.name)


def missing_of(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The missing files of a numbered set, and the files that do not belong to it; empty if the files are not numbered
    in one set."""
    parts = [found for name in names if (found := SHARD.fullmatch(name)) is not None]
    if len(parts) < len(names) or len({(each["stem"], each["total"]) for each in parts}) != 1:
        return [], []
    total = int(parts[0]["total"])
    present = [int(each["number"]) for each in parts]
    # Bounded by the names that exist, since the total is only a claim in a name.
    missing = [f"number {n} of {total}" for n in range(1, min(total, len(present) + 8) + 1) if n not in present]
    extra = [each.string for each in parts if not 1 <= int(each["number"]) <= total]
    twice = len(set(present)) < len(present)
    return missing or (["a valid and unique number for each file"] if extra or twice else []), extra


def format_of_index(name: str) -> Format | None:
    """The format whose shards a file of this name indexes; None if it is not an index."""
    if not name.lower().endswith(_INDEX):
        return None
    return next((each for each in FORMATS if each.index and each.owns(name[: -len(_INDEX)])), None)


def _named_by(folder: Path, index: str, format: Format, names: Sequence[str]) -> tuple[str, ...] | None:
    """The files that an index names, with others of the same numbered set; None if one of them is missing.

    An invalid index has no files, and its own name identifies the set: opening it gives the reason.
    """
    try:
        listed = set(read_index(folder / index, format, folder).values())
    except CheckpointError:
        return ()
    if not all(os.path.lexists(folder / name) for name in listed):
        return None
    return tuple(sorted({*listed, *numbered_like(listed, names, format)}))


def numbered_like(listed: Iterable[str], names: Iterable[str], format: Format) -> list[str]:
    """The names that belong to the same numbered sets as the listed files."""
    sets = {(parts["stem"], parts["total"]) for parts in map(SHARD.fullmatch, listed) if parts is not None}
    return [
        name
        for name in names
        if format.owns(name) and (parts := SHARD.fullmatch(name)) and (parts["stem"], parts["total"]) in sets
    ]


def read_index(path: Path, format: Format, folder: Path) -> dict[str, str]:
    """An index's weight_map: tensor name to shard name, every shard name a plain path below the folder.

    Raises:
        CorruptCheckpointError: it has none, or one that leads elsewhere.
        NotACheckpointError: it cannot be read.
    """
    weight_map = read_json_object(path, _MAX_INDEX_BYTES, "shard index", folder=folder, strict=True).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptCheckpointError(
            "The shard index has no weight_map", file=path, expected="an object that maps tensor names to file names"
        )
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain(name, format):
            raise CorruptCheckpointError(
                "The shard index contains a shard name that is invalid or points outside the folder",
                file=path,
                tensor=tensor,
                expected=f"the name of a {format.suffixes[0]} file in the folder",
                found=str(name),
                advice="Do not use this model: its index was made to read files outside the folder",
            )
    return weight_map


def _is_plain(name: str, format: Format) -> bool:
    """Whether a shard's name in an index is a plain relative path; links are checked when it is resolved."""
    pieces = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and not PurePosixPath(name).is_absolute()
        and not any(piece == "" or piece.startswith(".") for piece in pieces)
        and format.owns(name)
    )


def format_of(path: Path, folder: Path | None = None) -> tuple[bool, Format | None]:
    """Whether a file holds weights, and its format, None if that is not supported. The name decides if it is
    conclusive, otherwise the first bytes do.

    Args:
        folder: the resolved folder that a link may not lead out of.
    """
    format = next((each for each in FORMATS if each.owns(path.name)), None)
    ending = path.suffix.lower()
    if format is not None or ending in PIECES:
        return True, format
    named = ending in OTHER_WEIGHTS
    if not named and not _is_large(path):
        return False, None
    try:
        start, seen = first_bytes(path, folder)
    except NotACheckpointError:  # unreadable
        return True, None
    except CheckpointError:  # a link out of the folder, which the search reports
        return named, None
    inside = own_format(start, seen.size)
    format = next((each for each in FORMATS if each.name == inside), None)
    foreign = recognise_magic(start)
    container = foreign is not None and (foreign.is_model or foreign.is_archive)
    return named or format is not None or container, format


def _is_large(path: Path) -> bool:
    """Whether a file with another name is large enough to be a model."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size >= _LEAST_UNNAMED


def _is_of_a_trainer(path: Path) -> bool:
    if _OPTIMIZER.fullmatch(path.name):
        return True
    try:
        return bool(_OF_A_TRAINER.fullmatch(path.name)) and os.stat(path).st_size <= _MOST_OF_A_TRAINER
    except OSError:
        return False


def is_companion(path: Path, folder: Path) -> bool:
    """Whether a file is a companion that macOS writes ("AppleDouble"): it holds attributes of another file."""
    if not path.name.startswith(_COMPANION):
        return False
    try:
        return first_bytes(path, folder)[0].startswith(_APPLE_DOUBLE)
    except CheckpointError:
        return False
