"""Robustness: share of positions with rank below 0.2 after attacks, by statistic, on two trained models.

    python -m benchmarks.robustness [--write]

One mark (l = 50, t = 10) per model and scale; chance is 0.2. Noise is Gaussian on every matrix, as a share of the
matrix's deviation. Columns: the paper's reading (`sum`, A of the suspect), `joint` with A of the suspect, `joint`
with A of the original (the verdict's).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import irwm
from benchmarks.calibration import models
from benchmarks.written import write_table

READINGS = (("sum", "suspect"), ("joint", "suspect"), ("joint", "original"))


def noise(share: float) -> Callable[[Path, Path], Path]:
    """Return an attack that adds white noise of `share` deviations to every matrix."""
    return lambda release, out: irwm.attacks.add_noise(release, out, share, seed=7)


ATTACKS: dict[str, Callable[[Path, Path], Path]] = {
    "none": lambda release, out: Path(shutil.copytree(release, out)),
    "int8": lambda release, out: irwm.attacks.quantize(release, out, 8),
    "int4, groups of 32": lambda release, out: irwm.attacks.quantize(release, out, 4),
    "int3, groups of 32": lambda release, out: irwm.attacks.quantize(release, out, 3),
    "pruned 30 %": lambda release, out: irwm.attacks.prune(release, out, 0.3),
    "pruned 50 %": lambda release, out: irwm.attacks.prune(release, out, 0.5),
    "pruned 70 %": lambda release, out: irwm.attacks.prune(release, out, 0.7),
    "noise 0.1": noise(0.1),
    "noise 0.3": noise(0.3),
    "noise 0.5": noise(0.5),
    "noise 1.0": noise(1.0),
}


def lines(name: str, path: Path) -> Iterator[str]:
    """Yield the tables of one model, line by line."""
    model = irwm.open_checkpoint(path)
    for scale in (1000.0, "auto"):
        key = irwm.generate_key(model, irwm.Parameters(scale=scale, hidden=scale == "auto"), secret=bytes(range(32)))
        yield f"\n{name}, scale {key.scale:.0f}{' (auto)' if scale == 'auto' else ''}\n"
        yield "| attack | `sum`, A(suspect) | `joint`, A(suspect) | `joint`, A(original) | verdict | log10 p |"
        yield "|---|---|---|---|---|---|"
        with tempfile.TemporaryDirectory() as folder:
            release = irwm.insert(model, key, Path(folder) / "release").path
            for label, attack in ATTACKS.items():
                suspect = irwm.open_checkpoint(attack(release, Path(folder) / "attacked"))
                found = [irwm.detect(suspect, model, key, statistic=s, invariant=a) for s, a in READINGS]
                shares = " | ".join(f"{f.count / f.present:.2f}" if f.present else "none read" for f in found)
                yield f"| {label} | {shares} | {found[-1].verdict} | {found[-1].log10_p:.0f} |"
                shutil.rmtree(Path(folder) / "attacked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/method.md")
    options = parser.parse_args()
    measured = []
    for name, path in models().items():
        for line in lines(name, path):
            print(line, flush=True)
            measured.append(line)
    if options.write:
        write_table("method.md", "robustness", "\n".join(measured))


if __name__ == "__main__":
    main()
