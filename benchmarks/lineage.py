"""Results of lineage for unrelated models, relatives and descendants, and the values behind its p-value.

    python -m benchmarks.lineage [--models build/unrelated] [--random 8] [--compositions 20] [--saved FILE] [--write]

The models of `benchmarks.unrelated` that the folder lacks are made first, in hours. The originals are the bundled
models with the same tokenizer: demo, gemma and phi3. Unrelated models are those of the folder that were trained
separately, and each original for the other two. Each one is compared with gemma, which unrelated models resemble most,
and every third with another original too. It counts for the original that it resembles more. Relatives were trained
from an original's random start. Synthetic embeddings are random or degenerate; they are compared but not counted.
Descendants are the release of each original after every attack of docs/adaptive.md and compositions of them, with
noise, and with half of the rows redrawn. --saved stores each comparison in a file when it is ready. --write puts the
values into irwm/evidence/data/unrelated.json and the table into docs/method.md.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import irwm
from benchmarks.adaptive.attacker import Attacker, planned
from benchmarks.disguises import models
from benchmarks.peers.rows import random_model
from benchmarks.robustness import noise
from benchmarks.unrelated import APART, MODELS, WORD_VECTORS, make_all, recipe_of, recipes
from benchmarks.written import write_table
from irwm.attacks.rewrite import rewrite
from irwm.errors import IrwmError
from irwm.evidence.attention import attention
from irwm.evidence.circuits import circuits
from irwm.evidence.lineage import DERIVED, NOT_DERIVED, lineage
from irwm.evidence.neurons import match_neurons
from irwm.evidence.unrelated import DESCENDANT, UNRELATED, Kept, agreement_of

ORIGINALS = ("demo", "gemma", "phi3")
# Unrelated models resemble this one most: its embedding is also its output head.
MOST_LIKE, OTHERS = "gemma", ("demo", "phi3")
# One in so many is also compared with another original, since each comparison takes seconds.
OTHER_EVERY = 3
RELATIVE, MADE = "relative", "made"
DATA = Path(irwm.__file__).parent / "evidence" / "data" / "unrelated.json"
# With this table the thresholds alone decide the status, and the affine map is always fitted.
NO_TABLE = Kept((math.inf,), (), "")
MARK_SECRET = bytes(range(32))


@dataclass(frozen=True, slots=True)
class Compared:
    """One model compared with one original.

    Attributes:
        model: name of the model, or the changes made to a descendant.
        kind: UNRELATED, RELATIVE, MADE or DESCENDANT.
        group: row of the table.
        original: name of the original.
        status: lineage status by the thresholds alone.
        verdict: verdict for our mark's key; "" for descendants, which have another key.
        aligned, similarity, needed, attention, attention_decoy, whole, fitted: values that lineage reads, or null. If
            the suspect is not aligned, lineage and `agreement_of` ignore attention.
        recipe: recipe of a trained model.
        circuits, circuits_decoy: agreement of the OV circuits, or null if they cannot be compared.
        neurons: agreement of the MLP neurons, or null if they cannot be compared.
    """

    model: str
    kind: str
    group: str
    original: str
    status: str
    verdict: str
    aligned: bool
    similarity: float | None
    needed: float
    attention: float | None
    attention_decoy: float | None
    whole: float
    fitted: float | None
    recipe: dict[str, Any] | None = None
    circuits: float | None = None
    circuits_decoy: float | None = None
    neurons: float | None = None


class Comparison:
    """The originals, and comparisons of a model with one of them."""

    def __init__(self) -> None:
        paths = models()
        self.originals = {name: irwm.open_checkpoint(paths[name]) for name in ORIGINALS}
        keys = {name: irwm.generate_key(model, secret=MARK_SECRET) for name, model in self.originals.items()}
        self._keys = keys

    def of(self, path: Path, original: str, model: str, kind: str, group: str) -> Compared:
        suspect, ours = irwm.open_checkpoint(path), self.originals[original]
        key = self._keys[original]
        examination = irwm.Examination(suspect, ours)
        (finding,) = irwm.detect_each(examination, [key]) if kind != DESCENDANT else (None,)
        found = examination.aligned[0]
        fit = found.least_squares(key.derivation.sample_key())
        fitted = math.nan if fit is None else fit.agreement
        agreed = attention(suspect, ours, found.alignment)
        layers, match = circuits(suspect.body, ours.body), match_neurons(suspect.body, ours.body)
        kin = lineage(
            found.alignment,
            agreed if found.alignment.aligned else None,
            lambda: fitted,
            NO_TABLE,
            lambda: layers,
            lambda: match,
        )
        return Compared(
            model=model,
            kind=kind,
            group=group,
            original=original,
            status=kin.status,
            verdict=finding.verdict if finding is not None else "",
            aligned=found.alignment.aligned,
            similarity=_number(found.alignment.similarity),
            needed=found.alignment.needed_similarity,
            attention=None if agreed is None else _number(agreed.agreement),
            attention_decoy=None if agreed is None else _number(agreed.largest_decoy),
            whole=float(found.alignment.whole),
            fitted=_number(fitted),
            recipe=asdict(recipe_of(path)) if (path / "recipe.json").exists() else None,
            circuits=None if layers is None else _number(layers.agreement),
            circuits_decoy=None if layers is None else _number(layers.largest_decoy),
            neurons=None if match is None else _number(match.agreement),
        )


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


Task = tuple[str, str, str, str, Callable[[], Path]]


class Suspects:
    """The comparisons to run: original, model, kind, group, and a function that makes the folder."""

    def __init__(self, comparison: Comparison, folder: Path, work: Path) -> None:
        self.comparison, self.folder, self.work = comparison, folder, work

    def unrelated(self) -> Iterator[Task]:
        originals = self.comparison.originals
        for name in originals:
            for other, model in originals.items():
                if other != name:
                    yield name, other, UNRELATED, "bundled models, each to the others", _there(model.path)
        for path in sorted(self.folder.iterdir()):
            recipe = recipe_of(path)
            if recipe.kind == APART:
                size = recipe.family + ("" if recipe.family == WORD_VECTORS else f", width {recipe.width}")
                more = () if recipe.seed % OTHER_EVERY else (OTHERS[recipe.seed // OTHER_EVERY % len(OTHERS)],)
                for name in (MOST_LIKE, *more):
                    yield name, recipe.name, UNRELATED, size, _there(path)
            else:
                yield recipe.family, recipe.name, RELATIVE, recipe.kind, _there(path)

    def made(self, randoms: int) -> Iterator[Task]:
        for name, model in self.comparison.originals.items():
            for seed in range(randoms):
                out = self.work / f"{name}-random-{seed}"
                make = partial(random_model, model.path, out, seed)
                yield name, f"random-{name}-{seed}", MADE, "random weights", make
            for label, change in DEGENERATE.items():
                yield name, f"{label}-{name}", MADE, "degenerate embeddings", self._changed(name, label, change)

    def descendants(self, compositions: int) -> Iterator[Task]:
        for seed, (name, model) in enumerate(self.comparison.originals.items()):
            for strength in (0.3, 1.0):
                said, out = f"noise of {strength} deviations", self.work / f"{name}-noise-{strength}"
                yield name, said, DESCENDANT, f"{name}: {said}", partial(noise(strength), model.path, out)
            drawn = self._changed(name, "half of the rows redrawn", _half_redrawn)
            yield name, "half of the rows redrawn", DESCENDANT, f"{name}: half of its rows redrawn", drawn
            scratch = self.work / f"{name}-attacker"
            scratch.mkdir()
            attacker = Attacker(name, model.path, "one", scratch)
            for number, (label, steps) in enumerate(planned(compositions, seed)):
                out = self.work / f"{name}-attacked-{number}"
                group = f"{name}: attacks of adaptive.md"
                yield name, label, DESCENDANT, group, partial(attacker.keep, steps, number, out)

    def _changed(self, name: str, label: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Path]:
        model = self.comparison.originals[name]

        def make() -> Path:
            embedding = model.layout.embedding.name
            out = self.work / f"{name}-{label.replace(' ', '-')}"
            return rewrite(model.path, out, lambda tensor, x: change(x.float()) if tensor == embedding else x)

        return make


def _there(path: Path) -> Callable[[], Path]:
    return lambda: path


def _noise_like(rows: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed)) * rows.std()


def _half_redrawn(rows: torch.Tensor) -> torch.Tensor:
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[::2]
    changed = rows.clone()
    changed[chosen] = _noise_like(rows, 1)[chosen]
    return changed


def _outliers(rows: torch.Tensor) -> torch.Tensor:
    drawn = _noise_like(rows, 2)
    drawn[:, :3] *= 50
    return drawn


# Artificial embeddings that a statistic of rows may mistake for a model's. Every other tensor is ours.
DEGENERATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "random rows": lambda rows: _noise_like(rows, 3),
    "rows that are nearly one": lambda rows: _noise_like(rows[:1], 4) + 1e-2 * _noise_like(rows, 5),
    "outlier columns": _outliers,
    "ternary rows": lambda rows: _noise_like(rows, 6).sign() * (_noise_like(rows, 7).abs() > rows.std()) * rows.std(),
    "rows of 0": torch.zeros_like,
}


class Saved:
    """Comparisons in a file, one JSON object per line."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self.known = {(each.original, each.model): each for each in (Compared(**json.loads(line)) for line in lines)}

    def add(self, compared: Compared) -> Compared:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(compared)) + "\n")
        return compared


def compare_all(tasks: Iterable[Task], comparison: Comparison, saved: Saved) -> Iterator[Compared]:
    for original, model, kind, group, make in tasks:
        known = saved.known.get((original, model))
        if known is not None:
            yield known
            continue
        try:
            found = comparison.of(make(), original, model, kind, group)
        except IrwmError as error:  # a disguise that this family does not allow
            print(f"{original}, {model}: not possible: {error.problem}", flush=True)
            continue
        print(f"{original}, {model}: {found.status}, {value(found):.3f}", flush=True)
        yield saved.add(found)


def value(compared: Compared) -> float:
    """Return the agreement that the p-value ranks."""
    return agreement_of(_read(compared)).value


def _read(compared: Compared) -> dict[str, Any]:
    recorded = asdict(compared) | {"whole": compared.whole or None}
    if not compared.aligned:
        recorded |= {"attention": None, "attention_decoy": None}
    return recorded


def nearest(compared: Sequence[Compared]) -> dict[str, float]:
    """Return the agreement of each unrelated model with the original that it resembles most."""
    best: dict[str, float] = {}
    for each in compared:
        if each.kind == UNRELATED:
            best[each.model] = max(value(each), best.get(each.model, -math.inf))
    return best


def table(compared: Sequence[Compared]) -> str:
    """Return a table with one row per group: number of each status, extreme values, agreement and p."""
    lines = [
        "| models | comparisons | carry our mark | derived | cannot tell | not derived | similarity | attention "
        "| whole | fitted | OV circuits | neurons | agreement | p |",
        "|" + "---|" * 14,
    ]
    unrelated = nearest(compared)
    for group in dict.fromkeys(each.group for each in compared):
        own = [each for each in compared if each.group == group]
        kind = own[0].kind
        ends = max if kind != DESCENDANT else min
        statuses = [sum(each.status == status for each in own) for status in (DERIVED, "cannot tell", NOT_DERIVED)]
        found = "–" if kind == DESCENDANT else str(sum(each.verdict == "found" for each in own))
        numbers = []
        for name in ("similarity", "attention", "whole", "fitted", "circuits", "neurons"):
            read = [number for each in own if (number := getattr(each, name))]  # 0 means that `whole` was not read
            numbers.append(f"{ends(read):.3f}" if read else "–")
        values = sorted(value(each) for each in own if not math.isnan(value(each)))
        ranked = [_p(each, unrelated) for each in own if not math.isnan(value(each))]
        lines.append(
            f"| {group} | {len(own)} | {found} | {' | '.join(map(str, statuses))} | {' | '.join(numbers)} "
            f"| {_range(values, 2)} | {_range(sorted(ranked), 3)} |"
        )
    return "\n".join([*lines, "", *summary(compared)])


def _p(each: Compared, unrelated: dict[str, float]) -> float:
    """Return p among the unrelated models, without the model itself."""
    others = [number for name, number in unrelated.items() if name != each.model]
    return (1 + sum(number >= value(each) for number in others)) / (1 + len(others))


def _range(values: Sequence[float], places: int) -> str:
    if not values:
        return "–"
    low, high = f"{values[0]:.{places}f}", f"{values[-1]:.{places}f}"
    return low if low == high else f"{low} to {high}"


def summary(compared: Sequence[Compared]) -> Iterator[str]:
    """Yield the sentences and the table below the main table."""
    unrelated = nearest(compared)
    yield (
        f"Unrelated models: {len(unrelated)}, highest agreement {max(unrelated.values()):.3f}; lowest possible p "
        f"{1 / (1 + len(unrelated)):.4f}. Called derived: "
        f"{sum(each.status == DERIVED for each in compared if each.kind == UNRELATED)}."
    )
    children = [each for each in compared if each.kind == DESCENDANT]
    if children:
        better = sum(value(each) > max(unrelated.values()) for each in children)
        yield ""
        yield (
            f"Descendants: {len(children)}, called not derived: "
            f"{sum(each.status == NOT_DERIVED for each in children)}. {better} agree more closely than every unrelated "
            f"model; lowest agreement {min(map(value, children)):.3f}."
        )
    yield ""
    yield "Unrelated models of one original, ranked among those of the other two; share of p at or below:"
    yield ""
    yield "| original | unrelated models | 0.05 | 0.1 | 0.25 | 0.5 |"
    yield "|---|---|---|---|---|---|"
    for name in ORIGINALS:
        own = [value(each) for each in compared if each.kind == UNRELATED and each.original == name]
        rest: dict[str, float] = {}
        for each in compared:
            if each.kind == UNRELATED and each.original != name:
                rest[each.model] = max(value(each), rest.get(each.model, -math.inf))
        ranks = [(1 + sum(other >= mine for other in rest.values())) / (1 + len(rest)) for mine in own]
        shares = " | ".join(f"{sum(p <= level for p in ranks) / len(ranks):.2f}" for level in (0.05, 0.1, 0.25, 0.5))
        yield f"| {name} | {len(own)} | {shares} |"


def as_file(compared: Sequence[Compared]) -> str:
    """Return the content of the package's file: one object per line, for readable diffs."""
    about = (
        "Agreement of models with originals that they do or do not descend from. Written by `python -m "
        "benchmarks.lineage --write`; recipes are those of `python -m benchmarks.unrelated`."
    )
    kept = [each for each in compared if not math.isnan(value(each))]
    lines = ",\n".join(json.dumps(_read(each) | {"agreement": round(value(each), 6)}) for each in kept)
    return f'{{"about": {json.dumps(about)},\n"compared": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=MODELS, help="the folder of benchmarks.unrelated")
    parser.add_argument("--random", type=int, default=8, help="random models of each original's shape")
    parser.add_argument(
        "--compositions",
        type=int,
        default=20,
        help="compositions of attacks, for each original",
    )
    parser.add_argument("--saved", type=Path, help="file that stores the comparisons")
    parser.add_argument("--write", action="store_true", help="write the package's file and the table")
    options = parser.parse_args()
    make_all(options.models, recipes())
    torch.set_num_threads(1)
    comparison, saved = Comparison(), Saved(options.saved)
    with tempfile.TemporaryDirectory() as work:
        suspects = Suspects(comparison, options.models, Path(work))
        tasks = [
            *suspects.unrelated(),
            *suspects.made(options.random),
            *suspects.descendants(options.compositions),
        ]
        compared = list(compare_all(tasks, comparison, saved))
    print(table(compared))
    if options.write:
        DATA.write_text(as_file(compared), encoding="utf-8")
        write_table("method.md", "lineage", table(compared))


if __name__ == "__main__":
    main()
