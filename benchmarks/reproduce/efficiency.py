"""The efficiency figure: how long insertion and extraction take, for one owner and for many recipients."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import irwm
from benchmarks.peers import fernandez
from benchmarks.reproduce import figures
from benchmarks.reproduce.bench import SECRET, Bench
from benchmarks.reproduce.models import MODES, Model, parameters_of
from benchmarks.reproduce.page import Page, Record

NAME, TITLE = "efficiency", "Efficiency: time for insertion and extraction"
KEYS = 10
# The method that the paper compares with, implemented for one family.
OTHER, _FAMILY = "Fernandez", "llama"
# Steps that are compared with it: the step in words, our mode, and the step.
_COMPARED = (
    ("insertion in single", "single", "insert"), ("insertion in multi", "multi", "insert"),
    ("extraction", "single", "extract"),
)  # fmt: skip
_STEPS = ("key", "insert", "extract", "extract many", "trace")


def measure(bench: Bench) -> dict[str, Any]:
    """Measure in this process alone, with all cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(bench.cores)
    try:
        rows = [_kept(bench, model, mode) for model in bench.models for mode in (*MODES, OTHER) if _able(model, mode)]
    finally:
        torch.set_num_threads(before)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    machine = {"cores": bench.cores, "device": bench.device, "system": platform.machine(), "load": load}
    return {"rows": rows, "machine": machine, "recipients": bench.sizes.recipients, "repeats": bench.sizes.repeats}


def _able(model: Model, mode: str) -> bool:
    return mode != OTHER or model.family == _FAMILY


def _kept(bench: Bench, model: Model, mode: str) -> Any:
    measured = _of_other if mode == OTHER else _one
    return bench.kept(f"parts/{NAME}/{model.name} {mode}", lambda: measured(bench, model, mode))


def _of_other(bench: Bench, model: Model, mode: str) -> dict[str, Any]:
    out = bench.scratch / "timed"

    def insert() -> None:
        shutil.rmtree(out, ignore_errors=True)
        fernandez.mark(model.path, out)

    actions: dict[str, Callable[[], Any]] = {"insert": insert, "extract": lambda: fernandez.score(model.path, out)}
    seconds = {name: _timed(action, bench.sizes.repeats) for name, action in actions.items()}
    shutil.rmtree(out, ignore_errors=True)
    size = irwm.open_checkpoint(model.path).bytes_total
    return {"model": model.name, "mode": mode, "bytes": size, "seconds": seconds}


def _one(bench: Bench, model: Model, mode: str) -> dict[str, Any]:
    checkpoint = irwm.open_checkpoint(model.path)
    params = parameters_of(mode, model.hidden)
    out = bench.scratch / "timed"

    def new_key(name: str = "Recipient") -> irwm.Key:
        return irwm.generate_key(checkpoint, params, secret=SECRET, owner="Owner", recipient=name)

    def insert() -> None:
        shutil.rmtree(out, ignore_errors=True)
        irwm.insert(checkpoint, key, out, device=bench.device)

    key, others = new_key(), [new_key(f"Recipient {i}") for i in range(KEYS)]
    actions: dict[str, Callable[[], Any]] = {
        "key": new_key,
        "insert": insert,
        "extract": lambda: irwm.detect(irwm.open_checkpoint(out), checkpoint, key, device=bench.device),
        "extract many": lambda: list(
            irwm.detect_each(irwm.Examination(irwm.open_checkpoint(out), checkpoint, bench.device), others)
        ),
    }
    if params.noise_coordinates:
        names = [new_key(f"Recipient {i}") for i in range(bench.sizes.recipients)]
        actions["trace"] = lambda: irwm.trace(irwm.open_checkpoint(out), checkpoint, names, device=bench.device)
    seconds = {name: _timed(action, bench.sizes.repeats) for name, action in actions.items()}
    shutil.rmtree(out, ignore_errors=True)
    bench.say(f"  {model.name}, {mode}: timed")
    return {"model": model.name, "mode": mode, "bytes": checkpoint.bytes_total, "seconds": seconds}


def _timed(action: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return median wall-clock and processor seconds, over all threads."""
    wall, cpu = [], []
    for _ in range(repeats):
        began, worked = time.perf_counter(), time.process_time()
        action()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
    return {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}


def write(page: Page, results: dict[str, Any], _models: list[Record]) -> None:
    machine = results["machine"]
    page.text(
        "The paper's figure is blank in the source, and its text gives no seconds. It states that single is the "
        "fastest to insert and multi is slower because of the noise; and that Fernandez is slower for a single "
        f"insertion on Llama3-8B, but faster for extraction and for multi. Here: {headline(results)}.",
        f"Median of {results['repeats']}, {machine['cores']} cores, {machine['device']} ({machine['system']})"
        + ("" if machine["load"] is None else f", load over the last minute {machine['load']:.1f}")
        + ". Wall-clock seconds, with processor seconds in brackets. Where they differ much, other work ran on the "
        "machine. Insertion writes a whole copy, verifies the mark in it and hashes every file. Extraction opens the "
        f"suspect, aligns it and reads one key, or {KEYS} keys, in both ways. Tracing scores "
        f"{results['recipients']} recipients.",
    )
    rows = []
    for row in results["rows"]:
        cells = [row["model"], row["mode"], f"{row['bytes'] / 1e6:,.0f} MB".replace(",", " ")]
        rows.append([*cells, *(_seconds(row["seconds"].get(step)) for step in _STEPS)])
    page.table(
        ("model", "mode", "weights", "key", "insertion", "extraction", f"extraction, {KEYS} keys",
         f"tracing, {results['recipients']} recipients"),
        rows,
    )  # fmt: skip
    page.figure("seconds", _figure(results), "Seconds for insertion and extraction by model and mode")
    page.settings(
        (
            ("machine", "NVIDIA A800, 80 GB", "this machine's processor, unless --device says otherwise"),
            ("setting", "t = 10, 50 positions, scale 1000", "the same; hidden: the preset that hides marked rows"),
            ("what is timed", "not stated", "everything, with reading and writing files"),
            ("noise", "can be made beforehand", "made while the file is written"),
            (
                "compared with",
                "Fernandez et al. 2024",
                f"our implementation, for {_FAMILY} models, which writes a copy and "
                "verifies nothing; ours also verifies the mark and hashes every file",
            ),
        )
    )


def headline(results: dict[str, Any]) -> str:
    ratios = []
    by = {(row["model"], row["mode"]): row["seconds"]["insert"]["cpu"] for row in results["rows"]}
    for name, mode in by:
        if mode == "single" and by[name, mode]:
            ratios.append(f"{by[name, 'multi'] / by[name, mode]:.1f} times on {name}")
    said = f"processor time of insertion in multi, relative to single: {', '.join(ratios)}"
    times = {(row["model"], row["mode"]): row["seconds"] for row in results["rows"]}
    for name, mode in times:
        if mode == OTHER:
            parts = [
                f"{what} {times[name, ours][step]['cpu'] / times[name, OTHER][step]['cpu']:.1f} times"
                for what, ours, step in _COMPARED
                if times[name, OTHER][step]["cpu"]
            ]
            said += f"; ours relative to our implementation of {OTHER} on {name}, a {_FAMILY} model: {', '.join(parts)}"
    return said


def _seconds(found: Record | None) -> str | None:
    return None if found is None else f"{found['wall']:.2f} ({found['cpu']:.2f})"


def _figure(results: dict[str, Any]) -> Any:
    names = list(dict.fromkeys(row["model"] for row in results["rows"]))
    figure, axes = figures.grid(1, 2, "Seconds on the clock", width=4.2)
    for panel, (step, label) in zip(
        axes[0], (("insert", "Insertion"), ("extract", "Extraction, one key")), strict=True
    ):
        colours = (figures.ACCENT, figures.NULL, figures.WARM, figures.INK)
        modes = dict.fromkeys(row["mode"] for row in results["rows"])
        for turn, (mode, colour) in enumerate(zip(modes, colours, strict=False)):
            found = {row["model"]: row["seconds"][step]["wall"] for row in results["rows"] if row["mode"] == mode}
            places = [names.index(name) + 0.22 * (turn - 1.5) for name in found]
            panel.bar(places, list(found.values()), 0.2, color=colour, label=mode)
        figures.ticks(panel, range(len(names)), names)
        panel.set_title(label)
        panel.set_ylabel("seconds")
        panel.grid(False, axis="x")
    figures.legend(figure, axes[0][0])
    return figure
