"""Which files of a checkpoint belong to its release, and which would give the unmarked weights away."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from irwm.checkpoint.files import FileState, open_regular, require_inside, unreadable
from irwm.checkpoint.layout import INDEX_NAME
from irwm.checkpoint.magic import OTHER_WEIGHTS
from irwm.checkpoint.model import Checkpoint, is_single_file
from irwm.errors import PublishError
from irwm.release.manifest import LOCK_NAME, MANIFEST_NAME

# Files that belong to a single weight file beside them; other files there may be another model's.
_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.jinja",
)
# Weights even with another ending behind it, as in model.onnx.data or model.safetensors.bak.
_WEIGHTS_ANYWHERE = {".safetensors", ".gguf", ".onnx"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to copy: its name relative to the release, where it is now, and the state it had."""

    name: str
    path: Path
    seen: FileState


@dataclass(frozen=True, slots=True)
class Selection:
    """The files of a release.

    Attributes:
        files: those that are copied, sorted by name.
        left_out: names, relative to the source, of the others; a folder's name ends in a slash.
    """

    files: tuple[SourceFile, ...]
    left_out: tuple[str, ...]


def select_files(source: Checkpoint) -> Selection:
    """The files that a release of `source` consists of, links in them replaced by what they point to.

    Raises:
        NotACheckpointError: a file or folder cannot be read.
        CorruptCheckpointError: a link to a file leads out of the folder; following it could publish anything.
        PublishError: a shard lies behind a link to a folder.
    """
    shards = {part.file: part.seen for tensor in source.tensors.values() for part in tensor.parts}
    if is_single_file(source):
        return _select_beside(source.path, shards[source.path])
    files: list[SourceFile] = []
    left_out: list[str] = []
    pending = [source.path]
    while pending:
        for path in _entries(pending.pop()):
            name = path.relative_to(source.path).as_posix()
            mode, is_link = _mode(path)
            if path in shards:
                files.append(SourceFile(name, path, shards[path]))
            elif name in (MANIFEST_NAME, LOCK_NAME):
                continue  # the release gets its own
            elif stat.S_ISDIR(mode) and not is_link and not path.name.startswith("."):
                pending.append(path)
            elif not stat.S_ISREG(mode) or path.name.startswith(".") or (name != INDEX_NAME and _is_weights(path.name)):
                left_out.append(name + "/" if stat.S_ISDIR(mode) else name)
            else:
                require_inside(path, source.path)
                files.append(_source_file(name, path))
    missing = set(shards) - {file.path for file in files}
    if missing:
        raise PublishError(
            "A shard lies behind a link to a folder, which a release does not follow",
            file=min(missing),
            advice="Put the folder itself in the link's place",
        )
    return Selection(tuple(sorted(files, key=lambda file: file.name)), tuple(sorted(left_out)))


def _select_beside(weights: Path, seen: FileState) -> Selection:
    """A single weight file and the companions beside it."""
    files = [SourceFile(weights.name, weights, seen)]
    for path in _entries(weights.parent):
        wanted = any(fnmatchcase(path.name, pattern) for pattern in _COMPANIONS) and not _is_weights(path.name)
        if wanted and stat.S_ISREG(_mode(path)[0]):
            require_inside(path, weights.parent)
            files.append(_source_file(path.name, path))
    return Selection(tuple(sorted(files, key=lambda file: file.name)), ())


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except OSError as error:
        raise unreadable(folder, error) from error


def _mode(path: Path) -> tuple[int, bool]:
    """The mode of what the path leads to, 0 for nothing, and whether the path itself is a link."""
    try:
        return os.stat(path).st_mode, path.is_symlink()
    except OSError:
        return 0, True


def _is_weights(name: str) -> bool:
    """Whether a file's name says that it holds weights or is an index of weight files."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    return (
        bool(suffixes and suffixes[-1] in OTHER_WEIGHTS)
        or bool(_WEIGHTS_ANYWHERE.intersection(suffixes))
        or name.lower().endswith(".index.json")
    )


def _source_file(name: str, path: Path) -> SourceFile:
    with open_regular(path) as (_, seen):
        return SourceFile(name, path, seen)
