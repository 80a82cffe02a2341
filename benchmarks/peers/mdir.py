"""MDIR: the orthogonal map between two models, and how close it is to a permutation (Zhang and Goldstein, 2025).

Reference: "Matrix-Driven Identification and Reconstruction of LLM Weight Homology", arXiv:2508.06309. The rows of
shared tokens, E (n, d) and E' (n, d'), give the orthogonal polar factor U of E^T E'. In a copy whose columns were
permuted it is close to a permutation P: trace(P^T U) is near d, with P from linear assignment. The trace of a random
orthogonal matrix is rarely so large. The rows of W_q, W_k, W_v and the columns of W_o, moved by U, are compared in the
same way, in every pair of layers, so that rotated and deeper models are covered as well.

The authors' code could not be obtained. The bound on p is our derivation of theirs from large deviations: for a random
orthogonal matrix of n columns, P(trace >= r n) is about exp(-n^2 I(r)), where I is the Legendre transform of the free
energy of Gross and Witten (1980),

    I(r) = r^2 / 2  for r <= 1/2,     I(r) = 1/8 - log(2 (1 - r)) / 4  above.

It is multiplied by the number of signed permutations, and by that of comparisons. A map between different widths, n <=
N, has exponent n N. Signs are in favour of the peer, since flipped columns would otherwise hide a copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment

from benchmarks.peers.score import CannotRun, Score, cannot, significant
from benchmarks.peers.weights import EMBEDDING, Weights, load, shared_tokens

LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the largest trace as a share of its maximum, and p."""
    try:
        value, log_p = statistic(load(original_dir), load(suspect_dir))
    except CannotRun as error:
        return cannot(str(error))
    return significant(value, math.exp(log_p), "trace of the orthogonal map")


def statistic(original: Weights, suspect: Weights) -> tuple[float, float]:
    """Return the trace with the smallest p, as a share of its maximum, and the natural logarithm of p."""
    ids, others = shared_tokens(original, suspect)
    across = polar(original[EMBEDDING][ids].double().T @ suspect[EMBEDDING][others].double())
    found = [trace(across), *(trace(each) for each in _maps(original, suspect, across))]
    value, log_p = min(found, key=lambda each: each[1])
    return value, min(0.0, log_p + math.log(len(found)))


def _maps(original: Weights, suspect: Weights, across: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the orthogonal maps between the heads' coordinates, for every pair of layers."""
    for name in LAYER:
        ours, theirs = ([_rows(each, layer, name) for layer in range(each.layers)] for each in (original, suspect))
        for one in ours:
            for two in theirs:
                # A map of more rows than columns is not determined.
                if max(len(one), len(two)) <= min(one.shape[1], two.shape[1]):
                    yield polar(one @ across @ two.T)


def _rows(weights: Weights, layer: int, name: str) -> torch.Tensor:
    matrix = weights.projection(layer, name).double()
    return matrix.T if name.endswith("o_proj") else matrix


def polar(matrix: torch.Tensor) -> torch.Tensor:
    """Return the orthogonal polar factor of (n, m); its rows or columns are orthonormal."""
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    factor: torch.Tensor = left @ right
    return factor


def trace(across: torch.Tensor) -> tuple[float, float]:
    """Return the largest trace over signed permutations, as a share of its maximum, and the logarithm of its p."""
    sizes = across.abs().numpy()
    value = float(sizes[linear_sum_assignment(sizes, maximize=True)].sum()) / min(sizes.shape)
    few, many = sorted(sizes.shape)
    choices = few * math.log(2) + math.lgamma(many + 1) - math.lgamma(many - few + 1)
    return value, min(0.0, choices - few * many * rate(value))


def rate(share: float) -> float:
    """Return I(r), the exponent of P(trace >= r n) per n^2."""
    if share <= 0.5:
        return share**2 / 2
    return 1 / 8 - math.log(2 * max(1 - share, 1e-300)) / 4
