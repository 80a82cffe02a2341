"""docs/speed/README.md from the results that lie beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.reproduce.figures import ACCENT, MARKERS, WARM, grid, legend, save
from benchmarks.reproduce.page import table
from benchmarks.speed.growth import exponent
from benchmarks.written import mark, stamp

INTRODUCTION = """\
# Speed and memory

Written by `make bench` (`python -m benchmarks.speed --write`) from the JSON files beside it, none of it by hand.
Every measured step is a process of its own; what is compared alternates within one run. Values are medians, with the
range in brackets. The models are made up: Llama-3-8B has 128256 × 4096 and 32 layers.
"""

# Seconds that an axis may name.
_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def write(out: Path, claims: Mapping[str, ModuleType]) -> Path:
    """The page, of every claim that has a result."""
    lines = [INTRODUCTION]
    for name, module in claims.items():
        file = out / f"{name}.json"
        if not file.is_file():
            continue
        kept = json.loads(file.read_text(encoding="utf-8"))
        result, about = kept["result"], kept["about"]
        lines += [
            f"## {module.TITLE}",
            "",
            stamp(about["command"], about["sources"]),
            f"`{about['command']}`, {about['date']}: {about['machine']}. Model: {about['model']}.",
            "",
        ]
        figures = module.figures(result)
        if figures:
            rows = [(f.what, f.asked, f.reached, "yes" if f.met else f"no. {f.why}".strip()) for f in figures]
            lines += [*table(("what", "asked", "reached", "met"), rows), ""]
        for text in module.details(result):
            lines += [text, ""]
        if name == "growth":
            save(_curves(result), out / "growth.svg")
            lines += ["![Seconds of insertion and detection over each axis, on logarithmic axes](growth.svg)", ""]
    path = out / "README.md"
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    mark(path)
    return path


def _short(value: int) -> str:
    return f"{value / 1000:g} k" if value >= 1000 and value % 500 == 0 else str(value)


def _curves(result: dict[str, Any]) -> Any:
    figure, ((*axes,),) = grid(1, len(result), "Seconds over each axis", width=2.6)
    all_of = [point[what] for points in result.values() for point in points for what in ("insert", "detect")]
    marks = [mark for mark in _SECONDS if min(all_of) / 2 <= mark <= 2 * max(all_of)]
    for panel, (axis, points) in zip(axes, result.items(), strict=True):
        for what, label, colour, marker in (
            ("insert", "insertion", WARM, MARKERS[1]), ("detect", "detection", ACCENT, MARKERS[0]),
        ):  # fmt: skip
            values = [point["value"] for point in points]
            panel.plot(values, [point[what] for point in points], color=colour, marker=marker, label=label)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.minorticks_off()  # whose labels would run into each other
        panel.set_xticks(values, [_short(value) for value in values])
        panel.set_yticks(marks, [f"{mark:g}" for mark in marks])
        panel.set_ylim(min(all_of) / 1.3, 1.3 * max(all_of))
        panel.set_xlabel(axis)
        slopes = [exponent(points, what) for what in ("insert", "detect")]
        panel.set_title(f"exponents {slopes[0]:.2f} and {slopes[1]:.2f}".replace("-", "−"))
    axes[0].set_ylabel("seconds")
    legend(figure, axes[0])
    return figure
