"""Disputes with an attacker who knows the method: whether the attacker's "original" wins any.

    python -m benchmarks.disputes [--models demo gemma phi3 gpt2] [--disputes 50] [--write]

The attacker takes the owner's release and attacks and disguises it as in `benchmarks.adaptive`, or damages it so that
every comparison with it should fail (a row of NaN or of absurd length, identical rows, nine more tensors that might be
the embedding). The attacker calls the result the original, makes a key for it and marks a release. The owner presents
original, key and release. The model in dispute is the attacker's release, rotated again. Each dispute is decided three
times: without dates, with an earlier date of the owner, and with a date of the attacker alone. --write puts the table
into docs/ownership.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import irwm
from benchmarks.adaptive.attacker import PRESETS, Attacker, planned
from benchmarks.reproduce.models import CAUSAL, default_models
from benchmarks.written import write_table
from irwm.attacks.catalogue import Steps
from irwm.attacks.equivalence import disguise
from irwm.errors import CheckpointError, IrwmError
from irwm.ownership import Claim, Outcome, decide, resolve
from tools.copies import with_noise, write_embedding

EARLY, LATE = "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
DATES = {"no dates": (None, None), "owner first": (EARLY, LATE), "attacker's date alone": (None, EARLY)}


@dataclass(frozen=True, slots=True)
class Case:
    """One dispute, with the winner and the rule for each of `DATES`."""

    model: str
    original: str
    winners: tuple[str | None, ...]
    rules: tuple[str, ...]
    found: bool


def turned(released: irwm.Checkpoint, folder: Path, seed: int) -> irwm.Checkpoint:
    """Rotate the model randomly, or add a little noise if it has tensors that cannot be rotated."""
    try:
        return irwm.open_checkpoint(disguise(released.path, folder, ["rotate"], seed=seed))
    except IrwmError:
        return write_embedding(released, with_noise(released.embedding(), 0.01), folder)


def dispute(attacker: Attacker, label: str, steps: Steps, number: int) -> Case:
    """Run one dispute."""
    release = irwm.open_checkpoint(attacker.release)
    owner = Claim("Owner", attacker.original, attacker.keys[0], release)
    with attacker.copy(steps, number) as (folder, _), tempfile.TemporaryDirectory() as scratch:
        his = irwm.open_checkpoint(folder)
        secret, params = (number + 1).to_bytes(32, "big"), attacker.keys[0].parameters
        try:
            key = irwm.generate_key(his, params, secret, "Attacker")
        except CheckpointError:  # no key is possible for it, so the attacker shows one made before the damage
            key = irwm.generate_key(release, params, secret, "Attacker")
        try:
            released = irwm.open_checkpoint(irwm.insert(his, key, Path(scratch) / "his").path)
        except IrwmError:
            released = irwm.open_checkpoint(irwm.insert(release, key, Path(scratch) / "his").path)
        leaked = turned(released, Path(scratch) / "leak", number)
        claims = [owner, Claim("Attacker", his, key, released)]
        outcome = resolve(claims, [("leak", leaked)])
    decided = [_dated(claims, outcome, *dates) for dates in DATES.values()]
    return Case(
        attacker.name,
        label,
        tuple(each.winner for each in decided),
        tuple(each.rulings[0].rule for each in decided),
        outcome.test("Owner", "original of Attacker").found,
    )


def _dated(claims: Sequence[Claim], outcome: Outcome, owner: str | None, attacker: str | None) -> Outcome:
    dates = {"Owner": owner, "Attacker": attacker}
    return decide([replace(each, committed_utc=dates[each.claimant]) for each in claims], outcome.tests)


def originals(number: int, seed: int, possible: Sequence[str]) -> list[tuple[str, Steps]]:
    """Return `number` alleged originals of the attacker: every attack at every strength, then compositions.

    Originals that a comparison may fail on come first, since the list is cut.
    """
    every = sorted(planned(number, seed, possible), key=lambda each: each[1][0][0] != "confuse")
    return every[:number]


def table(cases: Sequence[Case]) -> str:
    lines = [
        f'| models | disputes | our mark or fingerprint in the attacker\'s "original" | {" | ".join(DATES)} |',
        "|---|---:|---:|" + "---|" * len(DATES),
    ]
    for name in dict.fromkeys(each.model for each in cases):
        of = [each for each in cases if each.model == name]
        cells = []
        for place in range(len(DATES)):
            won = Counter(each.winners[place] or "undecided" for each in of)
            cells.append(", ".join(f"{who} {count}" for who, count in sorted(won.items())))
        lines.append(f"| {name} | {len(of)} | {sum(each.found for each in of)} | {' | '.join(cells)} |")
    rules = Counter(each.rules[0] for each in cases)
    lines.append("\nDecided without dates by: " + ", ".join(f"{rule} ({n})" for rule, n in rules.most_common()) + ".")
    open_ones = [f"{each.original} ({each.model})" for each in cases if each.winners[0] != "Owner"]
    if open_ones:
        lines.append("\nNot won by the owner without dates: " + "; ".join(open_ones) + ".")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=CAUSAL, default=list(CAUSAL))
    parser.add_argument("--preset", choices=PRESETS, default="one")
    parser.add_argument("--disputes", type=int, default=50, help="over all models")
    parser.add_argument("--write", action="store_true", help="put the table into docs/ownership.md")
    options = parser.parse_args()
    cases: list[Case] = []
    chosen = [(name, path) for name, path in default_models() if name in options.models]
    for seed, (name, path) in enumerate(chosen):
        share = options.disputes // len(chosen) + (seed < options.disputes % len(chosen))
        with tempfile.TemporaryDirectory() as folder:
            attacker = Attacker(name, path, options.preset, Path(folder))
            for number, (label, what) in enumerate(originals(share, 100 + seed, attacker.disguises)):
                cases.append(dispute(attacker, label, what, number))
                print(cases[-1], flush=True)
    text = table(cases)
    print(f"\n{text}")
    if options.write:
        write_table("ownership.md", "disputes", text)


if __name__ == "__main__":
    main()
