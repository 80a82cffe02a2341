"""A model written as one of another family: as a plain Llama, or as a mixture of experts (Mixtral)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from irwm.attacks.equivalence.draft import Draft, generator
from irwm.attacks.equivalence.head import untied
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import Linear, Structure, structure_of
from irwm.attacks.equivalence.transform import no_head_norms, no_post_norms, rms_norms, transform
from irwm.families.configvalues import ConfigJson

# The families that the attacks write, and their classes in transformers.
_TARGET, _CLASS = "llama", "LlamaForCausalLM"
_MIXTURE, _MIXTURE_CLASS = "mixtral", "MixtralForCausalLM"
_EXPERTS, _EXPERTS_USED = 4, 2
# The name of a Llama's MLP matrix in an expert.
_IN_EXPERT = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
# Keys that are copied from the old config; the rest follows from the model's structure.
_CARRIED = (
    "dtype",
    "torch_dtype",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "hidden_act",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "initializer_range",
    "attention_dropout",
    "use_cache",
    "transformers_version",
)


def _no_window(state: State, structure: Structure) -> str | None:
    silent, switch = structure.family.model_types[structure.model_type], structure.anatomy.window_switch
    window = state.config.get("sliding_window", silent.get("sliding_window"))
    if switch is not None and not state.config.get(switch, False):
        return None
    longest = state.config.get("max_position_embeddings", silent.get("max_position_embeddings"))
    if not isinstance(window, int) or (isinstance(longest, int) and window >= longest):
        return None
    return f"the model's attention looks back only {window} positions, but a Llama model has no sliding window"


def _plain_rotation(state: State, structure: Structure) -> str | None:
    if structure.rotary_dim != structure.head_dim:
        return "the model rotates only part of each head, but a Llama model rotates the whole head"
    rope = state.config.get("rope_parameters") or state.config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if structure.anatomy.own_rotary_kinds and kind != "default":
        return f"the model's rotary embedding is of type {kind}, which needs settings that a Llama model does not have"
    return None


def _causal(state: State, _structure: Structure) -> str | None:
    if state.config.get("use_bidirectional_attention"):
        return "the model's attention is bidirectional, but that of a Llama model is causal"
    return None


def _not_llama(_state: State, structure: Structure) -> str | None:
    return "the model is already a Llama model" if structure.model_type == _TARGET else None


@transform(rms_norms, no_head_norms, no_post_norms, _plain_rotation, _no_window, _causal, _not_llama)
def as_llama(state: State) -> State:
    """Writes the model as a Llama: fused tensors are split, Gemma's offset is added to the gains and its sqrt(d)
    multiplied into a separate embedding, and Qwen 2's missing output bias is written as zeros. For Phi-3, Gemma,
    Mistral and Qwen 2, unless they use a sliding window or a rotary embedding that a Llama does not have.

    Gemma rounds sqrt(d) to the number format it runs in; the product here uses the exact root, as Gemma does in
    float32.
    """
    if structure_of(state).embedding_scaled:
        state = untied(state)
    structure = structure_of(state)
    tensors, dtypes = _tensors(state, structure)
    config = _config(state, structure, tensors)
    return replace(state, config=config, tensors=tensors, dtypes=dtypes)


def _no_biases(_state: State, structure: Structure) -> str | None:
    return "the model's matrices have biases, but those of a Mixtral model do not" if any(_biases(structure)) else None


@transform(rms_norms, no_head_norms, no_post_norms, _plain_rotation, _no_window, _causal, _no_biases)
def as_mixtral(state: State, seed: int = 0) -> State:
    """Writes the model as a mixture of experts ("upcycling", Komatsuzaki et al., arXiv:2212.05055), as it is before
    further training: every expert is the layer's MLP with its hidden units in another order, and the router is
    random."""
    if structure_of(state).model_type != _TARGET:
        state = as_llama(state)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    for number, layer in enumerate(structure.layers):
        old, new = f"model.layers.{number}.mlp", f"model.layers.{number}.block_sparse_moe"
        router = torch.randn(_EXPERTS, structure.hidden_size, generator=source, dtype=torch.float64)
        draft.add(f"{new}.gate.weight", router / math.sqrt(structure.hidden_size), like=layer.down.weight.name)
        parts = {name: draft.tensors.pop(f"{old}.{name}.weight") for name in _IN_EXPERT}
        dtypes = {name: draft.dtypes.pop(f"{old}.{name}.weight") for name in _IN_EXPERT}
        for expert in range(_EXPERTS):
            order = torch.randperm(len(parts["up_proj"]), generator=source)
            for name, part in parts.items():
                matrix = part[:, order] if name == "down_proj" else part[order]
                draft.tensors[f"{new}.experts.{expert}.{_IN_EXPERT[name]}.weight"] = matrix
                draft.dtypes[f"{new}.experts.{expert}.{_IN_EXPERT[name]}.weight"] = dtypes[name]
    draft.config |= {
        "architectures": [_MIXTURE_CLASS],
        "model_type": _MIXTURE,
        "num_local_experts": _EXPERTS,
        "num_experts_per_tok": _EXPERTS_USED,
        "sliding_window": None,
    }
    return draft.done()


def _tensors(state: State, structure: Structure) -> tuple[dict[str, torch.Tensor], dict[str, torch.dtype]]:
    draft = Draft(state)
    tensors: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}

    def place(name: str, value: torch.Tensor, like: str) -> None:
        tensors[name], dtypes[name] = value, draft.dtypes[like]

    def linear(name: str, source: Linear, bias: bool) -> None:
        weight = draft.read(source.weight)
        place(f"{name}.weight", weight, source.weight.name)
        if bias:
            value = draft.read(source.bias) if source.bias else torch.zeros(len(weight), dtype=torch.float64)
            place(f"{name}.bias", value, source.weight.name)

    offset = structure.norm.offset
    scale = math.sqrt(structure.hidden_size) if structure.embedding_scaled else 1.0
    place("model.embed_tokens.weight", draft.read(structure.embedding) * scale, structure.embedding)
    if structure.head is not None:
        place("lm_head.weight", draft.read(structure.head), structure.head)
    attention_bias, mlp_bias = _biases(structure)
    for i, layer in enumerate(structure.layers):
        stem = f"model.layers.{i}"
        for part in ("q", "k", "v", "o"):
            linear(f"{stem}.self_attn.{part}_proj", getattr(layer, part), attention_bias)
        for part in ("gate", "up", "down"):
            linear(f"{stem}.mlp.{part}_proj", getattr(layer, part), mlp_bias)
        first, second = structure.norms[2 * i : 2 * i + 2]
        place(f"{stem}.input_layernorm.weight", draft.read(first.gain) + offset, first.gain)
        place(f"{stem}.post_attention_layernorm.weight", draft.read(second.gain) + offset, second.gain)
    last = structure.norms[-1].gain
    place("model.norm.weight", draft.read(last) + offset, last)
    return tensors, dtypes


def _biases(structure: Structure) -> tuple[bool, bool]:
    """Whether any attention, and any MLP, has a bias; a Llama then has one in all of its matrices."""
    attention = any(part.bias for layer in structure.layers for part in (layer.q, layer.k, layer.v, layer.o))
    mlp = any(part.bias for layer in structure.layers for part in (layer.gate, layer.up, layer.down) if part)
    return attention, mlp


def _config(state: State, structure: Structure, tensors: dict[str, torch.Tensor]) -> ConfigJson:
    # For missing config keys transformers would use Llama's defaults instead of the family's.
    old = {**structure.family.model_types[structure.model_type], **state.config}
    config = {key: old[key] for key in _CARRIED if key in old}
    meant = structure.anatomy.activations.get(str(config.get("hidden_act")))
    if meant is not None:
        config["hidden_act"] = meant
    attention_bias, mlp_bias = _biases(structure)
    return config | {
        "architectures": [_CLASS],
        "model_type": _TARGET,
        "vocab_size": structure.vocab_size,
        "hidden_size": structure.hidden_size,
        "intermediate_size": tensors["model.layers.0.mlp.down_proj.weight"].shape[1],
        "num_hidden_layers": len(structure.layers),
        "num_attention_heads": structure.heads,
        "num_key_value_heads": structure.kv_heads,
        "head_dim": structure.head_dim,
        "rms_norm_eps": structure.norm.eps,
        "attention_bias": attention_bias,
        "mlp_bias": mlp_bias,
        "tie_word_embeddings": structure.head is None,
    }
