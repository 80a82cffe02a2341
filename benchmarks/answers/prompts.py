"""z of the copy that answered, with chosen and with random prompts, at equal numbers of generated tokens.

    python -m benchmarks.answers --only prompts [--write]

For each small model `irwm.choose_prompts` takes 64 of the 512 prompts of its pool, for answers of 16 tokens. Copies of
eight recipients (preset for many recipients) answer these prompts, and 64 random ones of the same pool. The table has
the means of the recipients' z, and the mean gain with its standard error; and the z of 8 random prompts with answers of
128 tokens. The information is measured on other continuations than those of the choice. --write puts the table into
docs/answers-measured.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import irwm
from benchmarks.answers.text import MODELS
from benchmarks.written import printed_table
from irwm.answers.random_prompts import Prompts
from irwm.answers.reading import readings_of
from irwm.answers.weights import LOG_PROBABILITIES, TEXT
from irwm.inference.continuations import batches_of_prompts, continuations
from irwm.inference.likelihood import Window, log_probabilities
from irwm.inference.loading import open_tokenizer, open_weights
from irwm.inference.text import default_text
from tools.copies import keys_for

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECIPIENTS, POOL, BUDGET, TOKENS = 8, 512, 64, 16
FEW, LONG = 8, 128
HEADINGS = (
    "model, place", "information", "log-probabilities, random", "chosen", "gain", "text, random", "chosen",
    f"log-probabilities, {FEW} answers of {LONG} tokens",
)  # fmt: skip


def answered(model: PreTrainedModel, prompts: Sequence[NDArray[np.int64]], tokens: int, seed: int) -> irwm.Answers:
    """What a model adds to prompts, with log-probabilities."""
    lengths = [len(each) for each in prompts]
    together = batches_of_prompts(lengths, tokens, model.config.vocab_size)
    found: dict[int, NDArray[np.int64]] = {}
    for batch in together:
        own = continuations(model, [prompts[i] for i in batch], tokens, [(seed, i) for i in batch])
        found.update(zip(batch, own, strict=True))
    sequences = [found[i] for i in range(len(prompts))]
    parts = [[Window(i, 0, len(sequences[i]), lengths[i]) for i in batch] for batch in together]
    values = log_probabilities(model, sequences, parts, lambda: None)
    told = [np.minimum(each[0, length:], 0.0) for each, length in zip(values, lengths, strict=True)]
    return irwm.Answers(sequences, lengths, told)


def rows_of(name: str, path: Path, folder: Path) -> list[list[str]]:
    """The rows of one model's places."""
    original, tokenizer, drawn = irwm.open_checkpoint(path), open_tokenizer(path), Prompts(0, default_text())
    pool = list(dict.fromkeys(drawn.prompt(number) for number in range(POOL)))
    chosen = irwm.choose_prompts(original, BUDGET, pool, TOKENS)
    fresh = irwm.choose_prompts(original, len(pool), pool, TOKENS, seed=1)
    measured = dict(zip(map(str, fresh.prompts), fresh.information, strict=True))
    information = np.mean([measured[str(each)] for each in chosen.prompts]) / fresh.usual
    z: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for number, key in enumerate(keys_for(original, [f"recipient {i}" for i in range(RECIPIENTS)])):
        irwm.insert(original, key, folder / f"{name}{number}")
        copy = open_weights(folder / f"{name}{number}").model
        assert copy.generation_config is not None
        copy.generation_config.eos_token_id = None  # answers of equal length
        some = [pool[i] for i in np.random.default_rng(number).choice(len(pool), BUDGET, replace=False)]
        asked = {"random": (some, TOKENS), "chosen": (chosen.prompts, TOKENS), "long": (some[:FEW], LONG)}
        for what, (texts, tokens) in asked.items():
            ids = [np.array(tokenizer(str(text), verbose=False).input_ids) for text in texts]
            for (evidence,) in readings_of(answered(copy, ids, tokens, 1000 + number), original, [key], "cpu", None):
                z[evidence.place, evidence.by, what].append(evidence.z)
    found = []
    for place in dict.fromkeys(place for place, *_ in z):
        random, better, long = (np.array(z[place, LOG_PROBABILITIES, what]) for what in ("random", "chosen", "long"))
        gains = 100 * (better - random) / random.mean()
        gain = f"{gains.mean():+.0f} ± {gains.std(ddof=1) / np.sqrt(len(gains)):.0f} %"
        text = [f"{np.mean(z[place, TEXT, what]):.1f}" for what in ("random", "chosen")]
        found.append([f"{name}, {place}", f"{100 * (information - 1):+.0f} %", f"{random.mean():.1f}",
                      f"{better.mean():.1f}", gain, *text, f"{long.mean():.1f}"])  # fmt: skip
    return found


def main(options: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args(options).write
    with printed_table("answers-measured.md", "prompts", write=write), tempfile.TemporaryDirectory() as folder:
        print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
        for name, path in MODELS.items():
            for row in rows_of(name, path, Path(folder)):
                print("| " + " | ".join(row) + " |", flush=True)
