"""What attacked copies show, as tables and as a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from benchmarks.adaptive.attacker import EXPENSIVE, FREE, RUINED, Outcome
from benchmarks.reproduce.figures import ACCENT, INK, NULL, QUIET, WARM, grid, legend
from irwm.evidence.verdict import FOUND_LOG10_RISK

HEAD = (
    "release", "attack", "cost", "verdict", "log10 odds", "mark", "fingerprint", "strongest", "lineage", "leak",
)  # fmt: skip
OWN_HEAD = (*HEAD[:2], "attacker's own marks, log10 odds", *HEAD[2:])
# Evidence by the name in tables, with its log10 odds and its colour in the figure.
EVIDENCE: dict[str, tuple[Callable[[Outcome], float], str]] = {
    "mark": (lambda each: each.mark, WARM),
    "fingerprint": (lambda each: each.fingerprint, QUIET),
    "both": (lambda each: min(each.log10_risk, each.fingerprint), ACCENT),
}
# Limits of the figure: costs, and powers of ten of the odds.
LEAST_COST, MOST_COST, MOST_ODDS = 1e-3, 20.0, 1e4


def row(each: Outcome) -> str:
    leak = "" if each.named is None else "named" if each.named else "not named"
    own = () if each.own is None else (f"{each.own:.0f}",)
    odds = (f"{value:.0f}" for value in (each.log10_risk, each.mark, each.fingerprint))
    cells = (f"{each.model}, {each.preset}", each.attack, *own, price(each), each.verdict, *odds, each.by, each.lineage)
    return f"| {' | '.join((*cells, leak))} |"


def price(each: Outcome) -> str:
    """Return the cost of a copy, as the tables show it."""
    if math.isnan(each.cost):
        return "does not run as stored"
    if each.encoder:
        return f"cosine {1 - each.cost:.3f}"
    return f"× {1 + each.cost:.2g}" if each.cost >= RUINED else f"{100 * each.cost:+.1f} %"


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of attacks with chosen strengths, misses first."""
    denied = sum(each.lineage == "not derived" for each in outcomes)
    return "\n".join([*_rows(HEAD, outcomes), *_summary(outcomes), f'\nCalled "not derived": {denied}.'])


def own_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of attacks that were adjusted to the attacker's own marks, misses first."""
    blind = [each for each in outcomes if each.own is not None and each.own > FOUND_LOG10_RISK]
    surprised = sum(each.verdict == "found" for each in blind)
    said = (
        f"\nOf {len(outcomes)} attacks, {len(blind)} hid all of the attacker's own marks; after {surprised} of these "
        f"{len(blind)} our mark is found."
    )
    return "\n".join([*_rows(OWN_HEAD, outcomes), said, *_summary(outcomes)])


def _rows(head: Sequence[str], outcomes: Sequence[Outcome]) -> list[str]:
    order = sorted(outcomes, key=lambda each: (each.verdict == "found", each.named is not False, -each.log10_risk))
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *map(row, order)]


def _summary(outcomes: Sequence[Outcome]) -> list[str]:
    lines = []
    for bound, what in ((FREE, "free"), (EXPENSIVE, "expensive")):
        kept = [each for each in outcomes if np.isnan(each.cost) or each.cost <= bound]
        missed = [each for each in kept if each.verdict != "found"]
        unnamed = [each for each in kept if each.named is False]
        copies = sum(each.named is not None for each in kept)
        said = f"At a cost of at most {100 * bound:.0f} % ({what}): {len(kept)} copies, {len(missed)} not found; "
        lines.append(f"\n{said}of the {copies} for one of three recipients, {len(unnamed)} not named.")
    return lines


def cheapest(outcomes: Sequence[Outcome]) -> str:
    """Return the table of the cheapest copies that hide the mark, the fingerprint and both."""
    head = ("release", "copies", *(f"hides {name}" if name != "both" else "hides both" for name in EVIDENCE))
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for model, preset in dict.fromkeys((each.model, each.preset) for each in outcomes):
        own = [each for each in outcomes if (each.model, each.preset) == (model, preset)]
        cells = []
        for odds, _ in EVIDENCE.values():
            hidden = [each for each in own if odds(each) > FOUND_LOG10_RISK]
            least = min(hidden, key=_cost, default=None)
            cells.append("none" if least is None else f"{price(least)}: {least.attack}")
        lines.append(f"| {' | '.join((f'{model}, {preset}', str(len(own)), *cells))} |")
    return "\n".join(lines)


def _cost(each: Outcome) -> float:
    """The cost of a copy; none if the attacker's own loader undoes the change."""
    return 0.0 if math.isnan(each.cost) else each.cost


def curves(outcomes: Sequence[Outcome]) -> Figure:
    """Draw, for each release, the weakest evidence that any attack left up to a cost."""
    models, presets = (list(dict.fromkeys(getattr(each, name) for each in outcomes)) for name in ("model", "preset"))
    title = "Weakest evidence after any attack up to a cost"
    figure, axes = grid(len(models), len(presets), title, height=2.0, width=4.0)
    for line, model in zip(axes, models, strict=True):
        for panel, preset in zip(line, presets, strict=True):
            own = [each for each in outcomes if (each.model, each.preset) == (model, preset)]
            own.sort(key=_cost)
            costs = [max(LEAST_COST, _cost(each)) for each in own]
            for name, (odds, colour) in EVIDENCE.items():
                weakest = np.maximum.accumulate([odds(each) for each in own])
                panel.step([*costs, MOST_COST], [*-weakest, -weakest[-1]], where="post", color=colour, label=name)
            panel.axhline(-FOUND_LOG10_RISK, color=NULL, linestyle=(0, (4, 3)), linewidth=1.2, label="found above")
            panel.axvline(FREE, color=NULL, linewidth=0.8)
            panel.set_xscale("log")
            panel.set_xlim(LEAST_COST, MOST_COST)
            panel.set_xticks([0.001, 0.01, 0.05, 0.25, 1, 10], ["0.1 %", "1 %", "5 %", "25 %", "100 %", "10 ×"])
            panel.minorticks_off()
            panel.set_yscale("symlog", linthresh=10)
            panel.set_ylim(0, MOST_ODDS)
            panel.set_title(f"{model}, {preset}", color=INK)
    for line in axes:
        line[0].set_ylabel("-log10 odds")
    for panel in axes[-1]:
        panel.set_xlabel("cost")
    legend(figure, axes[0][0])
    return figure
