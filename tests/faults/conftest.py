"""Models to damage, and a disk that is too small for them."""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder(tiny_path: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_path, tmp_path / "model")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB. Where this user may not mount one, a user namespace's is not reachable from here, so
    the limit on file sizes replaces it."""
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


@pytest.fixture
def seed(record_property: Callable[[str, object], None]) -> int:
    """A new seed each time, which the report shows even if the test passes; IRWM_TEST_SEED repeats one."""
    number = int(os.environ.get("IRWM_TEST_SEED") or secrets.randbits(32))
    record_property("seed", f"IRWM_TEST_SEED={number}")
    return number
