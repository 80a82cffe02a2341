"""Singular values and eigenvalues of products of attention matrices, which `ghostspec` and `self_` compare.

With W_q, W_k, W_v and W_o of a layer, stored as (out, in), and every key and value head repeated for its query heads,

    Q = W_q^T W_k,     V = W_v^T W_o^T     (d x d)

have singular values that no rotation, permutation or sign of the residual stream changes. The inner products W_q W_k^T
and W_o^T W_v^T (heads * head_dim on a side) have the eigenvalues.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.peers.weights import Weights


def products(weights: Weights, layer: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (left, right) of Q and of V: left^T right is the outer product, left right^T the inner one."""
    yield weights.projection(layer, "self_attn.q_proj"), weights.repeated(layer, "self_attn.k_proj")
    yield weights.repeated(layer, "self_attn.v_proj"), weights.projection(layer, "self_attn.o_proj").T


def singular_values(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the singular values of left^T right, descending, as many as `left` has rows or columns."""
    values: torch.Tensor = torch.linalg.svdvals(left.double().T @ right.double())
    return values[: min(left.shape)]


def eigenvalues(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the absolute eigenvalues of left right^T, descending."""
    values: torch.Tensor = torch.linalg.eigvals(left.double() @ right.double().T).abs().sort(descending=True).values
    return values[: min(left.shape)]


def unit(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first `count` values, scaled to length 1."""
    scaled: torch.Tensor = values[:count] / values[:count].norm().clamp_min(1e-300)
    return scaled
