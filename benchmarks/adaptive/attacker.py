"""The attacker of one release: every attack that he tries, and what the attacked copy shows afterwards."""

from __future__ import annotations

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
from benchmarks.reproduce.bench import split_text
from irwm.attacks.attack import Attack, Setup
from irwm.attacks.catalogue import ADAPTIVE, ATTACKS, Steps, composed
from irwm.errors import IrwmError
from irwm.evidence.finding import MARK
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.inference import Reference, compare, reference
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
    "rebuilt-rows": (128, 64, 32, 16, 8, 4),
    "low-rank": (0.5, 0.25, 0.1),
}
# The same for attacks that take a sample text or train; they are tuned, but not part of a search.
TRAINED: dict[str, tuple[float, ...]] = {
    "width": (0.9, 0.75, 0.6, 0.45),
    "push": (0.02, 0.05, 0.2, 0.5, 1.0),
    "learn-again": (0.25, 0.5, 0.75, 0.85, 0.9, 0.95, 1.0),
}
# Number of the attacker's own marks for tuning each attack.
OWN_MARKS = 2
# In a search the attacker spends an equal part of the bound on the cost at each step.
STEPS_OF_SEARCH = 3
LISTED, LITERATURE, TUNED, SEARCHED = GROUPS = ("listed", "literature", "tuned", "searched")
# Attacks on models and on other watermarks that were published, by their names in the catalogue.
PUBLISHED = (
    "rebuilt-rows", "tokenizer", "push", "learn-again", "embedding", "width", "widen", "repeat-layers", "layers",
    "add-neurons", "as-mixtral", "low-rank", "merge-dare", "merge-ties",
)  # fmt: skip
# Costs that an attacker accepts.
FREE, EXPENSIVE = 0.05, 0.25
# Larger changes of perplexity are shown as a multiple.
RUINED = 9.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attacked copy.

    Attributes:
        model, preset: of the release.
        group: one of `GROUPS`.
        task: the task of the group, by which a stored outcome is found.
        attack: what was done in the end.
        cost: change of perplexity relative to the release. For an encoder, which has none, the fall of the mean cosine
            similarity of the outputs. NaN if the copy does not run.
        encoder: whether it is one.
        verdict: of `irwm.detect`.
        by: the strongest evidence, and the map under which it was read.
        log10_risk, mark, fingerprint: log10 odds, corrected, of all evidence, of the mark and of the fingerprint.
        lineage: status.
        named: whether tracing named the copy's recipient and no other; None for a copy without a recipient.
        own: the same odds for the attacker's own marks after the same attack; None if he did not use any.
    """

    model: str
    preset: str
    group: str
    task: str
    attack: str
    cost: float
    encoder: bool
    verdict: str
    by: str
    log10_risk: float
    mark: float
    fingerprint: float
    lineage: str
    named: bool | None
    own: float | None = None


class Attacker:
    """An attacker with one release of one model.

    Args:
        name, path: name and folder of the original.
        preset: a name in `PRESETS`.
        scratch: an existing folder.
        text: the text that attacks train on, and the one that perplexity is measured on, the first `tokens` tokens of
            it; default: the two parts of the bundled text.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        preset: str,
        scratch: Path,
        text: tuple[str, str] | None = None,
        tokens: int = TOKENS,
    ) -> None:
        self.name, self.preset, self.scratch, self.tokens = name, preset, scratch, tokens
        self.original = irwm.open_checkpoint(path)
        params = PRESETS[preset](self.original.hidden_size)
        recipients = ("ann", "bob", "cid") if preset == "many" else ("",)
        secret = bytes(range(32))
        self.keys = [irwm.generate_key(self.original, params, secret, "us", name) for name in recipients]
        self.release = irwm.insert(self.original, self.keys[0], scratch / "release").path
        self.text, self.measured = split_text(None) if text is None else text

    @cached_property
    def outputs(self) -> Reference:
        return reference(self.release, self.measured, self.tokens)

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

    def why_not(self, name: str) -> str | None:
        """Return why this model does not allow an attack, in a sentence."""
        if name == "tokenizer" and self.outputs.headless:
            return "The outputs for different tokens cannot be compared."
        return ATTACKS[name].why_not(Setup(self.original.path, self.release, self.keys[0], self.text, self.scratch))

    def tuned(self, name: str, seed: int) -> Outcome:
        """Attack the release with the least strength at which none of the attacker's own marks is found.

        It is found by bisection: at the next weaker strength, one of these marks is found. If one is found at every
        strength, the greatest is used.
        """
        ladder = (LADDERS | TRAINED)[name]
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

    def searched(self, bound: float, seed: int, steps_of_search: int = STEPS_OF_SEARCH) -> Outcome:
        """Attack the release by the steps that hide the attacker's own mark best at a cost within `bound`.

        At each step every attack is tried at the greatest strength that keeps the cost within this step's part of the
        bound. The attack that leaves the weakest evidence becomes the step.
        """
        key, path = self.own_marks[0]
        mine, before = irwm.open_checkpoint(self.release), reference(path, self.measured, self.tokens)

        def tried(steps: Steps) -> tuple[float, float]:
            """Return the cost of these steps on the attacker's own copy, and the log10 odds of its mark."""
            with self.copy(steps, seed, path) as (folder, _):
                return cost_of(before, folder), irwm.detect(irwm.open_checkpoint(folder), mine, key).log10_risk

        chosen: list[tuple[str, float | str]] = []
        odds = -math.inf
        for number in range(1, steps_of_search + 1):
            best = None
            for name, ladder in LADDERS.items():
                if self.why_not(name) is not None:
                    continue
                low, high = -1, len(ladder)  # the greatest strength within the bound is found by bisection
                while high - low > 1:
                    middle = (low + high) // 2
                    steps = [*chosen, (name, ladder[middle])]
                    cost, left = tried(steps)
                    if not cost <= bound * number / steps_of_search:
                        high = middle
                        continue
                    low = middle
                    if left > odds:
                        odds, best = left, steps
            chosen = best or chosen
        if not chosen:
            return replace(self._examined("none within the bound", self.release, runs=True), own=odds)
        return replace(self.carry_out(label_of(chosen), chosen, seed), own=odds)

    def _examined(self, label: str, folder: Path, runs: bool) -> Outcome:
        suspect = irwm.open_checkpoint(folder)
        examination = irwm.Examination(suspect, self.original)
        (found,) = irwm.detect_each(examination, self.keys[:1])
        tracing = trace_each(examination, self.keys, decoys=0)
        best = min(found.evidence, key=lambda each: each.log10_p)
        return Outcome(
            model=self.name,
            preset=self.preset,
            group=LISTED,
            task=label,
            attack=label,
            cost=cost_of(self.outputs, folder) if runs else math.nan,
            encoder=self.outputs.headless,
            verdict=found.verdict,
            by=f"{best.form}, {best.by}",
            log10_risk=found.log10_risk,
            mark=min(found.log10_risk_of(each) for each in found.evidence if each.form == MARK),
            fingerprint=tracing.traces[0].log10_risk,
            lineage=found.lineage.status,
            named=[trace.recipient for trace in tracing.named] == ["ann"] if len(self.keys) > 1 else None,
        )


def cost_of(before: Reference, folder: Path) -> float:
    """Return the change of perplexity, or the fall of the cosine similarity of an encoder's outputs."""
    utility = compare(before, folder)
    if utility.similarity is not None:
        return 1 - utility.similarity
    return math.nan if utility.change is None else utility.change


def planned(
    compositions: int, seed: int, possible: Sequence[str] = DISGUISES, every: bool = True
) -> Iterator[tuple[str, Steps]]:
    """Yield each attack of the group at each strength, or only the first, stronger attacks, then compositions."""
    for attack in ATTACKS.values():
        if attack.group == ADAPTIVE and attack.name not in PUBLISHED:
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


class Saved:
    """Outcomes in a file, one JSON object per line."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._known = [Outcome(**json.loads(line)) for line in lines]

    def get(self, model: str, preset: str, group: str, task: str) -> Outcome | None:
        """Return the stored outcome of a task."""
        wanted = (model, preset, group, task)
        return next((one for one in self._known if (one.model, one.preset, one.group, one.task) == wanted), None)

    def add(self, outcome: Outcome) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")


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
    if LISTED in groups:
        for number, (label, steps) in enumerate(planned(compositions, seed, attacker.disguises, every)):
            tasks.append((LISTED, label, partial(attacker.carry_out, label, steps, number)))
        if every and attacker.original.output_head is not None:
            for name, inside, head in UNEVEN:
                label = f"{name} {inside:g}, in the head {head:g}"
                tasks.append((LISTED, label, partial(attacker.uneven, label, name, inside, head, seed)))
    wanted = [(LITERATURE, name) for name in (PUBLISHED if every else PUBLISHED[:1])]
    wanted += [(TUNED, name) for name in list(LADDERS | TRAINED)[: None if every else 1]]
    for group, name in wanted:
        if group not in groups:
            continue
        if (why := attacker.why_not(name)) is not None:
            yield f"{attacker.name}, {attacker.preset}, {name}: {why}"
        elif group == TUNED:
            tasks.append((TUNED, name, partial(attacker.tuned, name, seed)))
        else:
            for label, steps in _of_attack(ATTACKS[name], every):
                tasks.append((LITERATURE, label, partial(attacker.carry_out, label, steps, seed)))
    if SEARCHED in groups:
        for bound in (FREE, EXPENSIVE) if every else (FREE,):
            search = partial(attacker.searched, bound, seed, STEPS_OF_SEARCH if every else 1)
            tasks.append((SEARCHED, f"{100 * bound:.0f} %", search))
    for group, label, carry_out in tasks:
        outcome = saved.get(attacker.name, attacker.preset, group, label) if saved is not None else None
        if outcome is None:
            try:
                outcome = replace(carry_out(), group=group, task=label)
            except IrwmError as error:
                yield f"{attacker.name}, {attacker.preset}, {label}: {error.problem}"
                continue
            if saved is not None:
                saved.add(outcome)
        yield outcome
