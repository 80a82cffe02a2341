"""Multimodal models as transformers 5.23 writes them: the language model inside is read, in every spelling in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

import irwm
from irwm.families.family import families, inner_type
from irwm.scheme.invariant import Layer0
from tests.families.cases import CASES, WRAPPERS
from tests.families.reference import load_as_float32, model_scores, randomise, wrapped_model
from tests.families.test_embedding_only import MODELS
from tests.families.test_embedding_only import write as write_without_scores
from tests.families.test_scores import QUERIES, REFERENCES, TOLERANCE, relative_error

# Gemma 3n, Molmo 2 and a whole omni model have separate tests below.
ELSEWHERE = {"qwen3_omni_moe", "gemma3n", "molmo2"}
# It embeds texts and has no output head at all.
HEADLESS = {"embedding_gemma2"}
# Multimodal models whose language model has no layer-0 scores: the rest of the config.
_SIGHT = {"depth": 1, "hidden_size": 32, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 64}
_PATCHES = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 16, "num_attention_heads": 2}
WITHOUT_SCORES: dict[str, dict[str, Any]] = {
    "qwen3_5": {"vision_config": {**_SIGHT, "num_position_embeddings": 16}},
    "qwen3_5_moe": {"vision_config": {**_SIGHT, "num_position_embeddings": 16}},
    "glm5_next": {"vision_config": {**_SIGHT, "image_size": 28}},
    "mistral_large4": {"vision_config": {**_PATCHES, "image_size": 28, "patch_size": 14, "head_dim": 16}},
}


def write(wrapper: str, folder: Path) -> Path:
    wrapped_model(wrapper).to(torch.bfloat16).save_pretrained(folder)
    return folder


def rename(folder: Path, new: Callable[[str], str]) -> None:
    file = folder / "model.safetensors"
    save_file({new(name): tensor for name, tensor in load_file(file).items()}, file)


def change_config(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def unnamed(config: dict[str, Any]) -> dict[str, Any]:
    """Without the model type of the language model's section."""
    del config["text_config"]["model_type"]
    return config


def scores(folder: Path) -> torch.Tensor:
    return Layer0(irwm.open_checkpoint(folder)).scores(QUERIES, REFERENCES)


def test_every_listed_multimodal_model_is_tested() -> None:
    assert {wrapper for family in families() for wrapper in family.wrappers} - ELSEWHERE == {*WRAPPERS, *WITHOUT_SCORES}


@pytest.mark.filterwarnings("ignore:Casting complex values")  # Llama 4's rotary angles, which are not saved
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_inner_language_model_is_read(wrapper: str, tmp_path: Path) -> None:
    folder = write(wrapper, tmp_path / "model")
    model = irwm.open_checkpoint(folder)
    family = next(family for family in families() if family.name == model.family)
    assert inner_type(wrapper) in family.model_types
    found = Layer0(model).scores(QUERIES, REFERENCES)
    assert relative_error(found, model_scores(load_as_float32(folder), QUERIES, REFERENCES)) < TOLERANCE
    heads = [name for name in load_file(folder / "model.safetensors") if name.endswith("lm_head.weight")]
    assert model.tied is not bool(heads) or wrapper in HEADLESS
    if family.headless_rows:
        assert model.layout.head is None
        assert [note for note in model.notes if "head lacks" in note] == list(model.notes)
    else:
        assert ([] if model.layout.head is None else [model.layout.head.name]) == heads
        assert model.notes == ()


@pytest.mark.parametrize("wrapper", WITHOUT_SCORES)
def test_inner_embedding_is_read_without_scores(wrapper: str, tmp_path: Path) -> None:
    inner = inner_type(wrapper)
    config = CONFIG_MAPPING[wrapper](text_config={"model_type": inner, **MODELS[inner]}, **WITHOUT_SCORES[wrapper])
    AutoModelForImageTextToText.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    layout = irwm.open_checkpoint(tmp_path / "model").layout
    assert (layout.scores, len(layout.notes), layout.alternatives) == ("embedding", 1, ())
    names = list(load_file(tmp_path / "model" / "model.safetensors"))
    embeddings = ("embed_tokens.weight", "tok_embeddings.weight")
    assert [layout.embedding.name] == [name for name in names if name.endswith(embeddings)]
    heads = [name for name in names if name.endswith("lm_head.weight") or name == "output.weight"]
    assert ([] if layout.head is None else [layout.head.name]) == heads
    assert layout.tied is not bool(heads)


def test_the_table_of_each_layers_vectors_is_not_the_embedding(tmp_path: Path) -> None:
    """Gemma 3n, its text model's files under the whole model's names: the vision tower's library is not installed."""
    folder = write_without_scores("gemma3n_text", tmp_path / "model")
    rename(folder, lambda name: name.replace("model.", "model.language_model.", 1))
    change_config(folder, lambda config: {"model_type": "gemma3n", "text_config": config})
    assert "model.language_model.embed_tokens_per_layer.weight" in load_file(folder / "model.safetensors")
    layout = irwm.open_checkpoint(folder).layout
    assert (layout.embedding.name, layout.alternatives) == ("model.language_model.embed_tokens.weight", ())
    assert (layout.scores, layout.tied) == ("embedding", True)


MOLMO2_SIGHT = {
    "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{}, {"qk_norm_type": "olmo", "norm_after": True}, {"attention_bias": True}], ids=str
)
def test_molmo2_is_read_as_the_hub_stores_it(changes: dict[str, Any], tmp_path: Path) -> None:
    """The files of the hub have the rows of the vocabulary in one tensor and the rows for images in another one."""
    _, sizes = CASES["qwen3"]
    config = CONFIG_MAPPING["molmo2"](
        text_config={**sizes, "additional_vocab_size": 8, **changes},
        vision_config={**MOLMO2_SIGHT, "image_size": [8, 8], "patch_size": 4},
        adapter_config={**MOLMO2_SIGHT, "vision_feature_layer": [1, 0], "text_hidden_size": sizes["hidden_size"]},
    )
    torch.manual_seed(0)
    randomise(AutoModelForImageTextToText.from_config(config)).to(torch.bfloat16).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    names = [f"model.transformer.wte.{part}" for part in ("embedding", "new_embedding")]
    rows = torch.cat([tensors.pop(name) for name in names])  # transformers 5.23 writes two equal parts
    parts = (rows[: sizes["vocab_size"]], rows[sizes["vocab_size"] :])
    save_file({**tensors, **{name: part.clone() for name, part in zip(names, parts, strict=True)}}, file)
    model = irwm.open_checkpoint(tmp_path)
    assert (model.family, model.vocab_size, model.notes) == ("molmo2", sizes["vocab_size"], ())
    assert model.layout.head is not None
    found = Layer0(model).scores(QUERIES, REFERENCES)
    running = model_scores(load_as_float32(tmp_path), QUERIES, REFERENCES)
    assert relative_error(found, running) < TOLERANCE


@pytest.mark.parametrize(
    ("body", "head"), [("model.", ""), ("model.language_model.", ""), ("language_model.model.", "language_model.")]
)
@pytest.mark.parametrize("wrapper", ["qwen3_vl", "qwen2_5_vl", "glm4v_moe", "gemma3", "gemma4"])
def test_every_spelling_of_the_path_is_read(wrapper: str, body: str, head: str, tmp_path: Path) -> None:
    folder = write(wrapper, tmp_path / "model")
    expected = scores(folder)
    written = irwm.open_checkpoint(folder).layout.embedding.name.removesuffix("embed_tokens.weight")
    starts = {written: body, "lm_head.": head + "lm_head."}

    def renamed(name: str) -> str:
        return next((new + name.removeprefix(old) for old, new in starts.items() if name.startswith(old)), name)

    rename(folder, renamed)
    assert torch.equal(scores(folder), expected)
    assert irwm.open_checkpoint(folder).notes == ()


@pytest.mark.parametrize("wrapper", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_other_forms_of_the_section_are_read(wrapper: str, tmp_path: Path) -> None:
    """The first published configs have no section for the language model."""
    folder = write(wrapper, tmp_path / "model")
    expected = scores(folder)
    if wrapper == "qwen3_vl":
        change_config(folder, unnamed)
    else:
        change_config(folder, lambda config: {**config.pop("text_config"), **config, "model_type": wrapper})
    assert torch.equal(scores(folder), expected)


def test_a_whole_omni_model_is_read_as_its_thinker(tmp_path: Path) -> None:
    """Qwen3-Omni's published files hold the thinker next to the models that speak."""
    folder = write("qwen3_omni_moe_thinker", tmp_path / "model")
    expected = scores(folder)
    rename(folder, lambda name: f"thinker.{name}")
    change_config(folder, lambda config: {"model_type": "qwen3_omni_moe", "thinker_config": config})
    model = irwm.open_checkpoint(folder)
    assert torch.equal(scores(folder), expected)
    assert (model.notes, model.layout.head.name) == ((), "thinker.lm_head.weight")


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_contradictory_config_makes_a_stored_head_untied(inside: bool, head: bool, tmp_path: Path) -> None:
    folder = write("qwen3_vl_moe", tmp_path / "model")

    def contradict(config: dict[str, Any]) -> dict[str, Any]:
        config["text_config"]["tie_word_embeddings"] = inside
        return {**config, "tie_word_embeddings": not inside}

    change_config(folder, contradict)
    if not head:
        file = folder / "model.safetensors"
        save_file({name: tensor for name, tensor in load_file(file).items() if name != "lm_head.weight"}, file)
    model = irwm.open_checkpoint(folder)
    assert (model.tied, model.notes) == (not head, ())
