"""Table 2: how often a mark is found in its own release, and how often a key that was never inserted is found."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import irwm
from benchmarks.reproduce import paper
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.models import MODES, parameters_of
from benchmarks.reproduce.page import Page, Record, percent
from benchmarks.reproduce.trials import BETAS, OURS, PAPER, number, reading_record
from irwm.evidence.detection import detect_ways
from irwm.evidence.finding import FOUND
from irwm.scheme.keystream import derive
from irwm.scheme.probabilities import random_user_probability, success_probability, wrong_user_probability

NAME, TITLE = "detection", "Table 2: detection rate, and false positives"
# Keys ranked among the same permutations. A single seed for all keys would show the chance error of that seed.
_BATCH = 25
_WAYS = (("joint", "original"), ("sum", "suspect"))

Task = tuple[str, Path, str, int, int, Path, str]


def measure(bench: Bench) -> dict[str, Any]:
    sizes = bench.sizes
    tasks: dict[str, Task] = {
        f"{model.name} {mode}": (
            model.name, model.path, mode, sizes.marks, sizes.wrong_keys, bench.scratch, bench.device
        )
        for model in bench.models
        for mode in MODES
    }  # fmt: skip
    return {"rows": list(bench.each(NAME, one, tasks).values())}


def one(task: Task) -> dict[str, Any]:
    """Mark a model for several owners, each in its own release; then read wrong keys on it and on the last release."""
    name, path, mode, marks, wrong, scratch, device = task
    model = irwm.open_checkpoint(path)
    params = parameters_of(mode, model.hidden_size)
    right = []
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for i in range(marks):
            shutil.rmtree(Path(folder) / "release", ignore_errors=True)
            key = irwm.generate_key(model, params, derive(b"reproduce mark", b"", i.to_bytes(4, "big")), owner="Owner")
            release = irwm.open_checkpoint(irwm.insert(model, key, Path(folder) / "release", device=device).path)
            found = detect_ways(irwm.Examination(release, model, device), key, _WAYS, seed=i)
            right.append({", ".join(way): reading_record(finding) for way, finding in found.items()})
        keys = [
            irwm.generate_key(model, params, derive(b"reproduce wrong", b"", i.to_bytes(4, "big")), owner="Nobody")
            for i in range(wrong)
        ]
        suspects = {"unmarked original": model, "release": release}
        wrongs = {label: _wrong(suspect, model, keys, device) for label, suspect in suspects.items()}
    return {"model": name, "mode": mode, "right": right, "wrong": wrongs}


def _wrong(suspect: irwm.Checkpoint, model: irwm.Checkpoint, keys: list[irwm.Key], device: str) -> dict[str, Any]:
    findings: list[irwm.Finding] = []
    examination = irwm.Examination(suspect, model, device)
    for start in range(0, len(keys), _BATCH):
        batch = keys[start : start + _BATCH]
        findings += irwm.detect_each(examination, batch, seed=start, keys_tried=1)
    ranks = {
        OURS: np.concatenate([f.ranks for f in findings]),
        PAPER: np.concatenate([f.paper.ranks for f in findings if f.paper]),
    }
    return {
        "keys": len(keys),
        "found": sum(f.verdict == FOUND for f in findings),
        "passes": {
            OURS: sum(bool(f.passes) for f in findings),
            PAPER: sum(bool(f.paper and f.paper.passes) for f in findings),
        },
        "below": {way: number((each[~np.isnan(each)] < BETAS[-1]).mean()) for way, each in ranks.items()},
    }


def write(page: Page, results: dict[str, Any], _models: list[Record]) -> None:
    page.text(f"The paper: 100 % for every model, single and multi. Here: {headline(results)}.")
    page.heading("A mark in its own release")
    rows = []
    for row in results["rows"]:
        right = row["right"]
        cells = [row["model"], row["mode"], len(right), "100 %"]
        cells.append(percent(_rate(reading[OURS]["verdict"] == "found" for reading in right)))
        for way in (OURS, PAPER):
            cells.append(percent(_rate(reading[way]["passes"] for reading in right)))
            cells.append(percent(_mean(reading[way]["below"][-1] for reading in right), 1))
        rows.append(cells)
    page.table(
        ("model", "mode", "marks", "paper", "found", "rule met, `joint`", "positions below β, `joint`",
         "rule met, `sum`", "positions below β, `sum`"),
        rows,
    )  # fmt: skip
    page.heading("Keys that were never inserted")
    page.text(
        "Read on the unmarked original and on a release with another mark. Chance puts 20 % of the positions below "
        f"β = 0.2 and meets the rule of 30 in 50 with odds of {random_user_probability(50, 30, 0.2):.1e} "
        "(equation 2). `docs/method.md` has results of a thousand keys for each of two models."
    )
    rows = []
    for row in results["rows"]:
        for suspect, wrong in row["wrong"].items():
            rows.append(
                [row["model"], row["mode"], suspect, wrong["keys"], wrong["found"], wrong["passes"][OURS],
                 wrong["passes"][PAPER], percent(wrong["below"][OURS], 1), percent(wrong["below"][PAPER], 1)]
            )  # fmt: skip
    page.table(
        ("model", "mode", "suspect", "keys", "found", "rule met, `joint`", "rule met, `sum`", "below β, `joint`",
         "below β, `sum`"),
        rows,
    )  # fmt: skip
    page.heading("The paper's worked figures")
    rows = []
    for (label, success, wrong_user), (p, rho) in zip(paper.WORKED, ((0.8, 30), (0.7, 28)), strict=True):
        ours = success_probability(50, rho, p), wrong_user_probability(50, rho, 0.2, 100_000)
        rows.append([label, percent(success, 2), percent(ours[0], 3), percent(wrong_user, 3), percent(ours[1], 4)])
    page.table(("setting", "success, paper", "equation 1", "wrong user among 100 000, paper", "equation 3"), rows)
    page.settings(
        (
            ("detection rate", "not defined: a rate of successes, or of positions", "both"),
            (
                "success",
                "count ≥ ρ in the text and equations, > ρ in the listings",
                "count ≥ ρ; found: odds below 10^-6",
            ),
            ("trials", "not given", "the number of marks, each with its own secret"),
            ("false positives", "by equations 2 and 3 only", "counted"),
            ("permutations (numit)", "not given", "1 000"),
        )
    )


def headline(results: dict[str, Any]) -> str:
    right = [reading for row in results["rows"] for reading in row["right"]]
    wrong = [wrong for row in results["rows"] for wrong in row["wrong"].values()]
    found = sum(reading[OURS]["verdict"] == "found" for reading in right)
    met = sum(bool(reading[PAPER]["passes"]) for reading in right)
    tried, false = sum(each["keys"] for each in wrong), sum(each["found"] for each in wrong)
    return (
        f"{found} of {len(right)} marks found, and the paper's rule met by its own reading in {met}; "
        f"of {tried} readings of keys that were never inserted, {false} were found"
    )


def _rate(values: Any) -> float:
    return float(np.mean([bool(value) for value in values]))


def _mean(values: Any) -> float:
    return float(torch.tensor([value for value in values if value is not None]).double().mean())
