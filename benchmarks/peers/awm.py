"""AWM: columns aligned by linear assignment on the embedding, then unbiased CKA of W_q and W_k (ICLR 2026).

Reference: "AWM: Accurate Weight-Matrix Fingerprint for Large Language Models", arXiv:2510.06738, section 4; code
LUMIA-Group/AWM, main.py and similarity_metrics.py. The columns of the two embeddings, on the tokens whose strings both
tokenizers know, are matched one to one by the largest total |cosine|; each match has the sign of its cosine. With the
original's W_q brought into the suspect's order, K = W^T W and L = V^T V are d x d Gram matrices whose unbiased HSIC
(diagonal zeroed, U-centred; Song et al. 2012) gives CKA = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)). The score is the
mean over layers of W_q's CKA and of W_k's, then of the two. CKA is blind to any orthogonal map of the outputs, so head
order and fewer key heads than query heads need no treatment.

As in the authors' code, a folder without a tokenizer is compared without alignment. If the two models have different
numbers of layers, the paper matches layers. No disguise here changes the number, so we do not.
"""

from __future__ import annotations

from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment

from benchmarks.peers.score import CannotRun, Score, above, cannot
from benchmarks.peers.weights import EMBEDDING, Weights, load, shared_tokens

# Unrelated pairs as the authors print them (main.py). The paper gives no threshold. Its least related pair is 12
# deviations away and the next one 106 (README), so ten would be enough for its models. On ours, with 256 columns,
# unrelated models trained on the same text reach 30, and with fifty AWM does not call them derived.
UNRELATED_MEAN, UNRELATED_DEVIATION, DEVIATIONS = 0.00375, 0.0028, 50.0
THRESHOLD = UNRELATED_MEAN + DEVIATIONS * UNRELATED_DEVIATION


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return mean unbiased CKA of the query and key matrices after alignment, at most 1."""
    try:
        return above(similarity(load(original_dir), load(suspect_dir)), THRESHOLD, "mean unbiased CKA")
    except CannotRun as error:
        return cannot(str(error))


def similarity(original: Weights, suspect: Weights) -> float:
    """Return the score.

    Raises:
        CannotRun: the models have different numbers of layers or columns.
    """
    if original.layers != suspect.layers:
        raise CannotRun("different number of layers")
    columns, signs = _columns(original, suspect)
    means = []
    for name in ("self_attn.q_proj", "self_attn.k_proj"):
        values = []
        for layer in range(original.layers):
            moved = original.projection(layer, name)[:, columns] * signs
            values.append(unbiased_cka(moved.T, suspect.projection(layer, name).T))
        means.append(sum(values) / len(values))
    return sum(means) / len(means)


def unbiased_cka(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the linear CKA of (n, p) and (n, q) with the unbiased HSIC."""
    k, l = (_u_centred(m.double() @ m.double().T) for m in (x, y))
    scale = float((k * k).sum() * (l * l).sum()) ** 0.5
    return float((k * l).sum()) / scale if scale > 0 else 0.0


def _u_centred(gram: torch.Tensor) -> torch.Tensor:
    n = gram.shape[0]
    hollow = gram - torch.diag(gram.diagonal())
    rows = hollow.sum(0) / (n - 2)
    rows = rows - rows.sum() / (2 * (n - 1))
    centred = hollow - rows[:, None] - rows[None, :]
    return centred.fill_diagonal_(0.0)


def _columns(original: Weights, suspect: Weights) -> tuple[torch.Tensor, torch.Tensor]:
    """Return, for each column of the suspect, the original's column and the sign between them."""
    first, second = original[EMBEDDING], suspect[EMBEDDING]
    if first.shape[1] != second.shape[1]:
        raise CannotRun("different hidden size")
    if original.vocabulary() is None or suspect.vocabulary() is None:
        return torch.arange(first.shape[1]), torch.ones(first.shape[1])
    ids, others = shared_tokens(original, suspect)
    a, b = (torch.nn.functional.normalize(m.double(), dim=0) for m in (first[ids], second[others]))
    cosines = b.T @ a  # (suspect's columns, original's columns)
    rows, columns = linear_sum_assignment(cosines.abs().numpy(), maximize=True)
    return torch.from_numpy(columns), cosines[rows, columns].sign().float()
