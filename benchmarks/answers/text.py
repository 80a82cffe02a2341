"""Recipients' z from text and from the log-probabilities of generated tokens.

    python -m benchmarks.answers --only text [--write]

For each small model one of 60 recipients' copies (preset for many recipients) continues passages of the bundled text
at temperature 1. The table has its z from 8 064 tokens in each place, from text alone and from log-probabilities; the
latter also from 512 tokens, at temperature 0.7, and with one choice of the method changed: the tokens' weights without
their limit, the rows' weights without their division, and 0.7 taken as 1. --write puts it into
docs/answers-measured.md.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

import irwm
from benchmarks.written import printed_table
from irwm.answers.reading import readings_of
from irwm.answers.weights import LOG_PROBABILITIES, TEXT
from irwm.keys.key import Key
from tools.copies import keys_for
from tools.generating import prompts, served

ROOT = Path(__file__).resolve().parents[2]
MODELS = {name: ROOT / "tests" / "models" / name for name in ("gemma", "phi3")} | {"demo": ROOT / "assets" / "demo"}
OTHERS, ANSWERS, FEW, TOKENS = 59, 64, 8, 126
HEADINGS = (
    "model, place", "text", "log-probabilities", "512 tokens", "weight noise of 10 %", "temperature 0.7",
    "0.7 taken as 1", "no limit of tokens", "no division of rows", "others: largest of all, mean, deviation",
)  # fmt: skip


def other(key: Key, name: str) -> Key:
    head = key.head and replace(key.head, recipient=name)
    return replace(key, recipient=name, head=head)


def read(answers: irwm.Answers, model: irwm.Checkpoint, keys: Sequence[Key]) -> dict[tuple[str, str], list[float]]:
    """z of every key by place and weighting."""
    readings = readings_of(answers, model, keys, "cpu", None)
    return {(each[0].place, each[0].by): [evidence.z for evidence in each] for each in readings}


def rows_of(name: str, path: Path, folder: Path) -> list[list[str]]:
    model = irwm.open_checkpoint(path)
    (key,) = keys_for(model, ["guilty"])
    keys = [*(other(key, f"{i}") for i in range(OTHERS)), key]
    irwm.insert(model, key, folder / name)
    asked = prompts(path, ANSWERS)
    answers = served(folder / name, asked, TOKENS)
    few = irwm.Answers(
        [each[: len(each) - TOKENS + 64] for each in answers.sequences[:FEW]],
        answers.prompt_lengths[:FEW],
        [each[:64] for each in (answers.log_probabilities or ())[:FEW]],
    )
    whole = read(answers, model, keys)
    cooler = served(folder / name, asked, TOKENS, temperature=0.7)
    noisy = served(folder / name, asked, TOKENS, noise=0.1)
    variants = [read(each, model, keys) for each in (few, noisy, cooler)]
    with (
        mock.patch("irwm.answers.weights.TEMPERATURES", (1.0,)),
        mock.patch("irwm.answers.reading.TEMPERATURES", (1.0,)),
    ):
        variants.append(read(cooler, model, keys))
    changes: list[contextlib.AbstractContextManager[object]] = [
        mock.patch("irwm.answers.weights.MOST_DEVIATIONS", math.inf),
        mock.patch("irwm.answers.gradient.ROW_POWER", 0.0),
    ]
    for change in changes:
        with change:
            variants.append(read(answers, model, keys))
    found = []
    for place in dict.fromkeys(place for place, _ in whole):
        by = place, LOG_PROBABILITIES
        innocent = np.array([each[z][:-1] for each in (whole, *variants) for z in ((place, TEXT), by)])
        figures = [whole[place, TEXT][-1], whole[by][-1], *(each[by][-1] for each in variants)]
        spread = f"{innocent.max():.1f}, {innocent.mean():.2f}, {innocent.std():.2f}"
        found.append([f"{name}, {place}", *(f"{z:.1f}" for z in figures), spread])
    return found


def main(options: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    with (
        printed_table("answers-measured.md", "text", write=parser.parse_args(options).write),
        tempfile.TemporaryDirectory() as folder,
    ):
        print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
        for name, path in MODELS.items():
            for row in rows_of(name, path, Path(folder)):
                print("| " + " | ".join(row) + " |")
