"""Configs of tiny models, at least one for every family, model type and variant that has layer-0 scores."""

from __future__ import annotations

from typing import Any

VOCABULARY = 199

# Sizes that make every convention visible: grouped heads, heads * head_dim different from the hidden size, a hidden
# size whose square root is not a whole number, and an eps large enough to affect the scores.
_DECODER = {
    "vocab_size": VOCABULARY, "hidden_size": 72, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_OWN_HEAD_DIM = {**_DECODER, "head_dim": 20}
_EXPERTS = {"num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_ROUTED = {
    "n_routed_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
    "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
# A vector for each token and layer, in a table next to the embedding.
_PER_LAYER = {"hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": VOCABULARY}
# Layer norms use another name for eps, and heads of 12 entries must have an even rotated part.
_HALF_ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}


def _sections(rotated: float, *sizes: int) -> dict[str, Any]:
    """Rotary settings of a model that also reads images: the rotated pairs that time, height and width turn."""
    rotary = {**_HALF_ROTARY["rope_parameters"], "partial_rotary_factor": rotated, "mrope_section": list(sizes)}
    return {"rope_parameters": rotary}


def _without(settings: dict[str, Any], *keys: str, **more: Any) -> dict[str, Any]:
    return {**{key: value for key, value in settings.items() if key not in keys}, **more}


_LAYER_NORM = _without(_DECODER, "rms_norm_eps", layer_norm_eps=1e-2, **_HALF_ROTARY)
_GLM_MOE = {**_OWN_HEAD_DIM, **_ROUTED, **_HALF_ROTARY}
_GRANITE_MOE = {**_DECODER, **_EXPERTS, "embedding_multiplier": 3.0}
_ERNIE_EXPERTS = {"moe_num_experts": 3, "moe_k": 2, "moe_intermediate_size": 24}
_ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
_COHERE_MOE = {**_OWN_HEAD_DIM, **_EXPERTS, "intermediate_size": 24}
_ONE_KV = _without(_DECODER, "num_key_value_heads")
_GPT = {
    "vocab_size": VOCABULARY, "n_embd": 72, "n_layer": 2, "n_head": 6, "n_positions": 32, "layer_norm_epsilon": 1e-2,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GPT_NEO = {
    "vocab_size": VOCABULARY, "hidden_size": 72, "num_layers": 2, "num_heads": 6, "attention_types": [[["global"], 2]],
    "max_position_embeddings": 32, "layer_norm_epsilon": 1e-2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_BLOOM = _without(_GPT, "n_embd", "n_positions", hidden_size=72)
_FALCON = _without(
    _ONE_KV, "rms_norm_eps", "intermediate_size", "pad_token_id", layer_norm_epsilon=1e-2, ffn_hidden_size=40
)
_FALCON_40B = {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
_OPT = _without(_ONE_KV, "rms_norm_eps", "intermediate_size", "pad_token_id", ffn_dim=40)
# Its position biases need a power of two as the number of heads.
_MPT = {
    "vocab_size": VOCABULARY, "d_model": 72, "n_layers": 2, "n_heads": 4, "max_seq_len": 32, "expansion_ratio": 2,
    "layer_norm_epsilon": 1e-2,
}  # fmt: skip
_DBRX = _without(_MPT, "layer_norm_epsilon", "expansion_ratio", ffn_config={"ffn_hidden_size": 24})
_ENCODER = {
    "vocab_size": VOCABULARY, "hidden_size": 72, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 6, "max_position_embeddings": 32, "layer_norm_eps": 1e-2,
}  # fmt: skip
_DISTILBERT = {
    "vocab_size": VOCABULARY, "dim": 72, "hidden_dim": 40, "n_layers": 2, "n_heads": 6, "max_position_embeddings": 32,
}  # fmt: skip
_MODERN = _without(_ENCODER, "layer_norm_eps", norm_eps=1e-2, pad_token_id=0)
_T5 = {
    "vocab_size": VOCABULARY, "d_model": 72, "d_kv": 20, "d_ff": 40, "num_layers": 2, "num_heads": 6,
    "layer_norm_epsilon": 1e-2,
}  # fmt: skip

# A whole root of the width: the running model rounds it to its own dtype, and the reference runs in float32.
_STACK = {**_OWN_HEAD_DIM, "hidden_size": 64, "num_attention_heads": 4}
_T5GEMMA = {"encoder": _STACK, "decoder": _STACK, "vocab_size": VOCABULARY}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _DECODER),
    "llama, biases and own head_dim": ("llama", {**_OWN_HEAD_DIM, "attention_bias": True}),
    "llama, tied": ("llama", {**_DECODER, "tie_word_embeddings": True}),
    "llama, every head its own key": ("llama", {**_DECODER, "num_key_value_heads": 6}),
    "mistral, one key head": ("mistral", {**_DECODER, "num_key_value_heads": 1}),
    "ministral": ("ministral", {**_OWN_HEAD_DIM, "layer_types": ["full_attention"] * 2}),
    "ministral3": ("ministral3", _OWN_HEAD_DIM),
    "smollm3": ("smollm3", _DECODER),
    "arcee": ("arcee", _DECODER),
    "helium": ("helium", {**_DECODER, "head_dim": 12}),
    "seed_oss": ("seed_oss", _OWN_HEAD_DIM),
    "internlm3, biases": ("internlm3", {**_OWN_HEAD_DIM, "attention_bias": True, "mlp_bias": True}),
    # Eight more rows than tokens.
    "mllama": ("mllama_text_model", {**_DECODER, "vocab_size": VOCABULARY - 8, "cross_attention_layers": [1]}),
    "cwm": ("cwm", _OWN_HEAD_DIM),
    "solar_open": ("solar_open", {**_OWN_HEAD_DIM, **_ROUTED}),
    "mimo_v2_flash": ("mimo_v2_flash", {**_OWN_HEAD_DIM, **_ROUTED, "num_key_value_heads": 3, "v_head_dim": 16}),
    "bitnet": ("bitnet", _DECODER),
    "eurobert": ("eurobert", {**_OWN_HEAD_DIM, "mask_token_id": 3}),
    "mixtral": ("mixtral", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "qwen2": ("qwen2", _DECODER),
    "qwen2_moe": ("qwen2_moe", {**_DECODER, **_EXPERTS, "shared_expert_intermediate_size": 24}),
    "qwen2_moe, no biases": ("qwen2_moe", {**_DECODER, **_EXPERTS, "qkv_bias": False}),
    "qwen3": ("qwen3", _OWN_HEAD_DIM),
    "qwen3, biases": ("qwen3", {**_OWN_HEAD_DIM, "attention_bias": True}),
    "qwen3_moe": ("qwen3_moe", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "qwen3_vl": ("qwen3_vl_text", _OWN_HEAD_DIM),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "qwen3_omni_moe": ("qwen3_omni_moe_text", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "dots1": ("dots1", {**_OWN_HEAD_DIM, **_ROUTED}),
    "hy_v3": ("hy_v3", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "exaone_moe": ("exaone_moe", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "qwen2_vl": ("qwen2_vl_text", {**_DECODER, **_sections(1.0, 2, 2, 2)}),
    "qwen2_5_vl": ("qwen2_5_vl_text", {**_DECODER, **_sections(1.0, 2, 2, 2)}),
    "minimax_m2": ("minimax_m2", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "minimax_m3": ("minimax_m3_vl_text", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "step3": ("step3p5", {**_OWN_HEAD_DIM, **_ROUTED, "sliding_window": 16}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", _OWN_HEAD_DIM),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", {**_OWN_HEAD_DIM, **_EXPERTS}),
    "glm4_moe": ("glm4_moe", _GLM_MOE),
    "glm4_moe, biases and norms on heads": ("glm4_moe", {**_GLM_MOE, "attention_bias": True, "use_qk_norm": True}),
    "glm4v": ("glm4v_text", {**_DECODER, **_sections(0.5, 1, 1, 1)}),
    "glm4v_moe": ("glm4v_moe_text", {**_OWN_HEAD_DIM, **_ROUTED, **_sections(0.5, 1, 2, 2)}),
    "exaone4": ("exaone4", _DECODER),
    "apertus": ("apertus", _DECODER),
    "phi3": ("phi3", {**_DECODER}),
    "phi": ("phi", _LAYER_NORM),
    "phi, norms on heads": ("phi", {**_LAYER_NORM, "qk_layernorm": True}),
    "phimoe": ("phimoe", {**_DECODER, **_EXPERTS}),
    "gemma": ("gemma", _OWN_HEAD_DIM),
    "gemma2": ("gemma2", _OWN_HEAD_DIM),
    # Consecutive norms hide a small eps.
    "gemma3": ("gemma3_text", {**_OWN_HEAD_DIM, "rms_norm_eps": 0.1}),
    "gemma3, biases": ("gemma3_text", {**_OWN_HEAD_DIM, "attention_bias": True}),
    "vaultgemma": ("vaultgemma", _OWN_HEAD_DIM),
    "gemma4": ("gemma4_text", {**_OWN_HEAD_DIM, "rms_norm_eps": 0.1, **_PER_LAYER}),
    "gemma4_unified": ("gemma4_unified_text", {**_OWN_HEAD_DIM, "rms_norm_eps": 0.1}),
    "embedding_gemma2": ("embedding_gemma2_text", {**_OWN_HEAD_DIM, "rms_norm_eps": 0.1, **_PER_LAYER}),
    "glm": ("glm", {**_OWN_HEAD_DIM, **_HALF_ROTARY}),
    "glm4": ("glm4", {**_OWN_HEAD_DIM, **_HALF_ROTARY}),
    "ernie4_5": ("ernie4_5", {**_OWN_HEAD_DIM, "use_bias": True}),
    "granite": ("granite", {**_DECODER, "embedding_multiplier": 0.25}),
    "ernie4_5_moe": ("ernie4_5_moe", {**_DECODER, "use_bias": True, **_ERNIE_EXPERTS}),
    "granitemoeshared": ("granitemoeshared", {**_GRANITE_MOE, "shared_intermediate_size": 24}),
    "hyperclovax": ("hyperclovax", {**_OWN_HEAD_DIM, "embedding_multiplier": 0.25}),
    "granitemoe": ("granitemoe", _GRANITE_MOE),
    # Its own rotary embedding also scales q and k, all alike.
    "gpt_oss": ("gpt_oss", {**_OWN_HEAD_DIM, **_EXPERTS, **_ROTARY}),
    "llama4": ("llama4_text", {**_OWN_HEAD_DIM, **_EXPERTS, "intermediate_size_mlp": 40}),
    "llama4, no norm on heads": ("llama4_text", {**_OWN_HEAD_DIM, **_EXPERTS, "use_qk_norm": False}),
    "starcoder2": ("starcoder2", _without(_DECODER, "rms_norm_eps", norm_epsilon=1e-2)),
    "nemotron": ("nemotron", _without(_OWN_HEAD_DIM, "rms_norm_eps", norm_eps=1e-2, **_HALF_ROTARY)),
    "stablelm": ("stablelm", _LAYER_NORM),
    "stablelm, biases": ("stablelm", {**_LAYER_NORM, "use_qkv_bias": True}),
    "stablelm, a norm for each head": ("stablelm", {**_LAYER_NORM, "qk_layernorm": True}),
    "olmo": ("olmo", _without(_DECODER, "rms_norm_eps")),
    "olmo, clipped": ("olmo", _without(_DECODER, "rms_norm_eps", clip_qkv=0.5)),
    "olmo2": ("olmo2", _DECODER),
    "olmo3": ("olmo3", _DECODER),
    "flex_olmo": ("flex_olmo", {**_DECODER, **_EXPERTS}),
    "olmoe, clipped": ("olmoe", {**_DECODER, **_EXPERTS, "clip_qkv": 0.7}),
    "cohere": ("cohere", _without(_LAYER_NORM, "rope_parameters")),
    "cohere, a norm for each head": ("cohere", _without(_LAYER_NORM, "rope_parameters", use_qk_norm=True)),
    "cohere2": ("cohere2", _without(_LAYER_NORM, "rope_parameters")),
    "cohere2_moe": ("cohere2_moe", _without({**_COHERE_MOE, "layer_norm_eps": 1e-2}, "rms_norm_eps")),
    "cohere2_moe, RMS norm": ("cohere2_moe", _COHERE_MOE),
    "internlm2": ("internlm2", _without(_DECODER, bias=False)),
    "internlm2, biases": ("internlm2", _without(_DECODER, bias=True)),
    "baichuan": ("baichuan", _ONE_KV),
    "gpt2": ("gpt2", _GPT),
    "gpt_bigcode, one key head": ("gpt_bigcode", _GPT),
    "gpt_bigcode, every head its own key": ("gpt_bigcode", {**_GPT, "multi_query": False}),
    "gptj": ("gptj", {**_GPT, "rotary_dim": 4}),
    "codegen": ("codegen", {**_GPT, "n_head": 8, "n_embd": 64, "rotary_dim": 4}),
    "gpt_neo": ("gpt_neo", _GPT_NEO),
    "gpt_neox": ("gpt_neox", _without(_LAYER_NORM, "num_key_value_heads")),
    "gpt_neox, no biases": ("gpt_neox", _without(_LAYER_NORM, "num_key_value_heads", attention_bias=False)),
    "persimmon": ("persimmon", _without(_LAYER_NORM, "num_key_value_heads")),
    "persimmon, no norm on heads": ("persimmon", _without(_LAYER_NORM, "num_key_value_heads", qk_layernorm=False)),
    "opt": ("opt", _OPT),
    "opt, post-norm and a narrow embedding": (
        "opt",
        {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 48},
    ),
    "opt, neither gains nor biases": ("opt", {**_OPT, "layer_norm_elementwise_affine": False, "enable_bias": False}),
    "bloom": ("bloom", _BLOOM),
    "falcon, 7b": ("falcon", _FALCON),
    "falcon, 40b": ("falcon", _FALCON_40B),
    "falcon, 11b": ("falcon", {**_FALCON_40B, "num_ln_in_parallel_attn": 1}),
    "falcon, rw": ("falcon", {**_FALCON, "multi_query": False, "bias": True, "alibi": True, "parallel_attn": False}),
    "mpt": ("mpt", _MPT),
    "mpt, clipped": ("mpt", {**_MPT, "attn_config": {"clip_qkv": 0.5}}),
    # The running model needs the limit, although a config may leave it out.
    "dbrx": ("dbrx", {**_DBRX, "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 1.0}}),
    "modernbert": ("modernbert", _MODERN),
    "modernbert, biases": ("modernbert", {**_MODERN, "attention_bias": True, "norm_bias": True}),
    "bert": ("bert", _ENCODER),
    "deberta-v2": ("deberta-v2", {**_ENCODER, "position_biased_input": False}),
    "deberta-v2, positions": ("deberta-v2", _ENCODER),
    "electra": ("electra", {**_ENCODER, "embedding_size": 72}),
    "electra, a narrow embedding": ("electra", {**_ENCODER, "embedding_size": 48}),
    "roberta": ("roberta", {**_ENCODER, "pad_token_id": 2}),
    "xlm-roberta": ("xlm-roberta", {**_ENCODER, "pad_token_id": 2}),
    "camembert": ("camembert", {**_ENCODER, "pad_token_id": 2}),
    "distilbert": ("distilbert", _DISTILBERT),
    "t5": ("t5", _T5),
    "mt5": ("mt5", _T5),
    "umt5": ("umt5", _T5),
    "t5gemma": ("t5gemma", _T5GEMMA),
}

_SIGHT = {"depth": 1, "hidden_size": 32, "intermediate_size": 16, "num_heads": 2, "patch_size": 4}
_QWEN3_SIGHT = {**_SIGHT, "out_hidden_size": 72, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
_GLM_SIGHT = {**_SIGHT, "out_hidden_size": 72, "image_size": 8}
_PATCHES = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
_HEARING = {
    "num_mel_bins": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "d_model": 32,
    "output_dim": 72, "downsample_hidden_size": 8,
}  # fmt: skip
_MLLAMA_SIGHT = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_global_layers": 1, "attention_heads": 2, "intermediate_size": 16,
    "vision_output_dim": 64, "intermediate_layers_indices": [0], "image_size": 8, "patch_size": 4,
}  # fmt: skip
_LLAMA4_SIGHT = {"intermediate_size": 128, "vision_output_dim": 32, "projector_output_dim": 32}
_SIGLIP = {**_PATCHES, "model_type": "siglip_vision_model", "intermediate_size": 16, "image_size": 28, "patch_size": 14}
# Multimodal models: the case of the language model inside, and the rest of the config.
WRAPPERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("gemma3", {"vision_config": _SIGLIP, "mm_tokens_per_image": 1, "image_token_index": 5}),
    "qwen3_vl": ("qwen3_vl", {"vision_config": _QWEN3_SIGHT}),
    "qwen3_vl_moe": ("qwen3_vl_moe", {"vision_config": _QWEN3_SIGHT}),
    "qwen3_omni_moe_thinker": ("qwen3_omni_moe", {"vision_config": _QWEN3_SIGHT, "audio_config": _HEARING}),
    "qwen2_vl": ("qwen2_vl", {"vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 72, "num_heads": 2}}),
    "qwen2_5_vl": ("qwen2_5_vl", {"vision_config": {**_SIGHT, "out_hidden_size": 72, "fullatt_block_indexes": [0]}}),
    "glm4v": ("glm4v", {"vision_config": _GLM_SIGHT}),
    "glm46v": ("glm4v", {"vision_config": _GLM_SIGHT}),
    "glm4v_moe": ("glm4v_moe", {"vision_config": _GLM_SIGHT}),
    "step3p7": ("step3", {"vision_config": {"layers": 1, "width": 32, "heads": 2, "image_size": 28}}),
    "minimax_m3_vl": ("minimax_m3", {"vision_config": _PATCHES}),
    "llama4": ("llama4", {"vision_config": {**_PATCHES, **_LLAMA4_SIGHT}}),
    "mllama": ("mllama", {"vision_config": _MLLAMA_SIGHT}),
    "embedding_gemma2": ("embedding_gemma2", {"vision_config": None, "audio_config": None}),
    "gemma4": ("gemma4", {"vision_config": None, "audio_config": None}),
    "gemma4_unified": ("gemma4_unified", {"vision_config": None, "audio_config": None}),
}
