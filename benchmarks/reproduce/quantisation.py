"""The quantisation figure: share of positions after 8 and 4 bit, by rounding and by the installed tools."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce import figures
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.models import MODES, MULTI
from benchmarks.reproduce.page import Page, Record, counted, odds, percent, share, utility
from benchmarks.reproduce.trials import OURS, PAPER
from irwm.attacks.catalogue import ATTACKS, QUANTISATION

NAME, TITLE = "quantisation", "Quantisation"
# Bits for which the paper has figures.
COMPARED = (8, 4)


def measure(bench: Bench) -> dict[str, Any]:
    attacks = [attack for attack in ATTACKS.values() if attack.group == QUANTISATION]
    wanted = [
        (model, mode, attack.name, value)
        for model in bench.models
        for mode in MODES
        for attack in attacks
        for value in bench.strengths(model, attack)
    ]
    return {"trials": bench.trials(wanted)}


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    trials = [each for each in results["trials"] if each["readings"]]
    page.text(
        "The paper: 100 % at 8 and at 4 bit, single and multi, except Gemma-2B at 4 bit in multi with 84 %. "
        f"Here: {headline(results)}.",
    )
    page.table(
        ("model", "quantised by", "strength", "mode", "paper", "verdict", "`joint`, A(original)", "`sum`, A(suspect)",
         "odds", "utility"),
        [
            [each["model"], each["label"], each["strength"], each["mode"], _paper(each),
             each["readings"][OURS]["verdict"], counted(each["readings"][OURS]), counted(each["readings"][PAPER]),
             odds(each["readings"][OURS]["log10_risk"]), utility(each)]
            for each in trials
        ],
    )  # fmt: skip
    page.figure("shares", _figure(trials, models), "Share of positions below beta after quantisation")
    left_out = sorted(
        {f"{each['model']}, {each['label']}: {each['reason']}" for each in results["trials"] if not each["readings"]}
    )
    if left_out:
        page.text("Not possible:")
        page.bullets(*left_out)
    page.settings(
        (
            ("from", "16 bit", "the dtype of each model, which the table of models names"),
            ("by", "not stated", "rounding to nearest, and the tools in the table"),
            (
                "detection rate",
                "not defined; .84 of 50 is 42 positions",
                "share of positions below β = 0.2, and the verdict",
            ),
            ("scale", "adjusted to each model, not given", "1000; hidden `auto`, where solved entries look natural"),
            ("noise of multi", "one level, not given", "one level for all rows; hidden: each row's own"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    parts = []
    for bits in COMPARED:
        some = [
            each for each in results["trials"]
            if each["attack"] == "round" and each["value"] == bits and each["readings"]
        ]  # fmt: skip
        found = sum(each["readings"][OURS]["verdict"] == "found" for each in some)
        lowest = [
            f"{percent(min(share(each['readings'][PAPER]) or 0 for each in some if each['mode'] == mode))} in {mode}"
            for mode in MODES
            if any(each["mode"] == mode for each in some)
        ]
        if some:
            parts.append(
                f"rounded to {bits} bit found in {found} of {len(some)}; by the paper's reading the lowest share of "
                f"positions is {', '.join(lowest)}"
            )
    return "; ".join(parts)


def _paper(each: Record) -> str | None:
    if each["attack"] != "round" or each["value"] not in COMPARED:
        return None
    return "100 %, Gemma-2B 84 %" if each["value"] == 4 and each["mode"] == MULTI else "100 %"


def _figure(trials: list[Record], models: list[Record]) -> Any:
    names = [model["name"] for model in models]
    kinds = list(dict.fromkeys(f"{each['label']}, {each['strength']}" for each in trials))[::-1]
    title = "Positions that still count after quantisation"
    figure, axes = figures.grid(len(MODES), len(names), title, height=0.9 + 0.22 * len(kinds), width=2.6)
    for row, mode in enumerate(MODES):
        for column, name in enumerate(names):
            panel = axes[row][column]
            some = [each for each in trials if (each["model"], each["mode"]) == (name, mode)]
            places = [kinds.index(f"{each['label']}, {each['strength']}") for each in some]
            for way, colour, marker, label in (
                (PAPER, figures.WARM, "s", "sum, A(suspect): the paper"),
                (OURS, figures.ACCENT, "o", "joint, A(original)"),
            ):
                x = [share(each["readings"][way]) or 0 for each in some]
                panel.plot(x, places, marker, color=colour, label=label)
            panel.axvline(0.2, color=figures.NULL, linewidth=1.2, linestyle=(0, (4, 3)), label="chance, 20 %")
            panel.set_xlim(-0.04, 1.06)
            panel.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
            panel.set_yticks(range(len(kinds)), kinds if column == 0 else [""] * len(kinds))
            panel.set_ylim(-0.6, len(kinds) - 0.4)
            panel.set_title(f"{name}, {mode}")
    for panel in axes[-1]:
        panel.set_xlabel("positions below β")
    figures.legend(figure, axes[0][0])
    return figure
