"""A thief who has read the manual, on releases with the default settings: what he leaves of the mark and of the model.

    python -m benchmarks.adaptive [--models demo gemma phi3] [--presets one many] [--compositions 20] [--write]

Every attack of the catalogue's group "By somebody who has read the manual" at every strength, then random compositions
of two or three attacks with disguises. He has the release and this repository; he lacks key and original. One preset is
`irwm.one_owner`, the other `irwm.many_recipients`, where the column "leak" says whether the copy's recipient was named,
and nobody else, of three. Perplexity is measured on the bundled text. --write puts the table into docs/adaptive.md,
misses first. With --saved, outcomes are kept in a file as they come, and those that it holds are not computed again;
several runs may share it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import irwm
from benchmarks.reproduce.models import default_models
from benchmarks.written import write_table
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ADAPTIVE, ATTACKS, Steps, composed
from irwm.errors import IrwmError
from irwm.running import Reference, compare, default_text, reference
from irwm.tracing import trace_each

MODELS = ("demo", "gemma", "phi3")
PRESETS = {"one": irwm.one_owner, "many": irwm.many_recipients}
TOKENS = 8192
# What a composition draws from: attacks that change the model, at most three, and disguises that do not, at most two.
DAMAGES = (
    ("components", 0.9), ("components", 0.75), ("seldom-rows", 0.5), ("small-entries", 0.2),
    ("outliers", 0.002), ("outliers", 0.01), ("round", 4), ("prune", 0.3), ("noise", 0.1),
)  # fmt: skip
DISGUISES = ("rescale", "permute-residual", "rotate", "map-qk", "reorder-heads", "reorder-tokens")
# Changes of perplexity that a thief accepts.
FREE, DEAR = 0.05, 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attacked copy: perplexity relative to the release's (NaN where it does not run), verdict and log10 odds, of
    all evidence and of the mark by itself."""

    model: str
    preset: str
    attack: str
    change: float
    verdict: str
    by: str
    log10_risk: float
    mark: float
    lineage: str
    named: bool | None

    @property
    def line(self) -> str:
        cost = "does not run by itself" if np.isnan(self.change) else f"{100 * self.change:+.1f} %"
        leak = "" if self.named is None else "named" if self.named else "not named"
        return (
            f"| {self.model}, {self.preset} | {self.attack} | {cost} | {self.verdict} | {self.log10_risk:.0f} "
            f"| {self.mark:.0f} | {self.by} | {self.lineage} | {leak} |"
        )


class Thief:
    """One release of one model, and what is done to it."""

    def __init__(self, name: str, path: Path, preset: str, scratch: Path) -> None:
        self.name, self.preset, self.scratch = name, preset, scratch
        self.original = irwm.open_checkpoint(path)
        params = PRESETS[preset](self.original.hidden_size)
        recipients = ("ann", "bob", "cid") if preset == "many" else ("",)
        secret = bytes(range(32))
        self.keys = [irwm.generate_key(self.original, params, secret, "us", name) for name in recipients]
        self.release = irwm.insert(self.original, self.keys[0], scratch / "release").path
        self.text = default_text()

    @cached_property
    def outputs(self) -> Reference:
        return reference(self.release, self.text, TOKENS)

    @contextmanager
    def copy(self, steps: Steps, seed: int) -> Iterator[tuple[Path, bool]]:
        """The release after these steps, each on what the last one left, and whether it runs as it is."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as room:
            setup = Setup(self.original.path, self.release, self.keys[0], self.text, Path(room), seed)
            attacked = composed(setup, steps, Path(room) / "out")
            yield attacked.path, attacked.runnable is None

    def carry_out(self, label: str, steps: Steps, seed: int) -> Outcome:
        """What is left after these steps."""
        with self.copy(steps, seed) as (folder, runs):
            return self._examined(label, folder, runs)

    def _examined(self, label: str, folder: Path, runs: bool) -> Outcome:
        suspect = irwm.open_checkpoint(folder)
        found = irwm.detect(suspect, self.original, self.keys[0])
        named = None
        if len(self.keys) > 1:
            examination = irwm.Examination(suspect, self.original)
            named = [trace.recipient for trace in trace_each(examination, self.keys, decoys=0).named] == ["ann"]
        change = compare(self.outputs, folder).change if runs else None
        cost = math.nan if change is None else change
        best = min(found.evidence, key=lambda each: each.log10_p)
        return Outcome(
            self.name,
            self.preset,
            label,
            cost,
            found.verdict,
            f"{best.form}, {best.by}",
            found.log10_risk,
            found.reading.log10_either,
            found.lineage.status,
            named,
        )


def planned(compositions: int, seed: int) -> Iterator[tuple[str, Steps]]:
    """Each attack of the group at each strength, then the compositions."""
    for attack in ATTACKS.values():
        if attack.group == ADAPTIVE:
            for strength in attack.strengths:
                yield f"{attack.label}: {strength.label}", [(attack.name, strength.value)]
    draw = np.random.Generator(np.random.PCG64(seed))
    for _ in range(compositions):
        damages = [DAMAGES[i] for i in draw.choice(len(DAMAGES), int(draw.integers(2, 4)), replace=False)]
        disguises = [(DISGUISES[i], 1) for i in draw.choice(len(DISGUISES), int(draw.integers(1, 3)), replace=False)]
        steps: Steps = [*damages, *disguises]
        yield " → ".join(f"{name} {value:g}" if value != 1 else name for name, value in steps), steps


def table(outcomes: Sequence[Outcome]) -> str:
    lines = ["| release | attack | perplexity | verdict | log10 odds | mark alone | read | lineage | leak |"]
    lines.append("|" + "---|" * 9)
    order = sorted(outcomes, key=lambda each: (each.verdict == "found", each.named is not False, -each.log10_risk))
    lines += [each.line for each in order]
    for bound, what in ((FREE, "free"), (DEAR, "dear")):
        kept = [each for each in outcomes if np.isnan(each.change) or each.change <= bound]
        missed = [each for each in kept if each.verdict != "found"]
        unnamed = [each for each in kept if each.named is False]
        copies = sum(each.named is not None for each in kept)
        said = f"At most {100 * bound:.0f} % of perplexity ({what}): {len(kept)} copies, {len(missed)} not found; "
        lines.append(f"\n{said}of the {copies} for one of three recipients, {len(unnamed)} not named.")
    lines.append(f'\nCalled "not derived": {sum(each.lineage == "not derived" for each in outcomes)}.')
    return "\n".join(lines)


class Saved:
    """Outcomes in a file, one JSON object a line."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._known = [Outcome(**json.loads(line)) for line in lines]

    def get(self, model: str, preset: str, attack: str) -> Outcome | None:
        asked = model, preset, attack
        return next((each for each in self._known if (each.model, each.preset, each.attack) == asked), None)

    def add(self, outcome: Outcome) -> Outcome:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--compositions", type=int, default=20)
    parser.add_argument("--saved", type=Path, help="file that keeps the outcomes")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/adaptive.md")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    saved = Saved(options.saved)
    for seed, (name, path) in enumerate(default_models()):
        if name not in options.models:
            continue
        for preset in options.presets:
            with tempfile.TemporaryDirectory() as folder:
                thief = Thief(name, path, preset, Path(folder))
                for number, (label, steps) in enumerate(planned(options.compositions, seed)):
                    try:
                        known = saved.get(name, preset, label)
                        outcomes.append(known or saved.add(thief.carry_out(label, steps, seed=number)))
                    except IrwmError as error:  # a disguise that this family does not allow
                        print(f"| {name}, {preset} | {label} | not possible: {error.problem} |", flush=True)
                        continue
                    print(outcomes[-1].line, flush=True)
    text = table(outcomes)
    print(f"\n{text}")
    if options.write:
        write_table("adaptive.md", "measured", text)


if __name__ == "__main__":
    main()
