"""The entries of a folder for a browser of folders: links are followed to their end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def entries(folder: Path) -> Iterator[tuple[str, Path, int] | None]:
    """Each entry's name, resolved path and mode, in the disk's order.

    None marks a skipped entry, so that the caller can count every entry: a hidden one, a dangling or circular link,
    one that may not be read.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as found:
        for item in found:
            yield None if item.name.startswith(".") else _followed(item)


def _followed(item: os.DirEntry[str]) -> tuple[str, Path, int] | None:
    try:
        resolved = Path(item.path).resolve(strict=True)
        return item.name, resolved, resolved.stat().st_mode
    except (OSError, RuntimeError):  # a dangling or circular link, or no permission
        return None
