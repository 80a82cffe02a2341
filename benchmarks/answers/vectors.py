"""A served copy of which only the answers are known: how much of the mark is left, and how many answers it takes.

    python -m benchmarks.answers --only vectors
        [--parts served needed price recipients wrong_keys unrelated directions geometry]
        [--models demo gemma phi3 gpt2] [--unrelated DIR] [--write]

served: each serving condition of the Lab, and other changes of an attacker to the copy or its answers, read from 1.5 d
answers with all tokens and with the tokens that `python app.py collect` chooses.

needed: the least number of answers, in multiples of the width d, with odds below 1e-20.

price: perplexity of originals with only the marked head of the copy, for four keys of one owner.

recipients: sixteen copies, each traced from its answers among all keys, and wrongly named recipients.

wrong_keys: wrong keys on the answers of originals, copies and unrelated models, with the share at or below each stated
chance.

unrelated: right keys on the answers of unrelated models that `benchmarks.unrelated` makes from word vectors. Missing
models are made in DIR or in a temporary folder.

directions: the share of the logits' variance of each direction of the last layer (the numbers in
`irwm/explore/answering.py`), and the noise on recovered rows, measured and predicted.

geometry: seconds and peak memory for a synthetic model of 8B geometry (as in benchmarks/alignment_scale.py, with the
embedding as its head), from a file of answers with the tokens that `collect` chooses to the verdict, in a separate
process. A model of this size cannot run here, so the last layer's outputs are random, and each log-probability has a
hundredth of a nat of noise.

--write puts the tables into docs/answers-measured.md.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import irwm
from benchmarks.alignment_scale import peak, synthetic, write
from benchmarks.decoys import LEVELS, line, readings, risks
from benchmarks.reproduce.models import CAUSAL, default_models
from benchmarks.unrelated import RECIPE, WORD_VECTORS, Maker, recipe_of, recipes
from benchmarks.written import printed_table
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS, ROUNDED, SERVINGS, composed
from irwm.checkpoint.served_model import recovered_head
from irwm.errors import IrwmError
from irwm.explore.answering import EDGES, as_white_noise, noise_left
from irwm.inference import Reference, compare, default_text, reference
from irwm.inference.serving import Serving, answers
from irwm.keys.queried_tokens import tokens_asked
from irwm.tracing import trace_each

PARTS = ("served", "needed", "price", "recipients", "wrong_keys", "unrelated", "directions", "geometry")
SECRET = bytes(range(32))
TOKENS = 4096
# Rows, columns and answers of the large model.
ROWS, COLUMNS, ASKED = 128_256, 4096, 4600
RECIPIENTS = 16
# Changes of an attacker to the weights before serving them, by the catalogue's names.
BEFORE = (
    ("prune", 0.5), ("noise", 0.1), ("noise", 0.3), ("finetune", 100), ("lora", 100), ("merge-linear", 0.5),
    ("components", 0.75), ("rotate", 1),
)  # fmt: skip
COLLUSION = (("collude", 4), ("collude-other", "min-max"))
# Changes to the answers beyond the catalogue's servings. The last one returns too few tokens for a reading.
ANSWERED = {
    "three decimals": Serving(decimals=3),
    "0.05 nats of noise": Serving(noise=0.05),
    "0.5 nats of noise": Serving(noise=0.5),
    "float16": Serving("float16"),
    "the likeliest 1000 tokens, made to sum to 1": Serving(top=1000),
}
MULTIPLES = (1.02, 1.1, 1.25, 1.5, 2.0, 3.0)
ENOUGH = -20.0
NEEDED = ("float32", "bfloat16", "int8", "int4", "decimals", "temperature", "system", "noise", "flat")


@dataclass(frozen=True)
class Copy:
    """A marked copy of one of the bundled models, in `scratch`."""

    name: str
    path: Path
    scratch: Path

    @cached_property
    def original(self) -> irwm.Checkpoint:
        return irwm.open_checkpoint(self.path)

    @cached_property
    def keys(self) -> list[irwm.Key]:
        params = irwm.many_recipients(self.original.hidden_size)
        names = [f"recipient {number}" for number in range(RECIPIENTS)]
        return [irwm.generate_key(self.original, params, SECRET, "us", name) for name in names]

    def release(self, number: int = 0) -> Path:
        """Return the copy of this recipient."""
        folder = self.scratch / f"{self.name} {number}"
        return folder if folder.exists() else irwm.insert(self.original, self.keys[number], folder).path

    @cached_property
    def chosen(self) -> NDArray[np.int64]:
        return tokens_asked(self.keys[:1], self.original)

    @cached_property
    def outputs(self) -> Reference:
        return reference(self.release(), default_text(), TOKENS)

    def asked(
        self, folders: Sequence[Path], serving: Serving, multiple: float, tokens: NDArray[np.int64] | None
    ) -> irwm.Checkpoint:
        """Return the suspect from a number of answers, given as a multiple of the width."""
        count = math.ceil(multiple * self.original.hidden_size)
        told = answers(folders, default_text(), count, serving, tokens)
        return irwm.suspect_from_answers(told, self.original, tokens)

    def read(self, folders: Sequence[Path], serving: Serving, multiple: float, chosen: bool) -> irwm.Finding:
        suspect = self.asked(folders, serving, multiple, self.chosen if chosen else None)
        return irwm.detect(suspect, self.original, self.keys[0])

    def conditions(self) -> Iterator[tuple[str, list[Path], Serving, float | None]]:
        """Yield label, answering models, serving, and the change of perplexity from the release (None: cannot run)."""
        generator = torch.Generator().manual_seed(0)

        def cost(folder: Path, serving: Serving) -> float | None:
            return compare(self.outputs, folder, told=lambda logits: serving.told(logits, generator)).change

        for how, serving in SERVINGS.items():
            folders = [self.served(how)]
            if how == "turns":
                folders.append(self.release(1))
            yield ATTACKS["serve"].label_of(how), folders, serving, cost(folders[0], serving)
        for label, serving in ANSWERED.items():
            yield label, [self.release()], serving, cost(self.release(), serving)
        for name, strength in (*BEFORE, *COLLUSION):
            folder = self.attacked(name, strength)
            label = f"{ATTACKS[name].label}: {ATTACKS[name].label_of(strength)}"
            yield label, [folder], Serving(), cost(folder, Serving())

    def served(self, how: str) -> Path:
        """Return the copy as served by a server of this kind, from `SERVINGS`."""
        return self.attacked("round", ROUNDED[how]) if how in ROUNDED else self.release()

    def attacked(self, name: str, strength: float | str) -> Path:
        out = self.scratch / f"{self.name} {name} {strength}"
        if not out.exists():
            with tempfile.TemporaryDirectory(dir=self.scratch) as work:
                setup = Setup(self.path, self.release(), self.keys[0], default_text(), Path(work))
                composed(setup, [(name, strength)], out)
        return out


def served(copies: Sequence[Copy]) -> None:
    print("| model | served | perplexity | all tokens | chosen tokens |\n|---|---|---|---|---|")
    for copy in copies:
        for label, folders, serving, change in copy.conditions():
            cells = []
            for chosen in (False, True):
                try:
                    found = copy.read(folders, serving, 1.5, chosen)
                    cells.append(f"{found.verdict}, {found.log10_risk:.0f}")
                except IrwmError as error:
                    cells.append(f"cannot be read: {error.problem}")
            cost = "" if change is None else "cut off" if math.isinf(change) else f"{100 * change:+.1f} %"
            print(f"| {copy.name} | {label} | {cost} | {' | '.join(cells)} |", flush=True)


def needed(copies: Sequence[Copy]) -> None:
    print(f"| model | served | {' | '.join(f'{multiple:g} d' for multiple in MULTIPLES)} | enough |")
    print("|---|---|" + "---|" * (len(MULTIPLES) + 1))
    for copy in copies:
        for how in NEEDED:
            odds = [copy.read([copy.served(how)], SERVINGS[how], multiple, False).log10_risk for multiple in MULTIPLES]
            good = [m for m, o in zip(MULTIPLES, odds, strict=True) if o <= ENOUGH]
            enough = f"{math.ceil(min(good) * copy.original.hidden_size)} answers" if good else "more"
            cells = " | ".join(f"{each:.0f}" for each in odds)
            print(f"| {copy.name} | {ATTACKS['serve'].label_of(how)} | {cells} | {enough} |", flush=True)


def recipients(copies: Sequence[Copy]) -> None:
    print("| model | copies named | others named | weakest z of a right name | largest z of a wrong one |")
    print("|---|---|---|---|---|")
    for copy in copies:
        right, wrong = 0, 0
        of_right: list[float] = []
        of_wrong: list[float] = []
        for number in range(RECIPIENTS):
            suspect = copy.asked([copy.release(number)], Serving(), 1.5, None)
            found = trace_each(irwm.Examination(suspect, copy.original), copy.keys, decoys=0)
            for trace in found.traces:
                own = trace.recipient == f"recipient {number}"
                (of_right if own else of_wrong).append(trace.z)
            named = {trace.recipient for trace in found.named}
            right += f"recipient {number}" in named
            wrong += len(named - {f"recipient {number}"})
        print(
            f"| {copy.name} | {right} of {RECIPIENTS} | {wrong} | {min(of_right):.1f} | {max(of_wrong):.1f} |",
            flush=True,
        )


def price(copies: Sequence[Copy]) -> None:
    print("| model | perplexity, mean of four keys | worst |\n|---|---|---|")
    for copy in copies:
        tensor = copy.original.layout.head
        if copy.original.tied or tensor is None:
            print(f"| {copy.name} | its embedding is its head: no second mark | |", flush=True)
            continue
        outputs, changes = reference(copy.path, default_text(), TOKENS), []
        for number in range(4):
            key = irwm.generate_key(copy.original, irwm.one_owner(copy.original.hidden_size), bytes([number]) * 32)
            with tempfile.TemporaryDirectory(dir=copy.scratch) as work:
                release = irwm.insert(copy.original, key, Path(work) / "release").path
                mixed = shutil.copytree(copy.path, Path(work) / "mixed")
                file = mixed / "model.safetensors"
                head = {tensor.name: load_file(release / file.name)[tensor.name]}
                save_file(load_file(file) | head, file, metadata={"format": "pt"})
                changes.append(compare(outputs, mixed).change or 0.0)
        mean, worst = float(np.mean(changes)), max(changes, key=abs)
        print(f"| {copy.name} | {100 * mean:+.2f} % | {100 * worst:+.2f} % |", flush=True)


def unrelated(copies: Sequence[Copy], folder: Path) -> None:
    print("| keys of | unrelated models | found | inconclusive | not found | lowest log10 | same origin |")
    print("|---|---|---|---|---|---|---|")
    made = [recipe for recipe in recipes() if recipe.family == WORD_VECTORS]
    maker = Maker()
    for recipe in made:
        out = folder / recipe.name
        if not (out / RECIPE).exists() or recipe_of(out) != recipe:
            maker.make(recipe, out)
    for copy in copies:
        found = [copy.read([folder / recipe.name], Serving(), 1.5, False) for recipe in made]
        words = [sum(each.verdict == word for each in found) for word in ("found", "inconclusive", "not found")]
        derived = sum(each.lineage.status == "derived" for each in found)
        lowest = min(each.log10_risk for each in found)
        print(f"| {copy.name} | {len(made)} | {' | '.join(map(str, words))} | {lowest:.2f} | {derived} |", flush=True)


def wrong_keys(copies: Sequence[Copy], number: int) -> None:
    print(f"| suspect's answers | read | wrong keys | lowest log10 | {' | '.join(f'≤ 10^{n}' for n in LEVELS)} |")
    print("|---" * (4 + len(LEVELS)) + "|")
    everything = []
    listed = []
    for copy in copies:
        params = irwm.one_owner(copy.original.hidden_size)
        others = [other for other in copies if other.original.vocab_size == copy.original.vocab_size]
        for other in others:
            folders = [(f"{other.name}'s original", other.path)]
            if other is copy:
                folders.append((f"a copy of {other.name}", copy.release()))
            for label, folder in folders:
                suspect = copy.asked([folder], Serving(), 1.5, None)
                for by, read in readings(suspect, copy.original, params, "cpu"):
                    listed.append((f"{label}, keys of {copy.name}", by, read))
    share = -(-number // len(listed))
    for place, (label, by, read) in enumerate(listed):
        found = risks(read, share, 1000 * place)
        if found.size:
            everything.append(found)
            print(line(label, by, found), flush=True)
    print(line("**together**", "", np.concatenate(everything)), flush=True)


def directions(copies: Sequence[Copy]) -> None:
    print("| model | noise | answers | left on the rows | predicted |\n|---|---|---|---|---|")
    generator = np.random.default_rng(0)
    for copy in copies:
        d, place = copy.original.hidden_size, copy.original if copy.original.tied else copy.original.output_head
        assert place is not None
        head = place.embedding().double().numpy()
        told = answers([copy.path], default_text(), 3 * d).astype(np.float64)
        centred = head - head.mean(axis=0)
        states = (told - told.mean(axis=1, keepdims=True)) @ np.linalg.pinv(centred).T
        sizes, axes = np.linalg.eigh(states.T @ states / len(states))
        of_rows = np.square(centred @ axes).mean(axis=0)
        of_logits = sizes * of_rows
        strongest = np.argsort(-of_logits)
        parts = np.split(strongest, [round(edge * d) for edge in EDGES[1:-1]])
        shares = [of_rows[part].sum() / of_rows.sum() for part in parts]
        for what, each in (("logits", [of_logits[part].sum() for part in parts]), ("rows", shares)):
            print(f"{copy.name}, of {what}: {', '.join(f'{value:.2g}' for value in each)}", file=sys.stderr, flush=True)
        order = generator.permutation(len(head))
        fitted, judged = order[: len(order) // 2], order[len(order) // 2 :]
        for nats in (0.03, 0.2, 0.5):
            for multiple in (1.1, 1.5, 3.0):
                count = math.ceil(multiple * d)
                noisy = told[:count] + nats * generator.standard_normal((count, told.shape[1]))
                rows = recovered_head(np.minimum(noisy, 0.0), d).rows.astype(np.float64)
                known = np.column_stack([rows, np.ones(len(rows))])
                back = known @ np.linalg.lstsq(known[fitted], head[fitted], rcond=None)[0]
                unexplained = (back - head)[judged].var() / (head[judged] - head.mean(axis=0)).var()
                left = float(as_white_noise(np.array([unexplained]))[0])
                low, high = noise_left([count], d, nats)[:, 0]
                print(
                    f"| {copy.name} | {nats:g} nats | {multiple:g} d | {left:.2f} σ | {low:.2f} to {high:.2f} σ |",
                    flush=True,
                )


def geometry() -> None:
    print(
        "| model | answers | tokens | verdict | log10 of the odds | seconds | peak GiB |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder / "original", synthetic(ROWS, COLUMNS), COLUMNS // 128)
        original = irwm.open_checkpoint(folder / "original")
        key = irwm.generate_key(original, irwm.one_owner(COLUMNS), SECRET)
        release = irwm.open_checkpoint(irwm.insert(original, key, folder / "release").path)
        for name, model in (("marked", release), ("unmarked", original)):
            tokens = tokens_asked([key], original)
            generator = torch.Generator().manual_seed(1)
            rows = model.embedding(torch.from_numpy(tokens)).float()
            logits = 4 * torch.randn(ASKED, COLUMNS, generator=generator) @ rows.T / rows.norm(dim=1).mean()
            told = Serving(noise=0.01).told(logits, generator).numpy()
            file = folder / f"{name}.npz"
            np.savez(file, log_probabilities=told, token_ids=tokens)
            command = [sys.executable, "-m", "benchmarks.answers", "--only", "vectors", "--examine", str(file)]
            said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            print(
                f"| {ROWS} × {COLUMNS}, {name} | {ASKED} | {len(tokens)} | {said['verdict']} | {said['risk']:.0f} "
                f"| {said['seconds']:.0f} | {said['peak'] / 2**30:.2f} |",
                flush=True,
            )


def examine(file: Path) -> None:
    """Run in a separate process."""
    started = time.perf_counter()
    original = irwm.open_checkpoint(file.parent / "original")
    key = irwm.generate_key(original, irwm.one_owner(original.hidden_size), SECRET)
    found = irwm.detect(irwm.open_suspect(file, original), original, key)
    seconds = time.perf_counter() - started
    print(json.dumps({"verdict": found.verdict, "risk": found.log10_risk, "seconds": seconds, "peak": peak()}))


def main(options: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="+", choices=CAUSAL, default=CAUSAL)
    parser.add_argument("--keys", type=int, default=100_000, help="wrong keys in all")
    parser.add_argument("--unrelated", type=Path, help="folder for these models; existing ones are reused")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/answers-measured.md")
    parser.add_argument("--examine", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(options)
    if given.examine:
        examine(given.examine)
        return
    paths = dict(default_models())
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(name, paths[name], Path(folder)) for name in given.models]
        for part in given.parts:
            print(f"\n## {part}\n", flush=True)
            with printed_table("answers-measured.md", part, write=given.write):
                if part == "wrong_keys":
                    wrong_keys(copies, given.keys)
                elif part == "unrelated":
                    unrelated(copies, given.unrelated or Path(folder) / "unrelated")
                elif part == "geometry":
                    geometry()
                else:
                    globals()[part](copies)
