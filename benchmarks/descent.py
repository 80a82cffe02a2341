"""Maps of descent: the share of branches that are right, and of directions, on trees whose truth is known.

    python -m benchmarks.descent [--trees 2] [--models gemma phi3 gpt2] [--write]

Each tree has 12 models. The first is a small trained model; each other is made from one of those before it, in a drawn
way. Small models that were trained apart are added, which belong to no family. The map is made without and with the
knowledge that the first is the original, and once more of those models of a tree from which no other was made: no
direction between them is right. --write puts the table into
docs/descent.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import irwm
from benchmarks.reproduce.models import CAUSAL, default_models
from benchmarks.written import printed_table
from irwm.attacks import finetune, prune, quantize
from irwm.attacks.equivalence import disguise
from irwm.checkpoint import read_tensor
from irwm.inference.text import default_text

SIZE, PARTS = 12, 6
Made = Callable[[Path, Path, np.random.Generator], object]


def _tuned(model: Path, out: Path, draw: np.random.Generator, what: str = "all") -> None:
    text, part = default_text(), int(draw.integers(PARTS))
    piece = text[part * len(text) // PARTS : (part + 1) * len(text) // PARTS]
    rate = float(draw.choice([3e-5, 1e-4, 3e-4]))
    finetune(model, out, piece, int(draw.integers(20, 80)), rate, what=what, seed=int(draw.integers(2**31)))


# Ways to make a model, with their probabilities.
WAYS: dict[str, tuple[float, Made]] = {
    "fine-tuned": (0.55, _tuned),
    "LoRA": (0.15, lambda model, out, draw: _tuned(model, out, draw, "lora")),
    "8 bits": (0.1, lambda model, out, _: quantize(model, out, 8)),
    "pruned": (0.1, lambda model, out, _: prune(model, out, 0.3)),
    "disguised": (0.1, lambda model, out, _: disguise(model, out, ["rotate", "reorder_tokens"])),
}
# A disguised model has no descendants here: transformers opens it, but its tokens have other ids.
LEAVES = {"disguised"}


def made_tree(base: Path, folder: Path, draw: np.random.Generator) -> tuple[list[Path], list[int], list[str]]:
    """The models' folders, and for each but the first its parent and how it was made."""
    paths, parents, ways = [base], [-1], [""]
    names, shares = list(WAYS), [share for share, _ in WAYS.values()]
    while len(paths) < SIZE:
        parent = int(draw.choice([place for place in range(len(paths)) if ways[place] not in LEAVES]))
        way = str(draw.choice(names, p=shares))
        out = folder / f"{len(paths):02}"
        WAYS[way][1](paths[parent], out, draw)
        paths.append(out)
        parents.append(parent)
        ways.append(way)
    return paths, parents, ways


def statistics(model: irwm.Checkpoint) -> dict[str, float]:
    """Mean kurtosis and norm of the matrices."""
    matrices = [read_tensor(each).double() for each in model.tensors.values() if len(each.shape) == 2]
    centred = [each - each.mean() for each in matrices]
    kurtosis = [float((each**4).mean() / (each**2).mean() ** 2) for each in centred]
    return {"kurtosis": float(np.mean(kurtosis)), "norm": float(np.mean([float(each.norm()) for each in matrices]))}


def count(tree: tuple[list[Path], list[int], list[str]], unrelated: list[Path], tally: Counter[str]) -> None:
    """Adds one tree."""
    paths, parents, ways = tree
    models = [irwm.open_checkpoint(path) for path in paths]
    others = [irwm.open_checkpoint(path) for path in unrelated]
    truth = {(parent, child) for child, parent in enumerate(parents) if parent >= 0}
    for known in ("", "known"):
        found = irwm.map_descent([*models, *others], [0] if known else [])
        tally[f"families {known}"] += len(found.families)
        tally[f"joined {known}"] += sum(max(each.first, each.second) >= len(models) for each in found.branches)
        for each in found.branches:
            pair = each.first, each.second
            right = pair in truth or pair[::-1] in truth
            tally[f"branches {known}"] += 1
            tally[f"right {known}"] += right
            if each.direction:
                tally[f"directed {known}"] += 1
                tally[f"directed right {known}"] += pair in truth
            way = ways[max(pair)]
            if not known and right:
                tally[f"way {way}"] += 1
    tally.update(f"of {way}" for way in ways[1:])
    leaves = irwm.map_descent([model for place, model in enumerate(models) if place not in parents])
    tally["between leaves"] += len(leaves.branches)
    tally["directed leaves"] += sum(bool(each.direction) for each in leaves.branches)
    values = [statistics(model) for model in models]
    for parent, child in truth:
        if ways[child] in ("fine-tuned", "LoRA"):
            tally["tuned"] += 1
            for name in values[0]:
                tally[f"more {name}"] += values[child][name] > values[parent][name]


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(1, whole):.0f} %)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=2, help="for each model")
    parser.add_argument("--models", nargs="+", choices=CAUSAL, default=["gemma", "phi3", "gpt2"])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths, tally = dict(default_models()), Counter[str]()
    with printed_table("descent.md", "descent", write=options.write), tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            for number in range(options.trees):
                place = Path(folder) / f"{name}{number}"
                place.mkdir()
                tree = made_tree(paths[name], place, np.random.default_rng([number, *name.encode()]))
                unrelated = [paths[other] for other in CAUSAL if other != name]
                count(tree, unrelated, tally)
                tally["unrelated"] += len(unrelated)
        print("| | |\n|---|---|")
        print(f"| trees of {SIZE} models | {options.trees * len(options.models)} |")
        print(f"| unrelated models that were joined to a tree | {share(tally['joined '], tally['unrelated'])} |")
        print(f"| families found, of the trees and the unrelated models | {tally['families ']} |")
        print(f"| branches that join a model with its parent | {share(tally['right '], tally['branches '])} |")
        for way in WAYS:
            print(f"| … of models made so: {way} | {share(tally[f'way {way}'], tally[f'of {way}'])} |")
        print(f"| branches with a direction | {share(tally['directed '], tally['branches '])} |")
        print(f"| … from a parent to its child | {share(tally['directed right '], tally['directed '])} |")
        print(
            f"| with a direction if the original is known | {share(tally['directed known'], tally['branches known'])} |"
        )
        print(f"| … from a parent to its child | {share(tally['directed right known'], tally['directed known'])} |")
        print(
            "| with a direction between models of which none was made from another | "
            f"{share(tally['directed leaves'], tally['between leaves'])} |"
        )
        for what in ("kurtosis", "norm"):
            larger = share(tally[f"more {what}"], tally["tuned"])
            print(f"| fine-tuned models with a larger {what} than their parent | {larger} |")


if __name__ == "__main__":
    main()
