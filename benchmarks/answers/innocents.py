"""z of recipients whose copies did not generate the answers, and how often their probability is below a level.

    python -m benchmarks.answers --only innocents [--write] [--sets N]

Sets of 16 answers come from five sources: the unmarked original, another recipient's copy, passages of the bundled text
without log-probabilities, one token repeated with log-probabilities that grow, and random tokens with heavy-tailed
log-probabilities. Each set is read for 200 recipients in each place, by each weighting. Every reading of a recipient in
a set is one z. The probability is the bound that tracing uses, before any correction. --write puts the table into
docs/answers-measured.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import irwm
from benchmarks.answers.text import MODELS, other
from benchmarks.written import printed_table
from irwm.answers.reading import readings_of
from irwm.inference.loading import open_tokenizer
from irwm.inference.text import default_text
from irwm.scheme.probabilities import rademacher_tail_log10
from irwm.tracing.recipients import RISK
from tools.copies import keys_for
from tools.generating import PROMPT, prompts, served

RECIPIENTS, ANSWERS, TOKENS = 200, 16, 32
LEVELS = (1, 2, 3, 4)
Source = Callable[[int], irwm.Answers]
HEADINGS = ("source", "sets", "z", "mean", "deviation", "largest", *(f"at most 10^-{n}" for n in LEVELS), "named")


def made(sequences: np.ndarray, told: np.ndarray | None) -> irwm.Answers:
    return irwm.Answers(list(sequences), [PROMPT] * len(sequences), None if told is None else list(told))


def sources(path: Path, model: irwm.Checkpoint, copy: Path) -> dict[str, Source]:
    """Makers of a set of answers by its number; none of them has a key of the recipients."""
    text = np.array(open_tokenizer(path)(default_text(), verbose=False).input_ids)
    size = (ANSWERS, PROMPT + TOKENS)

    def passages(seed: int) -> irwm.Answers:
        starts = np.random.default_rng(seed).integers(0, len(text) - size[1], ANSWERS)
        return made(np.stack([text[at : at + size[1]] for at in starts]), None)

    def repeated(seed: int) -> irwm.Answers:
        token = np.random.default_rng(seed).integers(model.vocab_size)
        return made(np.full(size, token), np.tile(-np.geomspace(1e-6, 500, TOKENS), (ANSWERS, 1)))

    def random(seed: int) -> irwm.Answers:
        draw = np.random.default_rng(seed)
        told = -np.minimum(np.abs(draw.standard_cauchy((ANSWERS, TOKENS))), 900.0)
        return made(draw.integers(0, model.vocab_size, size), told)

    return {
        "the unmarked original": lambda seed: served(path, prompts(path, ANSWERS, seed), TOKENS, seed),
        "another recipient's copy": lambda seed: served(copy, prompts(path, ANSWERS, seed), TOKENS, seed),
        "text of other people": passages,
        "one token repeated": repeated,
        "random tokens, heavy-tailed log-probabilities": random,
    }


def line(source: str, sets: int, z: np.ndarray, named: int) -> str:
    shares = [f"{np.mean(rademacher_tail_log10(z) <= -n):.1e}" for n in LEVELS]
    figures = [str(sets), str(z.size), f"{z.mean():.3f}", f"{z.std():.3f}", f"{z.max():.2f}", *shares, str(named)]
    return "| " + " | ".join([source, *figures]) + " |"


def table(sets: int, folder: Path) -> None:
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    found: dict[str, list[list[float]]] = {}
    corrected: dict[str, int] = {}
    for name, path in MODELS.items():
        model = irwm.open_checkpoint(path)
        own, first = keys_for(model, ["guilty", "first"])
        copy = irwm.insert(model, own, folder / name).path
        # The last key stands for all of them when the original is checked.
        keys = [*(other(first, f"{i}") for i in range(RECIPIENTS - 1)), first]
        for source, make in sources(path, model, copy).items():
            for seed in range(sets):
                readings = readings_of(make(seed), model, keys, "cpu", None)
                found.setdefault(source, []).extend([evidence.z for evidence in each] for each in readings)
                most = math.log10(RISK / (len(keys) * len(readings)))
                corrected[source] = corrected.get(source, 0) + sum(e.log10_p <= most for each in readings for e in each)
    for source, z in found.items():
        print(line(source, sets * len(MODELS), np.concatenate(z), corrected[source]), flush=True)
    everything = np.concatenate([np.concatenate(z) for z in found.values()])
    print(line("**together**", sets * len(MODELS) * len(found), everything, sum(corrected.values())), flush=True)


def main(options: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sets", type=int, default=20, help="of each source on each model")
    given = parser.parse_args(options)
    with printed_table("answers-measured.md", "innocents", write=given.write), tempfile.TemporaryDirectory() as folder:
        table(given.sets, Path(folder))
