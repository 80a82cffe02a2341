"""What hides a recipient in the answers of their copy, and how many tokens it then takes to name them.

    python -m benchmarks.answers --only limits [--write] [--models demo ...] [--conditions NAME ...]

One of 60 recipients' copies (preset for many recipients) is changed, or answers otherwise, or its text is edited. The
table has the largest z of the recipient over places: from 64 512 tokens of text alone, and from 8 064 tokens with
log-probabilities. Behind each z is the number of tokens at which z would be 7, if it grows with the root of their
number. Where a fit of the original is meant for the change, z is given before and after it too, from 16 128 tokens with
log-probabilities, or 100 800 of a fine-tuned copy. --write puts the table into docs/answers-measured.md.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import irwm
from benchmarks.answers.text import MODELS, OTHERS, TOKENS, other
from benchmarks.written import printed_table
from irwm.answers import Fits
from irwm.answers.reading import tries_of
from irwm.inference.fitting import SOFT_PROMPT, WEIGHTS
from irwm.inference.loading import open_tokenizer
from irwm.inference.text import default_text
from tools.copies import keys_for
from tools.generating import PROMPT, prompts, served, text_of

# Answers with log-probabilities, and of text alone; how many are generated at once.
TOLD, PLAIN, AT_ONCE = 64, 512, 128
ENOUGH, HIDDEN = 7.0, 40
Change = Callable[[Path, Path, Path], Path]
NEEDED = f"tokens for z = {ENOUGH:g}"
HEADINGS = (
    "model, condition", "text alone: z", NEEDED, "log-probabilities: z", NEEDED, "before the fit: z", "after it: z",
    NEEDED, "others: largest, mean, deviation",
)  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """How the answers come about.

    Attributes:
        change: of the copy: (the copy, the original, a new folder) in, the folder that is served out.
        sampling: arguments of `served`.
        hidden: tokens that the server puts before every prompt.
        edited: share of the words that a person replaces; then only the text is left.
        told: a change of the log-probabilities.
        mixed: share of the answers that another recipient's copy gives.
        fit: the fit that is meant for it, or "".
        fitted: from how many answers.
    """

    change: Change = lambda copy, _original, _out: copy
    sampling: Mapping[str, float] = field(default_factory=dict)
    hidden: int = 0
    edited: float = 0.0
    told: Callable[[np.ndarray], np.ndarray] | None = None
    mixed: float = 0.0
    fit: str = ""
    fitted: int = 128


def _noise(values: np.ndarray) -> np.ndarray:
    return values + 0.1 * np.random.default_rng(0).standard_normal(values.shape)


CONDITIONS = {
    "as served": Condition(),
    "temperature 0.7": Condition(sampling={"temperature": 0.7}),
    "temperature 1.3": Condition(sampling={"temperature": 1.3}),
    "top-p 0.9": Condition(sampling={"top_p": 0.9}),
    "top 20": Condition(sampling={"top_k": 20}),
    "top 5": Condition(sampling={"top_k": 5}),
    "greedy": Condition(sampling={"top_k": 1}),
    "8 bits": Condition(change=lambda copy, _, out: irwm.attacks.quantize(copy, out, 8)),
    "4 bits": Condition(change=lambda copy, _, out: irwm.attacks.quantize(copy, out, 4), fit=WEIGHTS),
    "pruned 30 %": Condition(change=lambda copy, _, out: irwm.attacks.prune(copy, out, 0.3), fit=WEIGHTS),
    "fine-tuned": Condition(
        change=lambda copy, _, out: irwm.attacks.finetune(copy, out, default_text(), 150, learning_rate=1e-4),
        fit=WEIGHTS,
        fitted=800,
    ),
    "merged with the original": Condition(change=lambda copy, original, out: irwm.attacks.merge([copy, original], out)),
    "system prompt": Condition(hidden=HIDDEN, fit=SOFT_PROMPT),
    "every second answer by another copy": Condition(mixed=0.5),
    "two decimals": Condition(told=lambda values: values.round(2)),
    "one decimal": Condition(told=lambda values: values.round(1)),
    "0.1 nats of noise": Condition(told=_noise),
    "10 % of words edited": Condition(edited=0.1),
    "30 % of words edited": Condition(edited=0.3),
    "50 % of words edited": Condition(edited=0.5),
}


class Subject:
    """A model with two of its copies."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path, self.folder = MODELS[name], folder / name
        self.folder.mkdir()
        self.model = irwm.open_checkpoint(self.path)
        self.key, second = keys_for(self.model, ["guilty", "second"])
        self.keys = [*(other(self.key, f"{i}") for i in range(OTHERS)), self.key]
        self.copies = [irwm.insert(self.model, key, self.folder / key.recipient).path for key in (self.key, second)]

    def answers(self, name: str, count: int) -> irwm.Answers:
        """`count` answers under a condition."""
        condition, copies = CONDITIONS[name], self.copies
        out = self.folder / name
        here = out if out.exists() else condition.change(copies[0], self.path, out)
        parts = [(here, count - round(count * condition.mixed)), (copies[1], round(count * condition.mixed))]
        before = prompts(self.path, condition.hidden // PROMPT, 99).flatten() if condition.hidden else None
        sequences: list[np.ndarray] = []
        told: list[np.ndarray] = []
        for number, (folder, wanted) in enumerate(parts):
            for start in range(0, wanted, AT_ONCE):
                seed = 1000 * number + start
                asked = prompts(self.path, min(AT_ONCE, wanted - start), seed)
                shown = asked if before is None else torch.cat([before.expand(len(asked), -1), asked], 1)
                sampling: dict[str, float] = dict(condition.sampling)
                found = served(folder, shown, TOKENS, seed, **sampling)  # type: ignore[arg-type]
                sequences += [each[condition.hidden :] for each in found.sequences]
                told += found.log_probabilities or ()
        if condition.told is not None:
            told = [np.minimum(condition.told(each), 0.0) for each in told]
        return irwm.Answers(sequences, [PROMPT] * len(sequences), told)

    def edited(self, answers: irwm.Answers, share: float) -> irwm.Answers:
        """The text, with this share of its words replaced by random words of the bundled text."""
        tokenizer, draw = open_tokenizer(self.path), np.random.default_rng(0)
        words = default_text().split()
        sequences = []
        for each in answers.sequences:
            text = str(tokenizer.decode(each[PROMPT:]))
            new = re.sub(r"\S+", lambda found: str(draw.choice(words)) if draw.random() < share else found[0], text)
            tokens = tokenizer(new, add_special_tokens=False, verbose=False).input_ids
            sequences.append(np.concatenate([each[:PROMPT], np.array(tokens, dtype=np.int64)]))
        return irwm.Answers(sequences, [PROMPT] * len(sequences))


def cells(z: float, tokens: int) -> tuple[str, str]:
    """z, and the tokens at which it would be `ENOUGH`; the second is unknown if z may be chance alone."""
    needed = f"{math.ceil(tokens * (ENOUGH / z) ** 2 / 100) * 100:,}".replace(",", " ") if z >= 2 else "unknown"
    return f"{z:.1f}", needed


def row(subject: Subject, name: str) -> list[str]:
    condition = CONDITIONS[name]
    innocent: list[float] = []

    def strongest(answers: irwm.Answers, fit: str = "") -> list[float]:
        """z of the copy without a fit and, if one is meant, with it."""
        found = []
        for readings in tries_of(
            answers, subject.model, subject.keys, "cpu", None, Fits(kinds=(fit,)) if fit else None
        ):
            innocent.extend(evidence.z for each in readings for evidence in each[:-1])
            by = readings[-1][0].by  # the last weighting is the strongest that the answers allow
            found.append(max(each[-1].z for each in readings if each[0].by == by))
        return found

    plain = text_of(subject.answers(name, PLAIN))
    plain = subject.edited(plain, condition.edited) if condition.edited else plain
    found = [name, *cells(strongest(plain)[-1], plain.tokens)]
    if condition.edited:
        found += ["", ""]
    else:
        told = subject.answers(name, TOLD)
        found += cells(strongest(told)[-1], told.tokens)
    if condition.fit:
        fitted = subject.answers(name, condition.fitted)
        before, after = strongest(fitted, condition.fit)
        found += [f"{before:.1f}", *cells(after, fitted.tokens)]
    else:
        found += ["", "", ""]
    return [*found, f"{max(innocent):.1f}, {np.mean(innocent):.2f}, {np.std(innocent):.2f}"]


def table(models: Sequence[str], names: Sequence[str], folder: Path) -> None:
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    for model in models:
        subject = Subject(model, folder)
        for name in names:
            print(f"| {model}, " + " | ".join(row(subject, name)) + " |", flush=True)


def main(options: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS), metavar="NAME")
    given = parser.parse_args(options)
    with printed_table("answers-measured.md", "limits", write=given.write), tempfile.TemporaryDirectory() as folder:
        table(given.models, given.conditions, Path(folder))
