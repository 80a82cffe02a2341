"""An attacker who knows the method, on releases with the default settings: effects on the mark and on the model.

    python -m benchmarks.adaptive [--models demo gemma phi3 gpt2] [--presets one many]
                                  [--groups listed literature tuned] [--compositions 20] [--write]

"listed": every attack of the catalogue's adaptive group at every strength, stronger ones, then random compositions of
two or three attacks with disguises. In models with a separate output head there are also attacks that spare the head,
where they cost most. The attacker has the release and this repository, but neither key nor original. One preset is
`irwm.one_owner`, the other `irwm.many_recipients` with three recipients. There the column "leak" shows whether tracing
named the copy's recipient and no other. Perplexity is measured on the bundled text.

"literature": attacks on other methods that were published, most of which change the model's size or train it.

"tuned": the attacker marks the release with own keys, raises each attack's strength until none of these marks is
found, and applies this strength to the release.

--write puts the tables into docs/adaptive.md, misses first. With --saved, outcomes are stored in a file when they are
ready, and stored outcomes are not computed again. Several runs may share the file.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file

import irwm
from benchmarks.reproduce.models import CAUSAL, default_models
from benchmarks.written import write_table
from irwm.attacks.attack import Attack, Setup
from irwm.attacks.catalogue import ADAPTIVE, ATTACKS, Steps, composed
from irwm.errors import IrwmError
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.inference import Reference, compare, default_text, reference
from irwm.tracing import trace_each

PRESETS = {"one": irwm.one_owner, "many": irwm.many_recipients}
TOKENS = 8192
# Parts of a composition: two or three attacks that change the model, and one or two disguises that do not.
DAMAGES = (
    ("components", 0.9), ("components", 0.75), ("seldom-rows", 0.5), ("small-entries", 0.2),
    ("outliers", 0.002), ("outliers", 0.01), ("round", 4), ("prune", 0.3), ("noise", 0.1),
)  # fmt: skip
DISGUISES = ("rescale", "permute-residual", "rotate", "map-qk", "reorder-heads", "reorder-tokens")
LAYER_NORM_DISGUISES = ("shift-rows", "shift-tables")
# An attack with one strength in the embedding and a lower one in a separate output head, where it costs more.
UNEVEN = (
    ("components", 0.1, 0.75), ("components", 0.1, 0.5), ("components", 0.25, 0.5), ("components", 0.15, 0.35),
    ("components", 0.1, 0.25), ("seldom-rows", 1.0, 0.5), ("seldom-rows", 0.95, 0.25), ("noise", 1.0, 0.3),
    ("outliers", 0.5, 0.1), ("prune", 0.9, 0.5),
)  # fmt: skip
# Attacks beyond the catalogue's strengths: on the demo model they cost less than elsewhere.
STRONGER: tuple[Steps, ...] = (
    [("components", 0.15)], [("components", 0.1)], [("components", 0.07)],
    [("components", 0.1), ("round", 4)], [("seldom-rows", 1.0), ("round", 4)],
)  # fmt: skip
# Strengths for tuning, weakest first, of each attack that changes the model and has a strength.
LADDERS: dict[str, tuple[float, ...]] = {
    "components": (0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05),
    "seldom-rows": (0.5, 0.75, 0.85, 0.95, 1.0),
    "small-entries": (0.05, 0.2, 0.5, 1.0),
    "outliers": (0.01, 0.03, 0.1, 0.2, 0.3, 0.5),
    "noise": (0.1, 0.3, 0.5, 1.0, 2.0, 3.0),
    "prune": (0.3, 0.5, 0.7, 0.8, 0.9, 0.95),
    "round": (4, 3, 2),
}
# Number of the attacker's own marks for tuning each attack.
OWN_MARKS = 2
GROUPS = ("listed", "literature", "tuned")
# Attacks on models and on other watermarks that were published, by their names in the catalogue.
LITERATURE = (
    "rebuilt-rows", "push", "learn-again", "embedding", "width", "widen", "repeat-layers", "as-mixtral", "merge-dare",
)  # fmt: skip
# Changes of perplexity that an attacker accepts.
FREE, DEAR = 0.05, 0.25
# Larger changes of perplexity are shown as a multiple.
RUINED = 9.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attacked copy: perplexity relative to the release's (NaN if it does not run), verdict, and log10 odds of
    all evidence and of the mark alone. In the tuned group `own` is the lowest log10 odds of the attacker's own marks
    after the same attack."""

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
    own: float | None = None

    @property
    def group(self) -> str:
        if self.own is not None:
            return "tuned"
        labels = {ATTACKS[name].label for name in LITERATURE}
        return "literature" if self.attack.partition(":")[0] in labels else "listed"

    @property
    def line(self) -> str:
        cost = f"× {1 + self.change:.2g}" if self.change >= RUINED else f"{100 * self.change:+.1f} %"
        cost = "does not run as stored" if np.isnan(self.change) else cost
        leak = "" if self.named is None else "named" if self.named else "not named"
        own = "" if self.own is None else f" {self.own:.0f} |"
        return (
            f"| {self.model}, {self.preset} | {self.attack} |{own} {cost} | {self.verdict} | {self.log10_risk:.0f} "
            f"| {self.mark:.0f} | {self.by} | {self.lineage} | {leak} |"
        )


class Attacker:
    """An attacker with one release of one model.

    Args:
        name, path: name and folder of the original.
        preset: a name in `PRESETS`.
        scratch: an existing folder.
        text: text for measuring perplexity, the first `tokens` tokens of it; default: the bundled text.
    """

    def __init__(
        self, name: str, path: Path, preset: str, scratch: Path, text: str | None = None, tokens: int = TOKENS
    ) -> None:
        self.name, self.preset, self.scratch, self.tokens = name, preset, scratch, tokens
        self.original = irwm.open_checkpoint(path)
        params = PRESETS[preset](self.original.hidden_size)
        recipients = ("ann", "bob", "cid") if preset == "many" else ("",)
        secret = bytes(range(32))
        self.keys = [irwm.generate_key(self.original, params, secret, "us", name) for name in recipients]
        self.release = irwm.insert(self.original, self.keys[0], scratch / "release").path
        self.text = default_text() if text is None else text

    @cached_property
    def outputs(self) -> Reference:
        return reference(self.release, self.text, self.tokens)

    @cached_property
    def own_marks(self) -> list[tuple[irwm.Key, Path]]:
        """Return copies of the release with the attacker's own marks, by the same preset, as if it were an original."""
        mine = irwm.open_checkpoint(self.release)
        found = []
        for number in range(OWN_MARKS):
            secret = bytes([200 + number]) * 32
            key = irwm.generate_key(mine, self.keys[0].parameters, secret, "attacker", self.keys[0].recipient)
            found.append((key, irwm.insert(mine, key, self.scratch / f"own-{number}").path))
        return found

    @property
    def disguises(self) -> tuple[str, ...]:
        """Return the disguises that are possible for this model."""
        return DISGUISES + (LAYER_NORM_DISGUISES if self.original.layout.drops_row_constants else ())

    @contextmanager
    def copy(self, steps: Steps, seed: int, source: Path | None = None) -> Iterator[tuple[Path, bool]]:
        """Apply these steps in order to the release, or to `source`. Yield the folder and whether the model runs."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as work:
            setup = Setup(self.original.path, source or self.release, self.keys[0], self.text, Path(work), seed)
            attacked = composed(setup, steps, Path(work) / "out")
            yield attacked.path, attacked.runnable is None

    def tuned(self, name: str, seed: int) -> Outcome:
        """Attack the release with the least strength at which none of the attacker's own marks is found.

        It is found by bisection: at the next weaker strength, one of these marks is found. If one is found at every
        strength, the greatest is used.
        """
        ladder = LADDERS[name]
        low, high = -1, len(ladder) - 1
        odds = self._own_after(name, ladder[high], seed)
        while odds > FOUND_LOG10_RISK and high - low > 1:
            middle = (low + high) // 2
            weaker = self._own_after(name, ladder[middle], seed)
            if weaker > FOUND_LOG10_RISK:
                high, odds = middle, weaker
            else:
                low = middle
        chosen = ladder[high]
        return replace(self.carry_out(f"{name} {chosen:g}", [(name, chosen)], seed), own=odds)

    def _own_after(self, name: str, strength: float, seed: int) -> float:
        """Return the lowest log10 odds of the attacker's own marks after this attack."""
        mine, odds = irwm.open_checkpoint(self.release), []
        for key, path in self.own_marks:
            with self.copy([(name, strength)], seed, path) as (folder, _):
                odds.append(irwm.detect(irwm.open_checkpoint(folder), mine, key).log10_risk)
        return min(odds)

    def keep(self, steps: Steps, seed: int, out: Path) -> Path:
        """Write the release after these steps to a new folder."""
        with self.copy(steps, seed) as (folder, _):
            return shutil.copytree(folder, out)

    def carry_out(self, label: str, steps: Steps, seed: int) -> Outcome:
        """Examine the release after these steps."""
        with self.copy(steps, seed) as (folder, runs):
            return self._examined(label, folder, runs)

    def uneven(self, label: str, name: str, inside: float, head: float, seed: int) -> Outcome:
        """Examine the release after an attack of strength `inside`, with strength `head` in the output head."""
        with self.copy([(name, inside)], seed) as (folder, runs), self.copy([(name, head)], seed) as (milder, _):
            tensor = self.original.layout.head
            assert tensor is not None
            file = folder / "model.safetensors"
            spared = {tensor.name: load_file(milder / file.name)[tensor.name]}
            save_file(load_file(file) | spared, file, metadata={"format": "pt"})
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


def planned(
    compositions: int, seed: int, possible: Sequence[str] = DISGUISES, every: bool = True
) -> Iterator[tuple[str, Steps]]:
    """Yield each attack of the group at each strength, or only the first, stronger attacks, then compositions."""
    for attack in ATTACKS.values():
        if attack.group == ADAPTIVE and attack.name not in LITERATURE:
            yield from _of_attack(attack, every)
    for steps in STRONGER if every else ():
        yield label_of(steps), steps
    draw = np.random.Generator(np.random.PCG64(seed))
    for _ in range(compositions):
        damages = [DAMAGES[i] for i in draw.choice(len(DAMAGES), int(draw.integers(2, 4)), replace=False)]
        disguises = [(possible[i], 1) for i in draw.choice(len(possible), int(draw.integers(1, 3)), replace=False)]
        steps = [*damages, *disguises]
        yield label_of(steps), steps


def _of_attack(attack: Attack, every: bool) -> Iterator[tuple[str, Steps]]:
    """Yield an attack at each strength, or only at the first."""
    for strength in attack.strengths if every else attack.strengths[:1]:
        yield f"{attack.label}: {strength.label}", [(attack.name, strength.value)]


def label_of(steps: Steps) -> str:
    """Return the names and strengths of attacks that follow one another."""
    shown = (name if name in (*DISGUISES, *LAYER_NORM_DISGUISES) else f"{name} {value}" for name, value in steps)
    return " → ".join(shown)


def carried_out(
    attacker: Attacker,
    groups: Sequence[str],
    compositions: int,
    seed: int,
    saved: Saved | None = None,
    every: bool = True,
) -> Iterator[Outcome | str]:
    """Yield each outcome of these groups when it is ready, or a sentence if this family does not allow an attack.

    Args:
        every: whether to try all strengths and tune all attacks, or only the first of each.
    """
    tasks: list[tuple[str, str, Callable[[], Outcome]]] = []
    if "listed" in groups:
        for number, (label, steps) in enumerate(planned(compositions, seed, attacker.disguises, every)):
            tasks.append(("listed", label, partial(attacker.carry_out, label, steps, number)))
        if every and attacker.original.output_head is not None:
            for name, inside, head in UNEVEN:
                label = f"{name} {inside:g}, in the head {head:g}"
                tasks.append(("listed", label, partial(attacker.uneven, label, name, inside, head, seed)))
    if "literature" in groups:
        for name in LITERATURE if every else LITERATURE[:1]:
            for label, steps in _of_attack(ATTACKS[name], every):
                tasks.append(("literature", label, partial(attacker.carry_out, label, steps, seed)))
    if "tuned" in groups:
        tuned = list(LADDERS)[: None if every else 1]
        tasks += [("tuned", name, partial(attacker.tuned, name, seed)) for name in tuned]
    for group, label, carry_out in tasks:
        known = saved.get(attacker.name, attacker.preset, label, group) if saved is not None else None
        try:
            outcome = known or carry_out()
        except IrwmError as error:
            yield f"{attacker.name}, {attacker.preset}, {label}: {error.problem}"
            continue
        if known is None and saved is not None:
            saved.add(outcome)
        yield outcome


HEAD = ("release", "attack", "perplexity", "verdict", "log10 odds", "mark alone", "read", "lineage", "leak")
TUNED_HEAD = (*HEAD[:2], "attacker's own marks, log10 odds", *HEAD[2:])


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of listed attacks, misses first."""
    lines = _rows(HEAD, outcomes)
    lines += _summary(outcomes)
    lines.append(f'\nCalled "not derived": {sum(each.lineage == "not derived" for each in outcomes)}.')
    return "\n".join(lines)


def tuned_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of tuned attacks, misses first."""
    blind = [each for each in outcomes if each.own is not None and each.own > FOUND_LOG10_RISK]
    surprised = sum(each.verdict == "found" for each in blind)
    said = (
        f"\nOf {len(outcomes)} tuned attacks, {len(blind)} hid all of the attacker's own marks; after {surprised} of "
        f"these {len(blind)} our mark is found."
    )
    return "\n".join([*_rows(TUNED_HEAD, outcomes), said, *_summary(outcomes)])


def _rows(head: Sequence[str], outcomes: Sequence[Outcome]) -> list[str]:
    order = sorted(outcomes, key=lambda each: (each.verdict == "found", each.named is not False, -each.log10_risk))
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(each.line for each in order)]


def _summary(outcomes: Sequence[Outcome]) -> list[str]:
    lines = []
    for bound, what in ((FREE, "free"), (DEAR, "expensive")):
        kept = [each for each in outcomes if np.isnan(each.change) or each.change <= bound]
        missed = [each for each in kept if each.verdict != "found"]
        unnamed = [each for each in kept if each.named is False]
        copies = sum(each.named is not None for each in kept)
        said = f"At most {100 * bound:.0f} % of perplexity ({what}): {len(kept)} copies, {len(missed)} not found; "
        lines.append(f"\n{said}of the {copies} for one of three recipients, {len(unnamed)} not named.")
    return lines


class Saved:
    """Outcomes in a file, one JSON object per line."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._known = [Outcome(**json.loads(line)) for line in lines]

    def get(self, model: str, preset: str, attack: str, group: str) -> Outcome | None:
        """Return the stored outcome of an attack. A tuned attack is found by name, since its strength is a result."""
        for each in self._known:
            name = each.attack.split()[0] if each.group == "tuned" else each.attack
            if (each.model, each.preset, name, each.group) == (model, preset, attack, group):
                return each
        return None

    def add(self, outcome: Outcome) -> Outcome:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=CAUSAL, default=list(CAUSAL))
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--compositions", type=int, default=20)
    parser.add_argument("--saved", type=Path, help="file that stores the outcomes")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/adaptive.md")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    saved = Saved(options.saved)
    for seed, (name, path) in enumerate(default_models()):
        if name not in options.models:
            continue
        for preset in options.presets:
            with tempfile.TemporaryDirectory() as folder:
                attacker = Attacker(name, path, preset, Path(folder))
                for outcome in carried_out(attacker, options.groups, options.compositions, seed, saved):
                    if isinstance(outcome, str):
                        print(f"not possible: {outcome}", flush=True)
                    else:
                        outcomes.append(outcome)
                        print(outcome.line, flush=True)
    for group, name, made in (
        ("listed", "measured", table),
        ("literature", "literature", table),
        ("tuned", "tuned", tuned_table),
    ):
        found = [each for each in outcomes if each.group == group]
        if found:
            text = made(found)
            print(f"\n{text}")
            if options.write:
                write_table("adaptive.md", name, text)


if __name__ == "__main__":
    main()
