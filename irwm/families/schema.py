"""What the scheme needs to know of a model: which tensors make the layer-0 attention score, and by which conventions.

A `Layout` is the answer `irwm.families.recognise` gives for one checkpoint. It names tensors and holds numbers; it
never holds weights, so making one reads nothing but a config and the tensors' shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor of the checkpoint, or a row slice of a fused one.

    Attributes:
        name: the tensor's name in the files.
        rows: half-open range of output rows (for a bias: of entries) that belong to this role, None for all. Counted
            in the logical (out, in) orientation, whatever `transposed` says.
        transposed: the file stores (in, out) where the logical matrix is (out, in).
    """

    name: str
    rows: tuple[int, int] | None = None
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation over the last axis: x, standardised by `kind`, times (offset + weight), plus bias.

    Attributes:
        kind: "rms" divides by sqrt(mean(x^2) + eps); "layer" first subtracts the mean.
        weight: the gain, None for a norm without one (gain 1).
        bias: the additive term, None for none.
        eps: added to the mean square (or variance) under the root.
        offset: added to the stored gain; 1.0 for Gemma, which stores the gain minus one, else 0.0.
    """

    kind: Literal["rms", "layer"]
    weight: TensorRef | None
    bias: TensorRef | None
    eps: float
    offset: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one checkpoint keeps its embedding and layer-0 q and k, and how the model combines them.

    The computation it stands for, for one token at position 0 (METHOD.md section 1):

        x = embedding[token] * embedding_scale [+ position[0] + token_type[0]]
        x = embedding_norm(x), then input_norm(x)                   (each only where not None)
        q, k = x W_q^T + b_q, x W_k^T + b_k                         split into heads of head_dim
        q, k = q_norm(q), k_norm(k)                                 per head, only where not None

    Attributes:
        family: name of the family's data file, e.g. "llama".
        vocab_size, hidden_size: s and d, the embedding's stored shape (padded rows count).
        heads, kv_heads, head_dim: query heads, key heads (a divisor of heads; query head h reads key head
            h // (heads // kv_heads)), and entries per head.
        embedding: W_e, (vocab_size, hidden_size).
        head: the output head's tensor where the files hold one, else None.
        tied: the model uses the embedding as output head, by its config; a stored `head` is then a copy.
        position, token_type: tables whose row 0 is added to the embedding, None where the family has none.
        embedding_norm: norm over the summed embedding, before the first layer.
        input_norm: norm of layer 0 in front of q and k; None in post-norm families.
        q, k: (heads * head_dim, hidden_size) and (kv_heads * head_dim, hidden_size).
        q_bias, k_bias: (heads * head_dim,) and (kv_heads * head_dim,).
        q_norm, k_norm: norms over head_dim, applied to each head.
        embedding_scale: factor on the embedding as the model applies it, 1.0 for most.
        notes: sentences a reader of a report should know, e.g. a head that the config promises and the files lack.
    """

    family: str
    vocab_size: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    embedding: TensorRef
    head: TensorRef | None
    tied: bool
    position: TensorRef | None
    token_type: TensorRef | None
    embedding_norm: Norm | None
    input_norm: Norm | None
    q: TensorRef
    k: TensorRef
    q_bias: TensorRef | None
    k_bias: TensorRef | None
    q_norm: Norm | None
    k_norm: Norm | None
    embedding_scale: float
    notes: tuple[str, ...]
