"""The invariant of the published scripts, and what a reading of their mark depends on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from benchmarks.reproduce import scripts
from irwm.inference.loading import open_weights


def test_invariant_is_outer_product_of_a_tokens_own_q_and_k(demo_path: Path) -> None:
    tokens = np.array([7, 1001, 42])
    found = scripts.invariant(irwm.open_checkpoint(demo_path), tokens)
    model = open_weights(demo_path).model
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        rows = model.model.embed_tokens.weight[torch.from_numpy(tokens)]
        q, k = attention.q_proj(rows).numpy(), attention.k_proj(rows).numpy()
    width = k.shape[1]
    assert found.shape == (3, model.config.hidden_size)
    for i in range(3):
        for part in range(q.shape[1] // width):
            own = q[i, part * width + i] * k[i]
            np.testing.assert_allclose(found[i, part * width : (part + 1) * width], own, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def read(gemma_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, int]]:
    """Positions below beta by scale and attack."""
    tried, scripts.TRIED = scripts.TRIED, (("permute-residual", 1), ("map-qk", 1))
    try:
        rows = [
            row
            for scale in ("1000.0", "auto")
            for row in scripts.one(("gemma", gemma_path, tmp_path_factory.mktemp("scripts"), scale, "cpu"))
        ]
    finally:
        scripts.TRIED = tried
    return {(row["scale"], row["attack"]): row["below"] for row in rows}


def test_at_scale_1000_random_numbers_read_the_mark_as_well(read: dict[tuple[str, str], dict[str, int]]) -> None:
    for attack in ("none", "Columns permuted", "Queries and keys mapped"):
        assert min(read["1000.0", attack].values()) >= scripts.RULE
    assert max(read["1000.0", "not marked"].values()) < scripts.RULE


def test_at_scale_auto_the_mark_needs_an_invariant_that_mapped_queries_change(
    read: dict[tuple[str, str], dict[str, int]],
) -> None:
    assert read["auto", "Columns permuted"]["suspect"] >= scripts.RULE
    assert read["auto", "Columns permuted"]["random"] < scripts.RULE
    assert read["auto", "Queries and keys mapped"]["suspect"] < scripts.RULE
    assert read["auto", "Queries and keys mapped"]["original"] >= scripts.RULE
