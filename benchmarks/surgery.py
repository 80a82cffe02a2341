"""Descent after surgery: models of another width, depth, kind or tokenizer, ranked with unrelated models.

    python -m benchmarks.surgery [--models build/unrelated] [--saved FILE] [--originals 25] [--only TEXT] [--write]

The originals are the first of the `deep` models of `benchmarks.unrelated`, which that program makes. A marked release
of each original is changed in every way of SURGERIES. The unrelated models are the other `deep` ones: they have the
same shape, tokenizer and text as the originals, which is the hard case. Every method of `benchmarks.peers` that decides
about descent, and ours, scores the same pairs. A cell has the share of changed releases that score higher than all but
1 % of the unrelated models, and the area under the curve of all such shares (AUC). A method that cannot run on a pair
has its lowest score there. --saved keeps each pair's scores in a file when they are ready, and continues an interrupted
run. --write puts the table into docs/surgery.md.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

import irwm
from benchmarks.peers.columns import OF_DESCENT, Column
from benchmarks.peers.rows import DROPPED, WEIGHTS
from benchmarks.peers.score import Score
from benchmarks.unrelated import DEPTH, LENGTH, MODELS, WINDOWS, Recipe, deep, make_all
from benchmarks.written import printed_table
from irwm.attacks import finetune
from irwm.attacks.equivalence import disguise
from irwm.attacks.layers import stack_layers
from irwm.attacks.transplant import exchange_tokenizer
from irwm.attacks.width import cut_width
from irwm.evidence.neurons import CLEAR_AGREEMENT
from irwm.inference import default_text
from irwm.scheme.parameters import HEAD

ORIGINALS, FOR_EACH = 25, 8
SECRET = bytes(range(32))
UNRELATED = "unrelated"
LINEAGE, COPY = "ours: lineage", "ours: whose copy"
# Share of the unrelated models that may score as high as a changed release.
FALSE_POSITIVES = 0.01
# Training after surgery, and between generations: steps of 1024 tokens.
HEAL, BETWEEN, RATE = 80, 20, 1e-3
BATCH, PIECE = 8, 128
GENERATIONS = 5

Surgery = Callable[[Path, Path, Path], object]


def _healed(operation: Callable[[Path, Path], object]) -> Surgery:
    """An operation and training after it."""

    def run(release: Path, out: Path, scratch: Path) -> None:
        operation(release, scratch / "cut")
        finetune(scratch / "cut", out, default_text(), HEAL, RATE)

    return run


def _disguised(release: Path, out: Path, scratch: Path) -> None:
    """Repeat layers, train, and disguise the result in every way that keeps what it computes."""
    SURGERIES["depth × 1.5, healed"](release, scratch / "deeper", scratch)
    disguise(scratch / "deeper", out, [*WEIGHTS, DROPPED])


def _continued(release: Path, out: Path, scratch: Path) -> None:
    """Train for as many tokens as the original was, at its rate."""
    recipe = _recipe(release)
    steps = recipe.steps * WINDOWS * LENGTH // (BATCH * PIECE)
    finetune(release, out, default_text(), steps, recipe.learning_rate, batch=BATCH, length=PIECE)


def generations(release: Path, out: Path, scratch: Path) -> list[tuple[irwm.Checkpoint, irwm.Key]]:
    """Train, and mark again, as if each owner got the model of the one before him.

    Returns:
        the original and the key of every owner after the first.
    """
    model, owners = release, []
    for number in range(1, GENERATIONS):
        trained, marked = scratch / f"trained-{number}", scratch / f"marked-{number}"
        finetune(model, trained, default_text(), BETWEEN, RATE, seed=number)
        original = irwm.open_checkpoint(trained)
        key = irwm.generate_key(original, irwm.many_recipients(original.hidden_size), bytes([number]) * 32)
        irwm.insert(original, key, marked)
        owners.append((original, key))
        model = marked
    finetune(model, out, default_text(), BETWEEN, RATE)
    return owners


SURGERIES: dict[str, Surgery] = {
    "width -25 %, healed": _healed(lambda model, out: cut_width(model, out, 0.75, default_text())),
    "width -50 %, healed": _healed(lambda model, out: cut_width(model, out, 0.5, default_text())),
    "depth × 0.5, healed": _healed(lambda model, out: stack_layers(model, out, range(0, DEPTH, 2))),
    "depth × 1.5, healed": _healed(lambda model, out: stack_layers(model, out, [0, 1, 2, 1, 2, 3])),
    "upcycled to a mixture of experts, trained": _healed(lambda model, out: disguise(model, out, ["as_mixtral"])),
    "tokenizer exchanged, healed": _healed(lambda model, out: exchange_tokenizer(model, out, default_text(), 1.0)),
    "depth × 1.5, then all disguises, no tokenizer": _disguised,
    "trained for the original's number of tokens": _continued,
    "five generations of marking and fine-tuning": generations,
}


@dataclass(frozen=True, slots=True)
class Scored:
    """One pair.

    Attributes:
        surgery: one of SURGERIES, or UNRELATED.
        original, suspect: names of the models.
        ranks: by method, two numbers that order pairs, the second for pairs that are equal in the first; null if the
            method cannot run.
        derived: the methods that call the suspect derived, by their own threshold.
    """

    surgery: str
    original: str
    suspect: str
    ranks: dict[str, list[float] | None]
    derived: list[str]


class Pairs:
    """The pairs, and their scores."""

    def __init__(self, models: Path, saved: Path | None, methods: Sequence[Column]) -> None:
        self._models, self._saved, self._methods = models, saved, methods
        lines = saved.read_text(encoding="utf-8").splitlines() if saved is not None and saved.exists() else []
        found = (Scored(**json.loads(line)) for line in lines)
        self._known = {(each.surgery, each.original, each.suspect): each for each in found}

    def of(self, place: int, only: str) -> Iterator[Scored]:
        """Yield the pairs of one of the originals: each surgery, and its part of the unrelated models."""
        original, others = self._models / deep()[place].name, deep()[ORIGINALS:]
        model = irwm.open_checkpoint(original)
        key = irwm.generate_key(model, irwm.many_recipients(model.hidden_size), SECRET)
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, surgery) in enumerate(SURGERIES.items()):
                if only in name:
                    made = _Made(original, key, surgery, Path(folder) / str(number))
                    yield self._one(name, original, original.name, key, made)
        for number in range(FOR_EACH):
            other = self._models / others[(place * FOR_EACH + number) % len(others)].name
            yield self._one(UNRELATED, original, other.name, key, partial(Path, other))

    def _one(self, surgery: str, original: Path, suspect: str, key: irwm.Key, made: Callable[[], Path]) -> Scored:
        named = surgery, original.name, suspect
        if named in self._known:
            return self._known[named]
        folder = made()
        scores = {each.title: each.score(original, folder) for each in self._methods} | ours(original, folder, key)
        found = Scored(*named, {name: _rank(each) for name, each in scores.items()}, _derived(scores))
        print(f"{original.name}, {surgery}: {', '.join(found.derived)}", flush=True)
        if self._saved is not None:
            with self._saved.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found)) + "\n")
        return found


@dataclass(frozen=True)
class _Made:
    """Makes a changed release; the release itself is made on the first use."""

    original: Path
    key: irwm.Key
    surgery: Surgery
    folder: Path

    def __call__(self) -> Path:
        self.folder.mkdir()
        release = self.folder.parent / "release" / self.original.name
        if not release.exists():
            release.parent.mkdir()
            irwm.insert(irwm.open_checkpoint(self.original), self.key, release)
        self.surgery(release, self.folder / "suspect", self.folder)
        return self.folder / "suspect"


def ours(original: Path, suspect: Path, key: irwm.Key) -> dict[str, Score]:
    """Return our two answers; "cannot tell" and "inconclusive" count as no.

    The value of lineage is the higher of two agreements: of rows of the embedding or the head, in units of the limit up
    to which a model may be "not derived", and of neurons, in units of the limit for "derived".
    """
    found = irwm.detect(irwm.open_checkpoint(suspect), irwm.open_checkpoint(original), key)
    kin, match, rows = found.lineage, found.lineage.neurons, found.alignment
    values = [
        rows.similarity / rows.needed_similarity if kin.place == HEAD else math.nan,
        math.nan if kin.among is None else kin.among.agreement,
        math.nan if match is None else (match.agreement - max(0.0, match.decoy)) / CLEAR_AGREEMENT,
    ]
    value = max((each for each in values if not math.isnan(each)), default=-math.inf)
    derived, marked = kin.status == "derived", found.verdict == "found"
    return {
        LINEAGE: Score(value, None, "derived" if derived else "not derived", kin.reason),
        COPY: Score(-found.log10_risk, None, "derived" if marked else "not derived", found.reason),
    }


def _rank(score: Score) -> list[float] | None:
    if score.says == "cannot run":
        return None
    return [0.0 if score.p is None else -score.p, score.value]


def _derived(scores: dict[str, Score]) -> list[str]:
    return [name for name, each in scores.items() if each.says == "derived"]


def _recipe(release: Path) -> Recipe:
    (recipe,) = (each for each in deep() if each.name == release.name)
    return recipe


LOWEST = [-math.inf, -math.inf]


def true_positives(related: Sequence[list[float]], unrelated: Sequence[list[float]]) -> float:
    """Return the share of related pairs that rank higher than all but FALSE_POSITIVES of the unrelated ones."""
    limit = sorted(unrelated, reverse=True)[int(FALSE_POSITIVES * len(unrelated))]
    return sum(each > limit for each in related) / len(related)


def area(related: Sequence[list[float]], unrelated: Sequence[list[float]]) -> float:
    """Return the chance that a related pair ranks higher than an unrelated one; ties count half."""
    wins = sum((one > other) + (one == other) / 2 for one in related for other in unrelated)
    return wins / (len(related) * len(unrelated))


def table(scored: Sequence[Scored]) -> str:
    """Return one row per surgery, one for all, the highest value of the unrelated models, and how many of the changed
    releases and of the unrelated models each method calls derived."""
    methods = list(scored[0].ranks)
    ranks = {
        (name, method): [each.ranks[method] or LOWEST for each in scored if each.surgery == name]
        for name in dict.fromkeys(each.surgery for each in scored)
        for method in methods
    }
    names = [name for name in SURGERIES if (name, methods[0]) in ranks]
    lines = [f"| the suspect | pairs | {' | '.join(methods)} |", "|---" * (len(methods) + 2) + "|"]
    for name in [*names, ""]:
        rows = [name] if name else names
        cells = []
        for method in methods:
            related = [each for row in rows for each in ranks[row, method]]
            cells.append(_cell(related, ranks[UNRELATED, method]))
        pairs = sum(each.surgery in rows for each in scored)
        lines.append(f"| {name or 'all'} | {pairs} | {' | '.join(cells)} |")
    changed = [each for each in scored if each.surgery != UNRELATED]
    apart = [each for each in scored if each.surgery == UNRELATED]
    highest = [max((rank[1] for each in apart if (rank := each.ranks[method])), default=None) for method in methods]
    lines.append(f"| highest value of an unrelated model | {len(apart)} | {' | '.join(map(_shown, highest))} |")
    for name, which in (("changed releases", changed), ("unrelated models", apart)):
        called = [f"{sum(method in each.derived for each in which)}" for method in methods]
        lines.append(f"| {name} called derived, by its own threshold | {len(which)} | {' | '.join(called)} |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _cell(related: Sequence[list[float]], unrelated: Sequence[list[float]]) -> str:
    if all(each == LOWEST for each in related):
        return "*cannot run*"
    return f"{100 * true_positives(related, unrelated):.0f} % / {area(related, unrelated):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=MODELS, help="the folder of benchmarks.unrelated")
    parser.add_argument("--saved", type=Path, help="file that keeps the scores")
    parser.add_argument("--originals", type=int, default=ORIGINALS)
    parser.add_argument("--only", default="", help="only surgeries whose name contains this text")
    parser.add_argument("--write", action="store_true", help="put the table into docs/surgery.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    make_all(options.models, deep())
    pairs = Pairs(options.models, options.saved, OF_DESCENT)
    scored = [each for place in range(options.originals) for each in pairs.of(place, options.only)]
    with printed_table("surgery.md", "surgery", write=options.write):
        print(table(scored))


if __name__ == "__main__":
    main()
