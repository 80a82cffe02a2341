"""SeedPrints: correlation of hidden states on random tokens, in the least active coordinates (Tong et al., ICLR 2026).

Reference: "SeedPrints: Fingerprints Can Even Tell Which Seed Your Large Language Model Was Trained From",
arXiv:2509.26404; code YnezT0311/SeedPrints, seedprint.py with its defaults. Both models read the same sequences of
random tokens. Of the last token's state after the final norm, the tenth of the coordinates with the smallest mean is
taken in each model, and those in both are compared: softmax of the states at temperature 10, then Kendall's tau of each
coordinate over the sequences. Under independence the mean of k such taus over n sequences is normal with mean 0 and
variance 2 (2n + 5) / (9 n (n - 1) k); p is two times the upper tail, and the authors call models related below 0.01.

The authors use 2 000 to 10 000 sequences of 1 024 tokens. Ours are fewer and shorter, for CPUs. Tokens are matched by
string, in favour of the peer. Coordinates are compared in their order, so models of different width cannot be.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from scipy.stats import kendalltau, norm

from benchmarks.peers.activations import last_states, opened
from benchmarks.peers.score import CannotRun, Score, cannot, significant
from benchmarks.peers.weights import load, shared_tokens

SEQUENCES, LENGTH, BATCH, SEED = 1000, 32, 100, 42
SHARE, TEMPERATURE, LEVEL = 0.1, 10.0, 0.01


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the mean of Kendall's tau, in [-1, 1], and p."""
    try:
        value, p = statistic(*states(original_dir, suspect_dir))
    except CannotRun as error:
        return cannot(str(error))
    return significant(value, p, "mean of Kendall's tau", LEVEL)


def states(original_dir: Path, suspect_dir: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last states of the two models on the same tokens, (n, d) each.

    Raises:
        CannotRun: transformers cannot load the suspect.
    """
    ids, others = shared_tokens(load(original_dir), load(suspect_dir))
    picks = torch.randint(ids.numel(), (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(SEED))
    pairs = ((original_dir, ids[picks]), (suspect_dir, others[picks]))
    first, second = (last_states(opened(folder), tokens.split(BATCH))[-1] for folder, tokens in pairs)
    return first, second


def statistic(first: torch.Tensor, second: torch.Tensor) -> tuple[float, float]:
    """Return the mean of Kendall's tau and p; 0 and 1 if no coordinate is among the least active of both.

    Raises:
        CannotRun: the models have different widths.
    """
    if first.shape[1] != second.shape[1]:
        raise CannotRun("different hidden size")
    least = [set(_least(each).tolist()) for each in (first, second)]
    chosen = sorted(least[0] & least[1])
    if not chosen:
        return 0.0, 1.0
    a, b = (torch.softmax(each[:, chosen] / TEMPERATURE, dim=1).numpy() for each in (first, second))
    taus = [float(np.nan_to_num(kendalltau(x, y).statistic)) for x, y in zip(a.T, b.T, strict=True)]
    n, value = len(a), float(np.mean(taus))
    deviation = (2 * (2 * n + 5) / (9 * n * (n - 1) * len(chosen))) ** 0.5
    return value, float(min(1.0, 2 * norm.sf(value / deviation)))


def _least(states: torch.Tensor) -> torch.Tensor:
    return states.mean(0).topk(round(SHARE * states.shape[1]), largest=False).indices
