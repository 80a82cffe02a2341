"""The product's claim: attacks that leave the model usable leave the mark. Every attack, strength, model and mode."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.reproduce import figures
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.models import MODES, SINGLE
from benchmarks.reproduce.page import Page, Record, counted, odds, share, utility
from benchmarks.reproduce.trials import OURS, PAPER
from irwm.attacks.catalogue import ATTACKS

NAME, TITLE = "survival", "Attacks that leave the model usable leave the mark"
# Usable: the greatest relative rise of perplexity; for an encoder, the lowest cosine of hidden states.
WORSE, ALIKE = 0.25, 0.9
_NAMES = 3  # misses named in the sentence; the page names all


def measure(bench: Bench) -> dict[str, Any]:
    wanted = [
        (model, mode, name, value)
        for model in bench.models
        for mode in MODES
        for name, attack in ATTACKS.items()
        for value in bench.strengths(model, attack)
    ]
    return {"trials": bench.trials(wanted)}


def usable(trial: Record) -> bool | None:
    """Return whether the attacked model is still usable; None if utility was not measured."""
    measured = trial["utility"]
    if measured is None:
        return None
    if measured["similarity"] is not None:
        return bool(measured["similarity"] >= ALIKE)
    if measured["change"] is None:
        return None
    return isinstance(measured["change"], float) and measured["change"] <= WORSE


def found(trial: Record) -> bool:
    return bool(trial["readings"]) and trial["readings"][OURS]["verdict"] == "found"


def misses(trials: list[Record]) -> list[Record]:
    """Return trials that ran, left a usable model and were not found."""
    return [each for each in trials if each["readings"] and usable(each) and not found(each)]


def unnamed(trials: list[Record]) -> list[Record]:
    """Return trials with a usable model and a found mark whose recipient was not named although the copy has noise."""
    return [each for each in trials if usable(each) and found(each) and each["named"] is False]


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    trials = results["trials"]
    ran = [each for each in trials if each["readings"]]
    page.text(
        f"Claim: the mark is found after each attack that leaves perplexity within {100 * WORSE:.0f} % of the "
        f"release's. Here: {headline(results)}.",
        "An encoder without an output head has no perplexity. It counts as usable if its hidden states have a mean "
        f"cosine of at least {ALIKE} with the release's; this limit is arbitrary. Single is a mark without noise. "
        "Multi and hidden have noise, so the recipient is traced too.",
    )
    page.heading("Usable and not found")
    missed = misses(trials)
    page.text("None." if not missed else "The claim fails here:")
    if missed:
        page.table(_HEADER, map(_row, missed))
        page.bullets(*sorted({f"{_what(each)}: {each['readings'][OURS]['reason']}" for each in missed}))
        if any(each["attack"].startswith("collude") and each["mode"] == SINGLE for each in missed):
            page.text(_WHY_COPIES)
        if any(each["attack"] == "small-entries" and each["mode"] == SINGLE for each in missed):
            page.text(_WHY_OPEN)
    page.heading("Usable and found, but the recipient not named")
    silent = unnamed(trials)
    if silent:
        page.table(_HEADER, map(_row, silent))
    else:
        page.text("None.")
    broken = [each for each in ran if each["same"] is False]
    page.heading("Disguises that changed the model's function")
    page.text(
        "None." if not broken else "These should have changed the outputs only by rounding, so they are other attacks:"
    )
    if broken:
        page.table(_HEADER, map(_row, broken))
    page.figure(
        "scatter", _figure(ran, models), "Share of positions over the change of perplexity, one point per trial"
    )
    for state, title in ((True, "All usable copies"), (False, "No longer usable"), (None, "Utility not measured")):
        some = [each for each in ran if usable(each) is state]
        if some:
            page.heading(title)
            page.table(_HEADER, map(_row, some))
            reasons = sorted({f"{_what(each)}: {each['reason']}" for each in some if state is None and each["reason"]})
            if reasons:
                page.bullets(*reasons)
    left_out = sorted(
        {f"{each['model']}, {each['label']}: {each['reason']}" for each in trials if not each["readings"]}
    )
    if left_out:
        page.heading("Not possible on these models")
        page.bullets(*left_out)


_WHY_COPIES = (
    "Why copies without noise cancel each other: they differ only in their marked rows, and each of these rows is "
    "marked in one copy and unchanged in the others. A median, or a mean of enough copies, keeps the values of most "
    "copies. Such marks are for one release. Several recipients need the noise of multi, which tracing reads."
)
_WHY_OPEN = (
    "Why an attacker who knows the method can remove marks of the paper's setting: at scale 1000 the solved entries "
    "are near zero and visible, so the attacker can redraw them. The product's presets hide them and add a fingerprint "
    "([An attacker who knows the method](adaptive.md))."
)
_HEADER = (
    "model", "mode", "attack", "strength", "utility", "verdict", "`joint`, A(original)", "odds", "recipient named",
    "`sum`, A(suspect)",
)  # fmt: skip


def headline(results: dict[str, Any]) -> str:
    trials = results["trials"]
    good = [each for each in trials if each["readings"] and usable(each)]
    missed, silent = misses(trials), unnamed(trials)
    text = f"of {len(good)} attacked releases that are still usable the mark is found in {len(good) - len(missed)}"
    if missed:
        traced = sum(bool(each["named"]) for each in missed)
        kinds = Counter(each["label"] for each in missed)
        names = map(_what, missed) if len(missed) <= _NAMES else (f"{kind}: {n}" for kind, n in kinds.items())
        text += f" and missed in {len(missed)} ({'; '.join(names)})"
        text += f", and in {traced} of these tracing by noise still names the recipient"
    noisy = [each for each in good if each["named"] is not None]
    theirs = sum(bool(each["readings"][PAPER]["passes"]) for each in good)
    text += f"; of {len(noisy)} with noise the recipient is named in {sum(bool(each['named']) for each in noisy)}"
    if silent:
        text += f" (not in {'; '.join(map(_what, silent[:_NAMES]))}{'; …' if len(silent) > _NAMES else ''})"
    return f"{text}; the paper's own reading meets its rule in {theirs}"


def _what(each: Record) -> str:
    return f"{each['model']}, {each['mode']}, {each['label']} {each['strength']}"


def _row(each: Record) -> list[Any]:
    ours = each["readings"][OURS]
    named = None if each["named"] is None else f"{'yes' if each['named'] else 'no'}, z = {_z(each['z'])}"
    return [
        each["model"], each["mode"], each["label"], each["strength"], utility(each), ours["verdict"], counted(ours),
        odds(ours["log10_risk"]), named, counted(each["readings"][PAPER]),
    ]  # fmt: skip


def _z(z: Any) -> str:
    return f"{z:.0f}" if isinstance(z, float) else "none"


def _figure(trials: list[Record], models: list[Record]) -> Any:
    names = [model["name"] for model in models]
    figure, axes = figures.grid(
        len(MODES), len(names), "Every trial: the mark over what is left of the model", height=2.4
    )
    for row, mode in enumerate(MODES):
        for column, name in enumerate(names):
            panel = axes[row][column]
            some = [each for each in trials if (each["model"], each["mode"]) == (name, mode) and each["utility"]]
            encoder = any(each["utility"]["similarity"] is not None for each in some)
            for hit, colour, marker, label in (
                (True, figures.ACCENT, "o", "found"),
                (False, figures.WARM, "X", "not found"),
            ):
                places = [(_place(each, encoder), share(each["readings"][OURS])) for each in some if found(each) is hit]
                points = [(x, y) for x, y in places if x is not None and y is not None]
                panel.scatter([x for x, _ in points], [y for _, y in points], s=26, color=colour, marker=marker,
                              alpha=0.75, label=label, linewidths=0, zorder=3)  # fmt: skip
            figures.shares(panel, 0.2)
            panel.axvspan(-1 if encoder else 0.5, 1 - ALIKE if encoder else 1 + WORSE, color=figures.LINE, alpha=0.6,
                          label="usable", zorder=0)  # fmt: skip
            panel.set_title(f"{name}, {mode}")
            panel.set_xlabel("1 - cosine of hidden states" if encoder else "perplexity, times the release's")
            if encoder:
                panel.set_xlim(-0.03, 1.1)
            else:
                panel.set_xscale("log")
                panel.set_xlim(left=0.7)
        axes[row][0].set_ylabel("positions below β")
    figures.legend(figure, axes[0][0])
    return figure


def _place(each: Record, encoder: bool) -> float | None:
    value = each["utility"]["similarity" if encoder else "change"]
    if not isinstance(value, float):
        return None
    return 1 - value if encoder else 1 + value
