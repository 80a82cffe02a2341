"""Which checkpoints a folder and the folders below it contain, by names and a few first bytes: terabytes take a moment.

Except for what `weight_sets` leaves out, no weight file is skipped in silence. Hidden folders are searched too. What
cannot be read is a candidate too; opening it gives the reason. The search does not follow a link that leads out of the
folder: its author decides what it shows, and a report must be about the content of the folder.
"""

from __future__ import annotations

import os
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
# Of all indexes together; the largest real ones have 10 MB.
MOST_INDEX_BYTES = 128 * 1024 * 1024


class SweepFolderError(IrwmError):
    """A folder that cannot be swept: unreadable, empty of checkpoints, or too large."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The checkpoints that a folder may contain.

    Attributes:
        folder: the folder looked through, resolved.
        paths: what to open, sorted: a folder that holds one checkpoint and no other, or a weight file.
        files: by path, the resolved weight files of the checkpoint.
        refused: links that lead out of the folder, as they are named in it.
        too_deep: folders below `DEEPEST` levels, which were not looked into.
        cut: whether the search ended early because the folder holds too much.
    """

    folder: Path
    paths: tuple[Path, ...]
    files: dict[Path, frozenset[Path]]
    refused: tuple[str, ...] = ()
    too_deep: tuple[str, ...] = ()
    cut: bool = False

    @property
    def is_one(self) -> bool:
        """Whether there is one checkpoint, to be examined as such."""
        return len(self.paths) == 1

    def name_of(self, path: Path) -> str:
        """A candidate as a table names it: its path below the folder."""
        return "." if path == self.folder else _name(path.relative_to(self.folder))


def find_checkpoints(folder: str | Path) -> Candidates:
    """The checkpoints in a folder and in the folders below it; no weight is read.

    Raises:
        SweepFolderError: the folder cannot be read.
    """
    try:
        root = path_from(folder).resolve(strict=True)
        search = _Search(root)
        search.look(root, 0)
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a path with NUL
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise SweepFolderError(
            "this folder cannot be read", file=folder, found=found, advice="Check it and its permissions"
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
    """Names of the other checkpoints in a folder, besides the weight files that were `read`, and of what was not
    searched."""
    found, known = find_checkpoints(folder), {Path(os.path.realpath(file)) for file in read}
    others = [found.name_of(path) for path in found.paths if not found.files[path] <= known]
    more = ["more files than are looked through"] if found.cut else []
    return (*others, *found.refused, *found.too_deep, *more)


class _Search:
    """One walk; `seen` keeps a link to a folder inside from being walked twice or for ever."""

    def __init__(self, root: Path) -> None:
        self.root = root
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
        sets, left = weight_sets(folder, sorted(files)), MOST_CANDIDATES - len(self.found)
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
        """What to open, with its weight files; files that belong to another checkpoint are not one once more."""
        files: dict[Path, frozenset[Path]] = {path: frozenset((path,)) for path in self.unread}
        kept: list[tuple[Path, WeightSet]] = []
        known: set[Path] = set()
        # Sets first, and names that say something: a hub's cache has its files once more, under their hashes.
        for folder, each in sorted(self.found, key=lambda found: (len(found[1].files) < 2, not _telling(found[1]))):
            # An index that cannot be read has no files.
            own = frozenset(Path(os.path.realpath(folder / name)) for name in each.files or (each.name,))
            if not own <= known:
                known |= own
                kept.append((folder, each))
                files[folder / each.name] = own
        for folder, each in kept:
            inside = [path for path in files if path.is_relative_to(folder)]
            if len(inside) == 1 and _is_a_folder_of_its_own(folder, each):
                files[folder] = files.pop(folder / each.name)
        return files

    def _entries(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Each entry's name and the path that it leads to, if that is inside; links that lead nowhere are inside."""
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
        return self.scanned >= MOST_SCANNED or len(self.found) >= MOST_CANDIDATES

    def _name(self, path: Path) -> str:
        return _name(path.relative_to(self.root))


def _name(path: Path) -> str:
    """A path below a folder as text, a different one for each, since a report's row is found by it."""
    return shown_path(path.as_posix())


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _telling(each: WeightSet) -> bool:
    """Whether names make it a set of weights, and not first bytes alone."""
    return each.format is None or each.index is not None or each.format.owns(each.files[0])


def _is_a_folder_of_its_own(folder: Path, each: WeightSet) -> bool:
    """Whether a folder is a checkpoint's own: its config, an index or several files are in it."""
    if each.index is not None or len(each.files) > 1:
        return True
    return any(os.path.lexists(folder / name) for name in ("config.json", "adapter_config.json"))
