"""Multiple claims of ownership: both of the paper's attacks, decided by the product's rules."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import irwm
from benchmarks.reproduce.bench import SECRET, Bench
from benchmarks.reproduce.models import SINGLE, parameters_of
from benchmarks.reproduce.page import Page, Record, odds
from benchmarks.reproduce.trials import number
from irwm.ownership import Claim, resolve

NAME, TITLE = "ownership", "Multiple claims of ownership"
_ATTACKS = {
    "second mark": "(1) the attacker marks our release M1 again, and presents M1 as the original and M12 as the "
    "release",
    "computed back": "(2) the attacker subtracts another mark from M1, presents the result (Mo') as the original and "
    "marks it (M1')",
}
_MODELS = ("original of Owner", "release of Owner", "original of Attacker", "release of Attacker")

Task = tuple[str, Path, Path, str]


def measure(bench: Bench) -> dict[str, Any]:
    tasks: dict[str, Task] = {
        model.name: (model.name, model.path, bench.scratch, bench.device) for model in bench.models
    }
    return {"cases": [case for cases in bench.each(NAME, one, tasks).values() for case in cases]}


def one(task: Task) -> list[dict[str, Any]]:
    name, path, scratch, device = task
    original = irwm.open_checkpoint(path)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        root = Path(folder)
        params = parameters_of(SINGLE, original.hidden_size)
        key = irwm.generate_key(original, params, SECRET, "Owner")
        release = irwm.open_checkpoint(irwm.insert(original, key, root / "M1", device=device).path)
        ours = Claim("Owner", original, key, release)
        his = irwm.generate_key(release, params, bytes([2]) * 32, "Attacker")
        twice = irwm.open_checkpoint(irwm.attacks.mark_again(release.path, root / "M12", his))
        back = irwm.open_checkpoint(irwm.attacks.subtract_mark(release.path, root / "Mo-back", his))
        new = irwm.generate_key(back, params, bytes([4]) * 32, "Attacker")
        forged = irwm.open_checkpoint(irwm.insert(back, new, root / "M1-back", device=device).path)
        theirs = {
            "second mark": Claim("Attacker", release, his, twice),
            "computed back": Claim("Attacker", back, new, forged),
        }
        cases = []
        for attack, claim in theirs.items():
            outcome = resolve([ours, claim], device=device)
            tests = {
                f"{test.claimant}: {test.model}": {
                    "verdict": test.finding.verdict if test.finding else "refused",
                    "log10_risk": number(test.log10_risk),
                }
                for test in outcome.tests
            }
            cases.append(
                {
                    "model": name,
                    "attack": attack,
                    "winner": outcome.winner,
                    "sentence": outcome.sentence,
                    "tests": tests,
                }
            )
    return cases


def write(page: Page, results: dict[str, Any], _models: list[Record]) -> None:
    page.text(
        "The paper argues, without numbers, that the owner's mark stays in M12 and in Mo', and that the party with "
        f"the unmarked original wins. Here: {headline(results)}."
    )
    for attack, what in _ATTACKS.items():
        page.heading(attack[0].upper() + attack[1:])
        page.text(f"{what}.")
        rows = []
        for case in results["cases"]:
            if case["attack"] == attack:
                for claimant in ("Owner", "Attacker"):
                    tests = [case["tests"][f"{claimant}: {model}"] for model in _MODELS]
                    cells = [f"{t['verdict']}, {odds(t['log10_risk'])}" for t in tests]
                    rows.append([case["model"], claimant, *cells, case["winner"] or "undecided"])
        header = ("our original", "our release", "attacker's original", "attacker's release")
        page.table(("model", "key of", *header, "winner"), rows)
    page.settings(
        (
            ("numbers", "none", "every key on every model, with odds"),
            (
                "reverse computation",
                '"based on their watermark values", no formula',
                "the attacker's values subtracted once",
            ),
            (
                "rule",
                "the party that shows an unmarked original wins",
                "docs/ownership.md: the party whose original carries the other's mark loses",
            ),
            ("mode", "not stated", "single, t = 10, scale 1000"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    cases = results["cases"]
    ours = sum(case["winner"] == "Owner" for case in cases)
    stays = sum(case["tests"]["Owner: original of Attacker"]["verdict"] == "found" for case in cases)
    return (
        f'our mark is found in the attacker\'s "original" in {stays} of {len(cases)} cases, and the ruling is '
        f"for the owner in {ours} of {len(cases)}, without any date"
    )
