"""The pruning figure: share of positions and utility over the share of weights, or of neurons, set to zero."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce import figures
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.models import MODES
from benchmarks.reproduce.page import Page, Record, counted, odds, percent, share, utility
from benchmarks.reproduce.trials import OURS, PAPER
from irwm.attacks.catalogue import ATTACKS

NAME, TITLE = "pruning", "Pruning"
WEIGHTS, NEURONS = "prune", "prune-neurons"
WORDS = {WEIGHTS: "weights", NEURONS: "neurons"}


def measure(bench: Bench) -> dict[str, Any]:
    wanted = [
        (model, mode, name, value)
        for name in WORDS
        for model in bench.models
        for mode in MODES
        for value in bench.strengths(model, ATTACKS[name])
    ]
    return {"trials": bench.trials(wanted)}


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    trials = [each for each in results["trials"] if each["readings"]]
    page.text(
        "The paper: nearly 100 % at .1 for all models; beyond .3 the models' accuracy falls so much that detection "
        f"does not matter. Its figure is blank in the source. Here: {headline(results)}.",
        "The paper zeroes neurons by a global method and does not state which ones, so this page shows two kinds: the "
        "smallest weights of the whole model, and hidden units of the MLPs. The hidden units are neither in the "
        "embedding nor in A, so pruning them does not change the reading.",
    )
    page.table(
        ("model", "mode", "of", "pruned", "verdict", "`joint`, A(original)", "`sum`, A(suspect)", "odds", "utility"),
        [
            [each["model"], each["mode"], WORDS[each["attack"]], each["strength"], each["readings"][OURS]["verdict"],
             counted(each["readings"][OURS]), counted(each["readings"][PAPER]),
             odds(each["readings"][OURS]["log10_risk"]), utility(each)]
            for each in trials
        ],
    )  # fmt: skip
    for attack, words in WORDS.items():
        page.figure(
            words,
            _figure([each for each in trials if each["attack"] == attack], models, words),
            f"Share of positions and perplexity over the share of {words} pruned",
        )
    page.settings(
        (
            (
                "what is pruned",
                "global, r % of the neurons zeroed",
                "weights: global, the r % with the smallest magnitude; neurons: the r % of the MLPs' hidden units that "
                "matter least in their layer",
            ),
            ("ratios", ".1 to .9 in steps of .2", "the same"),
            ("utility", "C-Eval accuracy (OpenCompass)", "perplexity on text; an encoder's hidden states"),
            ("detection rate", "not defined", "share of positions with a rank below β = 0.2, and the verdict"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    return "; ".join(f"of {words}, {_said(results['trials'], name)}" for name, words in WORDS.items())


def _said(trials: list[Record], attack: str) -> str:
    parts = []
    for strength, label in ((0.1, "at .1"), (0.3, "at .3"), (0.9, "at .9")):
        chosen = [each for each in trials if (each["attack"], each["value"]) == (attack, strength)]
        some = [each["readings"] for each in chosen if each["readings"]]
        if some:
            ours, theirs = (
                [found for each in some if (found := share(each[way])) is not None] for way in (OURS, PAPER)
            )
            found = sum(each[OURS]["verdict"] == "found" for each in some)
            text = f"{label} found in {found} of {len(some)}"
            if ours:
                text += f", lowest share of positions {percent(min(ours))} by `joint`"
            if theirs:
                text += f" and {percent(min(theirs))} by the paper's reading"
            if len(theirs) < len(some):
                text += f", which is not possible in {len(some) - len(theirs)} (the suspect's scores are constant)"
            parts.append(text)
    return "; ".join(parts)


def _figure(trials: list[Record], models: list[Record], words: str) -> Any:
    names = [model["name"] for model in models]
    figure, axes = figures.grid(
        2, len(names), f"Pruned {words}: what is left of the mark, and of the model", height=2.3
    )
    for column, name in enumerate(names):
        upper, lower = axes[0][column], axes[1][column]
        upper.set_title(name)
        here = [each["utility"] or {} for each in trials if each["model"] == name]
        encoder = any(each.get("similarity") is not None for each in here)
        for mode, marker, style in zip(MODES, figures.MARKERS, ("-", "--", ":"), strict=False):
            some = [each for each in trials if (each["model"], each["mode"]) == (name, mode)]
            x = [100 * each["value"] for each in some]
            for way, colour, label in ((OURS, figures.ACCENT, "joint"), (PAPER, figures.WARM, "sum (paper)")):
                y: list[Any] = [share(each["readings"][way]) for each in some]
                upper.plot(x, y, style, color=colour, marker=marker, label=f"{label}, {mode}")
            measured = [each["utility"] or {} for each in some]
            y = [each.get("similarity") if encoder else _ratio(each.get("change")) for each in measured]
            lower.plot(x, y, style, color=figures.INK, marker=marker, label=mode)
        if encoder:
            lower.set_ylabel("cosine of hidden states")
        else:
            figures.times(lower, "perplexity, times")
        figures.shares(upper, 0.2)
        lower.set_xlabel(f"{words} pruned, %")
        figures.ticks(upper, (10, 30, 50, 70, 90), ("10", "30", "50", "70", "90"))
        lower.set_xticks([10, 30, 50, 70, 90])
    axes[0][0].set_ylabel("positions below β")
    figures.legend(figure, axes[0][0])
    return figure


def _ratio(change: Any) -> float | None:
    return 1 + change if isinstance(change, float) else None
