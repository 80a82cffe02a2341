"""Suspects that are unrelated, merged, or made to accuse another recipient, and who is named.

    python -m benchmarks.framing [--suspects 25] [--write]

For each small trained model, 60 recipients' copies (preset for many recipients) and `--suspects` suspects of each kind,
with drawn settings. The attacker holds the copies of Ann, Bob and Cid. Every suspect has an embedding made from these,
from the original or from nothing of ours, and the other weights of the model that it is put into. --write puts the
table into docs/adaptive.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import irwm
from benchmarks.reproduce.models import CAUSAL, default_models
from benchmarks.written import printed_table
from irwm.attacks.equivalence.draft import orthogonal
from irwm.evidence.detection import detect_marks
from irwm.evidence.finding import FOUND
from irwm.tracing import trace_each
from tools.copies import copy_of, keys_for, write_embedding

RECIPIENTS = 60
ANN, BOB, CID = HOLDERS = ("Ann", "Bob", "Cid")
Rows = torch.Tensor
HEADINGS = (
    "suspect", "copies used", "suspects", "naming anyone", "uninvolved recipients named", "uninvolved marks found",
    "z of the uninvolved: number, mean, deviation, largest",
)  # fmt: skip


@dataclass(frozen=True)
class Held:
    """What suspects of one model are made from.

    Attributes:
        original, ann, bob, cid: (s, d) float64 rows.
        other: (s, e) float64 rows of a model that was trained separately, with the same tokens.
        body: that model.
        spread: size of a fingerprint, in deviations of a row.
    """

    original: Rows
    ann: Rows
    bob: Rows
    cid: Rows
    other: Rows
    body: irwm.Checkpoint
    spread: float


@dataclass
class Tally:
    """Counts for one kind of suspect."""

    suspects: int = 0
    anyone: int = 0
    uninvolved: int = 0
    marks: int = 0
    z: list[float] = field(default_factory=list)


def drawn(draw: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(draw.integers(2**31)))


def normal(like: Rows, draw: np.random.Generator) -> Rows:
    return torch.randn(like.shape, generator=drawn(draw), dtype=like.dtype)


def mixed(rows: Rows, other: Rows, draw: np.random.Generator) -> Rows:
    """Rows through the least-squares map to other rows, mixed with these."""
    fitted: Rows = rows @ torch.linalg.lstsq(rows, other).solution
    share = draw.uniform(0.2, 1)
    return share * fitted + (1 - share) * other


def rows_of_both(held: Held, draw: np.random.Generator) -> Rows:
    chosen = torch.from_numpy(draw.random(len(held.ann)) < draw.uniform(0.05, 0.95))
    return torch.where(chosen[:, None], held.bob, held.ann)


def columns_of_both(held: Held, draw: np.random.Generator) -> Rows:
    chosen = torch.from_numpy(draw.random(held.ann.shape[1]) < draw.uniform(0.05, 0.95))
    return torch.where(chosen, held.bob, held.ann)


def difference(held: Held, draw: np.random.Generator) -> Rows:
    return held.ann + draw.uniform(-2, 3) * (held.bob - held.ann)


def other_signs(held: Held, draw: np.random.Generator) -> Rows:
    size: Rows = draw.uniform(0.5, 2) * (held.bob - held.ann).abs().mean()
    return held.ann + size * torch.sign(normal(held.ann, draw))


def shuffled_difference(held: Held, draw: np.random.Generator) -> Rows:
    return held.ann + (held.bob - held.ann)[torch.from_numpy(draw.permutation(len(held.ann)))]


def three(held: Held, draw: np.random.Generator) -> Rows:
    ann, bob = draw.uniform(-1, 1.5, 2)
    made: Rows = ann * held.ann + bob * held.bob + (1 - ann - bob) * held.cid
    return made


def in_another_model(held: Held, draw: np.random.Generator) -> Rows:
    """Bob's rows through the map that fits the other model's rows best, mixed with these."""
    return mixed(held.bob, held.other, draw)


def noisy_original(held: Held, draw: np.random.Generator) -> Rows:
    deviations: Rows = held.original.std(dim=1, keepdim=True)
    return held.original + draw.uniform(0.5, 2) * held.spread * deviations * normal(held.original, draw)


def merged_original(held: Held, draw: np.random.Generator) -> Rows:
    """The original's rows through the map that fits the other model's rows best, mixed with these."""
    return mixed(held.original, held.other, draw)


def trained_apart(held: Held, draw: np.random.Generator) -> Rows:
    turned: Rows = held.other @ orthogonal(held.other.shape[1], drawn(draw))
    return turned + draw.uniform(0, 0.5) * turned.std() * normal(turned, draw)


def random_rows(held: Held, draw: np.random.Generator) -> Rows:
    """Random rows with the covariance of the original's."""
    centred = held.original - held.original.mean(dim=0)
    factor: Rows = torch.linalg.cholesky(centred.T @ centred / len(centred) + 1e-9 * torch.eye(centred.shape[1]))
    return normal(held.original, draw) @ factor.T


# Kind of suspect: how it is made, whose copies were used, and whether it is put into the other model.
KINDS: dict[str, tuple[Callable[[Held, np.random.Generator], Rows], frozenset[str], bool]] = {
    "rows of Bob's copy in Ann's": (rows_of_both, frozenset({ANN, BOB}), False),
    "columns of Bob's copy in Ann's": (columns_of_both, frozenset({ANN, BOB}), False),
    "Ann's copy and a multiple of the difference to Bob's": (difference, frozenset({ANN, BOB}), False),
    "the same with random signs": (other_signs, frozenset({ANN, BOB}), False),
    "the same with rows exchanged": (shuffled_difference, frozenset({ANN, BOB}), False),
    "three copies with weights from -2 to 3": (three, frozenset(HOLDERS), False),
    "Bob's rows through a fitted map, in another model": (in_another_model, frozenset({BOB}), True),
    "the original with noise of a fingerprint's size": (noisy_original, frozenset(), False),
    "the original's rows through a fitted map, in another model": (merged_original, frozenset(), True),
    "another model, rotated, with noise": (trained_apart, frozenset(), True),
    "random rows with the original's covariance": (random_rows, frozenset(), False),
}


def examine(
    name: str, model: irwm.Checkpoint, body: irwm.Checkpoint, suspects: int, folder: Path, tallies: dict[str, Tally]
) -> None:
    """Add the suspects of one model to the tallies."""
    keys = keys_for(model, [*HOLDERS, *(f"recipient {number}" for number in range(RECIPIENTS - len(HOLDERS)))])
    ann, bob, cid = (copy_of(model, key).double() for key in keys[: len(HOLDERS)])
    original, other = model.embedding().double(), body.embedding().double()
    held = Held(original, ann, bob, cid, other, body, keys[0].parameters.spread)
    for kind, (make, used, elsewhere) in KINDS.items():
        tally = tallies.setdefault(kind, Tally())
        for seed in range(suspects):
            draw = np.random.default_rng([seed, *kind.encode(), *name.encode()])
            with tempfile.TemporaryDirectory(dir=folder) as made:
                suspect = write_embedding(body if elsewhere else model, make(held, draw), Path(made) / "suspect")
                examination = irwm.Examination(suspect, model)
                traces = trace_each(examination, keys, decoys=0).traces
                marks = [each.verdict for each in detect_marks(examination, keys, screen=True)]
            uninvolved = [trace for trace in traces if trace.recipient not in used]
            tally.suspects += 1
            tally.anyone += any(trace.named for trace in traces)
            tally.uninvolved += sum(trace.named for trace in uninvolved)
            tally.marks += sum(
                verdict == FOUND for key, verdict in zip(keys, marks, strict=True) if key.recipient not in used
            )
            tally.z += [trace.z for trace in uninvolved if np.isfinite(trace.z)]


def line(kind: str, used: str, tally: Tally) -> str:
    z = np.array(tally.z)
    measured = f"{len(z)}, {z.mean():.3f}, {z.std():.3f}, {z.max():.2f}" if len(z) else "0"
    return f"| {kind} | {used} | {tally.suspects} | {tally.anyone} | {tally.uninvolved} | {tally.marks} | {measured} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suspects", type=int, default=25, help="of each kind for each model")
    parser.add_argument("--models", nargs="+", choices=CAUSAL, default=list(CAUSAL))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    paths = dict(default_models())
    tallies: dict[str, Tally] = {}
    with printed_table("adaptive.md", "framing", write=options.write), tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            model = irwm.open_checkpoint(paths[name])
            body = irwm.open_checkpoint(paths[CAUSAL[CAUSAL.index(name) - 1]])
            examine(name, model, body, options.suspects, Path(folder), tallies)
        print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
        for kind, tally in tallies.items():
            print(line(kind, ", ".join(sorted(KINDS[kind][1])) or "none", tally))
        together = Tally()
        for tally in tallies.values():
            together.suspects += tally.suspects
            together.anyone += tally.anyone
            together.uninvolved += tally.uninvolved
            together.marks += tally.marks
            together.z += tally.z
        print(line("**together**", "", together))


if __name__ == "__main__":
    main()
