"""Table 1: all attacks that the mark resists according to the paper, single and multi, by both readings."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import irwm
from benchmarks.peers import emmark, fernandez
from benchmarks.peers.score import Score
from benchmarks.reproduce import paper
from benchmarks.reproduce.bench import SECRET, Bench
from benchmarks.reproduce.models import MODES, SINGLE, parameters_of
from benchmarks.reproduce.page import Page, Record, counted, odds, utility
from benchmarks.reproduce.trials import OURS, PAPER
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS

NAME, TITLE = "attacks", "Table 1: which attacks the mark resists"
# The paper's column, our attacks in it, the strengths (None: all numbers of training steps of the run).
COLUMNS: tuple[tuple[str, str, tuple[str, ...], tuple[float, ...] | None], ...] = (
    ("FT", "fine-tuning", ("finetune", "lora", "layer0"), None),
    ("Prun.", "pruning", ("prune", "prune-neurons"), (0.1, 0.3)),
    ("Quan.", "quantisation", ("round",), (8, 4)),
    ("Perm.", "permutation", ("permute-residual", "reorder-heads", "reorder-neurons", "reorder-tokens"), (1,)),
    ("Scal.", "scaling", ("rescale", "regain", "flip-signs"), (1,)),
    ("Revers.", "invertible matrices", ("map-qk", "map-vo", "rotate"), (1,)),
    ("Col.", "collusion", ("collude",), (2, 4, 8)),
)


OTHERS = {"EmMark": emmark, "Fernandez": fernandez}
# Both others are implemented for this family.
_FAMILY = "llama"
Task = tuple[str, Path, str, tuple[tuple[str, str, float | str], ...], str, Path, str]


def measure(bench: Bench) -> dict[str, Any]:
    columns = COLUMNS if bench.sizes.everything else COLUMNS[1:4]
    wanted, under = [], []
    for short, _, names, strengths in columns:
        for model in bench.models:
            for mode in MODES:
                for name in names:
                    values = bench.strengths(model, ATTACKS[name]) if strengths is None else strengths
                    wanted += [(model, mode, name, value) for value in values]
                    under += [short] * len(values)
    trials = [record | {"column": short} for short, record in zip(under, bench.trials(wanted), strict=True)]
    tried = tuple(
        dict.fromkeys(
            (short, name, value) for short, (_, _, name, value) in zip(under, wanted, strict=True) if short != "Col."
        )
    )
    tasks: dict[str, Task] = {
        f"{model.name} {other}": (model.name, model.path, other, tried, bench.train, bench.scratch, bench.device)
        for model in bench.models
        if model.family == _FAMILY
        for other in OTHERS
    }
    return {"trials": trials, "others": [row for rows in bench.each(NAME, of_other, tasks).values() for row in rows]}


def of_other(task: Task) -> list[Record]:
    """Mark a model by another method, and read this mark after each attack as its authors do."""
    name, path, other, tried, text, scratch, device = task
    model = irwm.open_checkpoint(path)
    key = irwm.generate_key(model, parameters_of(SINGLE, model.hidden_size), secret=SECRET)  # for `Setup` alone
    rows: list[Record] = []
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        release = OTHERS[other].mark(path, Path(folder) / "release")
        for column, attack, value in tried:
            place = Path(folder) / "attacked"
            place.mkdir()
            setup = Setup(path, release, key, text, place, device=device)
            if ATTACKS[attack].why_not(setup, value) is None:
                found: Score = OTHERS[other].score(path, ATTACKS[attack].carry_out(setup, value, place / "out").path)
                rows.append({"model": name, "other": other, "column": column, "found": found.says == "derived"})
            shutil.rmtree(place)
    return rows


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    trials = results["trials"]
    ran = [each for each in trials if each["readings"]]
    page.text(
        f"The paper says that its mark resists all seven kinds. Here: {headline(results)}.",
        "`joint` is the verdict's statistic, with A of the original; `sum` with A of the suspect is the paper's "
        'reading, and "met" means at least ρ = 30 of 50 positions with a rank below β = 0.2. Odds are the chance that '
        "an unmarked model gives this reading. Utility is the change of perplexity against the release or, for an "
        "encoder without an output head, the mean cosine of its hidden states with the release's.",
    )
    page.heading("Kind by kind")
    rows = []
    for short, label, _, _ in COLUMNS:
        here = [each for each in ran if each["column"] == short]
        if here:
            cells = [f"{label} ({short})", "resists"]
            for mode in MODES:
                some = [each for each in here if each["mode"] == mode]
                found = sum(each["readings"][OURS]["verdict"] == "found" for each in some)
                met = sum(bool(each["readings"][PAPER]["passes"]) for each in some)
                cells += [f"{found} of {len(some)}", f"{met} of {len(some)}"]
            rows.append(cells)
    page.table(
        ("attack", "paper", *(f"{what}, {mode}" for mode in MODES for what in ("found", "paper's rule met"))),
        rows,
    )
    _as_printed(page, ran, results["others"])
    _contradictions(page, ran)
    for model in models:
        page.heading(model["name"])
        page.table(
            ("attack", "strength", "mode", "verdict (`joint`)", "`joint`, A(original)", "`sum`, A(suspect)", "odds",
             "recipient named", "utility"),
            [_row(each) for each in ran if each["model"] == model["name"]],
        )  # fmt: skip
        left_out = sorted(
            {
                f"{each['label']}: {each['reason']}"
                for each in trials
                if each["model"] == model["name"] and each not in ran
            }
        )
        if left_out:
            page.text("Not possible on this model:")
            page.bullets(*left_out)
    page.settings(
        (
            ("models", "Llama3-8B, Phi3-4B, Gemma-2B; GPU", "the folders above"),
            ("strengths", "of section 5.3", "the strengths in the tables"),
            ("permutation, scaling, invertible matrices", "argued in appendix B, not measured", "measured"),
            ("scaling", "of matrices", "the stream by one factor, norms by random gains, coordinates by signs"),
            ("collusion", "mean of copies", "mean of copies; other ways in `survival`"),
            ("multi", "t = 10, noise and scale not given", "t = 10, noise in 10 coordinates, scale 1000"),
            ("hidden", "", "the preset that hides marked rows: t and noise of hidden_size / 32, at most 10"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    ran = [each["readings"] for each in results["trials"] if each["readings"]]
    found = sum(each[OURS]["verdict"] == "found" for each in ran)
    met = sum(bool(each[PAPER]["passes"]) for each in ran)
    return (
        f"the mark is found in {found} of {len(ran)} attacked releases; the paper's own reading meets its rule in {met}"
    )


def _as_printed(page: Page, ran: list[Record], others: list[Record]) -> None:
    """The table as the paper prints it, with what was found here, and what contradicts it."""
    page.heading("The paper's table, and what is found here")
    measured = dict.fromkeys(row["model"] for row in others)
    page.text(
        "A cell shows what the paper says, and in how many attacked releases the mark is found. Ours: all three modes "
        "on all models. The two others: our own implementations ([choices](../peers.md)), each on its own release of "
        f"{', '.join(measured) or 'a ' + _FAMILY + ' model, which is not among these'}, read as their authors do. "
        "Sin.: one owner; Mul.: many recipients."
    )
    shorts = [short for short, *_ in COLUMNS]
    rows, contradicted = [], []
    for method, says in paper.RESISTS.items():
        one, many, *resists = says
        cells = [method, *("yes" if each else "no" for each in (one, many))]
        for short, does in zip(shorts, resists, strict=True):
            if method == paper.OURS:
                here = [each["readings"][OURS]["verdict"] == "found" for each in ran if each["column"] == short]
            else:
                here = [row["found"] for row in others if (row["other"], row["column"]) == (method, short)]
            count = f"{sum(here)} of {len(here)}" if here else "not measured"
            cells.append(f"{'resists' if does else 'not'}; {count}")
            if here and method != paper.OURS and (all(here) is not does):
                contradicted.append(
                    f"{method}, {short}: the paper says {'resists' if does else 'not'}; found in {count}"
                )
        rows.append(cells)
    page.table(("method", "Sin.", "Mul.", *shorts), rows)
    page.text(
        "Col. of the others is not measured: neither method has a rule for a suspect made from several recipients' "
        "copies, and their papers do not describe keys of recipients."
    )
    if contradicted:
        page.text("**What contradicts the rows of the others:**")
        page.bullets(*contradicted)


def _contradictions(page: Page, ran: list[Record]) -> None:
    """List the attacks where our tables and the paper's disagree."""
    lines = []
    for short, label, _, _ in COLUMNS:
        here = [each for each in ran if each["column"] == short]
        lost = [each for each in here if each["readings"][OURS]["verdict"] != "found"]
        unmet = [each for each in here if not each["readings"][PAPER]["passes"]]
        if lost or unmet:
            line = f"{label}: the paper's rule is not met in {len(unmet)} of {len(here)}"
            line += f", the mark not found in {len(lost)}" if lost else ", the mark found in all"
            traced = [each for each in lost if each["named"]]
            lines.append(
                line + (f"; tracing names the recipient in {len(traced)} of those not found" if traced else "")
            )
    if not lines:
        return
    page.text("**What contradicts our row:**")
    page.bullets(*lines)
    if any(line.startswith("collusion") for line in lines):
        page.text(
            "For the paper, the mark resists collusion if more than half of the ranks are in the top 50 %. This is "
            "far weaker than its own rule of ρ in l. Its figure is blank in the source; ours falls with every copy "
            "([Collusion](collusion.md)). In a mean of c copies each mark has 1/c of its strength, and the other "
            "copies' values are noise to it."
        )
    if any(not line.startswith("collusion") for line in lines):
        page.text(
            "The paper's reading uses A of the suspect, which contains the attack's noise, and adds all equations into "
            "one number. At scale 1000 this matters little, because a reading there hardly depends on the invariant "
            "([the published scripts](scripts.md)). The mode *hidden* has scale `auto`, where stored entries are as "
            "large as their neighbours."
        )


def _row(each: Record) -> list[Any]:
    ours = each["readings"][OURS]
    named = None if each["named"] is None else f"{'yes' if each['named'] else 'no'}, z = {each['z']:.0f}"
    return [
        each["label"], each["strength"], each["mode"], ours["verdict"], counted(ours),
        counted(each["readings"][PAPER]), odds(ours["log10_risk"]), named, utility(each),
    ]  # fmt: skip
