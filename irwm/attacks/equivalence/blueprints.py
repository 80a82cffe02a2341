"""What each family's tensors do to the residual stream, as data.

Names are modules; their tensors are the module's name plus ".weight" and, where the file has it, ".bias". Read off
transformers 5.23's modelling code of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One family.

    Attributes:
        embedding: the word embedding, after the file's own prefix of the language model.
        tables: what is added to it before the first layer, BERT's positions and token types.
        layer: path of a layer, "{}" for its number.
        q, k, v: in a layer; one name three times where they are fused, the rows then in the order q, k, v.
        o: the attention's output, which writes the stream.
        gate, up: the MLP's input; one name twice where they are fused, gate first; gate None for a plain MLP.
        down: the MLP's output, which writes the stream.
        norms: in a layer, in the order they run, with the modules that read each one's output. Post-norm families'
            (BERT) norms stand on the stream itself, so what they put out is also the stream of the next step.
        post_norms: norms on a sublayer's output before it is added to the stream (Gemma 2).
        outer_norm: the norm behind the last layer, or BERT's in front of the first.
        kind: "rms" divides by the root mean square; "layer" first subtracts the mean and adds a bias at the end.
        gain_offset: added to the stored gain; 1.0 in Gemma.
        embedding_scaled: the model multiplies the embedding by sqrt(hidden size).
        head_norms: norms on every single query and key head (Qwen 3).
        rotary: how much of a head is rotated; "partial" follows the config's partial_rotary_factor.
        head: the output head, found by the end of its name.
        final_readers: further modules that read the stream's end, found by the end of their names.
        head_biases: biases over the vocabulary, found by the end of their names.
        inert: ends of tensor names that no transform has to touch.
    """

    embedding: str
    tables: tuple[str, ...]
    layer: str
    q: str
    k: str
    v: str
    o: str
    gate: str | None
    up: str
    down: str
    norms: tuple[tuple[str, tuple[str, ...]], ...]
    post_norms: tuple[str, ...]
    outer_norm: str
    kind: Literal["rms", "layer"]
    gain_offset: float
    embedding_scaled: bool
    head_norms: tuple[str, ...]
    rotary: Literal["full", "partial", "none"]
    head: str
    final_readers: tuple[str, ...]
    head_biases: tuple[str, ...]
    inert: tuple[str, ...]

    @property
    def post_norm_stream(self) -> bool:
        """Whether norms stand on the stream itself, as in BERT, and not in front of its readers."""
        return self.kind == "layer"


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")

_LLAMA = Blueprint(
    embedding="embed_tokens",
    tables=(),
    layer="layers.{}",
    q=_QKV[0],
    k=_QKV[1],
    v=_QKV[2],
    o="self_attn.o_proj",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
    norms=(("input_layernorm", _QKV), ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj"))),
    post_norms=(),
    outer_norm="norm",
    kind="rms",
    gain_offset=0.0,
    embedding_scaled=False,
    head_norms=(),
    rotary="full",
    head="lm_head",
    final_readers=(),
    head_biases=("lm_head.bias",),
    inert=("rotary_emb.inv_freq",),
)
_PHI3 = replace(
    _LLAMA,
    q="self_attn.qkv_proj",
    k="self_attn.qkv_proj",
    v="self_attn.qkv_proj",
    gate="mlp.gate_up_proj",
    up="mlp.gate_up_proj",
    norms=(("input_layernorm", ("self_attn.qkv_proj",)), ("post_attention_layernorm", ("mlp.gate_up_proj",))),
    rotary="partial",
)
_GEMMA = replace(_LLAMA, gain_offset=1.0, embedding_scaled=True)
_GEMMA2 = replace(
    _GEMMA,
    norms=(("input_layernorm", _QKV), ("pre_feedforward_layernorm", ("mlp.gate_proj", "mlp.up_proj"))),
    post_norms=("post_attention_layernorm", "post_feedforward_layernorm"),
)
_BERT_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
_BERT = Blueprint(
    embedding="embeddings.word_embeddings",
    tables=("embeddings.position_embeddings", "embeddings.token_type_embeddings"),
    layer="encoder.layer.{}",
    q=_BERT_QKV[0],
    k=_BERT_QKV[1],
    v=_BERT_QKV[2],
    o="attention.output.dense",
    gate=None,
    up="intermediate.dense",
    down="output.dense",
    norms=(("attention.output.LayerNorm", ("intermediate.dense",)), ("output.LayerNorm", _BERT_QKV)),
    post_norms=(),
    outer_norm="embeddings.LayerNorm",
    kind="layer",
    gain_offset=0.0,
    embedding_scaled=False,
    head_norms=(),
    rotary="none",
    head="cls.predictions.decoder",
    final_readers=("pooler.dense", "cls.predictions.transform.dense"),
    head_biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    inert=(
        "embeddings.position_ids",
        "pooler.dense.bias",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    ),
)

BLUEPRINTS: Mapping[str, Blueprint] = MappingProxyType(
    {
        "llama": _LLAMA,
        "mistral": _LLAMA,
        "qwen2": _LLAMA,
        "qwen3": replace(_LLAMA, head_norms=("self_attn.q_norm", "self_attn.k_norm")),
        "phi3": _PHI3,
        "gemma": _GEMMA,
        "gemma2": _GEMMA2,
        "bert": _BERT,
    }
)
