"""Recipients' z from answers of servers that differ from the original, before and after fits.

    python -m benchmarks.fits [--write] [--models demo ...] [--servers NAME ...]

One of 60 recipients' copies (preset for many recipients) continues passages of the bundled text at temperature 1:
after an unknown system prompt of 40 tokens, after fine-tuning of all weights on the bundled text (150 steps at 1e-4),
and quantised to 4 bits. The table has the largest z of the copy over places, from log-probabilities, under the original
and after the fit that is meant for the server. It is "named" if that is clear at a risk of 10^-6 among the 60, with the
correction for both fits. --write puts it into docs/answers.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import irwm
from benchmarks.text import MODELS, OTHERS, TOKENS, other
from benchmarks.written import printed_table
from irwm.answers import Fits
from irwm.answers.reading import tries_of
from irwm.answers.weights import LOG_PROBABILITIES
from irwm.inference.fitting import SOFT_PROMPT, WEIGHTS
from irwm.inference.text import default_text
from tools.copies import keys_for
from tools.generating import PROMPT, prompts, served

RISK, HIDDEN, AT_ONCE = 1e-6, 40, 128


@dataclass(frozen=True)
class Server:
    """How a copy is served.

    Attributes:
        answers: how many of `TOKENS` tokens it gives.
        hidden: tokens that it puts before every prompt.
        change: what was done to the copy: (its folder, a new folder) in, the new folder out.
        fit: the one that is meant for it.
    """

    answers: int
    fit: str
    hidden: int = 0
    change: Callable[[Path, Path], Path] = lambda copy, _: copy


SERVERS = {
    "system prompt": Server(128, SOFT_PROMPT, hidden=HIDDEN),
    "fine-tuned": Server(
        800, WEIGHTS, change=lambda copy, out: irwm.attacks.finetune(copy, out, default_text(), 150, learning_rate=1e-4)
    ),
    "4 bits": Server(128, WEIGHTS, change=lambda copy, out: irwm.attacks.quantize(copy, out, 4)),
}
HEADINGS = ("model, server", "tokens", "fit", "before it", "after it", "named", "others: largest, mean, deviation")


def answered(server: Server, original: Path, copy: Path) -> irwm.Answers:
    """What a server says; its hidden tokens are not part of the answers."""
    before = prompts(original, max(1, server.hidden // PROMPT), 99).flatten()[: server.hidden]
    sequences: list[np.ndarray] = []
    told: list[np.ndarray] = []
    for start in range(0, server.answers, AT_ONCE):
        asked = prompts(original, min(AT_ONCE, server.answers - start), start)
        found = served(copy, torch.cat([before.expand(len(asked), -1), asked], 1), TOKENS, start)
        sequences += [each[server.hidden :] for each in found.sequences]
        told += found.log_probabilities or ()
    return irwm.Answers(sequences, [PROMPT] * len(sequences), told)


def row(name: str, what: str, folder: Path) -> list[str]:
    server, model = SERVERS[what], irwm.open_checkpoint(MODELS[name])
    (key,) = keys_for(model, ["guilty"])
    keys = [*(other(key, f"{i}") for i in range(OTHERS)), key]
    copy = irwm.insert(model, key, folder / f"{name} {what}").path
    answers = answered(server, MODELS[name], server.change(copy, folder / f"{name} {what}, served"))
    best, risks, innocent = [], [], []
    for readings in tries_of(answers, model, keys, "cpu", None, Fits(kinds=(server.fit,))):
        told = [each for each in readings if each[0].by.startswith(LOG_PROBABILITIES)]
        best.append(max(each[-1].z for each in told))
        comparisons = math.log10(len(keys) * len(readings) * (1 + len(Fits().kinds)))
        risks += [each[-1].log10_p + comparisons for each in readings]
        innocent += [evidence.z for each in readings for evidence in each[:-1]]
    others = f"{max(innocent):.1f}, {np.mean(innocent):.2f}, {np.std(innocent):.2f}"
    named = "yes" if min(risks) <= math.log10(RISK) else "no"
    return [f"{name}, {what}", str(answers.tokens), server.fit, *(f"{z:.1f}" for z in best), named, others]


def table(models: Sequence[str], servers: Sequence[str], folder: Path) -> None:
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    for name in models:
        for what in servers:
            print("| " + " | ".join(row(name, what, folder)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    given = parser.parse_args()
    with printed_table("answers.md", "fits", write=given.write), tempfile.TemporaryDirectory() as folder:
        table(given.models, given.servers, Path(folder))


if __name__ == "__main__":
    main()
