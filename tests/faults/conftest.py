"""Models to spoil, and a disk too small for them."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoint.builders import split


@pytest.fixture
def folder(tiny_path: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_path, tmp_path / "model")


@pytest.fixture
def sharded(tiny_path: Path, tmp_path: Path) -> Path:
    return split(tiny_path, tmp_path / "sharded")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB. Where this user may not mount one, a user namespace's is not reachable from here, so
    the limit on file sizes stands in for it."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
        return
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield place
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
