"""The table: rows are disguises, columns are methods, ours last.

    python -m benchmarks.peers [--write] [--strangers DIR ...] [--siblings DIR ...] [--random 8] [--only TEXT]
        [--model DIR]

Prints Markdown; `--write` puts it into docs/peers.md. PROVENANCEKIT names the Cisco kit's program (`cisco`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import irwm
from benchmarks.peers.columns import Column, Ours, columns, releases
from benchmarks.peers.rows import ROWS, Row, random_model, with_names
from benchmarks.peers.score import Score
from benchmarks.sources import digest
from benchmarks.written import stamp

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "peers.md"
SECRET = bytes(range(32))

INTRODUCTION = """\
# Beside published methods

This page is written by `python -m benchmarks.peers --write`; nothing on it is typed by hand. One model, the bundled
`assets/demo` (a trained Llama with 8 query and 4 key heads), is released with our mark, disguised, and shown to every
method beside the original. All disguises up to the quantised ones keep what the model computes. "No tokenizer" means
that none lies in the folder: methods that need to know which row is which token then take equal ids for equal tokens.

A cell is the method's decision and its own similarity. **derived** and **found** are printed bold; *cannot run* has its
reason below. The methods answer different questions: HuRef, AWM, CSU, MATCH, the Cisco kit and our lineage say whether
one model comes from the other; EmMark and our mark say whose copy it is, and each of these two reads its own release.

The methods of the papers are our own implementations from their equations, checked against the authors' code where it
runs (`tests/peers/`); what a paper leaves open was decided for the peer. One small model is no survey: on models with
thousands of columns the similarities of unrelated ones lie nearer to zero.
"""

STRANGERS = """\
All have the original's config and tokenizer; those trained separately saw the same text. A cell: how many the method
takes for ours, and the highest similarity among them. Models from one random start share an ancestor, so that calling
them relatives is no error of CSU's, whose question is whether two models were made independently."""


def main() -> None:
    options = _options()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        ours = Ours(options.model, work / "release", SECRET)
        methods = columns(ours)
        marked = {"": work / "release"} | releases(options.model, work)
        lines = [INTRODUCTION, *_table(options, methods, marked, work), *_strangers(options, methods, work)]
    lines += ["", "## The methods", ""]
    lines += [f"- **{method.title}.** {method.about}" for method in methods]
    page = "\n".join(lines) + "\n"
    print(page)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    if options.write:
        title, text = page.split("\n", 1)
        written = stamp("python -m benchmarks.peers --write", digest("benchmarks.peers"))
        PAGE.write_text(f"{title}\n\n{written}{text}", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/peers.md")
    parser.add_argument("--model", type=Path, default=ROOT / "assets" / "demo", help="the original")
    parser.add_argument("--strangers", type=Path, nargs="*", default=[], help="separately trained models")
    parser.add_argument("--siblings", type=Path, nargs="*", default=[], help="trained from the same random start")
    parser.add_argument("--random", type=int, default=8, help="how many random models")
    parser.add_argument("--only", default="", help="only the rows whose label has this text")
    return parser.parse_args()


def _table(options: argparse.Namespace, methods: tuple[Column, ...], marked: dict[str, Path], work: Path) -> list[str]:
    """The lines of the main table, and the reasons for what could not run."""
    lines = _head("the suspect", methods)
    failed: dict[str, list[str]] = {}
    for number, row in enumerate(row for row in ROWS if options.only in row.label):
        try:
            built = _built(row, marked, work / str(number))
        except irwm.IrwmError as error:
            failed.setdefault(str(error), []).append(row.label)
            continue
        scores = [_score(method, options.model, *built[method.watermark]) for method in methods]
        lines.append(f"| {row.label} | " + " | ".join(map(_cell, methods, scores)) + " |")
        for method, score in zip(methods, scores, strict=True):
            if score.says == "cannot run":
                failed.setdefault(f"{method.title}: {score.reason}", []).append(row.label)
        print(row.label, file=sys.stderr, flush=True)
    notes = [f"- {reason} ({'; '.join(labels)})" for reason, labels in failed.items()]
    return ["", *lines, *(["", "What could not run:", "", *notes] if notes else [])]


def _built(row: Row, marked: dict[str, Path], folder: Path) -> dict[str, tuple[Path, Path]]:
    """By release, the suspect as the world sees it and as the peers get it."""
    built = {}
    for name, release in marked.items():
        suspect = row.build(release, folder / f"{name}-release")
        named = with_names(release, suspect, folder / f"{name}-named") if row.renamed else suspect
        built[name] = (suspect, named)
    return built


def _score(method: Column, original: Path, suspect: Path, named: Path) -> Score:
    return method.score(original, suspect if method.title.startswith("ours") else named)


def _strangers(options: argparse.Namespace, methods: tuple[Column, ...], work: Path) -> list[str]:
    """How many models that are none of ours each method takes for ours."""
    groups = {
        "random weights": [random_model(options.model, work / f"random-{i}", i) for i in range(options.random)],
        "trained separately": options.strangers,
        "trained separately from our random start": options.siblings,
    }
    lines = ["", "## Models that are none of ours", "", STRANGERS, "", *_head("the suspect", methods)]
    for name, folders in groups.items():
        if not folders:
            continue
        cells = []
        for method in methods:
            scores = [method.score(options.model, folder) for folder in folders]
            values = [score.value for score in scores if not np.isnan(score.value)]
            highest = f", at most {max(values):.3f}" if values else ""
            ran = sum(score.says != "cannot run" for score in scores)
            wrong = sum(score.says == "derived" for score in scores)
            cells.append(f"{wrong} of {ran}{highest}" if ran else "*cannot run*")
        lines.append(f"| {len(folders)}, {name} | " + " | ".join(cells) + " |")
        print(name, file=sys.stderr, flush=True)
    return lines


def _head(first: str, methods: tuple[Column, ...]) -> list[str]:
    return [f"| {first} | " + " | ".join(m.title for m in methods) + " |", "|---" * (len(methods) + 1) + "|"]


def _cell(method: Column, score: Score) -> str:
    if score.says == "cannot run":
        return "*cannot run*"
    value = "" if np.isnan(score.value) else f" {score.value:.3f}"
    return f"**{method.says}**{value}" if score.says == "derived" else f"no{value}"


if __name__ == "__main__":
    main()
