"""Finds the checkpoints in a folder and the folders below it, by names and a few first bytes; fast for terabytes.

Except for what `weight_sets` leaves out, no weight file is skipped silently. Hidden folders are searched too. Files
that cannot be read are candidates too; opening them gives the reason. The search does not follow a link that leads out
of the folder: the folder's author controls the link, and a report must be about the content of the folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.files import hub_blobs
from irwm.checkpoint.weight_sets import WeightSet, format_of_index, weight_sets
from irwm.errors import IrwmError, path_from, shown_path

# A folder of a training run holds its checkpoints one or two levels down; a hub's cache four.
DEEPEST = 8
MOST_CANDIDATES = 500
MOST_SCANNED = 50_000
# Of all indexes together. The largest real ones have 10 MB.
MOST_INDEX_BYTES = 128 * 1024 * 1024


class SweepFolderError(IrwmError):
    """A folder that cannot be swept: unreadable, without checkpoints, or too large."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The checkpoints that a folder may contain.

    Attributes:
        folder: the searched folder, resolved.
        paths: the paths to open, sorted: folders that hold exactly one checkpoint, or weight files.
        files: by path, the resolved weight files of the checkpoint.
        refused: links that lead out of the folder, by their names in it.
        too_deep: folders below `DEEPEST` levels, which were not searched.
        cut: whether the search ended early because the folder has too many files.
    """

    folder: Path
    paths: tuple[Path, ...]
    files: dict[Path, frozenset[Path]]
    refused: tuple[str, ...] = ()
    too_deep: tuple[str, ...] = ()
    cut: bool = False

    @property
    def is_one(self) -> bool:
        """Whether the folder is examined as one checkpoint."""
        return len(self.paths) == 1

    def name_of(self, path: Path) -> str:
        """A candidate's name in a table: its path below the folder."""
        return "." if path == self.folder else _name(path.relative_to(self.folder))


def find_checkpoints(folder: str | Path, most: int = MOST_CANDIDATES) -> Candidates:
    """The checkpoints in a folder and in the folders below it. Reads no weights.

    Args:
        most: number of checkpoints after which the search ends.

    Raises:
        SweepFolderError: the folder cannot be read.
    """
    try:
        root = path_from(folder).resolve(strict=True)
        search = _Search(root, most)
        search.look(root, 0)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or a path with NUL
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise SweepFolderError(
            "this folder cannot be read", file=folder, found=found, advice="Check the folder and its permissions"
        ) from error
    files = search.distinct()
    return Candidates(root, tuple(sorted(files)), files, tuple(search.refused), tuple(search.too_deep), search.cut)


def several_in(path: Path) -> Candidates | None:
    """The content of a folder with several checkpoints; None for a file, and for the folder of one checkpoint.

    Raises:
        SweepFolderError: the folder cannot be read.
    """
    if not os.path.isdir(path):
        return None
    found = find_checkpoints(path)
    return None if found.is_one or not found.paths else found


def others_in(folder: Path, read: Iterable[Path]) -> tuple[str, ...]:
    """Names of the other checkpoints in a folder, except the weight files that were `read`, and of the parts that were
    not searched."""
    found, known = find_checkpoints(folder), {Path(os.path.realpath(file)) for file in read}
    others = [found.name_of(path) for path in found.paths if not found.files[path] <= known]
    more = ["files beyond the search limit"] if found.cut else []
    return (*others, *found.refused, *found.too_deep, *more)


class _Search:
    """One walk; `seen` prevents walking a linked folder twice or endlessly."""

    def __init__(self, root: Path, most: int) -> None:
        self.root, self.most = root, most
        self.found: list[tuple[Path, WeightSet]] = []
        self.unread: list[Path] = []
        self.refused: list[str] = []
        self.too_deep: list[str] = []
        self.scanned, self.index_bytes = 0, 0
        self.cut = False
        self._seen: set[Path] = set()

    def look(self, folder: Path, depth: int) -> None:
        if folder in self._seen:
            return
        if self._full():
            self.cut = True
            return
        self._seen.add(folder)
        files, folders = [], []
        for name, path in self._entries(folder):
            if os.path.isdir(path):
                folders.append(path)
            else:
                files.append(name)
        for name in filter(format_of_index, files):
            self.index_bytes += _size(folder / name)
        if self.index_bytes > MOST_INDEX_BYTES:
            self.cut = True
            return
        sets, left = weight_sets(folder, sorted(files)), self.most - len(self.found)
        self.cut = self.cut or len(sets) > left
        self.found += [(folder, each) for each in sets[:left]]
        for path in sorted(folders):
            if depth >= DEEPEST:
                self.too_deep.append(self._name(path))
                continue
            try:
                self.look(path, depth + 1)
            except OSError:
                self.unread.append(path)  # opening it gives the reason

    def distinct(self) -> dict[Path, frozenset[Path]]:
        """The paths to open, with their weight files; a file that belongs to another checkpoint is not listed again."""
        files: dict[Path, frozenset[Path]] = {path: frozenset((path,)) for path in self.unread}
        kept: list[tuple[Path, WeightSet]] = []
        known: set[Path] = set()
        # Sets first, and descriptive names: a hub's cache contains its files a second time, under their hashes.
        for folder, each in sorted(self.found, key=lambda found: (len(found[1].files) < 2, not _telling(found[1]))):
            # An index that cannot be read has no files.
            own = frozenset(Path(os.path.realpath(folder / name)) for name in each.files or (each.name,))
            if not own <= known:
                known |= own
                kept.append((folder, each))
                files[folder / each.name] = own
        inside = Counter(parent for path in files for parent in (path, *path.parents))
        for folder, each in kept:
            if inside[folder] == 1 and _is_a_folder_of_its_own(folder, each):
                files[folder] = files.pop(folder / each.name)
        return files

    def _entries(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Each entry's name and the path it leads to, if that is inside; broken links count as inside."""
        with os.scandir(folder) as found:
            for item in found:
                self.scanned += 1
                if self._full():
                    self.cut = True
                    return
                path = folder / item.name
                if not item.is_symlink():
                    yield item.name, path
                    continue
                resolved = Path(os.path.realpath(path))
                blobs = hub_blobs(folder)
                if resolved.is_relative_to(self.root):
                    yield item.name, resolved if os.path.isdir(resolved) else path
                elif blobs is not None and resolved.is_relative_to(blobs):
                    yield item.name, path
                else:
                    self.refused.append(self._name(path))

    def _full(self) -> bool:
        return self.scanned >= MOST_SCANNED or len(self.found) >= self.most

    def _name(self, path: Path) -> str:
        return _name(path.relative_to(self.root))


def _name(path: Path) -> str:
    """A path below a folder as text, unique, because it identifies a row of the report."""
    return shown_path(path.as_posix())


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _telling(each: WeightSet) -> bool:
    """Whether its names, and not only its first bytes, make it a set of weights."""
    return each.format is None or each.index is not None or each.format.owns(each.files[0])


def _is_a_folder_of_its_own(folder: Path, each: WeightSet) -> bool:
    """Whether a folder belongs to one checkpoint: it contains a config, an index or several files of it."""
    if each.index is not None or len(each.files) > 1:
        return True
    return any(os.path.lexists(folder / name) for name in ("config.json", "adapter_config.json"))
