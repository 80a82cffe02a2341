"""Folders that a folder browser may show, and the check whether a path may be used. No Gradio here.

Every path is resolved before it is compared, so that "..", links and other spellings cannot lead outside.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from irwm.checkpoint.remote.address import is_address
from irwm.checkpoint.remote.mirror import mirrors
from irwm.checkpoint.remote.opening import local_path
from irwm.checkpoint.weight_sets import format_of, format_of_index
from irwm.errors import IrwmError, path_from, shown_path
from ui.folder_entries import entries
from ui.settings import Settings
from ui.units import size_text

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
TELLING = (".safetensors", ".gguf")
CONFIG = "config.json"
# Users do not browse longer lists, and a folder of a million files must not block the page.
MOST_ENTRIES = 500
MOST_SCANNED = 20_000
# Entries of a folder that are searched for weights before it counts as a plain folder.
MOST_PEEKED = 400
# Kinds of path for which only files with certain endings are shown and accepted.
SOME_FILES = ("model", "file")
_NEITHER = "this is neither a folder nor a regular file"
_NOT_THAT = {"folder": "this is not a folder", "file": "this is not a file", "model": _NEITHER, "any": _NEITHER}
_PICK = {
    "folder": "pick a folder",
    "file": "choose the file itself",
    "model": "choose the model's folder or its weights file",
    "any": "pick a folder or a file",
}


class PathRefusedError(IrwmError):
    """A path that this app does not use: outside the folders it may show, missing, or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class BrowsingLimits:
    """Folders that may be browsed.

    Attributes:
        roots: resolved folders; everything below them may be shown.
        closed: resolved folders that may not be shown, even below a root: the app's own.
    """

    roots: tuple[Path, ...]
    closed: tuple[Path, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> BrowsingLimits:
        # The files of a mirror are placeholders.
        return cls(settings.roots, tuple(filter(None, (settings.home.resolve(), mirrors()))))

    def hold(self, resolved: Path) -> bool:
        """Whether a resolved path is inside the roots and outside the closed folders."""
        inside = any(resolved == root or root in resolved.parents for root in self.roots)
        return inside and not any(resolved == folder or folder in resolved.parents for folder in self.closed)

    def allow(self, path: Path) -> bool:
        """Whether a model's path may be used and exists."""
        try:
            use_path(shown_path(path), self)
        except IrwmError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing.

    Attributes:
        name: the last part of the path, as the disk has it.
        path: the full path.
        kind: "folder", "model" (a folder that looks like a model) or "file".
        detail: a few words for the right-hand side.
    """

    name: str
    path: str
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The visible entries of a folder.

    Attributes:
        folder: the resolved folder.  parent: the folder above it, None if that may not be shown.
        entries: folders first, then files, each by name.
        left_out: how many entries were left out because there are too many.
    """

    folder: Path
    parent: Path | None
    entries: tuple[Entry, ...]
    left_out: int = 0


def use_path(
    text: str,
    limits: BrowsingLimits,
    *,
    kind: str = "model",
    suffixes: Sequence[str] = WEIGHTS,
    addresses: bool = False,
) -> Path:
    """The path that a person typed or picked, if it may be used.

    Args:
        kind: "model" for an existing folder or a weights file, "folder" for an existing folder, "file" for a file,
            "any" for either.
        suffixes: the weights files that "model" takes, or the files that "file" takes; none for any file.
        addresses: whether the address of a checkpoint on a server may be given too. The server is asked for its files.

    Returns:
        The resolved folder, or the file's name in its resolved folder. A file's own link is kept: in a hub's cache
        the link has the name and its target only a hash. For an address, its mirror's.

    Raises:
        PathRefusedError
        RemoteError: the server may not be asked, or cannot be read.
    """
    typed = text.strip().strip('"').strip()
    if is_address(typed):
        if addresses:
            return local_path(typed)
        raise PathRefusedError(
            "an address cannot be used here", file=typed, advice="Download the files and enter their path"
        )
    if not typed:
        raise PathRefusedError("no path was given", advice="type or paste a path, or browse for one")
    path, resolved = _resolved(typed)
    # Checked first, so that errors do not reveal whether a path outside exists.
    if not limits.hold(resolved):
        raise _outside(typed, limits)
    try:
        mode = resolved.stat().st_mode
    except FileNotFoundError:
        raise PathRefusedError(
            "there is no file or folder at this path", file=typed, advice="check the spelling, or browse for the path"
        ) from None
    except OSError as error:
        raise _unreadable(typed, error) from error
    if stat.S_ISDIR(mode) and kind != "file":
        return resolved
    if kind == "folder" or not stat.S_ISREG(mode):
        raise PathRefusedError(_NOT_THAT[kind], file=typed, advice=_PICK[kind])
    by_content = kind == "model" and (format_of(resolved)[1] or format_of_index(path.name)) is not None
    if kind in SOME_FILES and suffixes and path.suffix.lower() not in suffixes and not by_content:
        raise PathRefusedError(
            "this type of file cannot contain weights" if kind == "model" else "this is the wrong type of file",
            file=typed,
            expected=", ".join(suffixes),
            found=path.suffix or "no file extension",
            advice=_PICK[kind],
        )
    named = path.parent.resolve() / path.name
    return named if limits.hold(named) else resolved


def new_folder(parent: str, name: str, limits: BrowsingLimits) -> Path:
    """The path of a new folder inside `parent`.

    Raises:
        PathRefusedError: the name is not a plain name, or the folder or the target of a link of this name is refused.
    """
    name = name.strip()
    if not name or name != Path(name).name or name in (".", "..") or not name.isprintable() or "\\" in name:
        raise PathRefusedError(
            "this is not a valid folder name",
            found=name,
            expected="a single name without slashes",
            advice="Enter another name",
        )
    folder = use_path(parent, limits, kind="folder") / name
    # An existing entry of this name may be a link, and files written into it end up in its target.
    if os.path.lexists(folder) and not limits.hold(_resolved(shown_path(folder))[1]):
        raise _outside(shown_path(folder), limits)
    return folder


def list_folder(
    folder: str | Path, limits: BrowsingLimits, *, kind: str = "model", suffixes: Sequence[str] = WEIGHTS
) -> Listing:
    """The folders and weights files in a folder; hidden ones and links that lead out of the roots are not shown.

    Args:
        kind: "folder" shows folders only.

    Raises:
        PathRefusedError: the folder may not be shown, or cannot be read.
    """
    place = use_path(folder if isinstance(folder, str) else shown_path(folder), limits, kind="folder")
    folders: list[Entry] = []
    files: list[Entry] = []
    try:
        for name, resolved, mode in _visible(place, limits):
            if stat.S_ISDIR(mode):
                folders.append(Entry(shown_path(name), shown_path(resolved), "folder"))
            elif kind != "folder" and stat.S_ISREG(mode) and _is_shown(name, kind, suffixes):
                files.append(
                    Entry(shown_path(name), shown_path(place / name), "file", size_text(resolved.stat().st_size))
                )
    except OSError as error:
        raise _unreadable(shown_path(place), error) from error
    folders.sort(key=lambda entry: entry.name.casefold())
    files.sort(key=lambda entry: entry.name.casefold())
    kept = (folders + files)[:MOST_ENTRIES]
    # Only folders that are shown are opened.
    look = kind != "file"  # for files, a model's folder is an ordinary folder
    entries = tuple(_looked_into(e, suffixes) if look and e.kind == "folder" else e for e in kept)
    parent = place.parent if place.parent != place and limits.hold(place.parent) else None
    return Listing(place, parent, entries, len(folders) + len(files) - len(kept))


def describe(path: Path, suffixes: Sequence[str] = WEIGHTS) -> str:
    """A path in a few words, such as "2 weights files, 14.5 GB"; "" if there is no information about it."""
    try:
        if path.is_file():
            return size_text(path.stat().st_size)
        return _weights(path, suffixes)
    except OSError:
        return ""


def _visible(place: Path, limits: BrowsingLimits) -> Iterator[tuple[str, Path, int]]:
    for found in itertools.islice(entries(place), MOST_SCANNED):
        if found is not None and limits.hold(found[1]):
            yield found


def _is_shown(name: str, kind: str, suffixes: Sequence[str]) -> bool:
    return kind not in SOME_FILES or not suffixes or Path(name).suffix.lower() in suffixes


def _looked_into(entry: Entry, suffixes: Sequence[str]) -> Entry:
    try:
        detail = _weights(path_from(entry.path), suffixes)
    except OSError:
        return replace(entry, detail="cannot be read")
    return replace(entry, kind="model", detail=detail) if detail else entry


def _weights(folder: Path, suffixes: Sequence[str]) -> str:
    """The weights files of a folder in a few words; "" for a folder that does not look like a model."""
    count, size, telling = 0, 0, False
    with os.scandir(folder) as found:
        for _, item in zip(range(MOST_PEEKED), found, strict=False):
            suffix = Path(item.name).suffix.lower()
            # .bin and .pt files may hold anything; they count as weights if there is a config next to them.
            telling = telling or item.name == CONFIG or suffix in TELLING
            if suffix in suffixes and item.is_file():
                count, size = count + 1, size + item.stat().st_size
    if not (count and telling):
        return ""
    return f"{count} weights file{'s' if count > 1 else ''}, {size_text(size)}"


def _resolved(typed: str) -> tuple[Path, Path]:
    try:
        path = path_from(typed).expanduser()
        if not path.is_absolute():
            raise PathRefusedError("this is not a full path", file=typed, advice="enter the full path")
        return path, path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(typed, error) from error


def _outside(typed: str, limits: BrowsingLimits) -> PathRefusedError:
    return PathRefusedError(
        "this path is outside the folders that the app may use",
        file=typed,
        expected="a path under " + ", ".join(str(root) for root in limits.roots),
        advice="move the file or folder there, or add its folder on the Settings page",
    )


def _unreadable(typed: str, error: Exception) -> PathRefusedError:
    reason = getattr(error, "strerror", None) or str(error)
    return PathRefusedError(
        "this path cannot be read", file=typed, found=reason, advice="check the path and its permissions"
    )
