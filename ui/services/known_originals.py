"""The originals that the keys of a vault were made for, and where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import path_from
from storage.vault import Vault


@dataclass(frozen=True, slots=True)
class KnownOriginals:
    """The originals that the vault's keys were made for.

    Attributes:
        here: paths of those that are where a release was made from them.
        names: their names.
        missing: the names of the others.
        keys: number of keys made for those that are here.
    """

    here: tuple[Path, ...]
    names: tuple[str, ...]
    missing: tuple[str, ...]
    keys: int

    @classmethod
    def of(cls, vault: Vault, allowed: Callable[[Path], bool] = Path.exists) -> KnownOriginals:
        """The originals of a vault.

        Args:
            allowed: whether a path may be read and exists.
        """
        here: dict[Path, str] = {}
        missing, keys = [], 0
        for record in vault.originals():
            paths = [path for path in map(path_from, record.paths) if allowed(path)]
            here |= {path: path.name for path in paths}
            if paths:
                keys += record.keys
            else:
                missing.append(record.name)
        return cls(tuple(here), tuple(here.values()), tuple(missing), keys)
