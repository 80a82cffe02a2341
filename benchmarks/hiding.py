"""Information about the marks for an observer with several copies, and the cost of hiding them.

    python -m benchmarks.hiding [--parts observer dictionary price] [--write]

observer: a classifier is trained on some pairs of copies of the demo model with known marked rows, and predicts which
rows of other pairs are marked (area under the curve; .5 is chance). Its features of a row are values that a rotation
does not change, and the distribution of the difference's entries. The table also shows how much the rows' lengths
reveal to an observer with 16 copies.

dictionary: with one basis for all rows, as in the paper, differences of copies are sparse in that basis, and it can be
learned from them (complete dictionary learning by maximising fourth powers, Zhai et al., JMLR 21, 2020). In this basis
noise appears as entries of equal size, and a marked row has none. The same attack is run on our bases, one per row.

price: perplexity of the demo model on its held-out text. --write puts the tables into docs/collusion.md.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import irwm
from benchmarks.written import printed_table
from irwm.inference import default_text
from irwm.scheme.basis import Basis
from irwm.scheme.parameters import many_recipients
from tools.copies import copy_of, keys_for, write_embedding
from tools.perplexity import measure

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("observer", "dictionary", "price")
# A recipient's embedding (s, d) and marked rows (l,).
Copy = tuple[NDArray[np.float64], NDArray[np.int64]]


def copies(model: irwm.Checkpoint, params: irwm.Parameters, count: int) -> list[Copy]:
    made = []
    for key in keys_for(model, [f"recipient {i}" for i in range(count)], params):
        rows = key.choices().marked_rows
        if params.noise_coordinates:
            embedding = copy_of(model, key).double().numpy()
        else:
            embedding = model.embedding().double().numpy()
            embedding[rows] = copy_of(model, key)[rows].double().numpy()
        made.append((embedding, rows))
    return made


def features(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (s, 12) the observable features of each row of two copies."""
    change = one - other
    lengths = [np.square(each).sum(axis=1) for each in (one, other, change)]
    usual = (lengths[0] + lengths[1]) / 2 + 1e-30
    spread = np.sqrt(lengths[2] / change.shape[1]) + 1e-30
    scaled = change / spread[:, None]
    ordered = -np.sort(-np.abs(scaled), axis=1)
    squared = scaled * scaled  # a product is many times faster than a power
    skewness = (squared * scaled).mean(axis=1)
    columns = [
        lengths[2] / usual,
        (lengths[0] - lengths[1]) / usual,
        np.abs(lengths[0] - lengths[1]) / usual,
        usual,
        (squared * squared).mean(axis=1),
        skewness,
        np.abs(skewness),
        scaled.mean(axis=1),
        *(ordered[:, i] for i in (0, 1, 4, 9)),
    ]
    return np.stack(columns, axis=1)


def classifier_auc(made: Sequence[Copy]) -> float:
    """Train on the first half of the pairs, and test on the second."""
    seen, marked = [], []
    for one, other in zip(made[::2], made[1::2], strict=True):
        usable = (one[0] != 0).any(axis=1)
        label = np.zeros(len(one[0]), dtype=int)
        label[np.concatenate((one[1], other[1]))] = 1
        seen.append(features(one[0], other[0])[usable])
        marked.append(label[usable])
    half = len(seen) // 2
    classifier = HistGradientBoostingClassifier(
        max_iter=150, learning_rate=0.05, max_leaf_nodes=15, class_weight="balanced", random_state=0
    )
    classifier.fit(np.concatenate(seen[:half]), np.concatenate(marked[:half]))
    scores = classifier.predict_proba(np.concatenate(seen[half:]))[:, 1]
    return float(roc_auc_score(np.concatenate(marked[half:]), scores))


def lengths_auc(made: Sequence[Copy]) -> float:
    """Return how well a row's length in one copy, relative to the median of all copies, predicts a mark there."""
    lengths = np.stack([np.square(embedding).sum(axis=1) for embedding, _ in made])
    median = np.median(lengths, axis=0)
    usable = median > 0
    unusual = np.abs(lengths - median)[:, usable] / median[usable]
    marked = np.zeros(lengths.shape, dtype=int)
    for row, (_, rows) in zip(marked, made, strict=True):
        row[rows] = 1
    return float(roc_auc_score(marked[:, usable].ravel(), unusual.ravel()))


@contextmanager
def one_basis_for_all() -> Iterator[None]:
    """Use the paper's scheme inside the context: every row has the basis of row 0."""
    own = Basis.signs
    with mock.patch.object(Basis, "signs", lambda basis, tokens: own(basis, np.zeros_like(tokens))):
        yield


def learned_basis(differences: NDArray[np.float64], seed: int = 0, steps: int = 100) -> NDArray[np.float64]:
    """Return the (d, d) orthogonal matrix in which the differences (n, d) have the largest sum of fourth powers."""
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    rows = torch.from_numpy(differences[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0])
    d = rows.shape[1]
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=generator)).Q
    for _ in range(steps):
        left, _, right = torch.linalg.svd(rows.T @ (rows @ basis) ** 3)
        moved = float((left @ right - basis).norm())
        basis = left @ right
        if moved < 1e-4:
            break
    turned: NDArray[np.float64] = basis.numpy()
    return turned


def dictionary_auc(made: Sequence[Copy], t: int) -> tuple[float, NDArray[np.float64]]:
    """Return how well the learned basis reveals the marked rows of the first two copies, and the basis."""
    pairs = itertools.combinations([embedding for embedding, _ in made], 2)
    basis = learned_basis(np.concatenate([one - other for one, other in pairs]))
    one, other = (embedding @ basis for embedding, _ in made[:2])
    changed = np.argsort(-np.abs(one - other), axis=1)[:, : 2 * t]
    # Noise is t entries of equal size. A row without noise is marked in this copy.
    evenness = []
    for values in (one, other):
        sizes = np.sort(np.abs(np.take_along_axis(values, changed, axis=1)), axis=1)
        widths = [
            (sizes[:, i + t - 1] - sizes[:, i]) / (sizes[:, i : i + t].mean(axis=1) + 1e-30) for i in range(t + 1)
        ]
        evenness.append(np.min(widths, axis=0))
    usable = (made[0][0] != 0).any(axis=1)
    marked = np.zeros(len(one), dtype=int)
    marked[np.concatenate((made[0][1], made[1][1]))] = 1
    return float(roc_auc_score(marked[usable], np.max(evenness, axis=0)[usable])), basis


def observer(model: irwm.Checkpoint, _root: Path) -> None:
    preset = many_recipients(model.hidden_size, hides_rows=True)
    settings = {"no noise": replace(preset, noise_coordinates=0)}
    settings |= {
        f"t = {t}, {level}": replace(preset, constraints=t, noise_coordinates=t, noise_level=level)
        for t in (2, 4, 8, 10)
        for level in ("row", "global")
    }
    print("| setting | classifier, two copies | lengths, 16 copies |\n|---|---|---|")
    for name, params in settings.items():
        made = copies(model, params, 32)
        print(f"| {name} | {classifier_auc(made):.2f} | {lengths_auc(made[:16]):.2f} |", flush=True)


def dictionary(model: irwm.Checkpoint, _root: Path) -> None:
    preset = many_recipients(model.hidden_size, hides_rows=True)
    print("| bases | copies | median cosine of learned and true columns | marked rows detected, AUC | seconds |")
    print("|---|---|---|---|---|")
    for one in (True, False):
        for count in (2, 4):
            with one_basis_for_all() if one else nullcontext():
                made = copies(model, preset, count)
                (key,) = keys_for(model, ["recipient 0"], preset)
                d = model.hidden_size
                true = key.noise(model, key.choices()).basis.into(np.eye(d), np.zeros(d, dtype=np.int64))
            started = time.perf_counter()
            auc, learned = dictionary_auc(made, preset.constraints)
            cosine = float(np.median(np.abs(learned.T @ true).max(axis=0)))
            label = "one for all rows" if one else "one for each row"
            print(f"| {label} | {count} | {cosine:.2f} | {auc:.2f} | {time.perf_counter() - started:.0f} |", flush=True)


def price(model: irwm.Checkpoint, root: Path) -> None:
    text = default_text()
    before = measure(model.path, text, 256)["perplexity"]
    print("| t = noise coordinates | `row` | `global` |\n|---|---|---|")
    for t in (2, 3, 4, 5, 6, 8, 10):
        cells = []
        for level in ("row", "global"):
            params = replace(
                many_recipients(model.hidden_size, hides_rows=True),
                constraints=t,
                noise_coordinates=t,
                noise_level=level,
            )
            changes = []
            for key in keys_for(model, ["a", "b"], params):
                folder = root / f"{t} {level} {key.recipient}"
                write_embedding(model, copy_of(model, key), folder)
                for name in ("tokenizer.json", "tokenizer_config.json"):
                    (folder / name).write_bytes((model.path / name).read_bytes())
                changes.append(100 * (measure(folder, text, 256)["perplexity"] / before - 1))
            cells.append(" and ".join(f"{change:.2f}" for change in changes) + " %")
        print(f"| {t} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/collusion.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = irwm.open_checkpoint(ROOT / "assets" / "demo")
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            print(f"\n## {part}\n", flush=True)
            with printed_table("collusion.md", part, write=options.write):
                globals()[part](model, Path(folder))


if __name__ == "__main__":
    main()
