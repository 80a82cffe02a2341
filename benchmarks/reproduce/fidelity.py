"""Tables 3 to 5: the cost of the mark in model quality over t, by mode."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import irwm
from benchmarks.reproduce import figures, paper
from benchmarks.reproduce.bench import SECRET, Bench
from benchmarks.reproduce.models import HIDDEN, MODES, MULTI, SINGLE, parameters_of
from benchmarks.reproduce.page import Page, Record, change, percent
from benchmarks.reproduce.trials import utility_record
from irwm.inference import compare, reference

NAME, TITLE = "fidelity", "Tables 3 to 5: fidelity"

# The paper's ten benchmarks, by lm-evaluation-harness's names.
HARNESS_TASKS = (
    "ceval-valid", "mmlu", "wic", "wsc", "copa", "cb", "boolq", "piqa", "multirc", "hellaswag",
)  # fmt: skip
_NEGLIGIBLE = 0.01  # change of perplexity; design goal of the preset on the demo model

Task = tuple[str, Path, tuple[str, ...], str, int, Path, str]


def measure(bench: Bench) -> dict[str, Any]:
    modes = (*(f"{mode}-{t}" for mode in MODES for t in bench.sizes.fidelity_lengths), HIDDEN)
    tasks: dict[str, Task] = {
        model.name: (
            model.name, model.path, modes, bench.measured, bench.sizes.tokens, bench.scratch, bench.device
        )
        for model in bench.models
    }  # fmt: skip
    return {"models": list(bench.each(NAME, one, tasks).values())}


def one(task: Task) -> dict[str, Any]:
    name, path, modes, text, tokens, scratch, device = task
    model = irwm.open_checkpoint(path)
    original = reference(path, text, tokens, device)
    rows = []
    for mode in modes:
        params = parameters_of(mode, model.hidden_size)
        key = irwm.generate_key(model, params, secret=SECRET, owner="Owner", recipient="Recipient")
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            release = irwm.insert(model, key, Path(folder) / "release", device=device)
            cost = utility_record(compare(original, release.path))
            shutil.rmtree(release.path)
        rows.append(
            {"mode": mode, "t": params.constraints, "noise": params.noise_coordinates, "scale": key.scale,
             "changed": len(release.changed_rows), "utility": cost}
        )  # fmt: skip
    return {"model": name, "rows": rows, "vocabulary": model.vocab_size}


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    page.text(
        "The paper: negligible impact on ten benchmarks. These need downloads, so here the marked model and the "
        "original are compared on a text: perplexity, divergence (KL, in thousandths of a nat per token) and the share "
        f"of tokens for which both predict the same one. Here: {headline(results)}."
    )
    rows = []
    for found in results["models"]:
        for each in found["rows"]:
            cost = each["utility"]
            error = cost["change_error"]
            spread = f" ± {percent(error, 1)}" if isinstance(error, float) else ""
            t = f"{each['t']}{'' if '-' in each['mode'] else ' (preset)'}"
            kl = f"{1000 * cost['kl']:.1f}" if isinstance(cost["kl"], float) else cost["kl"]
            rows.append(
                [found["model"], each["mode"].partition("-")[0], t, each["noise"], f"{each['scale']:.0f}",
                 f"{each['changed']} of {found['vocabulary']}",
                 None if cost["change"] is None else change(cost["change"]) + spread, kl, percent(cost["top1"], 1),
                 None if cost["similarity"] is None else f"{cost['similarity']:.4f}"]
            )  # fmt: skip
    page.table(
        ("model", "mode", "t", "noise coordinates", "scale", "rows changed", "perplexity", "KL, 10⁻³ nats",
         "same token", "cosine of hidden states"),
        rows,
    )  # fmt: skip
    reasons = sorted(
        {
            f"{m['model']}: {r['utility']['reason']}"
            for m in results["models"]
            for r in m["rows"]
            if r["utility"]["reason"]
        }
    )
    if reasons:
        page.bullets(*reasons)
    figure = _figure(results)
    if figure is not None:
        page.figure("cost", figure, "Change of perplexity over t, by mode")
    costly = [(m, r) for m in results["models"] for r in m["rows"] if r["mode"] == HIDDEN and _costs(r) > _NEGLIGIBLE]
    if costly:
        shown = {model["name"]: model for model in models}
        page.text(
            f"**Not negligible here:** the preset that hides marked rows costs more than {percent(_NEGLIGIBLE)} of "
            f"perplexity on {len(costly)} of the models. The cost of noise is proportional to its share of a row's "
            "coordinates, and the paper's models have 2048 to 4096 of these. If the embedding is also the output head, "
            "the noise costs twice."
        )
        page.table(
            ("model", "noise coordinates", "hidden size", "share", "output head", "perplexity"),
            [
                [m["model"], r["noise"], shown[m["model"]]["hidden"],
                 percent(r["noise"] / shown[m["model"]]["hidden"], 1),
                 "the embedding" if shown[m["model"]]["tied"] else "its own", change(r["utility"]["change"])]
                for m, r in costly
            ],
        )  # fmt: skip
    page.heading("The paper's tables: mean of ten benchmarks, %")
    low, high = paper.differences("Phi3-4B")
    page.text(
        "Computed from the columns. The mean that the paper prints is in brackets if it differs by more than .1: for "
        "Gemma-2B it prints the mean of the column t = 10 under t = 15. On single benchmarks the marked Phi3-4B "
        f"differs from vanilla by {low:.1f} to +{high:.1f} points, in single and multi and for every t. A mark in "
        "50 rows does not explain this; the two were probably not run in the same way."
    )
    header = ("model", "vanilla", *(f"{mode}, t = {t}" for mode in (SINGLE, MULTI) for t in paper.LENGTHS))
    page.table(header, [[name, *_means(name)] for name in paper.FIDELITY])
    _rows_of_paper(page, header[1:])
    page.settings(
        (
            ("measured on", "C-Eval, MMLU, WiC, WSC, COPA, CB, BoolQ, PIQA, MultiRC, HellaSwag (OpenCompass)",
             "the text's second part; `irwm.inference.harness` runs benchmarks if the owner has them"),
            ("single", "t of 5 to 20, scale adjusted to each model", "the same t, scale 1000"),
            ("multi", "t of 5 to 20, noise not given", "the same t, 10 noise coordinates of one level, scale 1000"),
            ("hidden", "", "the same t, as many noise coordinates of each row's own level, `auto`; the preset"),
            ("size", "2 to 8 billion parameters", "the models above; noise costs in proportion to its share of a row"),
        )
    )  # fmt: skip


def _rows_of_paper(page: Page, columns: Sequence[str]) -> None:
    page.heading("The paper's tables, row by row")
    page.text(
        "The ten benchmarks are not measured here: they need data that this repository has not. Users who have them "
        "run `python -m irwm.inference benchmark ORIGINAL RELEASE --tasks "
        f"{','.join(HARNESS_TASKS)}`, C-Eval and MMLU with `--shots 5` ([utility.md](../utility.md))."
    )
    rows = [
        [name, task, *(f"{value:g}" for value in values)]
        for name, of_model in paper.FIDELITY.items()
        for task, values in zip(paper.BENCHMARKS, of_model, strict=True)
    ]
    page.table(("model", "benchmark", *columns), rows)


def headline(results: dict[str, Any]) -> str:
    parts = []
    for mode in MODES:
        some = [
            r["utility"]["change"]
            for m in results["models"]
            for r in m["rows"]
            if r["mode"].startswith(mode) and isinstance(r["utility"]["change"], float)
        ]
        if some:
            parts.append(f"perplexity changes by {change(min(some))} to {change(max(some))} in {mode}")
    preset = [
        f"{change(r['utility']['change'])} on {m['model']}"
        for m in results["models"]
        for r in m["rows"]
        if r["mode"] == HIDDEN and r["utility"]["change"] is not None
    ]
    if preset:
        parts.append(f"the preset that hides marked rows costs {', '.join(preset)}")
    return "; ".join(parts) or "no model here predicts tokens"


def _costs(row: Record) -> float:
    found = row["utility"]["change"]
    return found if isinstance(found, float) else 0.0


def _means(name: str) -> list[str]:
    cells = []
    for ours, printed in zip(paper.means(name), paper.PRINTED_MEANS[name], strict=True):
        cells.append(f"{ours:.2f}" + (f" ({printed:g})" if abs(ours - printed) > 0.1 else ""))
    return cells


def _figure(results: dict[str, Any]) -> Any:
    able = [m for m in results["models"] if any(isinstance(r["utility"]["change"], float) for r in m["rows"])]
    if not able:
        return None
    figure, axes = figures.grid(1, len(able), "What the mark costs")
    for panel, found in zip(axes[0], able, strict=True):
        for mode, colour, marker in zip(
            MODES, (figures.NULL, figures.ACCENT, figures.WARM), figures.MARKERS, strict=False
        ):
            some = [
                r
                for r in found["rows"]
                if r["mode"].startswith(f"{mode}-") and isinstance(r["utility"]["change"], float)
            ]
            y = [100 * r["utility"]["change"] for r in some]
            error = [100 * (r["utility"]["change_error"] or 0) for r in some]
            panel.errorbar([r["t"] for r in some], y, error, color=colour, marker=marker, capsize=3, label=mode)
        panel.axhline(0, color=figures.INK, linewidth=1)
        panel.set_title(found["model"])
        panel.set_xlabel("t")
        panel.set_xticks(sorted({r["t"] for r in found["rows"] if "-" in r["mode"]}))
    axes[0][0].set_ylabel("change of perplexity, %")
    figures.legend(figure, axes[0][0])
    return figure
