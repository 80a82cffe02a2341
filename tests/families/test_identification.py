"""Recognising a family from a config and shapes, and the refusals; no weights are involved."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from irwm.errors import CorruptCheckpointError, UnknownFamilyError
from irwm.families import TensorRef, recognise
from irwm.families.building import MOST_ROWS
from irwm.families.family import families
from tests.families.cases import CASES, VOCABULARY
from tests.families.reference import FOREIGN, config_of, shapes_of

# Its hub's files and those of transformers differ, so it has its own test in test_wrappers.
ELSEWHERE = "molmo2"


@pytest.mark.parametrize("case", CASES)
def test_every_family_is_recognised_by_its_config(case: str) -> None:
    model_type, settings = CASES[case]
    layout = recognise(config_of(case), shapes_of(case))
    assert model_type in next(family for family in families() if family.name == layout.family).model_types
    stack = settings.get("encoder", settings)
    heads = next(stack[key] for key in ("num_attention_heads", "n_head", "n_heads", "num_heads") if key in stack)
    assert (layout.vocab_size, layout.heads) == (VOCABULARY, heads)
    if "llama" in case or "qwen3" in case:
        assert layout.head_dim == (20 if "head_dim" in settings else 12), "an equal share if it is not stated"
    assert all("no output head" in note or "head lacks" in note for note in layout.notes[:1])


def test_no_two_families_have_the_same_model_type_or_are_recognised_by_the_same_names() -> None:
    served = [model_type for family in families() for model_type in family.model_types]
    assert len(served) == len(set(served))
    told = [(family.layer, frozenset(family.layer_names)) for family in families() if family.layer_names]
    assert len(told) == len(set(told))


def test_every_family_and_variant_has_a_runnable_case() -> None:
    """Their scores are compared with the running model's; families without scores have separate tests."""
    ran = {model_type for model_type, _ in CASES.values()}
    for family in families():
        if family.name == ELSEWHERE:
            continue
        if family.projections is not None:
            assert set(family.model_types) <= ran, family.name
        for variant in family.variants:
            cases = [settings for model_type, settings in CASES.values() if model_type in family.model_types]
            defaults = next(iter(family.model_types.values()))
            met = {
                all((v == "stated" and k in case) or {**defaults, **case}.get(k) is v for k, v in variant.when.items())
                for case in cases
            }
            assert met == {True, False}, (family.name, variant.when)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_family_defaults_equal_transformers(family: Any) -> None:
    """A config may omit a key; transformers defines its meaning then."""
    for model_type, defaults in family.model_types.items():
        if model_type in FOREIGN:
            continue
        theirs = CONFIG_MAPPING[model_type].default_config_fields()
        # T5's classes set it themselves and ignore the config.
        theirs.setdefault("tie_word_embeddings", family.name == "t5")
        read = {family.hidden_size, "tie_word_embeddings", *defaults}
        if family.projections is not None:
            variants = [family, *(replace(family, **variant.changes) for variant in family.variants)]
            for each in variants:
                norms = (each.embedding_norm, each.input_norm, each.q_norm, each.k_norm)
                read |= {each.heads, each.kv_heads, each.head_dim, each.projections.bias_key, each.embedding_width}
                read |= {norm.eps for norm in norms if norm is not None and isinstance(norm.eps, str)}
            read |= {key for variant in family.variants for key in variant.when}
            # A key that only some types of the family have.
            read -= {None} | {"use_qk_norm"} - theirs.keys()
            # A nested key has a separate class for its defaults.
            spelled = {key: family.spellings.get(key, (key,))[0] for key in read - {None}}
            whole = CONFIG_MAPPING[model_type]()
            theirs |= {key: attrgetter(path)(whole) for key, path in spelled.items() if "." in path}
        if family.decoder_head:  # tied to the decoder's embedding
            read -= {"tie_word_embeddings"}
        ours = {key: defaults.get(key) for key in read}
        assert ours == {key: theirs.get(key) for key in ours}


@pytest.mark.parametrize(("model_type", "kv_heads"), [("llama", 32), ("mistral", 8)])
def test_left_out_keys_mean_the_model_types_defaults(model_type: str, kv_heads: int) -> None:
    """LLaVA's text_config for Vicuna omits every size; mistral's default of 8 key heads is not llama's."""
    d, layer = 4096, "language_model.model.layers.0."
    shapes = {
        **{"language_model.model.embed_tokens.weight": (32064, d), "language_model.lm_head.weight": (32064, d)},
        **{f"{layer}input_layernorm.weight": (d,), f"{layer}self_attn.q_proj.weight": (d, d)},
        **{f"{layer}self_attn.k_proj.weight": (kv_heads * 128, d), "vision_tower.embeddings.weight": (7, 7)},
    }
    config = {"model_type": "llava", "text_config": {"model_type": model_type, "vocab_size": 32064}}
    layout = recognise(config, shapes)
    assert (layout.heads, layout.kv_heads, layout.head_dim) == (32, kv_heads, 128)
    assert layout.head == TensorRef("language_model.lm_head.weight")


@pytest.mark.parametrize(
    ("case", "stated", "stored", "tied", "note"),
    [
        ("llama", True, False, True, None),
        ("llama", True, True, True, "only if their values are equal"),
        ("llama", False, True, False, None),
        ("llama", False, False, False, "no output head"),
        ("llama", None, True, False, None),
        ("llama", None, False, True, None),
        ("gemma", None, False, True, None),
        ("gemma", None, True, True, "only if their values are equal"),
        ("gemma", False, True, False, None),
        ("bert", None, False, True, None),
    ],
)
def test_tied_heads_are_recognised(case: str, stated: bool | None, stored: bool, tied: bool, note: str | None) -> None:
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


def test_berts_old_norm_names_are_read() -> None:
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    shapes = {old(name): shape for name, shape in shapes_of("bert").items()}
    norm = recognise(config_of("bert"), shapes).embedding_norm
    assert norm is not None
    assert norm.weight == TensorRef("bert.embeddings.LayerNorm.gamma")
    assert norm.bias == TensorRef("bert.embeddings.LayerNorm.beta")


def test_config_keys_with_other_spellings_are_read() -> None:
    """GPT-2's attribute map and BLOOM's oldest configs; the old key wins, as in transformers."""
    config = config_of("gpt2")
    renamed = {**config, "hidden_size": config.pop("n_embd"), "num_attention_heads": config.pop("n_head")}
    config = {key: value for key, value in renamed.items() if key not in ("n_embd", "n_head")}
    assert recognise(config, shapes_of("gpt2")).heads == 6
    assert recognise({**config_of("bloom"), "n_embed": 72, "hidden_size": 9}, shapes_of("bloom")).hidden_size == 72


def test_heads_that_do_not_fill_codegens_four_parts_are_refused() -> None:
    with pytest.raises(CorruptCheckpointError):
        recognise({**config_of("codegen"), "n_head": 2}, shapes_of("codegen"))


def test_pythias_own_name_for_the_head_is_known() -> None:
    shapes = {n.replace("lm_head", "embed_out"): s for n, s in shapes_of("gpt_neox").items()}
    assert recognise(config_of("gpt_neox"), shapes).head == TensorRef("embed_out.weight")


def test_copies_of_the_embedding_are_listed() -> None:
    shapes = shapes_of("t5")
    assert recognise(config_of("t5"), shapes).copies == ()
    assert recognise(config_of("t5"), shapes).embedding == TensorRef("shared.weight")
    copies = {"encoder.embed_tokens.weight": (VOCABULARY, 72), "decoder.embed_tokens.weight": (VOCABULARY, 72)}
    layout = recognise(config_of("t5"), {**shapes, **copies})
    assert layout.embedding == TensorRef("encoder.embed_tokens.weight")  # the encoder's layer 0 uses its own
    assert layout.copies == (TensorRef("shared.weight"), TensorRef("decoder.embed_tokens.weight"))
    assert layout.alternatives == ()


def test_vocabulary_size_different_from_the_config_is_noted() -> None:
    layout = recognise({**config_of("llama"), "vocab_size": 190}, shapes_of("llama"))
    assert layout.vocab_size == VOCABULARY
    assert "190" in layout.notes[0]


def test_biases_that_the_config_switches_off_are_not_used_and_that_is_noted() -> None:
    case = "llama, biases and own head_dim"
    layout = recognise({**config_of(case), "attention_bias": False}, shapes_of(case))
    assert (layout.q_bias, layout.k_bias) == (None, None)
    assert "attention_bias" in layout.notes[0]


Shapes = dict[str, tuple[int, ...]]
BODY = "model."


def behind(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name.removeprefix(BODY): shape for name, shape in shapes.items() if name.startswith(BODY)}


def nested() -> dict[str, Any]:
    return {"model_type": "llava", "text_config": config_of("llama"), "vision_config": {}}


@pytest.mark.parametrize("real", ["model.language_model.", "language_model.model."])
@pytest.mark.parametrize("decoy", ["model.", ""])
def test_a_multimodal_models_language_model_is_read_under_its_wrapper(real: str, decoy: str) -> None:
    """transformers reports the others as unexpected and does not load them."""
    shapes = shapes_of("llama")
    layout = recognise(nested(), behind(real, shapes) | behind(decoy, shapes))
    assert layout.embedding == TensorRef(real + "embed_tokens.weight")
    assert layout.q == TensorRef(real + "layers.0.self_attn.q_proj.weight")
    assert layout.alternatives == (TensorRef(decoy + "embed_tokens.weight"),)
    (note,) = [note for note in layout.notes if "may be the embedding" in note]
    assert decoy + "embed_tokens.weight" in note


@pytest.mark.parametrize("other", ["", "language_model.model.", "model.language_model.", "somebodys.model."])
def test_a_plain_model_is_read_at_its_family_path_and_the_other_is_kept(other: str) -> None:
    shapes = shapes_of("llama")
    layout = recognise(config_of("llama"), shapes | behind(other, shapes))
    assert layout.embedding == TensorRef("model.embed_tokens.weight")
    (elsewhere,) = layout.elsewhere
    assert layout.alternatives == (elsewhere.embedding,) == (TensorRef(other + "embed_tokens.weight"),)
    assert elsewhere.q == TensorRef(other + "layers.0.self_attn.q_proj.weight")


def test_a_multimodal_model_under_plain_names_is_read_there() -> None:
    layout = recognise(nested(), shapes_of("llama"))
    assert layout.embedding == TensorRef("model.embed_tokens.weight")
    assert layout.alternatives == ()


def test_a_decoy_that_does_not_fit_the_config_is_ignored() -> None:
    shapes = shapes_of("llama")
    decoy = {name: (3, *shape[1:]) for name, shape in shapes.items() if name.startswith(BODY)}
    layout = recognise(config_of("llama"), decoy | behind("language_model.model.", shapes))
    assert layout.embedding == TensorRef("language_model.model.embed_tokens.weight")


def test_an_embedding_of_the_same_width_under_another_path_is_an_alternative() -> None:
    shapes = shapes_of("llama") | {"a.b.embed_tokens.weight": (9, 72), "c.embed_tokens.weight": (VOCABULARY, 71)}
    assert recognise(config_of("llama"), shapes).alternatives == (TensorRef("a.b.embed_tokens.weight"),)


def test_vision_tower_with_the_same_layer_names_is_not_a_language_model() -> None:
    shapes = shapes_of("llama")
    tower = {name: shape for name, shape in behind("vision_tower.encoder.", shapes).items() if "embed" not in name}
    layout = recognise(nested(), behind("model.text_model.", shapes) | tower)
    assert layout.embedding == TensorRef("model.text_model.embed_tokens.weight")
    assert layout.alternatives == ()
    assert "unusual prefix" in layout.notes[0]


def test_embedding_of_an_additional_layer_is_a_copy() -> None:
    """As in the layer for multi-token prediction in checkpoints of DeepSeek and GLM."""
    shapes = shapes_of("llama") | {"model.layers.61.embed_tokens.weight": (VOCABULARY, 72)}
    layout = recognise(config_of("llama"), shapes)
    assert layout.copies == (TensorRef("model.layers.61.embed_tokens.weight"),)
    assert layout.alternatives == ()


def test_more_rows_than_any_vocabulary_are_refused() -> None:
    """A sparse file is cheap, and reading all of it fills the memory."""
    shapes = shapes_of("llama") | {"model.embed_tokens.weight": (MOST_ROWS, 72), "lm_head.weight": (MOST_ROWS, 72)}
    assert recognise(config_of("llama"), shapes).vocab_size == MOST_ROWS
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        shapes[name] = (MOST_ROWS + 1, 72)
    with pytest.raises(CorruptCheckpointError, match="implausibly many rows"):
        recognise(config_of("llama"), shapes)


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


EMBEDDING, INPUT_NORM = "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"
STEM, GPT2 = "model.layers.0.self_attn.", "transformer.h.0.attn.c_attn."
NARROW, PROJECTION = "opt, post-norm and a narrow embedding", "model.decoder.project_in.weight"
STABLELM = "stablelm, a norm for each head"
POSITIONS = "embeddings.position_embeddings.weight"
# Shapes that contradict the config; None is a missing tensor.
WRONG_SHAPES: dict[tuple[str, str], list[tuple[int, ...] | None]] = {
    ("llama", Q): [(73, 72), (72, 71), (72 * 72 // 2, 1)],
    ("llama", K): [(72, 72)],
    ("llama", INPUT_NORM): [(71,), None],
    ("llama", "lm_head.weight"): [(VOCABULARY, 8)],
    ("llama", EMBEDDING): [(VOCABULARY, 64), (VOCABULARY * 72,), (0, 72)],
    ("qwen2", f"{STEM}k_proj.bias"): [None],
    ("qwen2", f"{STEM}q_proj.bias"): [(71,)],
    ("qwen3", f"{STEM}k_norm.weight"): [(72,)],
    ("phi3", f"{STEM}qkv_proj.weight"): [(216, 72)],
    ("gpt2", f"{GPT2}weight"): [(216, 72)],
    ("gpt2", f"{GPT2}bias"): [(72,)],
    ("gpt2", "transformer.wpe.weight"): [(32, 71)],
    ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.weight"): [(215, 72)],
    ("opt", "model.decoder.embed_positions.weight"): [(2, 72)],
    (NARROW, PROJECTION): [None, (48, 72)],
    (NARROW, "model.decoder.embed_tokens.weight"): [(VOCABULARY, 72)],
    ("bloom", "transformer.word_embeddings_layernorm.bias"): [None],
    ("falcon, 40b", "transformer.h.0.self_attention.query_key_value.weight"): [(96, 72)],
    ("olmo2", f"{STEM}k_norm.weight"): [(12,)],
    (STABLELM, f"{STEM}q_layernorm.norms.5.weight"): [None],
    (STABLELM, f"{STEM}k_layernorm.norms.1.weight"): [(72,)],
    ("cohere, a norm for each head", f"{STEM}q_norm.weight"): [(12,)],
    ("internlm2", "model.layers.0.attention.wqkv.weight"): [(216, 72)],
    ("baichuan", f"{STEM}W_pack.weight"): [(72, 72)],
    ("roberta", f"roberta.{POSITIONS}"): [(3, 72)],
    ("t5", "encoder.block.0.layer.0.SelfAttention.k.weight"): [(72, 72)],
    ("bert", f"bert.{POSITIONS}"): [None, (0, 72)],
    ("bert", "bert.embeddings.token_type_embeddings.weight"): [(2, 71)],
    ("bert", "bert.embeddings.LayerNorm.bias"): [None],
}


@pytest.mark.parametrize(("case", "name"), WRONG_SHAPES)
def test_tensor_that_contradicts_the_config_is_named(case: str, name: str) -> None:
    for shape in WRONG_SHAPES[case, name]:
        shapes = shapes_of(case)
        del shapes[name]
        with pytest.raises(CorruptCheckpointError) as caught:
            recognise(config_of(case), shapes if shape is None else {**shapes, name: shape})
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
    ("case", "key"), [("granite", "embedding_multiplier"), ("olmo, clipped", "clip_qkv"), ("roberta", "pad_token_id")]
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
