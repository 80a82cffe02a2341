"""The collusion figure: share of ranks in the top 50 % in the mean of 1 to 8 copies, over t and scale."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import irwm
from benchmarks.reproduce import figures
from benchmarks.reproduce.bench import SECRET, Bench
from benchmarks.reproduce.models import parameters_of
from benchmarks.reproduce.page import Page, Record, percent
from benchmarks.reproduce.trials import number
from irwm.evidence.finding import FOUND
from tools.copies import copy_of, keys_for, write_embedding

NAME, TITLE = "collusion", "Collusion"
_KEYS_READ = 3  # colluders whose ranks are read

Task = tuple[str, Path, int, float | str, tuple[int, ...], Path, str]


def measure(bench: Bench) -> dict[str, Any]:
    sizes = bench.sizes
    tasks: dict[str, Task] = {
        f"{model.name} {t} {scale}": (
            model.name, model.path, t, scale, bench.sizes.colluders, bench.scratch, bench.device
        )
        for model in bench.models
        for t in sizes.collusion_lengths
        for scale in sizes.scales
    }  # fmt: skip
    return {"curves": list(bench.each(NAME, curve, tasks).values())}


def curve(task: Task) -> dict[str, Any]:
    """For the mean of the first c copies, each c: shares of ranks up to .5 by both readings, and named colluders."""
    name, path, t, scale, counts, scratch, device = task
    model = irwm.open_checkpoint(path)
    params = parameters_of(f"multi-{t}", model.hidden_size, scale)
    keys = keys_for(model, [f"Colluder {i}" for i in range(max(counts))], params, SECRET)
    total = torch.zeros(model.vocab_size, model.hidden_size)
    points = []
    for count, key in enumerate(keys, start=1):
        total += copy_of(model, key).float()
        if count not in counts:
            continue
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            suspect = write_embedding(model, total / count, Path(folder) / "mean")
            read = keys[: min(count, _KEYS_READ)]
            findings = list(irwm.detect_each(irwm.Examination(suspect, model, device), read))
            traces = irwm.trace(suspect, model, keys[:count], device=device)
            shutil.rmtree(suspect.path)
        points.append(
            {
                "colluders": count,
                "paper": _half([f.paper for f in findings]),
                "ours": _half([f.reading for f in findings]),
                "found": sum(f.verdict == FOUND for f in findings),
                "met": sum(bool(f.paper and f.paper.passes) for f in findings),
                "read": len(findings),
                "named": sum(trace.named for trace in traces),
                "z": number(min(trace.z for trace in traces)),
            }
        )
    return {"model": name, "t": t, "scale": scale, "points": points}


def _half(readings: list[Any]) -> float | str | None:
    return number(float(np.mean([(each.ranks <= 0.5).mean() for each in readings if each is not None])))


def write(page: Page, results: dict[str, Any], models: list[Record]) -> None:
    curves = results["curves"]
    page.text(
        "The paper: with more colluders, fewer ranks are in the top 50 %, where chance gives .5. With t = 5 and scale "
        "1000 it detects up to 8 colluders on Llama3-8B. Its figures are blank in the source. "
        f"Here: {headline(results)}.",
    )
    page.figure("halves", _figure(results, models), "Share of ranks in the top 50 % over the number of copies averaged")
    for model in models:
        page.heading(model["name"])
        rows: list[list[Any]] = []
        counts = [point["colluders"] for each in curves if each["model"] == model["name"] for point in each["points"]]
        for each in curves:
            if each["model"] != model["name"]:
                continue
            for key, label in (("paper", "`sum`, A(suspect): the paper"), ("ours", "`joint`, A(original)")):
                cells = [f"{point[key]:.2f}" if point[key] is not None else "-" for point in each["points"]]
                rows.append([each["t"], _scale(each["scale"]), f"share in the top 50 %, {label}", *cells])
            cells = [f"{point['met']} of {point['read']}" for point in each["points"]]
            rows.append([each["t"], _scale(each["scale"]), "paper's rule met, of the keys read", *cells])
            cells = [f"{point['found']} of {point['read']}" for point in each["points"]]
            rows.append([each["t"], _scale(each["scale"]), "marks found, of the keys read", *cells])
            cells = [f"{point['named']} of {point['colluders']}, {point['z']:.0f}" for point in each["points"]]
            rows.append([each["t"], _scale(each["scale"]), "colluders named by tracing, weakest z", *cells])
        page.table(("t", "scale", "reading", *(str(count) for count in sorted(set(counts)))), rows)
    page.settings(
        (
            (
                "attack",
                "copies summed and averaged",
                "embeddings averaged in memory, rounded once to the model's dtype",
            ),
            ("colluders", "1 to 8", "the columns"),
            ("t and scale", "t of 5, 10, 15, 20; scales not in the text", "the rows"),
            ("noise", "not given", "10 coordinates per row, one level for all rows"),
            (
                "detected",
                "share in the top 50 % above .5",
                "the same share, which varies by chance by "
                f"about {0.5 / (50 * _KEYS_READ) ** 0.5:.2f}; the rule of 30 in 50; the verdict; tracing",
            ),
            ("basis", "one for all rows", "one per row, the same for all recipients (docs/method.md explains why)"),
            ("keys read", "each malicious user's", f"the first {_KEYS_READ} users', and tracing for all"),
            ("other combinations than the mean", "named, not measured", "`survival`, and docs/collusion.md"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    last = [(each, each["points"][-1]) for each in results["curves"]]
    most = max(point["colluders"] for _, point in last)
    named, guilty = sum(p["named"] for _, p in last), sum(p["colluders"] for _, p in last)
    theirs = [p["paper"] for each, p in last if each["scale"] == 1000.0 and p["paper"] is not None]
    said = ""
    if theirs:
        said = (
            f"at {most} copies and scale 1000 between {percent(min(theirs))} and {percent(max(theirs))} of the "
            "ranks are in the top half by the paper's reading; "
        )
    met, found, read = (sum(point[what] for _, point in last) for what in ("met", "found", "read"))
    return (
        f"{said}at {most} copies, over all settings, the paper's rule is met for {met} of {read} keys, the mark is "
        f"found for {found}, and tracing by noise names {named} of {guilty} colluders"
    )


def _scale(scale: float | str) -> str:
    return scale if isinstance(scale, str) else f"{scale:g}"


def _figure(results: dict[str, Any], models: list[Record]) -> Any:
    names = [model["name"] for model in models]
    lengths = list(dict.fromkeys(each["t"] for each in results["curves"]))
    figure, axes = figures.grid(len(names), len(lengths), "Ranks in the top 50 % by the paper's reading", height=2.1)
    looks = zip((figures.NULL, figures.WARM, figures.ACCENT), figures.MARKERS, strict=False)
    scales = dict(zip(dict.fromkeys(each["scale"] for each in results["curves"]), looks, strict=False))
    for row, name in enumerate(names):
        for column, t in enumerate(lengths):
            panel = axes[row][column]
            for each in results["curves"]:
                if (each["model"], each["t"]) == (name, t):
                    colour, marker = scales[each["scale"]]
                    x = [point["colluders"] for point in each["points"]]
                    y = [point["paper"] for point in each["points"]]
                    panel.plot(x, y, color=colour, marker=marker, label=f"scale {_scale(each['scale'])}")
            panel.axhline(0.5, color=figures.INK, linewidth=1.2, linestyle=(0, (4, 3)), label="chance, 50 %")
            panel.set_ylim(0.35, 1.04)
            panel.set_yticks([0.5, 0.75, 1], ["50 %", "75 %", "100 %"])
            panel.set_title(f"{name}, t = {t}")
            panel.set_xticks(range(1, 1 + max(p["colluders"] for each in results["curves"] for p in each["points"])))
    for panel in axes[-1]:
        panel.set_xlabel("copies averaged")
    figures.legend(figure, axes[0][0])
    return figure
