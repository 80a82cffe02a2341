"""A description of a model for the scheme: the tensors of the layer-0 attention score, and the conventions.

`irwm.families.recognise` returns a `Layout` for one checkpoint. It names tensors and contains numbers, but no
weights, so making one requires only a config and the tensors' shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# The shape of each tensor in the files by its name, in the files' own orientation.
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor of the checkpoint, or a row slice of a fused one.

    Attributes:
        name: the tensor's name in the files.
        rows: half-open range of output rows (for a bias: of entries) that belong to this role, None for all. Counted
            in the logical (out, in) orientation, independent of `transposed`.
        every: if q, k and v alternate head by head, the period: `rows` then repeats after this many rows.
        transposed: the file stores (in, out) while the logical matrix is (out, in).
    """

    name: str
    rows: tuple[int, int] | None = None
    transposed: bool = False
    every: int | None = None


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation over the last axis: x, standardised by `kind`, times (offset + weight), plus bias.

    Attributes:
        kind: "rms" divides by sqrt(mean(x^2) + eps); "layer" first subtracts the mean.
        weight: the gain, None for a norm without one (gain 1). For q and k it may also be (heads, head_dim), a gain
            for each head, stored as one tensor or as a tuple of one tensor per head.
        bias: the additive term, None without one.
        eps: added to the mean square (or variance) under the root.
        offset: added to the stored gain; 1.0 for Gemma, which stores the gain minus one, else 0.0.
        over: the axis of a norm on q or k: "head", each head alone, or "projection", all heads together.
    """

    kind: Literal["rms", "layer"]
    weight: TensorRef | tuple[TensorRef, ...] | None
    bias: TensorRef | None
    eps: float
    offset: float
    over: Literal["head", "projection"] = "head"

    @property
    def weights(self) -> tuple[TensorRef, ...]:
        """The gain's tensors: none, one, or one per head."""
        if self.weight is None or isinstance(self.weight, tuple):
            return self.weight or ()
        return (self.weight,)


# The family of a checkpoint whose names or model type match no family.
UNKNOWN_FAMILY = "unknown"


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of one checkpoint's embedding and layer-0 q and k, and how the model combines them.

    It describes this computation, for one token at position 0 (docs/method.md):

        x = embedding[token] * embedding_scale
        x = x W_in^T [+ position[0] + token_type[0]]                (each only if not None)
        x = embedding_norm(x)                                       only if not None
        x = x W_in^T + b_in                                         here if b_in is not None, then not above
        x = input_norm(x)                                           only if not None
        q, k = x W_q^T + b_q, x W_k^T + b_k                         heads * head_dim entries, head by head
        q, k = q_norm(q), k_norm(k)                                 only if not None
        q, k = limited to [-clip, clip]                             only if not None

    Attributes:
        family: name of the family's data file, e.g. "llama".
        vocab_size, hidden_size: s and d, the embedding's stored shape (padded rows count).
        heads, kv_heads, head_dim: query heads, key heads (a divisor of heads; query head h reads key head
            h // (heads // kv_heads)), and entries per head. 0 if q and k are None.
        embedding: W_e, (vocab_size, hidden_size).
        head: the output head's tensor if the files hold one, else None.
        tied: the model uses the embedding as output head, by its config; a stored `head` is then a copy.
        position, token_type: tables whose row 0 is added to the embedding, None if the family has none. The rows
            of `position` begin at the first token's, which is not always the first one stored.
        embedding_norm: norm over the summed embedding, before the first layer.
        input_norm: norm of layer 0 before q and k; None in post-norm families.
        q, k: (heads * head_dim, width) and (kv_heads * head_dim, width), width being hidden_size or that of
            `embedding_projection`. None if the scores come from the embedding alone, or if the names in the files
            do not show which tensors they are; then all roles except the embedding may be unknown.
        q_bias, k_bias: (heads * head_dim,) and (kv_heads * head_dim,).
        v, o: layer 0's values and the attention's output, (kv_heads * n, width) and (width, heads * n), n being
            head_dim in most families. A does not need them. None if the files hold none, as GGUF files.
        q_norm, k_norm: norms on q and k.
        embedding_scale: factor on the embedding as the model applies it, 1.0 for most.
        notes: sentences for readers of a report, e.g. about a head that the config states and the files lack.
        alternatives: other tensors that may be the embedding, if names do not decide or several have its name;
            their shapes may differ.
        embedding_projection: W_in, (width, hidden_size), if the layers are wider than the embedding.
        embedding_projection_bias: b_in, (width,); the projection then follows the embedding's norm, and tables and
            norm are as wide as the embedding.
        clip: the limit on the magnitude of q and k.
        scores: the source of A: "attention", q and k of layer 0; "embedding", only the embedding's rows, if
            the family has no such q and k.
        copies: tensors that should repeat the embedding under another of its names, besides `head`. Only their
            bytes show whether they do.
        elsewhere: the layouts of other models in the files, under other paths. One of them may be the model that
            is used; their embeddings are among the `alternatives`.
    """

    family: str
    vocab_size: int
    hidden_size: int
    embedding: TensorRef
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    head: TensorRef | None = None
    tied: bool = False
    position: TensorRef | None = None
    token_type: TensorRef | None = None
    embedding_norm: Norm | None = None
    input_norm: Norm | None = None
    q: TensorRef | None = None
    k: TensorRef | None = None
    q_bias: TensorRef | None = None
    k_bias: TensorRef | None = None
    v: TensorRef | None = None
    o: TensorRef | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    embedding_scale: float = 1.0
    notes: tuple[str, ...] = ()
    alternatives: tuple[TensorRef, ...] = ()
    embedding_projection: TensorRef | None = None
    embedding_projection_bias: TensorRef | None = None
    clip: float | None = None
    scores: Literal["attention", "embedding"] = "attention"
    copies: tuple[TensorRef, ...] = ()
    elsewhere: tuple[Layout, ...] = ()

    @property
    def tensors(self) -> tuple[TensorRef, ...]:
        """The embedding, its copies, and every tensor that A is computed from."""
        norms = (self.embedding_norm, self.input_norm, self.q_norm, self.k_norm)
        refs = (
            self.embedding,
            *self.copies,
            self.embedding_projection,
            self.embedding_projection_bias,
            *(self.position, self.token_type, self.q, self.k, self.q_bias, self.k_bias),
            *(ref for norm in norms if norm is not None for ref in (*norm.weights, norm.bias)),
        )
        return tuple(ref for ref in refs if ref is not None)

    @property
    def names_known(self) -> bool:
        """Whether the tensors' names are understood, so that tensors not found under them do not exist."""
        return self.q is not None or (self.scores == "embedding" and self.family != UNKNOWN_FAMILY)

    @property
    def known_alone(self) -> bool:
        """Whether this is a model of an unknown family whose embedding is known only by its name and size."""
        return self.family == UNKNOWN_FAMILY and self.scores == "embedding"

    @property
    def drops_row_constants(self) -> bool:
        """Whether the first norm subtracts each row's mean, so that adding a constant to a row does not affect layer
        0."""
        norm = self.embedding_norm or self.input_norm
        return norm is not None and norm.kind == "layer"
