"""How similar the layer-0 attention of two models is: the agreement of A(suspect) with A(original) on public tokens.

A is the invariant of Algorithm 1, so it needs no alignment of coordinates, only the token of each row. Its plain
correlation is no evidence: unrelated models of one language reach 0.75, because the attention of frequent tokens is
similar in all of them. That agreement is in the leading singular directions of A. In the other directions unrelated
models agree to 0.14 at most, and a descendant under noise of 0.3 deviations to 0.3 or more (benchmarks/lineage.py). An
ill-conditioned map between q and k followed by coarse quantisation lowers the agreement, so a low value alone does not
show that a model is not derived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.alignment.rows import draw, sample_size
from irwm.checkpoint import Checkpoint
from irwm.errors import CheckpointError
from irwm.scheme.invariant import Layer0
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import permutations
from irwm.scheme.row_pool import NEAR_ZERO_SHARE

QUERY_TOKENS, REFERENCE_TOKENS = 64, 512
# With fewer tokens too few singular directions remain for a comparison.
FEWEST_TOKENS = 96
DECOYS = 99
# Share of A's singular directions that count as leading.
LEADING_SHARE = 0.25
# A singular value of A below this share of the largest is rounding: with few key heads A has fewer directions than
# rows. Its directions differ between linear algebra libraries, so they are left out.
LEAST_SINGULAR_VALUE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """The agreement of two models' layer-0 scores.

    Attributes:
        agreement: cosine of A(suspect) with A(original) in the original's minor singular directions, in [-1, 1].
        decoys: (99,) or fewer, the same with wrong pairs of reference tokens.
    """

    agreement: float
    decoys: NDArray[np.float64]

    @property
    def largest_decoy(self) -> float:
        return float(self.decoys.max())


def attention(
    suspect: Checkpoint,
    model: Checkpoint,
    alignment: Alignment,
    layers: tuple[Layer0, Layer0] | None = None,
) -> Attention | None:
    """The agreement on public tokens that both models have; None if it cannot be computed.

    Args:
        alignment: gives the token of each row of the suspect; its coordinates are not used.
        layers: layer 0 of the suspect and of the original, if the caller has them.
    """
    if suspect.layout.scores != "attention" or model.layout.scores != "attention":
        return None  # the limits of lineage were measured on attention
    tokens = _tokens(suspect, model, alignment)
    if tokens.size < FEWEST_TOKENS:
        return None
    their_layer, own_layer = layers or (Layer0(suspect), Layer0(model))
    queries = min(QUERY_TOKENS, tokens.size // 3)
    query, reference = tokens[:queries], tokens[queries : queries + REFERENCE_TOKENS]
    try:
        ours = own_layer.invariant(query, reference).numpy()
        theirs = their_layer.invariant(alignment.rows[query], alignment.rows[reference]).numpy()
    except CheckpointError:  # no q and k, not finite, ...: detection reports it if it matters
        return None
    left, sizes, right = np.linalg.svd(ours, full_matrices=False)
    minor = slice(int(LEADING_SHARE * len(ours)), int((sizes > LEAST_SINGULAR_VALUE * sizes[0]).sum()))
    if minor.start >= minor.stop:
        return None
    left, right = left[:, minor].T, right[minor].T
    reduced = left @ ours @ right
    theirs = left @ theirs
    shifts = min(DECOYS + 1, reference.size)  # a shift by all tokens would pair them correctly again
    decoys = [_cosine(np.roll(theirs, shift, axis=1) @ right, reduced) for shift in range(1, shifts)]
    return Attention(_cosine(theirs @ right, reduced), np.array(decoys))


def _tokens(suspect: Checkpoint, model: Checkpoint, alignment: Alignment) -> NDArray[np.int64]:
    """Tokens whose rows hold usable numbers in both models, in a fixed random order; from the alignment's sample, whose
    rows were already read, unless it has too few."""
    key = derive(bytes(32), b"irwm", b"irwm/v1/attention-sample")
    order: NDArray[np.int64] = permutations(key, 1, model.vocab_size)[0]
    order = order[alignment.rows[order] >= 0]
    sampled = order[np.isin(order, draw(model.vocab_size, sample_size(model.hidden_size)))]
    wanted = QUERY_TOKENS + REFERENCE_TOKENS
    order = (sampled if sampled.size >= wanted else order)[: 2 * wanted]
    if not order.size:
        return order
    usable = np.ones(order.size, dtype=bool)
    for rows in (model.embedding(order), suspect.embedding(alignment.rows[order])):
        norms = rows.norm(dim=1).numpy()
        usable &= np.isfinite(norms) & (norms > NEAR_ZERO_SHARE * np.nanmedian(norms))
    return order[usable][: QUERY_TOKENS + REFERENCE_TOKENS]


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float((a * b).sum() / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300))
