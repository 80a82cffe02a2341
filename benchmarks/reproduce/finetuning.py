"""The fine-tuning table: shares of positions in the top 1, 10 and 20 % after further training."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce import figures, paper
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.models import MODES
from benchmarks.reproduce.page import Page, Record, counted, odds, percent, utility
from benchmarks.reproduce.trials import OURS, PAPER
from irwm.attacks.catalogue import ATTACKS

NAME, TITLE = "finetuning", "Fine-tuning"
LENGTHS = {"single": 10, "multi": 10, "hidden": None, "single-20": 20, "multi-20": 20}
_KINDS = ("finetune", "lora", "layer0")
RATE = "finetune-rate"
# Tokens of a step: 8 pieces of 128, the default of `irwm.attacks.finetune`.
_TOKENS = 8 * 128


def measure(bench: Bench) -> dict[str, Any]:
    wanted: list[tuple[Any, str, str, float | str]] = []
    modes = tuple(LENGTHS) if bench.sizes.everything else MODES
    for model in bench.models:
        for mode in modes:
            wanted += [(model, mode, "finetune", steps) for steps in bench.steps(model)]
        for mode in MODES:
            wanted += [(model, mode, kind, steps) for kind in _KINDS[1:] for steps in bench.steps(model)]
        wanted += [(model, "single", RATE, rate) for rate in bench.strengths(model, ATTACKS[RATE])]
    steps = {model.name: list(bench.steps(model)) for model in bench.models}
    return {"trials": bench.trials(wanted), "steps": steps, "characters": len(bench.train)}


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    trials = [each for each in results["trials"] if each["readings"]]
    page.text(
        f"The paper: most positions stay in the top 20 %; at 100k samples 76 to 100 %. Here: {headline(results)}.",
    )
    page.heading("Shares of positions in the top 1, 10 and 20 %")
    page.text(
        "First the paper's reading (`sum`, A of the suspect), then ours (`joint`, A of the original). Chance gives 1, "
        "10 and 20 %. All weights are trained."
    )
    rows = []
    for each in trials:
        if each["attack"] == "finetune":
            rows.append(
                [each["model"], _length(each), each["mode"].partition("-")[0], each["strength"],
                 f"{each['value'] * _TOKENS:,}".replace(",", " "), _three(each["readings"][PAPER]),
                 _three(each["readings"][OURS]), each["readings"][OURS]["verdict"], utility(each)]
            )  # fmt: skip
    page.table(("model", "t", "mode", "trained", "tokens", "`sum`", "`joint`", "verdict", "utility"), rows)
    page.heading("The paper's table")
    page.table(
        ("model", "t", "samples", "single: 1, 10, 20 %", "multi: 1, 10, 20 %"),
        [
            [name, t, samples, *(" / ".join(f"{share} %" for share in part) for part in (shares[:3], shares[3:]))]
            for (name, t), by in paper.FINE_TUNING.items()
            for samples, shares in by.items()
        ],
    )
    page.text("Shares of the top 1, 10 and 20 % can only grow. These fall, so they cannot be the counted shares:")
    page.bullets(*paper.falling())
    page.heading("Other ways to train, and other rates")
    page.text("LoRA and the first layer alone, which the paper does not test, and all weights at three rates, single.")
    page.table(
        ("model", "attack", "strength", "mode", "verdict", "`joint`, A(original)", "`sum`, A(suspect)", "odds",
         "utility"),
        [
            [each["model"], each["label"],
             f"rate {each['strength']}" if each["attack"] == RATE else each["strength"], each["mode"],
             each["readings"][OURS]["verdict"], counted(each["readings"][OURS]), counted(each["readings"][PAPER]),
             odds(each["readings"][OURS]["log10_risk"]), utility(each)]
            for each in trials if each["attack"] != "finetune"
        ],
    )  # fmt: skip
    page.figure("rates", _figure(trials, models), "Share of positions below beta over the learning rate")
    steps = "; ".join(f"{name} {' and '.join(map(str, counts))}" for name, counts in results["steps"].items())
    page.settings(
        (
            ("data", "Blossom-Math-ZH, Alpaca-ZH, MS-Bench; 10k, 50k, 100k samples", "the text's first part: "
             f"{results['characters']:,} characters of English prose".replace(",", " ")),
            ("length", "5 epochs", f"steps of {_TOKENS:,} tokens: {steps}".replace("1,024", "1 024")),
            ("rate", "2e-5", "1e-4 for all weights, 1e-3 for LoRA and the first layer, falling to 0; the three above"),
            ("optimiser", "not stated", "AdamW, gradients clipped at 1, half cosine"),
            ("t", "10 and 20", "10 and 20; hidden: that of the preset"),
            ("rows of the paper's table", "two blocks per model, t not printed", "read as t = 10, then t = 20"),
        )
    )  # fmt: skip
    page.text(
        "A processor allows far fewer steps than the paper's. The rate is five times the paper's and the models are a "
        "thousandth of the size, so the weights do change. The utility column shows how much. These results do not "
        "imply that the paper's 100k samples would leave as much of the mark."
    )


def headline(results: dict[str, Any]) -> str:
    trials = [each for each in results["trials"] if each["readings"]]
    full = [each["readings"] for each in trials if each["attack"] == "finetune"]
    found = sum(each["readings"][OURS]["verdict"] == "found" for each in trials)
    ours, theirs = (min(each[way]["below"][-1] or 0 for each in full) for way in (OURS, PAPER))
    return (
        f"found after {found} of {len(trials)} trainings; lowest share in the top 20 %, all weights trained, "
        f"{percent(ours)} by `joint` and {percent(theirs)} by the paper's reading"
    )


def _length(each: Record) -> Any:
    return LENGTHS[each["mode"]] or "preset"


def _three(reading: Record) -> str:
    return " / ".join(percent(value) for value in reading["below"])


def _figure(trials: list[Record], models: list[Record]) -> Any:
    names = [model["name"] for model in models]
    figure, axes = figures.grid(1, len(names), "Training at higher rates", height=2.6)
    for panel, name in zip(axes[0], names, strict=True):
        some = [each for each in trials if each["model"] == name and each["attack"] == RATE]
        for way, colour, label in (
            (OURS, figures.ACCENT, "joint, A(original)"),
            (PAPER, figures.WARM, "sum, A(suspect): the paper"),
        ):
            y = [each["readings"][way]["below"][-1] for each in some]
            panel.plot([each["value"] for each in some], y, color=colour, marker="o", label=label)
        panel.set_xscale("log")
        figures.shares(panel, 0.2)
        figures.ticks(panel, [each["value"] for each in some], [each["strength"] for each in some])
        panel.set_title(name)
        panel.set_xlabel("learning rate")
    axes[0][0].set_ylabel("positions below β")
    figures.legend(figure, axes[0][0])
    return figure
