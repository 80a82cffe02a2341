"""What a claim's module gets and gives, and the numbers that all of them print alike."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed import geometry

SECRET = bytes(range(32))
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Bench:
    """A run of the benchmarks.

    Attributes:
        folder: holds the made-up models and what is written; on the disk that is measured.
        repeats: of each timing.
        size: of the made-up model.
        quick: whether the smallest sizes are wanted, to see that the scripts run.
        threads: of every measured process.
    """

    folder: Path
    repeats: int
    size: geometry.Geometry
    quick: bool
    threads: int

    def model(self) -> Path:
        """The made-up original, written once."""
        return self._made("original", lambda path: geometry.write(path, self.size))

    def release(self) -> Path:
        """Its marked copy, by the key of `SECRET`."""

        def mark(path: Path) -> None:
            import irwm

            model = irwm.open_checkpoint(self.model())
            irwm.insert(model, irwm.generate_key(model, secret=SECRET), path)

        return self._made("release", mark)

    def disguised(self) -> Path:
        """The marked copy, rotated and reordered, with another layer 0 since the true one is not looked at."""

        def disguise(path: Path) -> None:
            import irwm

            table = irwm.open_checkpoint(self.release()).embedding(slice(None)).bfloat16()
            geometry.write(path, self.size, geometry.rotated_and_reordered(table), seed=5)

        return self._made("disguised", disguise)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _made(self, name: str, make: Callable[[Path], Any]) -> Path:
        path = self.folder / name
        if not path.exists():
            self.say(f"writing {path}")
            threads = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            make(path)
            torch.set_num_threads(threads)
        return path


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that was asked for, and what was reached.

    Attributes:
        what: in words.
        asked: the limit, as text.
        reached: median and spread, as text.
        met: whether it is.
        why: where it is not, the physical reason.
    """

    what: str
    asked: str
    reached: str
    met: bool
    why: str = ""


def median(runs: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(statistics.median(float(run[key]) for run in runs))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """ "4.31 (4.2 to 4.5)": the median and the range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def seconds(runs: Sequence[Mapping[str, Any]], key: str = "seconds", digits: int = 2) -> str:
    return spread([float(run[key]) for run in runs], digits) + " s"
