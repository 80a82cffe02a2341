"""False positives of alignment, lineage and mark: models of the original's own config that are not its descendants.

    python -m benchmarks.lineage [--random 100] [--strangers DIR ...] [--siblings DIR ...]

Strangers are models trained separately (`python -m tools.train_small gemma --seed 1 2 3 --steps 250 --out DIR/gemma`);
siblings were trained from the original's own random start (`--data-seed`). Each is compared with the original of its
config, with our mark's key. "Similarity" is what lineage reads, "leading" the plain cosine of held-out rows after the
best rotation, which is what a test that does not look at minor components would read; "attention" likewise the
agreement of layer 0 in minor components and, in brackets, in all; "fitted" the cosine that a quarter of the rows reach
under an affine map. The last rows are descendants under noise, and with half of their rows drawn anew, for comparison.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import torch

import irwm
from benchmarks.disguises import models
from benchmarks.peers.rows import random_model
from benchmarks.robustness import noise
from irwm.alignment.rotation import procrustes
from irwm.alignment.rows import Rows
from irwm.alignment.sample import centred, row_cosines, sample_pairs
from irwm.evidence.attention import attention
from irwm.scheme.invariant import invariant
from tools.copies import write_embedding


@dataclass(frozen=True, slots=True)
class Outcome:
    """One model against one original."""

    verdict: str
    status: str
    similarity: float
    leading: float
    attention: float
    whole_attention: float
    fitted: float


def outcome(suspect: irwm.Checkpoint, model: irwm.Checkpoint, key: irwm.Key) -> Outcome:
    """What detection says, and what weaker readings of the same two models would have said."""
    found = irwm.detect(suspect, model, key)
    leading = math.nan
    if suspect.hidden_size == model.hidden_size:
        sample = sample_pairs(Rows.of(suspect), Rows.of(model), np.arange(model.vocab_size))
        a, b = centred(sample.theirs), centred(sample.ours)
        leading = float(np.median(row_cosines(a[1::2] @ procrustes(a[::2], b[::2]), b[1::2])[0]))
    fit = irwm.Examination(suspect, model).aligned[0].least_squares(key.derivation.sample_key())
    agreement = attention(suspect, model, found.alignment)
    tokens = np.random.default_rng(0).permutation(np.arange(300, model.vocab_size))[: 64 + 512]
    scores = [invariant(m, tokens[:64], tokens[64:]).numpy() for m in (suspect, model)]
    return Outcome(
        found.verdict,
        found.lineage.status,
        found.alignment.similarity,
        leading,
        agreement.agreement if agreement else float("nan"),
        float((scores[0] * scores[1]).mean()),
        math.nan if fit is None else fit.agreement,
    )


def report(label: str, outcomes: Iterable[Outcome]) -> None:
    results = list(outcomes)
    if not results:
        return

    def count(field: str, value: str) -> int:
        return sum(getattr(o, field) == value for o in results)

    def largest(field: str) -> float:
        return max((value for o in results if (value := float(getattr(o, field))) == value), default=math.nan)

    print(
        f"| {label} | {len(results)} | {count('verdict', 'found')} | {count('status', 'derived')} "
        f"| {count('status', 'cannot tell')} | {count('status', 'not derived')} | {largest('similarity'):.3f} "
        f"| {largest('leading'):.3f} | {largest('attention'):.3f} ({largest('whole_attention'):.2f}) "
        f"| {largest('fitted'):.3f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=100, help="random models, shared out over the small originals")
    parser.add_argument("--strangers", type=Path, nargs="*", default=[])
    parser.add_argument("--siblings", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    originals = {name: irwm.open_checkpoint(path) for name, path in models().items() if name != "MiniLM"}
    keys = {name: irwm.generate_key(model, secret=bytes(range(32))) for name, model in originals.items()}

    def against(path: Path) -> Outcome:
        suspect = irwm.open_checkpoint(path)
        shape = (suspect.family, suspect.vocab_size, suspect.hidden_size)
        name = next(n for n, m in originals.items() if (m.family, m.vocab_size, m.hidden_size) == shape)
        return outcome(suspect, originals[name], keys[name])

    print(
        "| models | n | found | derived | cannot tell | not derived | similarity | leading | attention (whole) | "
        "fitted |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        share = -(-options.random // len(originals))
        for name, model in originals.items():
            made = (random_model(model.path, Path(folder) / f"{name}-{seed}", seed) for seed in range(share))
            report(f"random, shape of {name}", map(against, made))
        for name, model in originals.items():
            alike = [p for p in options.strangers if irwm.open_checkpoint(p).family == model.family]
            report(f"trained separately, shape of {name}", map(against, alike))
        report("other family, same text", _crossed(originals, keys))
        report("trained from the same random start", map(against, options.siblings))
        for strength in (0.3, 1.0):
            for name, model in originals.items():
                noisy = noise(strength)(model.path, Path(folder) / f"{name}-noise-{strength}")
                report(f"descendant of {name}, noise {strength}", [against(noisy)])
        for name, model in originals.items():
            rows = model.embedding().float()
            drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[::2]
            anew = torch.randn(len(drawn), rows.shape[1], generator=torch.Generator().manual_seed(1))
            rows[drawn] = rows.std() * anew
            spoilt = write_embedding(model, rows, Path(folder) / f"{name}-spoilt")
            report(f"descendant of {name}, half of its rows drawn anew", [against(spoilt.path)])


def _crossed(originals: dict[str, irwm.Checkpoint], keys: dict[str, irwm.Key]) -> Iterable[Outcome]:
    for name, other in permutations(originals, 2):
        yield outcome(originals[other], originals[name], keys[name])


if __name__ == "__main__":
    main()
