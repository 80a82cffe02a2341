"""Recently picked paths, stored in the app's own folder."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from irwm.errors import path_from, shown_path
from storage.files import replace_private

FILE_NAME = "recent.json"
KEPT = 6
# Fields for the same kind of path share one list: an original that was marked is used on the other pages next.
SHARED = {
    "original-of": "original",
    "lab-original": "original",
    "verify-original": "original",
    "explored": "original",
    "verify-suspect": "suspect",
}


class RecentPaths:
    """Newest first, a few per purpose ("original", "suspect", "target", ...).

    A convenience, so a lost or damaged file gives an empty list and a failed write is not an error.
    """

    def __init__(self, home: Path) -> None:
        self._file = home / FILE_NAME
        self._lock = threading.Lock()

    def paths(self, purpose: str) -> tuple[str, ...]:
        """The paths picked for this purpose that still exist."""
        listed = SHARED.get(purpose, purpose)
        return tuple(path for path in self._read().get(listed, ()) if path_from(path).exists())

    def add(self, purpose: str, path: str | Path) -> None:
        """Moves a path to the head of its list."""
        text, purpose = path if isinstance(path, str) else shown_path(path), SHARED.get(purpose, purpose)
        with self._lock:
            content = self._read()
            if content.get(purpose, [""])[:1] == [text]:
                return
            content[purpose] = [text, *(known for known in content.get(purpose, ()) if known != text)][:KEPT]
            try:
                replace_private(self._file, json.dumps(content).encode("utf-8"))
            except (OSError, ValueError):
                return

    def _read(self) -> dict[str, list[str]]:
        try:
            content = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(content, dict):
            return {}
        return {
            purpose: [path for path in paths if isinstance(path, str) and "\0" not in path][:KEPT]
            for purpose, paths in content.items()
            if isinstance(paths, list)
        }
