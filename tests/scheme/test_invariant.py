"""The invariant: changes that leave it the same, changes that do not, and refused input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
import irwm.scheme.invariant as invariant_module
from irwm.errors import CheckpointError, ParameterError
from irwm.families import Layout, Norm, TensorRef
from irwm.scheme.invariant import LAST_KEPT, InvariantError, Layer0, invariant, standardise
from tools.copies import keys_for

S, D, HEADS, KV_HEADS, HEAD_DIM = 120, 48, 6, 3, 8
QUERIES = [4, 9, 23, 77, 110]
REFERENCES = [i for i in range(S) if i not in QUERIES][:D]

Tensors = dict[str, torch.Tensor]

LAYOUT = Layout(
    family="llama",
    vocab_size=S,
    hidden_size=D,
    heads=HEADS,
    kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    embedding=TensorRef("embedding"),
    tied=True,
    # With eps 0 the scores do not depend on the embedding's scale, so every invariance below is exact.
    input_norm=Norm("rms", TensorRef("gain"), None, 0.0, 0.0),
    q=TensorRef("q"),
    k=TensorRef("k"),
)


class InMemory:
    """A checkpoint of float64 tensors in memory that records the requests."""

    def __init__(self, tensors: Tensors, layout: Layout = LAYOUT) -> None:
        self.tensors, self.layout = tensors, layout
        self.rows_asked: list[int] = []
        self.read_refs: list[TensorRef] = []

    def embedding(self, rows: torch.Tensor | None = None, device: str = "cpu") -> torch.Tensor:
        assert rows is not None, "the whole embedding was requested"
        self.rows_asked.append(len(rows))
        return self.tensors["embedding"][rows]

    def read(self, ref: TensorRef, rows: torch.Tensor | None = None, device: str = "cpu") -> torch.Tensor:
        self.read_refs.append(ref)
        tensor = self.tensors[ref.name]
        return tensor if ref.rows is None else tensor[slice(*ref.rows)]


def random_tensors(seed: int = 0) -> Tensors:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return {
        "embedding": normal(S, D) * (0.5 + torch.rand(S, 1, generator=g, dtype=torch.float64)),
        "gain": 0.2 + 2 * torch.rand(D, generator=g, dtype=torch.float64),
        "q": normal(HEADS * HEAD_DIM, D),
        "k": normal(KV_HEADS * HEAD_DIM, D),
    }


def _orthogonal(seed: int, n: int = D) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64)).Q


def permuted(t: Tensors) -> Tensors:
    p = torch.randperm(D, generator=torch.Generator().manual_seed(1))
    return {"embedding": t["embedding"][:, p], "gain": t["gain"][p], "q": t["q"][:, p], "k": t["k"][:, p]}


def signs_flipped(t: Tensors) -> Tensors:
    signs = torch.randint(0, 2, (D,), generator=torch.Generator().manual_seed(2)).double() * 2 - 1
    return {**t, "embedding": t["embedding"] * signs, "q": t["q"] * signs, "k": t["k"] * signs}


def gain_folded(t: Tensors) -> Tensors:
    return {**t, "gain": torch.ones(D, dtype=torch.float64), "q": t["q"] * t["gain"], "k": t["k"] * t["gain"]}


def regained(t: Tensors) -> Tensors:
    factor = 0.1 + torch.rand(D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return {**t, "gain": t["gain"] * factor, "q": t["q"] / factor, "k": t["k"] / factor}


def rotated(t: Tensors) -> Tensors:
    t, r = gain_folded(t), _orthogonal(4)
    return {**t, "embedding": t["embedding"] @ r, "q": t["q"] @ r, "k": t["k"] @ r}


def rescaled(t: Tensors) -> Tensors:
    return {**t, "embedding": t["embedding"] * 7.5}


def mapped_between_q_and_k(t: Tensors) -> Tensors:
    """q of every query head times the inverse of its key head's factor; well conditioned."""
    q = t["q"].view(KV_HEADS, HEADS // KV_HEADS, HEAD_DIM, D).clone()
    k = t["k"].view(KV_HEADS, HEAD_DIM, D).clone()
    for g in range(KV_HEADS):
        m = _orthogonal(5 + g, HEAD_DIM) @ torch.diag(torch.linspace(0.3, 3, HEAD_DIM, dtype=torch.float64))
        k[g] = m @ k[g]
        q[g] = torch.linalg.inv(m).T @ q[g]
    return {**t, "q": q.flatten(0, 2), "k": k.flatten(0, 1)}


def heads_reordered(t: Tensors) -> Tensors:
    q = t["q"].view(KV_HEADS, HEADS // KV_HEADS, HEAD_DIM, D)[[2, 0, 1]].flip(1)
    k = t["k"].view(KV_HEADS, HEAD_DIM, D)[[2, 0, 1]]
    return {**t, "q": q.flatten(0, 2), "k": k.flatten(0, 1)}


CHANGES = [rescaled, gain_folded, regained, permuted, signs_flipped, rotated, mapped_between_q_and_k, heads_reordered]


@pytest.mark.parametrize("changes", [*([each] for each in CHANGES), CHANGES])
def test_function_preserving_changes_leave_the_invariant_unchanged(changes: list[Callable[[Tensors], Tensors]]) -> None:
    tensors = random_tensors()
    original = invariant(InMemory(tensors), QUERIES, REFERENCES)
    for change in changes:
        tensors = change(tensors)
    assert original.shape == (len(QUERIES), D)
    torch.testing.assert_close(invariant(InMemory(tensors), QUERIES, REFERENCES), original, rtol=0, atol=1e-10)


def test_the_scores_are_the_sum_over_heads_of_q_times_k() -> None:
    """The definition, written out entry by entry."""
    t = random_tensors()
    found = Layer0(InMemory(t)).scores(QUERIES, REFERENCES)

    def normed(token: int) -> torch.Tensor:
        e = t["embedding"][token]
        return e / e.square().mean().sqrt() * t["gain"]

    for i, m in enumerate(QUERIES):
        for j, r in enumerate(REFERENCES[:6]):
            q, k = t["q"] @ normed(m), t["k"] @ normed(r)
            expected = sum(
                q[h * HEAD_DIM : (h + 1) * HEAD_DIM] @ k[h // 2 * HEAD_DIM : (h // 2 + 1) * HEAD_DIM]
                for h in range(HEADS)
            )
            assert float(found[i, j]) == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        torch.tensor,
        lambda tokens: torch.tensor(tokens, dtype=torch.int32),
        lambda tokens: np.frombuffer(np.array(tokens).tobytes(), dtype=np.int64),  # it cannot be written
    ],
)
def test_tokens_may_come_in_any_integer_form(form: Callable) -> None:
    model = InMemory(random_tensors())
    found = invariant(model, form(QUERIES), form(REFERENCES))
    assert torch.equal(found, invariant(model, QUERIES, REFERENCES))


def test_references_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded at large d: no call requests more rows than a block holds."""
    whole = Layer0(InMemory(random_tensors())).scores(QUERIES, REFERENCES)
    monkeypatch.setattr(invariant_module, "REFERENCE_BLOCK", 7)
    model = InMemory(random_tensors())
    torch.testing.assert_close(Layer0(model).scores(QUERIES, REFERENCES), whole, rtol=1e-12, atol=1e-12)
    assert max(model.rows_asked) == 7
    assert len(model.read_refs) == len(set(model.read_refs)), "a tensor was read twice"


def test_only_the_first_row_of_a_table_is_read() -> None:
    tensors = {**random_tensors(), "position": torch.randn(9, D, dtype=torch.float64)}
    model = InMemory(tensors, replace(LAYOUT, position=TensorRef("position", (2, 9))))
    found = Layer0(model).scores(QUERIES, REFERENCES)
    assert TensorRef("position", (2, 3)) in model.read_refs
    moved = {**tensors, "embedding": tensors["embedding"] + tensors["position"][2]}
    torch.testing.assert_close(found, Layer0(InMemory(moved)).scores(QUERIES, REFERENCES))


def test_the_invariant_includes_added_noise() -> None:
    tensors = random_tensors()
    noise = torch.randn(S, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    noisy = {**tensors, "embedding": tensors["embedding"] + noise}
    found = invariant(InMemory(tensors), QUERIES, REFERENCES, added=lambda tokens: noise[tokens])
    torch.testing.assert_close(found, invariant(InMemory(noisy), QUERIES, REFERENCES))


def test_an_invariant_is_computed_once_for_equal_tokens_and_noise(demo_path: Path) -> None:
    demo = irwm.open_checkpoint(demo_path)
    keys = keys_for(demo, [f"Recipient {number}" for number in range(LAST_KEPT + 1)])
    layer0 = Layer0(demo)

    def of(key: irwm.Key) -> torch.Tensor:
        choices = key.choices()
        return layer0.invariant(choices.query_tokens, choices.reference_tokens, key.noise(demo, choices).added(demo))

    first, *last = map(of, keys)
    assert all(of(key) is known for key, known in zip(keys[1:], last, strict=True))
    assert not any(torch.equal(first, other) for other in last)
    again = of(keys[0])
    assert again is not first
    assert torch.equal(again, first)


def test_a_layer_0_of_another_model_is_refused(demo_path: Path, tmp_path: Path) -> None:
    demo, same = irwm.open_checkpoint(demo_path), irwm.open_checkpoint(demo_path)
    (key,) = keys_for(demo, ["Ann"])
    for use in (
        lambda layer0: irwm.generate_key(demo, layer0=layer0),
        lambda layer0: irwm.insert(demo, key, tmp_path / "out", layer0=layer0),
        lambda layer0: irwm.Examination(same, demo, layer0=layer0),
    ):
        with pytest.raises(ParameterError, match="layer 0 belongs to another model"):
            use(Layer0(same))
    assert not (tmp_path / "out").exists()


# --- standardising


def test_standardised_rows_have_mean_0_and_deviation_1() -> None:
    scores = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)) * 5 + 90
    rows = standardise(scores, range(len(scores)))
    assert rows.dtype == torch.float64
    torch.testing.assert_close(rows.mean(dim=1), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(rows.square().mean(dim=1), torch.ones(4, dtype=torch.float64))


def test_rows_without_a_standard_form_are_named() -> None:
    scores = torch.randn(7, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores[1] = 3.0
    scores[2, 4] = torch.nan
    scores[4, 0] = torch.inf
    scores[5] = 1000 + torch.rand(20) * 1e-4  # the float32 rounding of a constant
    scores[6] = 0.0
    with pytest.raises(InvariantError) as caught:
        standardise(scores, [10, 11, 12, 13, 14, 15, 16])
    assert caught.value.query_tokens == (11, 12, 14, 15, 16)
    assert isinstance(caught.value, CheckpointError)


# --- refused input


def refusal(tensors: Tensors, queries: list[int] = QUERIES, references: list[int] = REFERENCES) -> InvariantError:
    with pytest.raises(InvariantError) as caught:
        invariant(InMemory(tensors), queries, references)
    return caught.value


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_the_tokens_of_damaged_embedding_rows_are_named(value: float) -> None:
    tensors = random_tensors()
    tensors["embedding"][[REFERENCES[5], QUERIES[2]], 3] = value
    error = refusal(tensors)
    assert (error.query_tokens, error.reference_tokens) == ((QUERIES[2],), (REFERENCES[5],))
    tensors["embedding"][REFERENCES] = value
    error = refusal(tensors)
    assert error.reference_tokens == tuple(REFERENCES)
    assert len(str(error)) < 1000, "the message cuts a long list"


@pytest.mark.parametrize("tensor", ["q", "k", "gain"])
def test_damaged_projections_are_refused(tensor: str) -> None:
    tensors = random_tensors()
    tensors[tensor].view(-1)[0] = torch.nan
    assert refusal(tensors).query_tokens == tuple(QUERIES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_constant_embedding_is_refused(dtype: torch.dtype) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in random_tensors().items()}
    for row in (tensors["embedding"][:1], torch.ones(1, D, dtype=dtype)):
        refusal(tensors | {"embedding": row.expand(S, D)})


def test_zero_row_is_refused_as_query_and_allowed_as_reference() -> None:
    tensors = random_tensors()
    tensors["embedding"][QUERIES[0]] = 0
    layout = replace(LAYOUT, input_norm=Norm("rms", TensorRef("gain"), None, 1e-6, 0.0))
    assert torch.isfinite(invariant(InMemory(tensors, layout), REFERENCES[:5], [*REFERENCES, QUERIES[0]])).all()
    with pytest.raises(InvariantError) as caught:
        invariant(InMemory(tensors, layout), QUERIES, REFERENCES)
    assert caught.value.query_tokens == (QUERIES[0],)


def test_tokens_outside_the_vocabulary_or_missing_are_refused() -> None:
    error = refusal(random_tensors(), [1, -1], [0, S, S + 5])
    assert (error.query_tokens, error.reference_tokens) == ((-1,), (S, S + 5))
    refusal(random_tensors(), [], [1, 2])
    refusal(random_tensors(), [1], [])
