"""Recognising a family from a config and shapes, and refusing what does not fit; no weights are involved."""

from __future__ import annotations

import math
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from irwm.errors import CorruptCheckpointError, UnknownFamilyError
from irwm.families import TensorRef, recognise
from irwm.families.family import families
from tests.families.reference import CASES, VOCABULARY, config_of, shapes_of

Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"
# Config keys that every case of ours states.
COUNTS = ("hidden_size", "num_attention_heads", "vocab_size")


@pytest.mark.parametrize("case", CASES)
def test_every_family_is_recognised_by_its_config(case: str) -> None:
    layout = recognise(config_of(case), shapes_of(case))
    assert layout.family == CASES[case][0].replace("mistral", "llama")
    assert (layout.vocab_size, layout.hidden_size, layout.heads) == (VOCABULARY, 72, 6)
    assert layout.notes == () or "no head" in layout.notes[0]


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_defaults_are_those_of_transformers(family: Any) -> None:
    """A config may leave a key out; what it then means is transformers' to say."""
    for model_type, defaults in family.model_types.items():
        theirs = CONFIG_MAPPING[model_type].default_config_fields()
        norms = (family.embedding_norm, family.input_norm, family.q_norm, family.k_norm)
        read = {"hidden_size", "tie_word_embeddings", family.heads, family.kv_heads, family.head_dim}
        read |= {family.projections.bias_key, *(norm.eps for norm in norms if norm is not None)}
        read |= set(defaults)
        ours = {key: defaults.get(key) for key in read - {None}}
        assert ours == {key: theirs.get(key) for key in ours}


def test_left_out_keys_mean_the_model_types_defaults() -> None:
    """LLaVA's text_config for Vicuna leaves out every size; mistral's default of 8 key heads is not llama's."""
    d = 4096
    shapes = {
        "language_model.model.embed_tokens.weight": (32064, d),
        "language_model.lm_head.weight": (32064, d),
        "language_model.model.layers.0.input_layernorm.weight": (d,),
        "language_model.model.layers.0.self_attn.q_proj.weight": (d, d),
        "language_model.model.layers.0.self_attn.k_proj.weight": (d, d),
        "vision_tower.embeddings.weight": (7, 7),
    }
    config = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}
    layout = recognise(config, shapes)
    assert (layout.heads, layout.kv_heads, layout.head_dim) == (32, 32, 128)
    assert layout.head == TensorRef("language_model.lm_head.weight")
    shapes["language_model.model.layers.0.self_attn.k_proj.weight"] = (8 * 128, d)
    config["text_config"] = {"model_type": "mistral", "vocab_size": 32064}
    layout = recognise(config, shapes)
    assert (layout.heads, layout.kv_heads, layout.head_dim) == (32, 8, 128)


def test_head_dim_is_the_configs_or_the_hidden_size_shared_out() -> None:
    assert recognise(config_of("llama"), shapes_of("llama")).head_dim == 12
    assert recognise(config_of("qwen3"), shapes_of("qwen3")).head_dim == 20


def test_fused_qkv_is_sliced_by_rows() -> None:
    layout = recognise(config_of("phi3"), shapes_of("phi3"))
    name = "model.layers.0.self_attn.qkv_proj.weight"
    assert layout.q == TensorRef(name, (0, 72))
    assert layout.k == TensorRef(name, (72, 72 + 2 * 12))


def test_gemma_adds_one_to_the_gain_and_scales_the_embedding() -> None:
    layout = recognise({**config_of("gemma"), "dtype": "bfloat16"}, shapes_of("gemma"))
    assert layout.input_norm is not None
    assert layout.input_norm.offset == 1.0
    assert layout.embedding_scale == 8.5  # bfloat16's nearest to sqrt(72) = 8.485
    unstated = recognise(config_of("gemma"), shapes_of("gemma"))
    assert math.isclose(unstated.embedding_scale, math.sqrt(72), rel_tol=1e-7)


@pytest.mark.parametrize(
    ("case", "stated", "stored", "tied", "note"),
    [
        ("llama", True, False, True, None),
        ("llama", True, True, True, "only if their values are equal"),
        ("llama", False, True, False, None),
        ("llama", False, False, False, "no head"),
        ("llama", None, True, False, None),
        ("llama", None, False, True, None),
        ("gemma", None, False, True, None),
        ("gemma", None, True, True, "only if their values are equal"),
        ("gemma", False, True, False, None),
        ("bert", None, False, True, None),
    ],
)
def test_ties(case: str, stated: bool | None, stored: bool, tied: bool, note: str | None) -> None:
    config = {**config_of(case), "tie_word_embeddings": stated}
    shapes = shapes_of(case)
    shapes.pop("lm_head.weight", None)
    if stored:
        shapes["lm_head.weight"] = (VOCABULARY, 72)
    layout = recognise(config, shapes)
    assert layout.tied is tied
    assert layout.head == (TensorRef("lm_head.weight") if stored else None)
    assert [note in said for said in layout.notes] == ([True] if note else [])


def test_a_shared_embedding_may_be_stored_under_the_heads_name() -> None:
    shapes = shapes_of("gemma")
    shapes["lm_head.weight"] = shapes.pop("model.embed_tokens.weight")
    layout = recognise(config_of("gemma"), shapes)
    assert layout.embedding == TensorRef("lm_head.weight")
    assert (layout.tied, layout.head) == (True, None)
    assert "lm_head.weight" in layout.notes[0]


def test_prefixes_are_found() -> None:
    for old, new in (("model.", ""), ("model.", "model.language_model.")):
        shapes = {name.replace(old, new, 1): shape for name, shape in shapes_of("qwen2").items()}
        assert recognise(config_of("qwen2"), shapes).q.name == new + "layers.0.self_attn.q_proj.weight"
    shapes = {name.removeprefix("bert."): shape for name, shape in shapes_of("bert").items()}
    assert recognise(config_of("bert"), shapes).q.name == "encoder.layer.0.attention.self.query.weight"


def test_berts_old_norm_names_are_read() -> None:
    renamed = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    shapes = {}
    for name, shape in shapes_of("bert").items():
        for new, old in renamed.items():
            name = name.replace(new, old)
        shapes[name] = shape
    norm = recognise(config_of("bert"), shapes).embedding_norm
    assert norm is not None
    assert norm.weight == TensorRef("bert.embeddings.LayerNorm.gamma")
    assert norm.bias == TensorRef("bert.embeddings.LayerNorm.beta")


def test_another_vocabulary_than_the_configs_is_noted() -> None:
    layout = recognise({**config_of("llama"), "vocab_size": 190}, shapes_of("llama"))
    assert layout.vocab_size == VOCABULARY
    assert "190" in layout.notes[0]


def test_biases_that_the_config_switches_off_are_not_used_and_that_is_noted() -> None:
    case = "llama, biases and own head_dim"
    layout = recognise({**config_of(case), "attention_bias": False}, shapes_of(case))
    assert (layout.q_bias, layout.k_bias) == (None, None)
    assert "attention_bias" in layout.notes[0]


# --- what is refused


def test_an_unknown_family_lists_its_model_type_and_the_names_tried() -> None:
    with pytest.raises(UnknownFamilyError) as caught:
        recognise({"model_type": "mamba"}, {"backbone.layers.0.mixer.in_proj.weight": (4, 4)})
    text = str(caught.value)
    for part in (
        "'mamba'",
        "layers.0.self_attn.q_proj.weight",
        "layers.0.self_attn.qkv_proj.weight",
        "encoder.layer.0.attention.self.query.weight",
        "language_model.model.",
        "backbone.layers.0.mixer.in_proj.weight",
    ):
        assert part in text


@pytest.mark.parametrize("case", ["llama", "gemma", "bert", "qwen3", "phi3"])
def test_without_a_config_the_message_asks_for_it(case: str) -> None:
    with pytest.raises(UnknownFamilyError, match=r"config\.json beside the file"):
        recognise({}, shapes_of(case))


@pytest.mark.parametrize("case", ["qwen2", "qwen3", "phi3", "gemma2"])
@pytest.mark.parametrize("model_type", [None, "in-house", 7, ["llama"]])
def test_names_decide_where_they_tell_the_conventions(case: str, model_type: object) -> None:
    config = {**config_of(case), "model_type": model_type}
    expected = recognise(config_of(case), shapes_of(case))
    layout = recognise(config, shapes_of(case))
    assert layout.family == case
    assert "recognised by tensor names" in layout.notes[0]
    assert (layout.q, layout.k, layout.input_norm) == (expected.q, expected.k, expected.input_norm)


@pytest.mark.parametrize("case", ["llama", "gemma", "bert"])
def test_names_do_not_decide_between_families_that_share_them(case: str) -> None:
    """Llama's names are also Gemma's and Granite's, BERT's also RoBERTa's; their scores differ."""
    with pytest.raises(UnknownFamilyError, match="in-house"):
        recognise({**config_of(case), "model_type": "in-house"}, shapes_of(case))


def test_names_do_not_decide_when_layer_0_holds_more() -> None:
    """Gemma 3 has Qwen3's tensors and two norms more, and another gain."""
    shapes = {**shapes_of("qwen3"), "model.layers.0.pre_feedforward_layernorm.weight": (72,)}
    with pytest.raises(UnknownFamilyError, match="gemma3_text"):
        recognise({**config_of("qwen3"), "model_type": "gemma3_text"}, shapes)


@pytest.mark.parametrize("case", CASES)
def test_no_layer_0_q_and_k_lists_the_names_tried(case: str) -> None:
    shapes = {n: s for n, s in shapes_of(case).items() if ".0.self_attn." not in n and ".0.attention." not in n}
    with pytest.raises(UnknownFamilyError) as caught:
        recognise(config_of(case), shapes)
    family = next(f for f in families() if CASES[case][0] in f.model_types)
    assert family.projections.q in str(caught.value)
    assert family.projections.k in str(caught.value)


def test_what_lies_in_place_of_q_and_k_is_shown() -> None:
    shapes = {n: s for n, s in shapes_of("llama").items() if "self_attn" not in n}
    shapes["model.layers.0.self_attn.q_proj.qweight"] = (9, 72)
    with pytest.raises(UnknownFamilyError, match=r"q_proj\.qweight"):
        recognise(config_of("llama"), shapes)


def test_no_embedding_lists_the_names_tried() -> None:
    shapes = shapes_of("llama")
    del shapes["model.embed_tokens.weight"]
    with pytest.raises(UnknownFamilyError, match=r"embed_tokens\.weight"):
        recognise(config_of("llama"), shapes)


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
    *(("qwen3", key) for key in (*COUNTS, "num_key_value_heads", "head_dim", "rms_norm_eps")),
    *(("bert", key) for key in (*COUNTS, "layer_norm_eps")),
]
HOSTILE: list[object] = ["6", -1, 2**63, 10**5000, 1.5, math.nan, math.inf, True, [6], {"a": 1}]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda v: repr(v) if not isinstance(v, int) else f"int{v % 1000}")
@pytest.mark.parametrize(("case", "key"), NUMBERS)
def test_hostile_numbers_are_refused(case: str, key: str, value: object) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        recognise({**config_of(case), key: value}, shapes_of(case))
    assert key in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(("case", "key"), [pair for pair in NUMBERS if not pair[1].endswith("eps")])
def test_counts_of_zero_are_refused(case: str, key: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=key):
        recognise({**config_of(case), key: 0}, shapes_of(case))


@pytest.mark.parametrize("value", ["yes", 1, 0, [], {}])
@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias"])
def test_hostile_switches_are_refused(key: str, value: object) -> None:
    with pytest.raises(CorruptCheckpointError, match=key):
        recognise({**config_of("llama"), key: value}, shapes_of("llama"))


@pytest.mark.parametrize("text_config", [None, 3, "llama", [], {}, {"model_type": {}}])
def test_a_hostile_text_config_is_no_config(text_config: object) -> None:
    with pytest.raises(UnknownFamilyError):
        recognise({"model_type": "llava", "text_config": text_config}, shapes_of("llama"))


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 4), (7, 7), (3, 6), (12, 2)])
def test_head_counts_must_divide_and_fit_the_matrices(heads: int, kv_heads: int) -> None:
    config = {**config_of("llama"), "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    with pytest.raises(CorruptCheckpointError):
        recognise(config, shapes_of("llama"))


def test_control_characters_in_names_are_escaped() -> None:
    with pytest.raises(UnknownFamilyError) as caught:
        recognise({"model_type": "\x1b[31m"}, {"\x1b]0;evil\x07.0.att": (1,)})
    assert "\x1b" not in str(caught.value)
