"""Defines a target of the fuzzer, and the folder in which it may write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import IrwmError

FOLDER = Path(tempfile.mkdtemp(prefix="irwm-fuzz-"))


@dataclass(frozen=True)
class Target:
    """A parser to fuzz.

    Attributes:
        run: takes any bytes and returns.
        seeds: valid inputs to start from.
        largest: maximum size of an input in bytes.
        changed: how many changed inputs the quick tier tries for each seed.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    largest: int = 8192
    changed: int = 200


def written(name: str, content: bytes) -> Path:
    """A file with this content."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def tried(target: Target, content: bytes) -> None:
    """Runs a target; a typed error is a correct answer."""
    with suppress(IrwmError):
        target.run(content)
