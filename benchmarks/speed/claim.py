"""Input and output of a claim's module, and number formats that all of them share."""

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
        folder: folder of the synthetic models and all output, on the measured disk.
        repeats: number of runs for each timing.
        size: geometry of the synthetic model.
        quick: whether to use the smallest sizes, as a smoke test.
        threads: threads of every measured process.
    """

    folder: Path
    repeats: int
    size: geometry.Geometry
    quick: bool
    threads: int

    def model(self) -> Path:
        """Return the synthetic original, written once."""
        return self._made("original", lambda path: geometry.write(path, self.size))

    def release(self) -> Path:
        """Return its copy marked with the key of `SECRET`."""

        def mark(path: Path) -> None:
            import irwm

            model = irwm.open_checkpoint(self.model())
            irwm.insert(model, irwm.generate_key(model, secret=SECRET), path)

        return self._made("release", mark)

    def disguised(self) -> Path:
        """Return the marked copy, rotated and reordered, with a different layer 0, since detection does not read it."""

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
    """One required figure and the measured value.

    Attributes:
        what: description.
        asked: the limit, as text.
        reached: median and spread, as text.
        met: whether the limit is met.
        why: the physical reason if it is not met.
    """

    what: str
    asked: str
    reached: str
    met: bool
    why: str = ""


def median(runs: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(statistics.median(float(run[key]) for run in runs))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Format the median and the range: "4.31 (4.2 to 4.5)"."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def seconds(runs: Sequence[Mapping[str, Any]], key: str = "seconds", digits: int = 2) -> str:
    return spread([float(run[key]) for run in runs], digits) + " s"
