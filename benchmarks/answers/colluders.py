"""z of three recipients from the answers of the mean of their copies, with log-probabilities.

    python -m benchmarks.answers --only colluders [--write] [--models demo ...]

The mean of the weights of three of 60 recipients' copies (preset for many recipients) continues passages of the bundled
text at temperature 1. The table has their largest z over places for growing numbers of tokens, how many of the three
are named at a risk of 10^-6 over all 60, and how many others. --write puts it into docs/answers-measured.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import irwm
from benchmarks.answers.text import MODELS, OTHERS, TOKENS, other
from benchmarks.written import printed_table
from tools.copies import keys_for
from tools.generating import prompts, served

COLLUDERS, ANSWERS, AT_ONCE = 3, (64, 128, 256, 512), 128
HEADINGS = ("model", "tokens", "z of the three", "of them named", "others named", "largest z of the others")


def answers_of(folder: Path, original: Path, count: int) -> irwm.Answers:
    """The first `count` answers of a model."""
    parts = [
        served(folder, prompts(original, min(AT_ONCE, count - start), start), TOKENS, start)
        for start in range(0, count, AT_ONCE)
    ]
    return irwm.Answers(
        [each for part in parts for each in part.sequences],
        [length for part in parts for length in part.prompt_lengths],
        [each for part in parts for each in part.log_probabilities or ()],
    )


def table(models: Sequence[str], folder: Path) -> None:
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    for name in models:
        model = irwm.open_checkpoint(MODELS[name])
        colluders = keys_for(model, [f"colluder {number}" for number in range(COLLUDERS)])
        (folder / name).mkdir()
        copies = [irwm.insert(model, key, folder / name / key.recipient).path for key in colluders]
        mixed = irwm.attacks.collude(copies, folder / name / "mean")
        # The last key stands for all of them when the original is checked.
        keys = [*(other(colluders[0], f"{i}") for i in range(OTHERS + 1 - COLLUDERS)), *colluders]
        for count in ANSWERS:
            answers = answers_of(mixed, MODELS[name], count)
            traces = irwm.trace_answers(answers, model, keys)
            others, theirs = traces[:-COLLUDERS], traces[-COLLUDERS:]
            cells = [
                name,
                f"{answers.tokens:,}".replace(",", " "),
                ", ".join(f"{trace.z:.1f}" for trace in theirs),
                str(sum(trace.named for trace in theirs)),
                str(sum(trace.named for trace in others)),
                f"{max(trace.z for trace in others):.1f}",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)


def main(options: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    given = parser.parse_args(options)
    with printed_table("answers-measured.md", "colluders", write=given.write), tempfile.TemporaryDirectory() as folder:
        table(given.models, Path(folder))
