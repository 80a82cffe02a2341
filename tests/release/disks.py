"""Disks that clone files and disks that do not, as fixtures; imported by name in the modules that need them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def reflink_disk(tmp_path: Path) -> Iterator[Path]:
    """A btrfs of 320 MB in a file; skipped if its tools are missing or this user may not mount it."""
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("there is no mkfs.btrfs; sh tools/need_tools.sh installs it")
    image, place = tmp_path / "disk.img", tmp_path / "btrfs"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(320 * 1024 * 1024)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, check=False, text=True)
    if done.returncode:
        pytest.skip(f"this machine does not mount a btrfs from a file: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def plain_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tmpfs"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
