"""A million wrong keys on unmarked suspects of every kind, by the routine that every report runs with its verdict.

    python -m benchmarks.decoys [--decoys 1000000] [--write]

Every key is wrong by construction, so the share of keys at or below a stated chance must not exceed that chance. The
suspects are the originals, disguised and damaged copies, unrelated models, and unusual synthetic embeddings, each read
under every possible map. Prints the share for 1e-1 to 1e-6 with its 95 % Clopper-Pearson interval. --write puts the
table into docs/evaluation.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import irwm
from benchmarks.reproduce.models import default_models
from benchmarks.written import write_table
from irwm.attacks.equivalence import Step, disguise
from irwm.evidence.decoys import ranked, share_below
from irwm.evidence.finding import MAPS
from tools.copies import with_noise, write_embedding

ROOT = Path(__file__).resolve().parents[1]
# Decoys per seed and per map. A map has more decoys than in a report, since there are a million.
BLOCK, PER_MAP = 10_000, 1000
LEVELS = (-1, -2, -3, -4, -5, -6)
# Number of rows that the wrong keys of a block may mark.
BANK_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Case:
    """A suspect without the mark, an original, and the settings of a key of that original."""

    name: str
    suspect: Path
    original: Path
    params: irwm.Parameters

    def readings(self, device: str) -> Iterator[tuple[str, Callable[[int, int], NDArray[np.float64] | None]]]:
        """See the function."""
        return readings(irwm.open_checkpoint(self.suspect), irwm.open_checkpoint(self.original), self.params, device)


def unusual(rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return embeddings (s, d) that training does not produce."""
    generator = torch.Generator().manual_seed(0)
    columns, halved = rows.clone(), rows.clone()
    columns[:, :3] *= 100
    halved[::2] = 0
    deviation = rows.std()
    return {
        "almost identical rows": with_noise(rows[7].expand(rows.shape).clone(), 0.001),
        "three columns a hundred times larger": columns,
        "ternary": rows.sign() * (rows.abs() > deviation / 2) * deviation,
        "every second row zero": halved,
        "random": deviation * torch.randn(rows.shape, generator=generator),
    }


def cases(scratch: Path) -> Iterator[Case]:
    """Yield every suspect; those that must be made are written to `scratch`."""
    models = dict(default_models())
    paper = irwm.Parameters.paper()
    params = {name: irwm.one_owner(irwm.open_checkpoint(path).hidden_size) for name, path in models.items()}
    for name, path in models.items():
        yield Case(f"{name} itself, scale 1000", path, path, paper)
        yield Case(f"{name} itself", path, path, params[name])
    disguises: dict[str, list[Step]] = {"rotated": ["rotate"], "permuted, rescaled": ["permute_residual", "rescale"]}
    for name in ("demo", "gemma"):
        for how, steps in disguises.items():
            made = disguise(models[name], scratch / f"{name} {how}", steps, dtype="float32")
            yield Case(f"{name}, {how}", made, models[name], params[name])
    demo = irwm.open_checkpoint(models["demo"])
    noisy = write_embedding(demo, with_noise(demo.embedding(), 0.5), scratch / "noisy").path
    yield Case("demo, noise of half a deviation", noisy, demo.path, params["demo"])
    for suspect, original in (("gemma", "phi3"), ("phi3", "gemma"), ("gemma", "demo"), ("demo", "phi3")):
        yield Case(f"{suspect} against {original}, unrelated", models[suspect], models[original], params[original])
    for how, rows in unusual(demo.embedding().float()).items():
        yield Case(f"demo's size: {how}", write_embedding(demo, rows, scratch / how).path, demo.path, params["demo"])


def readings(
    suspect: irwm.Checkpoint, original: irwm.Checkpoint, params: irwm.Parameters, device: str
) -> Iterator[tuple[str, Callable[[int, int], NDArray[np.float64] | None]]]:
    """Yield for every possible map of the suspect a function to the log10 risks (number,) of a seed's wrong keys. They
    read the first place that suspect and original have in common."""
    whole = irwm.generate_key(original, params, secret=bytes(32))
    examination = irwm.Examination(suspect, original, device)
    place = examination.places[0]
    examination, key = examination.at(place), whole.at(place) or whole
    choices = key.choices()
    noise = key.noise(examination.original, choices)
    added = noise.added(examination.original)
    a_m = examination.own_invariant(choices.query_tokens, choices.reference_tokens, added)
    drawn = np.random.default_rng(0).permutation(np.setdiff1d(key.pool.usable(), choices.marked_rows))
    tokens = np.sort(drawn[:BANK_ROWS])
    aligned, samples = examination.aligned[0], key.derivation.sample_key()
    for by in MAPS:
        if not aligned.readable(by, samples):
            continue
        rows, _ = aligned.rows(tokens, by, samples)

        def read(number: int, seed: int, rows: NDArray[np.float64] = rows) -> NDArray[np.float64] | None:
            found = ranked(rows, tokens, a_m, params, key.scale, noise.basis, number, seed, device, per_map=PER_MAP)
            return None if found is None else found.log10_risk

        yield by, read


def risks(read: Callable[[int, int], NDArray[np.float64] | None], number: int, first_seed: int) -> NDArray[np.float64]:
    """Return (number,) log10 risks, with one seed per block, or no values if too few rows are left to read."""
    found = []
    for seed, start in enumerate(range(0, number, BLOCK)):
        block = read(min(BLOCK, number - start), first_seed + seed)
        if block is None:
            return np.empty(0)
        found.append(block)
    return np.concatenate(found)[:number]


def line(name: str, by: str, found: NDArray[np.float64]) -> str:
    cells = [name, by, f"{found.size:,}".replace(",", " "), f"{found.min():.2f}"]
    for level in LEVELS:
        s = share_below(found, level)
        cells.append(f"{s['share']:.3g} ({s['low']:.2g} to {s['high']:.2g})")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decoys", type=int, default=1_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = [
        f"| suspect | read | wrong keys | lowest log10 | {' | '.join(f'≤ 10^{level}' for level in LEVELS)} |",
        f"|{'---|' * (4 + len(LEVELS))}",
    ]
    everything = []
    with tempfile.TemporaryDirectory() as folder:
        listed = [(case.name, *each) for case in cases(Path(folder)) for each in case.readings(arguments.device)]
        share = -(-arguments.decoys // len(listed))
        seeds = count(step=-(-share // BLOCK))
        for name, by, read in listed:
            found = risks(read, share, next(seeds))
            if not found.size:
                print(f"| {name} | {by} | too few rows can be read |", flush=True)
                continue
            everything.append(found)
            lines.append(line(name, by, found))
            print(lines[-1], flush=True)
    lines.append(line("all", "", np.concatenate(everything)))
    print(lines[-1])
    if arguments.write:
        write_table("evaluation.md", "decoys", "\n".join(lines))


if __name__ == "__main__":
    main()
