"""What lies in a folder, for whoever browses or searches it: names that can travel, links followed to their end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def entries(folder: Path) -> Iterator[tuple[str, Path, int] | None]:
    """Each entry's name, resolved path and mode, in the disk's order.

    None stands for an entry that is passed over, so that the caller can count what it has looked at: a hidden one, one
    whose name is no text, a dangling or circular link, one that may not be read.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as found:
        for item in found:
            yield None if item.name.startswith(".") or not _is_text(item.name) else _followed(item)


def _followed(item: os.DirEntry[str]) -> tuple[str, Path, int] | None:
    try:
        resolved = Path(item.path).resolve(strict=True)
        return item.name, resolved, resolved.stat().st_mode
    except (OSError, RuntimeError):  # a dangling or circular link, or no permission
        return None


def _is_text(name: str) -> bool:
    # A name that is not valid UTF-8 has no form that can travel to the page and back.
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
