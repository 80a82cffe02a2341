"""SELF: singular values and eigenvalues of attention's products, layer by layer (Zhang and Zheng, 2025).

Reference: "SELF: A Robust Singular Value and Eigenvalue Approach for LLM Fingerprinting", arXiv:2512.03620; code
HanxiuZhang/SELF_v2, fingerprint/utils.py. In each of the first eight layers, the singular values of W_q^T W_k and
W_v^T W_o^T and the absolute eigenvalues of W_q W_k^T and W_o^T W_v^T, at most 256 of each, are scaled to length 1. The
distance of two models is the Euclidean norm of the difference of these vectors (`get_fp_distance`).

The paper's decision comes from a network that is trained for every owner, on the owner's models, their changed copies
and unrelated models. We rank by the distance that the authors' code also computes, which needs no training. The value
is 1 minus the distance divided by the largest that is possible.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from benchmarks.peers.score import CannotRun, Score, above, cannot
from benchmarks.peers.spectra import eigenvalues, products, singular_values, unit
from benchmarks.peers.weights import Weights, load

LAYERS, VALUES = 8, 256
# The authors' threshold is on the output of their network. This one is just above the highest of 200 unrelated models
# of one shape and text, 0.848 (docs/surgery.md), which favours the peer.
THRESHOLD = 0.85


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return 1 minus the relative distance of the two fingerprints, in [0, 1]."""
    try:
        value = 1 - distance(load(original_dir), load(suspect_dir))
    except CannotRun as error:
        return cannot(str(error))
    return above(value, THRESHOLD, "1 minus the relative distance")


def distance(original: Weights, suspect: Weights) -> float:
    """Return the distance of the fingerprints as a share of the largest possible one.

    Of the model with more layers, the first are compared.
    """
    ours, theirs = (_vectors(each, min(LAYERS, original.layers, suspect.layers)) for each in (original, suspect))
    squared = 0.0
    for one, two in zip(ours, theirs, strict=True):
        count = min(len(one), len(two), VALUES)
        squared += float(((unit(one, count) - unit(two, count)) ** 2).sum())
    return math.sqrt(squared / (2 * len(ours)))


def _vectors(weights: Weights, layers: int) -> list[torch.Tensor]:
    pairs = [pair for layer in range(layers) for pair in products(weights, layer)]
    return [of(*pair) for pair in pairs for of in (singular_values, eigenvalues)]
