"""CSU: tests whether the neurons are still in the original's order (Zhu, Ahmed, Kuditipudi, Liang, ICML 2025).

Reference: "Independence tests for language models", arXiv:2502.12292, section 2 (the constrained setting, phi_CSU,
algorithms MATCH, SPEARMAN and FISHER); code ahmeda14960/model-tracing, tracing/statistics/csu.py. In each layer the
rows of the two W_up, (h, d) each, are matched one to one by the largest total cosine. Training never reorders neurons,
so unrelated models match in random order while a descendant matches each neuron with itself: the p-value is that of
Spearman's correlation between the matching and 1..h (two-sided, t distribution, as scipy gives it), combined over
layers by Fisher's method. The test is exact under its assumptions and by design not robust to a reordering; for that
the paper has MATCH (`benchmarks.peers.match`).

The value is the mean correlation over layers: 1 on a copy, about 0 on unrelated models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import chi2, spearmanr

from benchmarks.peers.score import CannotRun, Score, cannot, significant
from benchmarks.peers.weights import Weights, load


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the mean Spearman correlation of the matched order, with the Fisher-combined p-value."""
    try:
        value, p = statistic(load(original_dir), load(suspect_dir))
    except CannotRun as error:
        return cannot(str(error))
    return significant(value, p, "mean Spearman correlation")


def statistic(original: Weights, suspect: Weights) -> tuple[float, float]:
    """Return the mean correlation and the combined p-value.

    Raises:
        CannotRun: different numbers of layers, neurons or columns; the test compares equal architectures.
    """
    if original.layers != suspect.layers:
        raise CannotRun("different number of layers")
    correlations, p_values = [], []
    for layer in range(original.layers):
        pair = [w.projection(layer, "mlp.up_proj") for w in (original, suspect)]
        if pair[0].shape != pair[1].shape:
            raise CannotRun("W_up has a different shape")
        matching = matched(*pair)
        correlation, p = spearmanr(matching, np.arange(matching.size))
        correlations.append(float(correlation))
        p_values.append(float(p))
    return float(np.nanmean(correlations)), fisher(p_values)


def matched(first: torch.Tensor, second: torch.Tensor) -> NDArray[np.int64]:
    """MATCH: return for each row of (h, n) `first` the row of `second` assigned by the largest total cosine."""
    a, b = (torch.nn.functional.normalize(m.double(), dim=1) for m in (first, second))
    cosines = (a @ b.T).numpy()
    given: NDArray[np.int64] = linear_sum_assignment(np.nan_to_num(cosines), maximize=True)[1]
    return given


def fisher(p_values: list[float]) -> float:
    """FISHER: combine independent p-values into one, without undefined ones, as in the authors' code."""
    known = np.array([p for p in p_values if not np.isnan(p)])
    if not known.size:
        return float("nan")
    with np.errstate(divide="ignore"):
        return float(chi2.sf(-2.0 * np.log(known).sum(), df=2 * known.size))
