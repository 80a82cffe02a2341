"""The invariant under the conventions of only some families, written out by their definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import irwm.scheme.invariant as invariant_module
from irwm.families import Norm, TensorRef
from irwm.scheme.invariant import InvariantError, Layer0, invariant
from tests.scheme.test_invariant import (
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LAYOUT,
    QUERIES,
    REFERENCES,
    D,
    InMemory,
    S,
    Tensors,
    permuted,
    random_tensors,
    rescaled,
    rotated,
    signs_flipped,
)


def _projected(t: Tensors, name: str, token: int) -> torch.Tensor:
    """q or k before heads, norms and limits, for the layout above."""
    e = t["embedding"][token]
    return t[name] @ (e / e.square().mean().sqrt() * t["gain"])


def _definition(t: Tensors, change: Callable[[torch.Tensor, str], torch.Tensor]) -> torch.Tensor:
    """The scores entry by entry, with `change` applied to each whole q and k first."""
    rows = []
    for m in QUERIES:
        q = change(_projected(t, "q", m), "q").view(HEADS, HEAD_DIM)
        keys = [change(_projected(t, "k", r), "k").view(KV_HEADS, HEAD_DIM) for r in REFERENCES]
        rows.append(torch.stack([sum(q[h] @ k[h // 2] for h in range(HEADS)) for k in keys]))
    return torch.stack(rows)


def test_clipping_of_q_and_k_is_applied_to_every_entry() -> None:
    t = random_tensors()
    found = Layer0(InMemory(t, replace(LAYOUT, clip=3.0))).scores(QUERIES, REFERENCES)
    torch.testing.assert_close(found, _definition(t, lambda x, _: x.clamp(-3.0, 3.0)))


def test_a_norm_over_the_projection_takes_all_heads_at_once() -> None:
    g = torch.Generator().manual_seed(3)
    t = random_tensors()
    t["q gain"] = torch.rand(HEADS * HEAD_DIM, generator=g, dtype=torch.float64)
    t["k gain"] = torch.rand(KV_HEADS * HEAD_DIM, generator=g, dtype=torch.float64)
    norms = {f"{p}_norm": Norm("rms", TensorRef(f"{p} gain"), None, 0.5, 0.0, "projection") for p in "qk"}
    found = Layer0(InMemory(t, replace(LAYOUT, **norms))).scores(QUERIES, REFERENCES)
    expected = _definition(t, lambda x, p: x * (x.square().mean() + 0.5).rsqrt() * t[f"{p} gain"])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("stored", ["one tensor", "a tensor per head"])
def test_a_norm_on_heads_may_have_a_gain_for_each(stored: str) -> None:
    g = torch.Generator().manual_seed(3)
    t = random_tensors()
    norms = {}
    for part, heads in (("q", HEADS), ("k", KV_HEADS)):
        t[f"{part} gain"] = torch.rand(heads, HEAD_DIM, generator=g, dtype=torch.float64)
        t |= {f"{part} gain {h}": t[f"{part} gain"][h] for h in range(heads)}
        refs = tuple(TensorRef(f"{part} gain {h}") for h in range(heads))
        norms[f"{part}_norm"] = Norm(
            "layer", TensorRef(f"{part} gain") if stored == "one tensor" else refs, None, 0.5, 0.0
        )

    def change(x: torch.Tensor, part: str) -> torch.Tensor:
        x = x.view(-1, HEAD_DIM)
        x = x - x.mean(dim=1, keepdim=True)
        return x * (x.square().mean(dim=1, keepdim=True) + 0.5).rsqrt() * t[f"{part} gain"]

    found = Layer0(InMemory(t, replace(LAYOUT, **norms))).scores(QUERIES, REFERENCES)
    torch.testing.assert_close(found, _definition(t, change))


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


def test_without_q_and_k_scores_are_cosines_of_rows() -> None:
    t = random_tensors()
    found = Layer0(InMemory(t, EMBEDDING_ONLY)).scores(QUERIES, REFERENCES)
    for i, m in enumerate(QUERIES):
        for j, r in enumerate(REFERENCES):
            a, b = t["embedding"][m], t["embedding"][r]
            assert float(found[i, j]) == pytest.approx(float(a @ b / (a.norm() * b.norm())), abs=1e-12)


@pytest.mark.parametrize("change", [permuted, signs_flipped, rotated, rescaled], ids=lambda change: change.__name__)
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


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
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
    with pytest.raises(InvariantError, match="No names"):
        Layer0(InMemory(random_tensors(), layout)).scores(QUERIES, REFERENCES)
