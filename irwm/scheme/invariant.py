"""The invariant A_m: layer-0 attention scores of query tokens against reference tokens (Algorithm 1).

The paper's `e_i W_q (e_i W_k)^T` is interpreted as in docs/method.md: t query tokens m_i, d reference tokens r_k and

    A[i, k] = sum over heads h of  q_h(m_i) . k_g(h)(r_k)                                            (t, d)

before rotary embedding, with q and k as the model itself computes them for a token at position 0. Every row is then
standardised. No function-preserving change of the residual stream, no gain folding, no invertible map between q and k
and no order of the heads changes A.

If layer 0 has no such q and k (`Layout.scores` is "embedding": state-space models, compressed queries and keys),

    A[i, k] = cosine of the embedding rows of m_i and r_k                                            (t, d)

is used instead. Rotations and scalings of the residual stream leave it unchanged too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.errors import CheckpointError, ParameterError
from irwm.families.schema import Layout, Norm, TensorRef

# Reference tokens that are processed at a time: few enough that at d = 4096 a block's rows, 8 MB in float64, stay in
# the CPU's caches from one step to the next, while the products remain large enough to run at full speed.
REFERENCE_BLOCK = 256
# A deviation below this share of the largest entry results from float32 rounding of a constant row (its unit is 6e-8,
# times the square root of a few thousand terms). For rows of trained models it is near 1/20.
CONSTANT_ROW = 1e-6
# Enough for two places and the comparison of attention heads, besides those of a key with noise.
LAST_KEPT = 4
# Smaller than the norm of any non-zero float32 row.
SMALLEST_NORM = 1e-50
# Maximum number of tokens that a message lists.
TOKENS_NAMED = 20

Tokens = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor
Device = str | torch.device
# Values added to the stored embedding of the given tokens, (n, hidden_size).
Added = Callable[[torch.Tensor], torch.Tensor]


class InvariantError(CheckpointError):
    """The invariant cannot be computed from these weights or for these tokens.

    Attributes:
        query_tokens, reference_tokens: the affected token ids, () if there are none.
    """

    def __init__(
        self,
        problem: str,
        *,
        query_tokens: Sequence[int] = (),
        reference_tokens: Sequence[int] = (),
        expected: str | None = None,
        found: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.query_tokens = tuple(query_tokens)
        self.reference_tokens = tuple(reference_tokens)
        named = [
            f"{kind} tokens {_named(tokens)}"
            for kind, tokens in (("query", self.query_tokens), ("reference", self.reference_tokens))
            if tokens
        ]
        found = "; ".join(([found] if found else []) + named) or None
        super().__init__(problem, expected=expected, found=found, advice=advice)


class NonFiniteScoresError(InvariantError):
    """The scores are NaN or infinite: the weights were corrupted, perhaps on purpose."""


class Weights(Protocol):
    """The interface of a checkpoint that the invariant needs."""

    @property
    def layout(self) -> Layout: ...

    def embedding(self, rows: torch.Tensor | None = None, device: Device = "cpu") -> torch.Tensor:
        """Rows of W_e, (n, hidden_size), float32."""

    def read(self, ref: TensorRef, rows: torch.Tensor | None = None, device: Device = "cpu") -> torch.Tensor:
        """The tensor in its logical (out, in) orientation, float32; `ref.rows` already applied."""


def invariant(
    model: Weights,
    query_tokens: Tokens,
    reference_tokens: Tokens,
    device: Device = "cpu",
    added: Added | None = None,
) -> torch.Tensor:
    """A_m of one model, see `Layer0.invariant`."""
    return Layer0(model, device).invariant(query_tokens, reference_tokens, added)


class Layer0:
    """A model's layer 0. Its q, k and norms are read once and used for all tokens.

    The last `LAST_KEPT` invariants are kept: many keys have the same tokens, and a new key needs its own several times.

    Args:
        model: the checkpoint; for an output head, the one that it belongs to (`Checkpoint.body`).
        device: the device that computes the scores.
        most_rows: the maximum number of rows of q or k, since a sparse file may claim any number. None for no
            limit.
    """

    def __init__(self, model: Weights, device: Device = "cpu", most_rows: int | None = None) -> None:
        self.model, self._device, self._most_rows = model, device, most_rows
        self._kept: dict[object, torch.Tensor] = {}
        self._reading = Lock()

    @classmethod
    def of(cls, model: Weights, device: Device = "cpu", known: Layer0 | None = None) -> Layer0:
        """`known`, or without it a new one.

        Raises:
            ParameterError: `known` is that of another model, whose A would be used for keys and marks of this one.
        """
        if known is not None and known.model is not model:
            raise ParameterError(
                "layer 0 belongs to another model",
                expected="that of the same opened checkpoint",
                advice="Make it with Layer0(model), or leave it out",
            )
        return known or cls(model, device)

    def invariant(self, query_tokens: Tokens, reference_tokens: Tokens, added: Added | None = None) -> torch.Tensor:
        """A_m with standardised rows, (t, d) float64 on the CPU; Algorithm 1.

        Args:
            query_tokens: t token ids, the rows of A.
            reference_tokens: d token ids, the columns of A.
            added: noise on the embedding that the checkpoint does not hold (Algorithm 6), see `scores`. An invariant is
                used again for equal ones.

        Raises:
            NonFiniteScoresError: scores that are NaN or infinite.
            InvariantError: a token is outside the vocabulary, or a row of A is constant; the affected tokens are named
                and stored on the error.
        """
        queries, references = _ids(query_tokens), _ids(reference_tokens)
        wanted = queries.numpy().tobytes(), references.numpy().tobytes(), added
        known = self._kept.get(wanted)
        if known is not None:
            return known
        found = self._computed(queries, references, added)
        # Replaced as a whole, since several threads read it.
        self._kept = dict([*self._kept.items(), (wanted, found)][-LAST_KEPT:])
        return found

    def _computed(self, queries: torch.Tensor, references: torch.Tensor, added: Added | None) -> torch.Tensor:
        scores = self.scores(queries, references, added)
        finite = torch.isfinite(scores)
        if not finite.all():
            # A reference token is affected if its whole column is bad; a query token is affected by the remaining bad
            # entries.
            columns = ~finite.any(dim=0)
            rows = ~finite[:, ~columns].all(dim=1)
            if columns.all():
                rows[:] = True
            raise NonFiniteScoresError(
                "the layer-0 scores are not finite",
                query_tokens=queries[rows].tolist(),
                reference_tokens=references[columns].tolist(),
                advice="The embedding rows of these tokens, or layer 0's norms, q and k, contain NaN, infinite or huge "
                "values",
            )
        return standardise(scores, queries.tolist())

    def scores(self, query_tokens: Tokens, reference_tokens: Tokens, added: Added | None = None) -> torch.Tensor:
        """A_m before standardising, (t, d) float64 on the CPU; cosines if the layout requires them.

        Everything is computed in float64, so that other thread counts and devices give the same numbers to about 1e-12
        and a report can be reproduced. The computation is small: q is computed only for the t query tokens, their
        queries are summed if they share a key head, and W_k is then applied to these t sums instead of to the d
        reference tokens. This is exact because the score is linear in q and k. Only a norm or a limit on k requires k
        itself.

        Args:
            added: called with token ids (n,), int64 on the CPU, it returns (n, hidden_size) values to add to those
                stored embedding rows; None adds nothing.

        Raises:
            InvariantError: a token is outside the vocabulary, or there are no tokens. Values that are not finite appear
                in the result.
        """
        layout = self.model.layout
        queries, references = _ids(query_tokens), _ids(reference_tokens)
        _check_tokens(layout, queries, references)
        if layout.scores == "embedding":
            return _cosines(self.model, queries, references, self._device, added)
        with self._reading:  # several threads may need them at the same time, and q alone takes 0.1 GB
            project_q, project_k, inputs = self._q, self._k, self._inputs
        q = project_q(inputs(queries, added))
        # Query head h reads key head h // group, so a group's heads are adjacent.
        group = layout.heads // layout.kv_heads
        q = q.view(len(queries), layout.kv_heads, group, layout.head_dim).sum(dim=2).flatten(1)
        scores = torch.empty(len(queries), len(references), dtype=torch.float64)
        products = project_k.products(q)
        for start in range(0, len(references), REFERENCE_BLOCK):
            block = references[start : start + REFERENCE_BLOCK]
            scores[:, start : start + len(block)] = products(inputs(block, added)).cpu()
        return scores

    @cached_property
    def _inputs(self) -> _Inputs:
        return _Inputs(self.model, self._device)

    @cached_property
    def _q(self) -> _Projection:
        layout = self.model.layout
        return self._projection(layout.q, layout.q_bias, layout.q_norm, layout.heads)

    @cached_property
    def _k(self) -> _Projection:
        layout = self.model.layout
        return self._projection(layout.k, layout.k_bias, layout.k_norm, layout.kv_heads)

    def _projection(
        self, weight: TensorRef | None, bias: TensorRef | None, norm: Norm | None, heads: int
    ) -> _Projection:
        layout = self.model.layout
        if weight is None:
            raise InvariantError(
                "layer 0's q and k were not recognised in this model",
                expected="tensor names of a known model family",
                found="; ".join(layout.notes) or None,
            )
        rows = heads * layout.head_dim
        if self._most_rows is not None and rows > self._most_rows:
            raise InvariantError(
                "layer 0's q and k have far more rows than the original's, so they were not read",
                expected=f"at most {self._most_rows}",
                found=str(rows),
            )
        return _Projection(self.model, weight, bias, norm, layout.clip, heads, self._device)


def standardise(scores: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """(t, d) float64: each row of `scores` (t, d) with mean 0 and population deviation 1.

    Args:
        tokens: the query tokens of the rows, for the error.

    Raises:
        InvariantError: rows that are constant (to float32 rounding) or not finite have no standard form.
    """
    scores = scores.double()
    mean = scores.mean(dim=1, keepdim=True)
    deviation = scores.std(dim=1, correction=0, keepdim=True)
    largest = scores.abs().amax(dim=1, keepdim=True)
    # Written so that NaN, for which every comparison is false, counts as bad.
    good = torch.isfinite(largest) & (deviation > CONSTANT_ROW * largest)
    if not good.all():
        bad = (~good[:, 0]).nonzero()[:, 0].tolist()
        raise InvariantError(
            "rows of the invariant are constant or not finite",
            query_tokens=[tokens[i] for i in bad],
            expected="scores that differ between the reference tokens",
            advice="The embedding rows or layer 0's q and k are constant, zero or damaged",
        )
    return (scores - mean) / deviation


def _cosines(
    model: Weights, queries: torch.Tensor, references: torch.Tensor, device: Device, added: Added | None
) -> torch.Tensor:
    """(t, d) cosines between embedding rows; 0 if a row is zero, NaN if it is not finite."""

    def directions(tokens: torch.Tensor) -> torch.Tensor:
        x = _embedded(model, tokens, device, added)
        units: torch.Tensor = x / x.norm(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)
        return units

    q = directions(queries)
    scores = torch.empty(len(queries), len(references), dtype=torch.float64)
    for start in range(0, len(references), REFERENCE_BLOCK):
        block = references[start : start + REFERENCE_BLOCK]
        scores[:, start : start + len(block)] = (q @ directions(block).T).cpu()
    return scores


def _embedded(model: Weights, tokens: torch.Tensor, device: Device, added: Added | None) -> torch.Tensor:
    """(n, hidden_size) float64, the tokens' rows of W_e plus `added`."""
    x = model.embedding(tokens, device).double()
    return x if added is None else x + added(tokens).to(device=x.device, dtype=x.dtype)


class _Inputs:
    """The inputs of layer 0's q and k, for tokens at position 0; the small tensors are read once."""

    def __init__(self, model: Weights, device: Device) -> None:
        self._model, self._device = model, device
        layout = model.layout
        self._scale = layout.embedding_scale
        widening, bias = layout.embedding_projection, layout.embedding_projection_bias
        self._widening = model.read(widening, device=device).double() if widening is not None else None
        self._bias = model.read(bias, device=device).double() if bias is not None else None
        tables = (layout.token_type, layout.position)
        self._tables = [_first_row(model, table, device) for table in tables if table is not None]
        first, last = layout.embedding_norm, layout.input_norm
        self._embedding_norm = _NormFunction(model, first, device) if first is not None else None
        self._input_norm = _NormFunction(model, last, device) if last is not None else None

    def __call__(self, tokens: torch.Tensor, added: Added | None) -> torch.Tensor:
        """(n,) token ids to (n, width)."""
        x = _embedded(self._model, tokens, self._device, added)
        if self._scale != 1:
            x = x * self._scale
        if self._widening is not None and self._bias is None:
            x = torch.nn.functional.linear(x, self._widening)
        for table in self._tables:
            x = x + table
        if self._embedding_norm is not None:
            x = self._embedding_norm(x)
        if self._widening is not None and self._bias is not None:
            x = torch.nn.functional.linear(x, self._widening, self._bias)
        return x if self._input_norm is None else self._input_norm(x)


class _Projection:
    """q or k of layer 0, split into heads, normalised and limited if the family does so."""

    def __init__(
        self,
        model: Weights,
        weight: TensorRef,
        bias: TensorRef | None,
        norm: Norm | None,
        clip: float | None,
        heads: int,
        device: Device,
    ) -> None:
        self._weight = model.read(weight, device=device).double()
        self._bias = model.read(bias, device=device).double() if bias is not None else None
        self._norm = _NormFunction(model, norm, device) if norm is not None else None
        self._over_all = norm is not None and norm.over == "projection"
        self._clip, self._heads = clip, heads

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(n, width) to (n, heads, head_dim)."""
        y = torch.nn.functional.linear(x, self._weight, self._bias)
        if not self._over_all:
            y = y.view(len(x), self._heads, -1)
        if self._norm is not None:
            y = self._norm(y)
        if self._clip is not None:
            y = y.clamp(-self._clip, self._clip)
        return y.view(len(x), self._heads, -1)

    def products(self, q: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """A function from x (n, width) to (t, n), the products of q (t, heads * head_dim) with this projection of x."""
        if self._norm is not None or self._clip is not None:
            return lambda x: q @ self(x).flatten(1).T
        turned = q @ self._weight
        shift = 0.0 if self._bias is None else (q @ self._bias)[:, None]
        return lambda x: turned @ x.T + shift


class _NormFunction:
    """A `Norm` with its weights read."""

    def __init__(self, model: Weights, norm: Norm, device: Device) -> None:
        self._layer = norm.kind == "layer"
        self._eps = norm.eps
        gains = [norm.offset + model.read(ref, device=device).double() for ref in norm.weights]
        # If each head has a separate gain tensor, they are stacked as (heads, head_dim).
        self._gain = torch.stack(gains) if isinstance(norm.weight, tuple) else gains[0] if gains else None
        self._bias = model.read(norm.bias, device=device).double() if norm.bias is not None else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._layer:
            x = x - x.mean(dim=-1, keepdim=True)
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x = x * torch.rsqrt(size.square() / x.shape[-1] + self._eps)
        if self._gain is not None:
            x *= self._gain
        if self._bias is not None:
            x += self._bias
        return x


def _first_row(model: Weights, ref: TensorRef, device: Device) -> torch.Tensor:
    """Row 0 of a table, (1, hidden_size), without reading the rest of it."""
    start = ref.rows[0] if ref.rows is not None else 0
    return model.read(replace(ref, rows=(start, start + 1)), device=device)


def _ids(tokens: Tokens) -> torch.Tensor:
    """(n,) int64 on the CPU."""
    if isinstance(tokens, torch.Tensor):
        return tokens.to("cpu", torch.int64).reshape(-1)
    # A copy, since torch warns about sharing memory with a read-only array.
    return torch.from_numpy(np.array(tokens, dtype=np.int64).reshape(-1))


def _check_tokens(layout: Layout, queries: torch.Tensor, references: torch.Tensor) -> None:
    if not len(queries) or not len(references):
        raise InvariantError(
            "the invariant requires query tokens and reference tokens",
            expected="at least one of each",
            found=f"{len(queries)} and {len(references)}",
        )
    outside = [ids[(ids < 0) | (ids >= layout.vocab_size)].tolist() for ids in (queries, references)]
    if any(outside):
        raise InvariantError(
            "some tokens are outside the model's vocabulary",
            query_tokens=outside[0],
            reference_tokens=outside[1],
            expected=f"token IDs from 0 to {layout.vocab_size - 1}",
            advice="The model's vocabulary was trimmed, or this is a different model. Match the rows by alignment "
            "first",
        )


def _named(tokens: Sequence[int]) -> str:
    more = len(tokens) - TOKENS_NAMED
    return ", ".join(str(t) for t in tokens[:TOKENS_NAMED]) + (f" and {more} more" if more > 0 else "")
