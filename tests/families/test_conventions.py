"""The invariant with a widened embedding, and with scores of the embedding alone, on tensors in memory.

test_scores.py compares the conventions of all families with the running models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import irwm.scheme.invariant as invariant_module
from irwm.families import TensorRef
from irwm.scheme.invariant import InvariantError, Layer0, invariant
from tests.scheme import test_invariant as plain
from tests.scheme.test_invariant import LAYOUT, QUERIES, REFERENCES, D, InMemory, S, Tensors, random_tensors


def test_narrow_embedding_is_widened_before_additions() -> None:
    g = torch.Generator().manual_seed(5)
    narrow = {
        **random_tensors(),
        "embedding": torch.randn(S, 20, generator=g, dtype=torch.float64),
        "widen": torch.randn(D, 20, generator=g, dtype=torch.float64),
        "position": torch.randn(4, D, generator=g, dtype=torch.float64),
    }
    layout = replace(LAYOUT, embedding_projection=TensorRef("widen"), position=TensorRef("position"), hidden_size=20)
    noise = torch.randn(S, 20, dtype=torch.float64, generator=g)
    found = Layer0(InMemory(narrow, layout)).scores(QUERIES, REFERENCES, added=lambda tokens: noise[tokens])
    wide = {**narrow, "embedding": (narrow["embedding"] + noise) @ narrow["widen"].T + narrow["position"][0]}
    torch.testing.assert_close(found, Layer0(InMemory(wide)).scores(QUERIES, REFERENCES))


# --- scores of the embedding alone

EMBEDDING_ONLY = replace(LAYOUT, scores="embedding", q=None, k=None, heads=0, kv_heads=0, head_dim=0)


@pytest.mark.parametrize(
    "change", [plain.permuted, plain.signs_flipped, plain.rotated, plain.rescaled], ids=lambda change: change.__name__
)
def test_rotations_and_scalings_leave_cosines_unchanged(change: Callable[[Tensors], Tensors]) -> None:
    tensors = random_tensors()
    original = invariant(InMemory(tensors, EMBEDDING_ONLY), QUERIES, REFERENCES)
    changed = invariant(InMemory(change(tensors), EMBEDDING_ONLY), QUERIES, REFERENCES)
    torch.testing.assert_close(changed, original, rtol=0, atol=1e-10)


def test_cosines_include_added_noise() -> None:
    tensors = random_tensors()
    noise = torch.randn(S, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    noisy = {"embedding": tensors["embedding"] + noise}
    found = invariant(InMemory(tensors, EMBEDDING_ONLY), QUERIES, REFERENCES, added=lambda tokens: noise[tokens])
    torch.testing.assert_close(found, invariant(InMemory(noisy, EMBEDDING_ONLY), QUERIES, REFERENCES))


def test_cosines_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Layer0(InMemory(random_tensors(), EMBEDDING_ONLY)).scores(QUERIES, REFERENCES)
    monkeypatch.setattr(invariant_module, "REFERENCE_BLOCK", 7)
    model = InMemory(random_tensors(), EMBEDDING_ONLY)
    torch.testing.assert_close(Layer0(model).scores(QUERIES, REFERENCES), whole, rtol=1e-12, atol=1e-12)
    assert max(model.rows_asked) == 7
    assert model.read_refs == [], "only the embedding is read"


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_damaged_rows_are_named_where_scores_are_cosines(value: float) -> None:
    tensors = random_tensors()
    tensors["embedding"][REFERENCES[5], 3] = value
    tensors["embedding"][QUERIES[2], 7] = value
    with pytest.raises(InvariantError) as caught:
        invariant(InMemory(tensors, EMBEDDING_ONLY), QUERIES, REFERENCES)
    assert caught.value.reference_tokens == (REFERENCES[5],)
    assert caught.value.query_tokens == (QUERIES[2],)


def test_zero_row_has_no_cosine_as_query_and_is_allowed_as_reference() -> None:
    tensors = random_tensors()
    tensors["embedding"][QUERIES[0]] = 0
    with pytest.raises(InvariantError) as caught:
        invariant(InMemory(tensors, EMBEDDING_ONLY), QUERIES, REFERENCES)
    assert caught.value.query_tokens == (QUERIES[0],)
    tensors = random_tensors()
    tensors["embedding"][REFERENCES[0]] = 0
    assert torch.isfinite(invariant(InMemory(tensors, EMBEDDING_ONLY), QUERIES, REFERENCES)).all()


def test_tiny_rows_keep_their_direction() -> None:
    """float32 rows may be as small as 1e-38; their direction is still exact."""
    tensors = random_tensors()
    small = {"embedding": tensors["embedding"] * 1e-38}
    found = Layer0(InMemory(small, EMBEDDING_ONLY)).scores(QUERIES, REFERENCES)
    torch.testing.assert_close(found, Layer0(InMemory(tensors, EMBEDDING_ONLY)).scores(QUERIES, REFERENCES))


def test_unknown_names_have_no_scores() -> None:
    layout = replace(LAYOUT, q=None, k=None, notes=("No names.",))
    with pytest.raises(InvariantError):
        Layer0(InMemory(random_tensors(), layout)).scores(QUERIES, REFERENCES)
