"""Which tensors of one checkpoint read the residual stream, write it and stand on it, through all layers."""

from __future__ import annotations

from dataclasses import dataclass

from irwm.families.family import Anatomy, Family, NormRole
from irwm.families.schema import TensorRef


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix (out, in) with its bias (out,), each possibly some rows of a fused tensor; bias None for none."""

    weight: TensorRef
    bias: TensorRef | None

    @property
    def refs(self) -> tuple[TensorRef, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: attention q, k, v (heads * head_dim rows each, kv_heads for k and v), o, and the MLP."""

    q: Linear
    k: Linear
    v: Linear
    o: Linear
    gate: Linear | None
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class StreamNorm:
    """A norm of the stream: its gain (d,), bias (d,) or None, and the weights (out, d) that read what it puts out."""

    gain: str
    bias: str | None
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """A checkpoint's anatomy, made by `survey.structure_of`; all strings are tensor names.

    Attributes:
        family, anatomy: what irwm/families/data knows of it.
        norm: how the norms of the stream compute.
        model_type: as in the config.
        prefix: in front of the language model's names.
        vocab_size, hidden_size: s and d, the embedding's stored shape.
        heads, kv_heads, head_dim: query heads, key heads, entries per head.
        rotary_dim: leading entries of each head that are rotated by position; entry i pairs with i + rotary_dim / 2.
        eps: the norms' eps, `eps_key` its config key; one value serves every norm of these families.
        embedding: W_e, (s, d).
        tables: embedding and whatever is added to it, each (n, d).
        head: the output head (s, d) where it is a tensor of its own, else None.
        head_name: what the head is called, or would be.
        tied: the model has a head and uses W_e for it, since the files hold no other.
        config_ties: the config says so, or leaves it out and its default says so.
        head_biases: vectors (s,).
        layers: from the first to the last.
        norms: of the stream, in the order they run.
        post_norms: gains (d,) of norms on what a layer adds to the stream.
        final_readers: weights (out, d) besides the head that read the stream's end.
    """

    family: Family
    anatomy: Anatomy
    norm: NormRole
    model_type: str
    prefix: str
    vocab_size: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    eps: float
    eps_key: str
    embedding: str
    tables: tuple[str, ...]
    head: str | None
    head_name: str
    tied: bool
    config_ties: bool
    head_biases: tuple[str, ...]
    layers: tuple[Layer, ...]
    norms: tuple[StreamNorm, ...]
    post_norms: tuple[str, ...]
    final_readers: tuple[str, ...]

    @property
    def post_norm_stream(self) -> bool:
        """Whether norms stand on the stream itself, as in BERT, and not in front of its readers."""
        return self.family.input_norm is None

    @property
    def embedding_scaled(self) -> bool:
        """Whether the model multiplies the embedding by sqrt(hidden size)."""
        return self.family.embedding_scale == "sqrt(hidden_size)"

    @property
    def head_norms(self) -> bool:
        """Whether every single query and key head is normalised (Qwen 3)."""
        return self.family.q_norm is not None

    @property
    def readers(self) -> tuple[str, ...]:
        """Weights (out, d) that read the stream, each once."""
        return tuple(dict.fromkeys([*(r for norm in self.norms for r in norm.readers), *self.final_readers]))

    @property
    def writers(self) -> tuple[str, ...]:
        """Weights (d, in) whose output is added to the stream, before post-norms where the family has them."""
        return tuple(linear.weight.name for layer in self.layers for linear in (layer.o, layer.down))

    @property
    def writer_biases(self) -> tuple[str, ...]:
        """Vectors (d,) added with the writers' outputs."""
        return tuple(linear.bias.name for layer in self.layers for linear in (layer.o, layer.down) if linear.bias)

    @property
    def norm_vectors(self) -> tuple[str, ...]:
        """Gains and biases (d,) of all norms of the stream and of what is added to it."""
        own = (name for norm in self.norms for name in (norm.gain, norm.bias) if name is not None)
        return (*own, *self.post_norms)
