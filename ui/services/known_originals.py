"""The originals that the keys of a vault were made for, and where they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import path_from
from storage.vault import Vault


@dataclass(frozen=True, slots=True)
class KnownOriginals:
    """The originals that the vault's keys were made for.

    Attributes:
        here: paths at which a release was made from one of them, where something is still. It may be another model.
        names: their names.
        missing: the names of the other originals.
    """

    here: tuple[Path, ...]
    names: tuple[str, ...]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, vault: Vault, allowed: Callable[[Path], bool] = os.path.exists) -> KnownOriginals:
        """The originals of a vault.

        Args:
            allowed: whether a path may be read and exists.
        """
        here: dict[Path, None] = {}
        missing = []
        for record in vault.originals():
            paths = [path for path in map(path_from, record.paths) if allowed(path)]
            here |= dict.fromkeys(paths)
            if not paths:
                missing.append(record.name)
        return cls(tuple(here), tuple(path.name for path in here), tuple(missing))
