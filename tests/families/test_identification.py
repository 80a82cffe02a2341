"""Recognising a family from a config and shapes, and refusing invalid ones; no weights are involved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from irwm.errors import CorruptCheckpointError
from irwm.families import TensorRef, recognise
from irwm.families.family import families
from tests.families.cases import CASES, VOCABULARY
from tests.families.reference import FOREIGN, config_of, shapes_of


@pytest.mark.parametrize("case", CASES)
def test_every_family_is_recognised_by_its_config(case: str) -> None:
    model_type, settings = CASES[case]
    layout = recognise(config_of(case), shapes_of(case))
    assert model_type in next(family for family in families() if family.name == layout.family).model_types
    heads = next(settings[key] for key in ("num_attention_heads", "n_head", "n_heads", "num_heads") if key in settings)
    assert (layout.vocab_size, layout.heads) == (VOCABULARY, heads)
    if "llama" in case or "qwen3" in case:
        assert layout.head_dim == (20 if "head_dim" in settings else 12), "an equal share if it is not stated"
    assert all("no head" in note or "head lacks" in note for note in layout.notes[:1])


def test_no_two_families_have_the_same_model_type_or_are_recognised_by_the_same_names() -> None:
    served = [model_type for family in families() for model_type in family.model_types]
    assert len(served) == len(set(served))
    told = [(family.layer, frozenset(family.layer_names)) for family in families() if family.layer_names]
    assert len(told) == len(set(told))


def test_every_family_and_variant_has_a_runnable_case() -> None:
    """Their scores are compared with the running model's; families without scores have separate tests."""
    ran = {model_type for model_type, _ in CASES.values()}
    for family in families():
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
            nested = [key.split(".") for key in read if "." in key]
            whole = CONFIG_MAPPING[model_type]()
            theirs |= {f"{part}.{key}": getattr(getattr(whole, part), key) for part, key in nested}
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
    ("case", "module", "q", "k", "every", "transposed"),
    [
        ("phi3", "model.layers.0.self_attn.qkv_proj.", (0, 72), (72, 72 + 2 * 12), None, False),
        ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.", (0, 12), (12, 24), 36, False),
        ("falcon, 40b", "transformer.h.0.self_attention.query_key_value.", (0, 36), (36, 48), 60, False),
        ("codegen", "transformer.h.0.attn.qkv_proj.", (0, 16), (32, 48), 48, False),
        ("gpt2", "transformer.h.0.attn.c_attn.", (0, 72), (72, 144), None, True),  # Conv1D
    ],
)
def test_fused_q_and_k_are_these_rows(
    case: str, module: str, q: tuple[int, int], k: tuple[int, int], every: int | None, transposed: bool
) -> None:
    layout = recognise(config_of(case), shapes_of(case))
    assert layout.q == TensorRef(module + "weight", q, transposed, every)
    assert layout.k == TensorRef(module + "weight", k, transposed, every)
    assert layout.k_bias in (None, TensorRef(module + "bias", k, every=every))
    assert (layout.k_bias is not None) == (case in ("gpt_neox", "gpt2"))


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


def test_prefixes_are_found() -> None:
    for old, new in (("model.", ""), ("model.", "model.language_model.")):
        shapes = {name.replace(old, new, 1): shape for name, shape in shapes_of("qwen2").items()}
        assert recognise(config_of("qwen2"), shapes).q.name == new + "layers.0.self_attn.q_proj.weight"
    shapes = {name.removeprefix("bert."): shape for name, shape in shapes_of("bert").items()}
    assert recognise(config_of("bert"), shapes).q.name == "encoder.layer.0.attention.self.query.weight"


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
