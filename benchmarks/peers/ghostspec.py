"""GhostSpec: singular values of attention's products, layers matched in order (Wang et al., AAAI 2026).

Reference: "Ghost in the Transformer: Tracing LLM Lineage with SVD-Fingerprint", arXiv:2511.06390. The fingerprint of a
layer is the singular values of W_q^T W_k and of W_v^T W_o^T. The mean squared difference of two layers' fingerprints is
their distance, and a dynamic program with a penalty matches layers of models of different depth in order. The authors'
code could not be obtained, so nothing here is compared with it.

Choices: each spectrum has length 1, so that the scale of a matrix has no effect, and the longer of two is cut. All
layers of the shallower model are matched, in order, at the lowest total distance; this is the program with the
smallest penalty that leaves none of them unmatched. The value is the mean cosine of matched spectra, which is 1 on a
copy and falls with the squared difference.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.score import CannotRun, Score, above, cannot
from benchmarks.peers.spectra import products, singular_values, unit
from benchmarks.peers.weights import Weights, load

# No threshold is known to us. This one is just above the highest of 200 unrelated models of one shape and text, 0.990
# (docs/surgery.md), which favours the peer.
THRESHOLD = 0.991


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the mean cosine of matched layers' spectra, at most 1."""
    try:
        return above(similarity(load(original_dir), load(suspect_dir)), THRESHOLD, "mean cosine of spectra")
    except CannotRun as error:
        return cannot(str(error))


def similarity(original: Weights, suspect: Weights) -> float:
    """Return the score."""
    spectra = [
        [[singular_values(*pair) for pair in products(each, layer)] for layer in range(each.layers)]
        for each in (original, suspect)
    ]
    alike = np.array([[_alike(ours, theirs) for theirs in spectra[1]] for ours in spectra[0]])
    return matched(alike if len(spectra[0]) <= len(spectra[1]) else alike.T)


def _alike(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    cosines = []
    for one, two in zip(first, second, strict=True):
        count = min(len(one), len(two))
        cosines.append(float(unit(one, count) @ unit(two, count)))
    return sum(cosines) / len(cosines)


def matched(alike: np.ndarray) -> float:
    """Return the largest mean of (m, n) over ways to match all rows with columns in order, m <= n."""
    best = np.zeros(alike.shape[1] + 1)
    for row in alike:
        here = np.full(len(best), -np.inf)
        for column, value in enumerate(row):
            here[column + 1] = max(here[column], best[column] + value)
        best = here
    return float(best[-1]) / len(alike)
