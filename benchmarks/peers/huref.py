"""HuRef: invariant terms of the last two layers against the token embeddings (Zeng et al., NeurIPS 2024).

Reference: "HuRef: HUman-REadable Fingerprint for Large Language Models", arXiv:2312.04828, section 4 (invariant terms)
and the ICS tables; code LUMIA-Group/HuRef, main.py and Invariant_terms_Cos_Sim.py. With X the (K, d) embeddings of
K = 4 096 rare tokens, each of the last two layers gives

    M_a = X W_q^T W_k X^T,     M_b = X W_v^T W_o^T X^T,     M_c = X W_up^T W_down^T X^T        (W stored as (out, in))

and the ICS of two models is the cosine of their six terms, each term first standardised over its K^2 entries; which is
the mean of six Pearson correlations. We compute these in d x d form, without a K x K matrix:
<X M X^T, Y N Y^T> = <(X^T Y)^T M (X^T Y), N>.

In favour of the peer: M_c uses W_up alone, as in the paper's text. The authors' code multiplies W_gate and W_up
elementwise for Llama, which rotations and sign flips change (`gated=True` does this, for comparison with their
numbers). Key and value heads are repeated to the query heads as the model pairs them (their code tiles, which pairs
them wrongly and breaks if heads move). Tokens are matched by string. The rare tokens are those with the highest ids,
which byte-pair merging made last; the authors count them in Wikipedia for each model.
"""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.peers.score import CannotRun, Score, above, cannot
from benchmarks.peers.weights import EMBEDDING, Weights, load, shared_tokens

TOKENS = 4096
LAST_LAYERS = 2
# The paper gives no threshold. AWM's table of HuRef scores (LUMIA-Group/AWM, README) puts a perfect 1 at 44.58
# deviations of unrelated pairs, so a quarter is about ten deviations away.
THRESHOLD = 0.25


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the ICS of the two models, in [-1, 1]."""
    try:
        return above(ics(load(original_dir), load(suspect_dir)), THRESHOLD, "ICS")
    except CannotRun as error:
        return cannot(str(error))


def ics(original: Weights, suspect: Weights, tokens: int = TOKENS, gated: bool = False) -> float:
    """Return the ICS over the last `tokens` shared ids; `gated` selects the M_c of the authors' code."""
    ids, others = shared_tokens(original, suspect)
    x = original[EMBEDDING][ids[-tokens:]].double()
    y = suspect[EMBEDDING][others[-tokens:]].double()
    pairs = list(zip(_terms(original, gated), _terms(suspect, gated), strict=True))
    across = _covariances(x, y, pairs)
    alone = _covariances(x, x, [(m, m) for m, _ in pairs]) * _covariances(y, y, [(n, n) for _, n in pairs])
    return float((across / alone.sqrt()).mean())


def _terms(weights: Weights, gated: bool) -> list[torch.Tensor]:
    """Return the d x d cores of the six terms."""
    cores = []
    for layer in range(max(weights.layers - LAST_LAYERS, 0), weights.layers):
        q, o = weights.projection(layer, "self_attn.q_proj"), weights.projection(layer, "self_attn.o_proj")
        k, v = weights.repeated(layer, "self_attn.k_proj"), weights.repeated(layer, "self_attn.v_proj")
        up, down = weights.projection(layer, "mlp.up_proj"), weights.projection(layer, "mlp.down_proj")
        if gated:
            up = up * weights.projection(layer, "mlp.gate_proj")
        cores += [q.T @ k, v.T @ o.T, up.T @ down.T]
    return [core.double() for core in cores]


def _covariances(x: torch.Tensor, y: torch.Tensor, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return (pairs,) for each (m, n) the sum over all entries of x m x^T times y n y^T, with their means removed."""
    cross, count = x.T @ y, float(x.shape[0] ** 2)
    a, b = x.sum(0), y.sum(0)
    return torch.stack([((cross.T @ m @ cross) * n).sum() - (a @ m @ a) * (b @ n @ b) / count for m, n in pairs])
