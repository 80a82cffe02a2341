"""An attacker who knows the method: the product's presets under `benchmarks.adaptive`, listed, published and tuned."""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.adaptive.attacker import (
    EXPENSIVE,
    FREE,
    GROUPS,
    LISTED,
    LITERATURE,
    OWN_MARKS,
    PRESETS,
    SEARCHED,
    STEPS_OF_SEARCH,
    TUNED,
    Attacker,
    Outcome,
    carried_out,
)
from benchmarks.adaptive.tables import cheapest, curves, own_table, table
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.page import Page, Record
from benchmarks.reproduce.trials import number

NAME, TITLE = "adaptive", "An attacker who knows the method"
_COMPOSITIONS = 20


@dataclass(frozen=True, slots=True)
class Task:
    """The work of one worker: one group of attacks on one release."""

    model: str
    path: Path
    preset: str
    group: str
    scratch: Path
    text: tuple[str, str] = field(repr=False)
    tokens: int
    seed: int
    everything: bool


def measure(bench: Bench) -> dict[str, Any]:
    tasks = {
        f"{model.name} {preset} {group}": Task(
            model.name, model.path, preset, group, bench.scratch, (bench.train, bench.measured), bench.sizes.tokens,
            seed,
            bench.sizes.everything,
        )
        for seed, model in enumerate(bench.models)
        for preset in PRESETS
        for group in GROUPS
    }  # fmt: skip
    done = bench.each(NAME, carry_out, tasks)
    return {name: [one for each in done.values() for one in each[name]] for name in ("outcomes", "left_out")}


def carry_out(task: Task) -> dict[str, list[Any]]:
    """Return the outcomes of a task, and a sentence for each attack that was not possible."""
    found: dict[str, list[Any]] = {"outcomes": [], "left_out": []}
    with tempfile.TemporaryDirectory(dir=task.scratch) as folder:
        attacker = Attacker(task.model, task.path, task.preset, Path(folder), task.text, task.tokens)
        compositions = _COMPOSITIONS if task.everything else 1
        for each in carried_out(attacker, [task.group], compositions, task.seed, every=task.everything):
            if isinstance(each, str):
                found["left_out"].append(each)
            else:
                found["outcomes"].append(asdict(each) | {"cost": number(each.cost)})
    return found


def write(page: Page, results: dict[str, Any], _models: list[Record]) -> None:
    outcomes = _outcomes(results)
    by_group = {group: [each for each in outcomes if each.group == group] for group in GROUPS}
    page.text(
        "The attacker has a release, this repository and its pages, but neither key nor original. "
        f"Here: {headline(results)}.",
        "One preset is `irwm.one_owner`, the other `irwm.many_recipients` with one of three copies. \"leak\" shows "
        "whether tracing named the copy's recipient and no other. The cost is the change of perplexity relative to the "
        "release; for an encoder, the fall of the mean cosine similarity of its outputs. Misses are listed first. "
        "[adaptive.md](../adaptive.md) explains the aim of each attack.",
    )  # fmt: skip
    page.heading("Cheapest evasion of each release")
    page.text(
        "The cheapest copies that hide the mark, the fingerprint, and both: their odds are not below the risk of "
        "10^-6.",
    )
    page.text(cheapest(outcomes))
    page.figure("cost", curves(outcomes), "Weakest evidence after any attack up to a cost, for each release")
    page.heading("Every attack at every strength, and random compositions with disguises")
    page.text(table(by_group[LISTED]))
    page.heading("Published attacks on models and on other watermarks")
    page.text(table(by_group[LITERATURE]))
    page.heading("Attacks tuned on copies with the attacker's own marks")
    page.text(
        f"The attacker marks the release with {OWN_MARKS} own keys of the same preset, raises each attack's "
        "strength until neither mark is found, and applies this strength to the release. If the marks are found at "
        "every strength, the attacker uses the greatest.",
        own_table(by_group[TUNED]),
    )
    page.heading("Steps that an attacker finds by a search")
    page.text(
        f"The attacker composes {STEPS_OF_SEARCH} steps on a copy with his own mark. At each step he takes the attack "
        "and the strength that hide it best at an equal part of the bound on the cost.",
        own_table(by_group[SEARCHED]),
    )
    if results["left_out"]:
        page.heading("Not possible on these models")
        page.bullets(*sorted(set(results["left_out"])))
    page.settings(
        (
            ("attacker", "does not know the method", "knows method and code, and tunes the attacks"),
            ("marks", "t = 10, l = 50", "the product's presets, with a fingerprint"),
            ("verdict", "the paper's rule", "the product's rule, over all forms of evidence and all maps"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    outcomes = _outcomes(results)
    parts = []
    for bound in (FREE, EXPENSIVE):
        kept = [each for each in outcomes if math.isnan(each.cost) or each.cost <= bound]
        missed = [f"{each.model}, {each.preset}, {each.attack}" for each in kept if each.verdict != "found"]
        said = f" and missed in {len(missed)} ({'; '.join(missed)})" if missed else ""
        parts.append(
            f"of {len(kept)} attacked copies at a cost of at most {100 * bound:.0f} % the mark or the fingerprint is "
            f"found in {len(kept) - len(missed)}{said}"
        )
    copies = [each for each in outcomes if each.named is not None and not each.cost > EXPENSIVE]
    parts.append(f"of {len(copies)} copies for one of three recipients {sum(map(_named, copies))} are named")
    denied = sum(each.lineage == "not derived" for each in outcomes)
    return f'{"; ".join(parts)}; {denied or "none"} of {len(outcomes)} called "not derived"'


def _named(outcome: Outcome) -> bool:
    return bool(outcome.named)


def _outcomes(results: dict[str, Any]) -> list[Outcome]:
    costs = {None: math.nan, "infinite": math.inf}
    return [Outcome(**each | {"cost": costs.get(each["cost"], each["cost"])}) for each in results["outcomes"]]
