"""Inputs that recognition refuses, and the messages of the refusals; no weights are involved."""

from __future__ import annotations

import math

import pytest

from irwm.errors import CorruptCheckpointError, UnknownFamilyError
from irwm.families import recognise
from irwm.families.family import families
from tests.families.cases import CASES, VOCABULARY
from tests.families.reference import config_of, shapes_of

Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"
# Config keys that every case in these tests states.
COUNTS = ("hidden_size", "num_attention_heads", "vocab_size")


def test_an_unknown_family_lists_its_model_type_and_the_names_tried() -> None:
    with pytest.raises(UnknownFamilyError) as caught:
        recognise({"model_type": "hyena"}, {"backbone.layers.0.mixer.in_proj.weight": (4, 4)})
    tried = ["gemma3_text", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.qkv_proj.weight"]
    tried += ["encoder.layer.0.attention.self.query.weight", "language_model.model."]
    for part in ("'hyena'", *tried, "backbone.layers.0.mixer.in_proj.weight"):
        assert part in str(caught.value)


@pytest.mark.parametrize("case", ["llama", "gemma", "bert", "qwen3", "phi3", "gpt2", "gpt_neox", "olmo2"])
def test_missing_config_message_asks_for_it(case: str) -> None:
    with pytest.raises(UnknownFamilyError, match=r"config\.json"):
        recognise({}, shapes_of(case))


TOLD_BY_NAMES = [family.name for family in families() if family.layer_names and family.projections is not None]


@pytest.mark.parametrize("case", TOLD_BY_NAMES)
@pytest.mark.parametrize("model_type", [None, "in-house", 7, ["llama"]])
def test_names_decide_if_they_determine_the_conventions(case: str, model_type: object) -> None:
    config = {**config_of(case), "model_type": model_type}
    expected = recognise(config_of(case), shapes_of(case))
    layout = recognise(config, shapes_of(case))
    assert layout.family == case
    assert case in layout.notes[0]
    assert (layout.q, layout.k, layout.input_norm) == (expected.q, expected.k, expected.input_norm)


@pytest.mark.parametrize("case", ["llama", "gemma", "bert", "roberta", "gpt2", "opt", "olmo2", "bloom", "falcon, rw"])
def test_names_do_not_decide_between_families_that_share_them(case: str) -> None:
    """Llama's names are also Gemma's and Granite's, BERT's also RoBERTa's; their scores differ."""
    with pytest.raises(UnknownFamilyError):
        recognise({**config_of(case), "model_type": "in-house"}, shapes_of(case))
    # An extra norm, compared with Qwen 3, may imply another gain, as in Gemma 3.
    shapes = {**shapes_of("qwen3"), "model.layers.0.pre_feedforward_layernorm.weight": (72,)}
    with pytest.raises(UnknownFamilyError):
        recognise({**config_of("qwen3"), "model_type": "in-house"}, shapes)


def test_masks_and_frequencies_that_old_files_store_do_not_count_as_names() -> None:
    buffers = {"transformer.h.0.attn.bias": (1, 1, 32, 32), "transformer.h.0.attn.masked_bias": ()}
    shapes = {**shapes_of("gptj"), **buffers}
    assert recognise({**config_of("gptj"), "model_type": None}, shapes).family == "gptj"


@pytest.mark.fault(30)
@pytest.mark.parametrize("case", CASES)
def test_no_layer_0_q_and_k_lists_the_names_tried(case: str) -> None:
    family = next(f for f in families() if CASES[case][0] in f.model_types)
    gone = (family.projections.q, family.projections.k)
    shapes = {n: s for n, s in shapes_of(case).items() if not n.endswith(gone)}
    with pytest.raises(UnknownFamilyError) as caught:
        recognise(config_of(case), shapes)
    assert family.projections.q in str(caught.value)
    assert family.projections.k in str(caught.value)


def test_missing_embedding_lists_the_names_tried() -> None:
    shapes = {n: s for n, s in shapes_of("llama").items() if "embed_tokens" not in n}
    without_scores = {"model_type": "deepseek_v3"}, {"model.layers.0.input_layernorm.weight": (64,)}
    for config, given in ((config_of("llama"), shapes), without_scores):
        with pytest.raises(UnknownFamilyError, match=r"embed_tokens\.weight"):
            recognise(config, given)


def test_tensors_found_instead_of_q_and_k_are_shown_with_escapes() -> None:
    shapes = {n: s for n, s in shapes_of("llama").items() if "self_attn" not in n}
    shapes["model.layers.0.self_attn.q_proj.qweight\x1b[31m"] = (9, 72)
    with pytest.raises(UnknownFamilyError) as caught:
        recognise(config_of("llama"), shapes)
    assert "q_proj.qweight\\x1b[31m" in str(caught.value)
    with pytest.raises(UnknownFamilyError) as caught:
        recognise({"model_type": "\x1b[31m"}, {"\x1b]0;evil\x07.0.att": (1,)})
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("case", "name", "shape"),
    [
        ("llama", Q, (73, 72)),
        ("llama", Q, (72, 71)),
        ("llama", Q, (72 * 72 // 2, 1)),
        ("llama", K, (72, 72)),
        ("llama", "model.layers.0.input_layernorm.weight", (71,)),
        ("llama", "model.layers.0.input_layernorm.weight", None),
        ("llama", "lm_head.weight", (VOCABULARY, 8)),
        ("llama", "model.embed_tokens.weight", (VOCABULARY, 64)),
        ("llama", "model.embed_tokens.weight", (VOCABULARY * 72,)),
        ("llama", "model.embed_tokens.weight", (0, 72)),
        ("qwen2", "model.layers.0.self_attn.k_proj.bias", None),
        ("qwen2", "model.layers.0.self_attn.q_proj.bias", (71,)),
        ("qwen3", "model.layers.0.self_attn.k_norm.weight", (72,)),
        ("phi3", "model.layers.0.self_attn.qkv_proj.weight", (216, 72)),
        ("gpt2", "transformer.h.0.attn.c_attn.weight", (216, 72)),
        ("gpt2", "transformer.h.0.attn.c_attn.bias", (72,)),
        ("gpt2", "transformer.wpe.weight", (32, 71)),
        ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.weight", (215, 72)),
        ("opt", "model.decoder.embed_positions.weight", (2, 72)),
        ("opt, post-norm and a narrow embedding", "model.decoder.project_in.weight", None),
        ("opt, post-norm and a narrow embedding", "model.decoder.project_in.weight", (48, 72)),
        ("opt, post-norm and a narrow embedding", "model.decoder.embed_tokens.weight", (VOCABULARY, 72)),
        ("bloom", "transformer.word_embeddings_layernorm.bias", None),
        ("falcon, 40b", "transformer.h.0.self_attention.query_key_value.weight", (96, 72)),
        ("olmo2", "model.layers.0.self_attn.k_norm.weight", (12,)),
        ("stablelm, a norm for each head", "model.layers.0.self_attn.q_layernorm.norms.5.weight", None),
        ("stablelm, a norm for each head", "model.layers.0.self_attn.k_layernorm.norms.1.weight", (72,)),
        ("cohere, a norm for each head", "model.layers.0.self_attn.q_norm.weight", (12,)),
        ("internlm2", "model.layers.0.attention.wqkv.weight", (216, 72)),
        ("baichuan", "model.layers.0.self_attn.W_pack.weight", (72, 72)),
        ("roberta", "roberta.embeddings.position_embeddings.weight", (3, 72)),
        ("t5", "encoder.block.0.layer.0.SelfAttention.k.weight", (72, 72)),
        ("bert", "bert.embeddings.position_embeddings.weight", None),
        ("bert", "bert.embeddings.position_embeddings.weight", (0, 72)),
        ("bert", "bert.embeddings.token_type_embeddings.weight", (2, 71)),
        ("bert", "bert.embeddings.LayerNorm.bias", None),
    ],
)
def test_a_tensor_that_contradicts_the_config_is_named(case: str, name: str, shape: tuple[int, ...] | None) -> None:
    shapes = shapes_of(case)
    if shape is None:
        del shapes[name]
    else:
        shapes[name] = shape
    with pytest.raises(CorruptCheckpointError) as caught:
        recognise(config_of(case), shapes)
    assert caught.value.tensor == name
    assert caught.value.expected
    assert caught.value.found == ("no such tensor" if shape is None else str(shape))


NUMBERS = [
    *(("gpt2", key) for key in ("n_embd", "n_head", "vocab_size", "layer_norm_epsilon")),
    *(("falcon, 40b", key) for key in (*COUNTS, "num_kv_heads", "layer_norm_epsilon")),
    *(("opt, post-norm and a narrow embedding", key) for key in (*COUNTS, "word_embed_proj_dim")),
    *(("qwen3", key) for key in (*COUNTS, "num_key_value_heads", "head_dim", "rms_norm_eps")),
    *(("bert", key) for key in (*COUNTS, "layer_norm_eps")),
]
HOSTILE: list[object] = ["6", 0, -1, 2**63, 10**5000, 1.5, math.nan, math.inf, True, [6], {"a": 1}]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda v: repr(v) if not isinstance(v, int) else f"int{v % 1000}")
@pytest.mark.parametrize(("case", "key"), NUMBERS)
def test_hostile_numbers_are_refused(case: str, key: str, value: object) -> None:
    if "eps" in key and value in (0, 1.5, 2**63):
        # Not an attack: a residual stream scaled by c has an eps of c² times as much, down to 0.
        assert recognise({**config_of(case), key: value}, shapes_of(case)).family
        return
    with pytest.raises(CorruptCheckpointError) as caught:
        recognise({**config_of(case), key: value}, shapes_of(case))
    assert key in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("value", [*HOSTILE, -0.5], ids=lambda v: repr(v) if not isinstance(v, int) else "int")
@pytest.mark.parametrize(
    ("case", "key"),
    [("granite", "embedding_multiplier"), ("olmo, clipped", "clip_qkv"), ("roberta", "pad_token_id")],
)
def test_hostile_factors_and_row_numbers_are_refused(case: str, key: str, value: object) -> None:
    if (key, value) == ("pad_token_id", 0):
        assert recognise({**config_of(case), key: 0}, shapes_of(case)).position.rows == (1, 32)
        return
    if key != "pad_token_id" and value == 1.5:
        assert recognise({**config_of(case), key: value}, shapes_of(case)).family
        return
    with pytest.raises(CorruptCheckpointError) as caught:
        recognise({**config_of(case), key: value}, shapes_of(case))
    assert "position" in str(caught.value) or key in str(caught.value)


@pytest.mark.parametrize("attn_config", [None, 7, [6.0], {"clip_qkv": {}}, {"clip_qkv": "6"}])
def test_hostile_section_is_refused_or_ignored(attn_config: object) -> None:
    config = {**config_of("mpt"), "attn_config": attn_config}
    if isinstance(attn_config, dict):
        with pytest.raises(CorruptCheckpointError):
            recognise(config, shapes_of("mpt"))
    else:
        assert recognise(config, shapes_of("mpt")).clip is None


@pytest.mark.parametrize("value", ["yes", 1, 0, [], {}])
@pytest.mark.parametrize(
    ("case", "key"),
    [
        *(("falcon, 7b", "multi_query"), ("opt", "do_layer_norm_before"), ("stablelm", "qk_layernorm")),
        *(("llama", "tie_word_embeddings"), ("llama", "attention_bias")),
    ],
)
def test_hostile_switches_are_refused(case: str, key: str, value: object) -> None:
    with pytest.raises(CorruptCheckpointError, match=key):
        recognise({**config_of(case), key: value}, shapes_of(case))


@pytest.mark.parametrize("text_config", [None, 3, "llama", [], {}, {"model_type": {}}])
def test_hostile_text_config_is_ignored(text_config: object) -> None:
    with pytest.raises(UnknownFamilyError):
        recognise({"model_type": "llava", "text_config": text_config}, shapes_of("llama"))


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 4), (7, 7), (3, 6), (12, 2)])
def test_head_counts_must_divide_and_fit_the_matrices(heads: int, kv_heads: int) -> None:
    config = {**config_of("llama"), "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    with pytest.raises(CorruptCheckpointError):
        recognise(config, shapes_of("llama"))
