"""Which checkpoints a folder holds, told by names alone: nothing is opened, so that terabytes take a moment.

A link that leads out of the folder is not followed: who put it there decides what it shows, and a report must be about
what lies in the folder.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import IrwmError
from ui.entries import entries

# A folder of a training run holds its checkpoints one or two levels down; a hub's cache three.
DEEPEST = 4
MOST_CANDIDATES = 500
MOST_SCANNED = 50_000
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
# Files whose names say by themselves that they hold weights; .bin and .pt alone may be anything.
_TELLING = (".safetensors", ".gguf")
_OF_A_FOLDER = ("config.json", "adapter_config.json")
_PART = re.compile(r".+-\d{1,6}-of-\d{1,6}\.[A-Za-z]+", re.DOTALL)
_NO_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|rng_state|scaler|trainer_state|random_states).*")


class SweepFolderError(IrwmError):
    """A folder that cannot be swept: unreadable, empty of checkpoints, or too large."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a folder may hold.

    Attributes:
        folder: the folder looked through, resolved.
        paths: folders and single files, sorted, that look like one checkpoint each.
        refused: links that lead out of the folder, as they are named in it.
        too_deep: folders below `DEEPEST` levels, which were not looked into.
        cut: whether the search ended early because the folder holds too much.
    """

    folder: Path
    paths: tuple[Path, ...]
    refused: tuple[str, ...] = ()
    too_deep: tuple[str, ...] = ()
    cut: bool = False

    @property
    def is_one(self) -> bool:
        """Whether the folder is one checkpoint itself, or has a single weights file in it, to be examined as such."""
        return self.folder in self.paths or [path.parent for path in self.paths] == [self.folder]

    def name_of(self, path: Path) -> str:
        """A candidate as a table names it: its path below the folder."""
        return "." if path == self.folder else path.relative_to(self.folder).as_posix()


def candidates(folder: Path) -> Candidates:
    """The checkpoints in a folder.

    Raises:
        SweepFolderError: the folder cannot be read.
    """
    try:
        root = folder.resolve(strict=True)
        search = _Search(root)
        search.look(root, 0)
    except OSError as error:
        raise SweepFolderError(
            "this folder cannot be read", file=folder, found=error.strerror, advice="Check it and its permissions"
        ) from error
    return Candidates(root, tuple(sorted(search.paths)), tuple(search.refused), tuple(search.too_deep), search.cut)


def several_in(path: Path) -> Candidates | None:
    """What a folder holds where that is not one checkpoint; None for a file, and for a checkpoint's own folder.

    Raises:
        SweepFolderError: the folder cannot be read.
    """
    if not path.is_dir():
        return None
    found = candidates(path)
    return None if found.is_one or not found.paths else found


class _Search:
    """One walk; `seen` keeps a link to a folder inside from being walked twice or for ever."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths: list[Path] = []
        self.refused: list[str] = []
        self.too_deep: list[str] = []
        self.scanned = 0
        self.cut = False
        self._seen: set[Path] = set()

    def look(self, folder: Path, depth: int) -> None:
        if folder in self._seen:
            return
        if self._full():
            self.cut = True
            return
        self._seen.add(folder)
        files, folders, telling = [], [], False
        for name, path, mode in self._entries(folder):
            telling = telling or name in _OF_A_FOLDER or name.endswith(".index.json")
            if stat.S_ISDIR(mode):
                folders.append(path)
            elif stat.S_ISREG(mode) and name.lower().endswith(_WEIGHTS) and not _NO_WEIGHTS.fullmatch(name):
                files.append(folder / name)
        found, room = _of_folder(folder, files, telling), MOST_CANDIDATES - len(self.paths)
        self.cut = self.cut or len(found) > room
        self.paths += found[:room]
        for path in sorted(folders):
            if depth < DEEPEST:
                try:
                    self.look(path, depth + 1)
                except PermissionError:
                    self.refused.append(self._name(path))
            else:
                self.too_deep.append(self._name(path))

    def _entries(self, folder: Path) -> Iterator[tuple[str, Path, int]]:
        for found in entries(folder):
            self.scanned += 1
            if self._full():
                self.cut = True
                return
            if found is None:
                continue
            name, resolved, mode = found
            if not resolved.is_relative_to(self.root):
                self.refused.append(self._name(folder / name))
                continue
            yield name, resolved if stat.S_ISDIR(mode) else folder / name, mode

    def _full(self) -> bool:
        return self.scanned >= MOST_SCANNED or len(self.paths) >= MOST_CANDIDATES

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _of_folder(folder: Path, files: list[Path], telling: bool) -> list[Path]:
    """The checkpoints that the weight files directly in a folder make up.

    A GGUF file is a model of its own, whatever lies beside it. Of the others a config, an index or a numbered set
    makes one model; without any of these each is its own, if its name says at all that it holds weights.
    """
    single = [file for file in files if file.suffix.lower() == ".gguf"]
    others = [file for file in files if file.suffix.lower() != ".gguf"]
    if others and (telling or any(_PART.fullmatch(file.name) for file in others)):
        return [folder, *single]
    if len(single) == 1 and not others and telling:
        return [folder]
    return single + [file for file in others if file.suffix.lower() in _TELLING or len(others) == 1]
