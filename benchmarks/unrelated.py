"""Models unrelated to the bundled ones, and their siblings: the population of lineage's p-value.

    python -m benchmarks.unrelated DIR [--minutes 40]

Makes each model of `recipes` that is missing in DIR, one after another, until the time is up, with one CPU thread. All
have the demo model's tokenizer and text, which is the hard case: a model of another language or with other tokens is
less similar to ours. Some are trained by gradients. They differ in family, width, text, its order, length of training
and random start. The others are word vectors: the leading singular vectors of the counts of neighbouring tokens (Levy
and Goldberg 2014). Training converges to them, but they need less time, so they are most similar to ours.
`python -m benchmarks.lineage --models DIR` makes the missing ones, and measures all.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, hstack
from scipy.sparse.linalg import svds
from transformers import AutoTokenizer

from tools.demo_corpus import build_corpus
from tools.train_demo import SEED, batches, encode, new_model, train
from tools.train_small import DEMO, small_model

# An unrelated model has its own random start. A model from our random start is a relative, with any text.
APART, SAME_START = "trained apart", "same random start"
RECIPE = "recipe.json"
MODELS = Path("build", "unrelated")
WORD_VECTORS = "word vectors"
# Word vectors: share of the documents read, and the exponent that smooths the frequencies of the neighbours.
READ_SHARE, SMOOTHING = 0.8, 0.75
# Tokens of a step: small steps are the most efficient for their time.
WINDOWS, LENGTH = 4, 128
# Number of layers of `deep` models.
DEPTH = 4


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model.

    Attributes:
        name: name of its folder.
        kind: APART or SAME_START.
        family: "gemma", "phi3", "llama", "demo" for the demo model's own shape, or WORD_VECTORS.
        width: number of coordinates of its rows.
        tied: whether the embedding is also the output head; such rows get the strongest training.
        seed: seed of the random start.
        order: seed of the order of the text.
        text: "all", half of the documents ("even" or "odd"), or only "prose" or "source". Word vectors read a random
            four fifths of these documents.
        steps: number of updates, of WINDOWS x LENGTH tokens each; 0 for word vectors.
        learning_rate: peak learning rate.
        window: greatest distance between tokens that word vectors count as neighbours.
        power: exponent of the singular values in word vectors.
        layers: number of layers.
    """

    name: str
    kind: str
    family: str
    width: int
    tied: bool
    seed: int
    order: int
    text: str
    steps: int
    learning_rate: float = 4e-3
    window: int = 0
    power: float = 0.0
    layers: int = 2


def recipes() -> list[Recipe]:
    """Return all recipes, mixed by kind, so that an interrupted run has some of each kind."""
    shapes = [
        ("gemma", 128, True), ("phi3", 128, False), ("llama", 128, True), ("gemma", 128, True),
        ("llama", 256, True), ("gemma", 64, True), ("gemma", 128, True), ("llama", 256, False),
    ]  # fmt: skip
    texts = ("all", "even", "all", "odd", "prose", "all", "source")
    made = [
        _apart(i, *shapes[i % len(shapes)], texts[i % len(texts)], 160, order=SEED if i % 3 == 0 else 1000 + i)
        for i in range(32)
    ]
    long = [_apart(900 + i, *shape, "all", 1200) for i, shape in enumerate((shapes[0], shapes[2], shapes[1]))]
    same = [
        Recipe(f"{family}-same-start-{text}", SAME_START, family, width, family == "gemma", SEED, 7, text, 160)
        for family, width in (("gemma", 128), ("phi3", 128), ("demo", 256))
        for text in ("odd", "even")
    ]
    vectors = [
        _vectors(i, (128, 128, 192, 64)[i % 4], texts[i % len(texts)], (1, 2, 5)[i % 3], (0.5, 0.0, 1.0)[i // 3 % 3])
        for i in range(48)
    ]
    wide = [
        _vectors(100 + i, width, "all", window, power)
        for i, (width, window, power) in enumerate(((256, 1, 0.5), (384, 2, 0.0), (384, 1, 0.5)))
    ]
    first = [*made[:16], *same[:4], long[0], *made[16:28], *vectors, *wide]
    return [*first, *same[4:5], *made[28:], *same[5:], *long[1:], *deep(), *_like_demo()]


def of_demo() -> list[Recipe]:
    """Return the recipes of models of the demo model's shape."""
    return [each for each in recipes() if each.family == "demo"]


def _like_demo() -> list[Recipe]:
    return [Recipe(f"demo-{seed}", APART, "demo", 256, False, seed, seed, "all", 800) for seed in (3001, 3002)]


def deep() -> list[Recipe]:
    """Return the recipes of models of one shape, deep enough to remove or add layers (`benchmarks.surgery`)."""
    texts = ("all", "even", "odd", "prose", "source")
    return [
        replace(
            _apart(2000 + i, "llama", 128, i % 2 == 0, texts[i % len(texts)], 800 if i < 25 or i % 4 == 0 else 320),
            layers=DEPTH,
        )
        for i in range(120)
    ]


def _vectors(seed: int, width: int, text: str, window: int, power: float) -> Recipe:
    name = f"vectors-{width}-{text}-{seed}"
    return Recipe(name, APART, WORD_VECTORS, width, True, seed, 0, text, 0, 0.0, window, power)


def _apart(seed: int, family: str, width: int, tied: bool, text: str, steps: int, order: int | None = None) -> Recipe:
    name = f"{family}-{width}-{text}-{seed}"
    return Recipe(name, APART, family, width, tied, seed, 1000 + seed if order is None else order, text, steps)


def recipe_of(folder: Path) -> Recipe:
    """Return the recipe of a folder's model."""
    return Recipe(**json.loads((folder / RECIPE).read_text(encoding="utf-8")))


class Maker:
    """The text, encoded on first use and once for all models."""

    def __init__(self) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(DEMO)

    @cached_property
    def _text(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        corpus = build_corpus()
        return encode(self.tokenizer, corpus.train_prose), encode(self.tokenizer, corpus.train_source)

    def make(self, recipe: Recipe, out: Path) -> float:
        """Make a model and write its folder, the recipe last. Return the last step's loss, NaN for word vectors."""
        torch.manual_seed(recipe.seed)
        if recipe.family == "demo":
            model: Any = new_model(self.tokenizer)
        else:
            family = "gemma" if recipe.family == WORD_VECTORS else recipe.family
            model = small_model(family, self.tokenizer, recipe.width, recipe.tied, recipe.layers)
        loss = math.nan
        if recipe.steps:
            loss = train(model, self._batches(recipe), recipe.steps, recipe.learning_rate, report=False)
        if recipe.family == WORD_VECTORS:
            with torch.no_grad():
                model.get_input_embeddings().weight.copy_(self._vectors(recipe))
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        model.eval().to(torch.bfloat16).save_pretrained(out)
        self.tokenizer.save_pretrained(out)
        (out / RECIPE).write_text(json.dumps(asdict(recipe), indent=1) + "\n", encoding="utf-8")
        return loss

    def _vectors(self, recipe: Recipe) -> torch.Tensor:
        """Return (s, d) the leading singular vectors of the positive pointwise mutual information of tokens and their
        neighbours to the left and to the right, in units of the median row."""
        documents = self._read(recipe)
        chosen = np.random.default_rng(recipe.seed).permutation(len(documents))[: int(READ_SHARE * len(documents))]
        ids, size = np.concatenate([documents[i] for i in chosen]), len(self.tokenizer)
        after = coo_array((size, size))
        for distance in range(1, recipe.window + 1):
            share = np.full(ids.size - distance, 1 - (distance - 1) / recipe.window)
            after = after + coo_array((share, (ids[:-distance], ids[distance:])), shape=(size, size)).tocsr()
        near = hstack([after, after.T]).tocoo()
        here, there = near.sum(axis=1), near.sum(axis=0) ** SMOOTHING
        expected = here[near.row] * (there / there.sum())[near.col]
        information = np.maximum(np.log(near.data / expected), 0.0)
        start = np.random.default_rng(recipe.seed).standard_normal(size)
        left, sizes, _ = svds(
            coo_array((information, (near.row, near.col)), near.shape).tocsr(), recipe.width, v0=start
        )
        rows = torch.from_numpy(left * sizes**recipe.power)
        lengths: torch.Tensor = rows.norm(dim=1)
        return rows / lengths.median()

    def _read(self, recipe: Recipe) -> list[np.ndarray]:
        prose, source = (self._part(each, recipe.text) for each in self._text)
        return {"prose": prose, "source": source}.get(recipe.text, prose + source)

    def _batches(self, recipe: Recipe) -> Iterator[torch.Tensor]:
        prose, source = (self._part(each, recipe.text) for each in self._text)
        if recipe.text == "prose":
            source = []
        if recipe.text == "source":
            prose, source = source, []
        for windows in batches(prose, source, recipe.order):
            yield from windows.reshape(-1, LENGTH).split(WINDOWS)

    @staticmethod
    def _part(documents: list[np.ndarray], text: str) -> list[np.ndarray]:
        start = {"even": 0, "odd": 1}.get(text)
        return documents if start is None else documents[start::2]


def make_all(folder: Path, wanted: Iterable[Recipe], minutes: float = math.inf) -> None:
    """Make the models that `folder` lacks, each below it under its name, and start no other after so many minutes."""
    torch.set_num_threads(1)
    started = time.monotonic()
    maker = Maker()
    for recipe in wanted:
        out = folder / recipe.name
        if (out / RECIPE).exists() and recipe_of(out) == recipe:
            continue
        if time.monotonic() - started > 60 * minutes:
            break
        loss = maker.make(recipe, out)
        print(f"{recipe.name}: loss {loss:.2f}, {time.monotonic() - started:.0f} s in all", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    options = parser.parse_args()
    make_all(options.folder, recipes(), options.minutes)


if __name__ == "__main__":
    main()
