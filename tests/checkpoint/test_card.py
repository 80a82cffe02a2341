"""The card's facts, from real checkpoints of every kind that the scheme treats differently."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import PackedTensor, open_checkpoint
from irwm.checkpoint.card import Card, card_of, tokenizer_of
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from tests.checkpoint.builders import QUERY, change_config
from tests.checkpoint.gguf_builders import convert
from tests.families.reference import save
from tools.small_models import write_llama


def card(path: Path) -> Card:
    return card_of(open_checkpoint(path))


def role(card: Card, name: str):
    (found,) = (one for one in card.roles if one.role == name)
    return found


def test_llama_card(demo_path: Path) -> None:
    facts = card(demo_path)
    names = (facts.name, facts.family, facts.recognised, facts.format)
    assert names == ("demo", "llama", "config.json", "safetensors")
    assert (facts.vocab_size, facts.hidden_size, facts.layers, facts.stated_layers) == (4096, 256, 4, 4)
    assert (facts.heads, facts.kv_heads, facts.head_dim) == (8, 4, 32)
    assert (facts.scores, facts.score) == ("attention", ("the token’s embedding", "RMS norm", "q and k"))
    roles = ["Embedding", "Output head", "Layer 0, norm", "Layer 0, q", "Layer 0, k"]
    assert [one.role for one in facts.roles] == roles
    assert {one.dtype for one in facts.roles} == {"bfloat16"}
    assert role(facts, "Layer 0, k").shape == (128, 256)
    assert (facts.fused, facts.tied, facts.head_stored) == (False, False, True)
    assert (facts.refusal, facts.advice, facts.notes) == ("", "", ())


def test_parameter_count_equals_transformers(demo_path: Path, gemma_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    for path in (demo_path, gemma_path):
        assert card(path).parameters == AutoModelForCausalLM.from_pretrained(path).num_parameters()


def test_bert_counts_tables_and_biases_but_not_indices(minilm_path: Path) -> None:
    facts = card(minilm_path)
    assert facts.score == ("the token’s embedding + position 0 + token type 0", "layer norm", "q and k with biases")
    assert role(facts, "Position table").shape == (512, 384)
    assert [(one.dtype, one.tensors) for one in facts.formats] == [("float32", 103), ("int64", 1)]
    assert (facts.parameters, facts.layers) == (facts.formats[0].numbers, 6)


def test_a_gemma_is_tied_and_scales_its_embedding(gemma_path: Path) -> None:
    facts = card(gemma_path)
    assert facts.score == ("the token’s embedding × 11.3125", "RMS norm with gain 1 + weight", "q and k")
    assert (facts.tied, facts.head_stored) == (True, False)


def test_phi3_states_the_slices_of_fused_parts(phi3_path: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(phi3_path, tmp_path / "m")
    change_config(folder, model_type="renamed")
    facts = card(folder)
    assert (facts.family, facts.recognised, facts.fused) == ("phi3", "the tensors’ names", True)
    q, k = role(facts, "Layer 0, q"), role(facts, "Layer 0, k")
    assert q.name == k.name == "model.layers.0.self_attn.qkv_proj.weight"
    assert (q.shape, k.shape) == ((128, 128), (128, 128))
    assert (q.part, k.part) == ("rows 0 to 127 of 384", "rows 128 to 255 of 384")


NARROW = "opt, post-norm and a narrow embedding"


@pytest.mark.parametrize(
    ("case", "step", "name", "shape", "part"),
    [
        ("qwen2", "q and k with biases", "Layer 0, k bias", (24,), ""),
        ("qwen3", "RMS norm on each head of q and k", "Layer 0, k norm", (20,), ""),
        ("olmo2", "RMS norm on all heads of q and k", "Layer 0, k norm", (24,), ""),
        ("olmo, clipped", "clipping at ±0.5", "Layer 0, q", (72, 72), ""),
        ("gpt2", "the token’s embedding + position 0", "Layer 0, k", (72, 72), "rows 72 to 143 of 216, transposed"),
        ("gpt_neox", "layer norm", "Layer 0, k", (72, 72), "rows 12 to 23 of every 36"),
        ("roberta", "layer norm", "Position table", (29, 72), "rows 3 to 31 of 32"),
        (NARROW, "a projection of the token’s embedding + position 0", "Embedding projection", (72, 48), ""),
        ("stablelm, a norm for each head", "q and k", "Layer 0, q norm (1 of 6)", (12,), ""),
    ],
)
def test_facts_of_a_family(tmp_path: Path, case: str, step: str, name: str, shape: tuple, part: str) -> None:
    facts = card(save(case, tmp_path / "m", torch.float32))
    assert step in facts.score
    assert (role(facts, name).shape, role(facts, name).part) == (shape, part)
    assert facts.layers == facts.stated_layers == 2


def test_a_card_without_attention_shows_embedding_similarities(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=600, hidden_size=32, num_hidden_layers=2, state_size=4)
    MambaForCausalLM(config).save_pretrained(tmp_path)
    facts = card(tmp_path)
    assert (facts.title, facts.scores, facts.score, facts.heads) == ("Mamba, Falcon Mamba", "embedding", (), 0)
    assert facts.refusal == ""
    assert facts.layers == 2


def test_a_stored_copy_of_a_tied_head_is_shown(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    facts = card(folder)
    assert (facts.tied, facts.head_stored) == (True, True)
    assert role(facts, "Copy of the output head").name == "lm_head.weight"


def test_a_card_shows_that_only_the_embedding_is_known(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({f"t{i}": value for i, value in enumerate(tensors.values())}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": ["x"]}))
    facts = card(folder)
    assert (facts.family, facts.recognised, facts.scores, facts.score) == ("unknown", "", "", ())
    assert (facts.heads, facts.layers) == (0, 0)
    assert [one.role for one in facts.roles] == ["Embedding"]
    assert "q and k" in facts.refusal
    assert facts.advice
    assert facts.notes


def test_layers_are_counted_from_tensor_names_and_not_from_the_config(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    norm = tensors["model.norm.weight"]
    more = {f"vision.layers.{n}.weight": norm.clone() for n in range(7)}
    save_file(tensors | more | {"model.layers.9999.extra": norm.clone()}, folder / "model.safetensors")
    change_config(folder, num_hidden_layers=32)
    facts = card(folder)
    assert (facts.layers, facts.stated_layers) == (2, 32)


def test_every_shard_has_its_size(sharded: Path) -> None:
    facts = card(sharded)
    sizes = {file.name: file.stat().st_size for file in sharded.glob("*.safetensors")}
    assert {shard.name: shard.nbytes for shard in facts.shards} == sizes
    assert facts.nbytes == sum(sizes.values())


def test_a_quantised_weight_counts_as_one_weight(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    stored = {f"{QUERY}.codes": torch.zeros(64, 32, dtype=torch.uint8), f"{QUERY}.scales": torch.ones(64, 1)}
    save_file({name: value for name, value in tensors.items() if name != QUERY} | stored, folder / "packed.safetensors")
    plain = open_checkpoint(folder / "model.safetensors")
    entries = dict(read_safetensors(folder / "packed.safetensors").tensors)
    parts = {"codes": entries.pop(f"{QUERY}.codes"), "scales": entries.pop(f"{QUERY}.scales")}
    packed = PackedTensor(QUERY, "GPTQ, 4 bits", (64, 64), parts, frozenset(parts), lambda values: values["codes"], b"")
    model = dataclasses.replace(plain, tensors={**entries, QUERY: packed}, shards=(folder / "packed.safetensors",))
    facts = card_of(model)
    assert facts.parameters == card_of(plain).parameters
    q = role(facts, "Layer 0, q")
    assert (q.dtype, q.shape, q.bits) == ("GPTQ, 4 bits", (64, 64), 8 * (64 * 32 + 64 * 4) / 64**2)
    assert [one.tensors for one in facts.formats if one.dtype == "GPTQ, 4 bits"] == [1]
    assert facts.shards[0].nbytes == (folder / "packed.safetensors").stat().st_size


def test_a_gguf_counts_all_its_layers_and_blocks_and_shows_its_vocabulary(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "m", num_hidden_layers=3)
    (folder / "tokenizer.json").write_text("another model's")
    tokens = [f"t{n}" for n in range(600)]
    model = open_checkpoint(convert(folder, folder / "m.gguf", gguf.GGMLQuantizationType.Q8_0, tokens=tokens))
    facts = card_of(model)
    assert (facts.format, facts.family, facts.recognised) == ("GGUF", "llama", "the file’s own settings")
    assert (facts.layers, facts.stated_layers) == (3, 3)
    assert (role(facts, "Embedding").dtype, role(facts, "Embedding").bits) == ("Q8_0", 8.5)
    assert [one.dtype for one in facts.formats] == ["Q8_0", "float32"]
    assert facts.parameters == card(folder / "model.safetensors").parameters
    assert facts.refusal
    assert dict(facts.said)["architecture"] == "llama"
    assert facts.tokenizer_files == ("m.gguf",)
    assert tokenizer_of(model).tokens == 600


def test_a_card_shows_safetensors_metadata(folder: Path) -> None:
    assert card(folder).said == (), "its framework is not shown"
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt", "merged_by": "someone"})
    assert card(folder).said == (("merged_by", "someone"),)


def test_card_reads_no_weights(folder: Path) -> None:
    model = open_checkpoint(folder)
    before = card_of(model)
    (folder / "model.safetensors").unlink()
    assert card_of(model) == before


def test_the_tokenizers_tokens_are_counted(demo_path: Path, minilm_path: Path, tiny_path: Path) -> None:
    for path, files in ((demo_path, 2), (minilm_path, 4)):
        model = open_checkpoint(path)
        tokenizer = tokenizer_of(model)
        assert tokenizer.tokens == model.vocab_size
        assert 0 < tokenizer.special < 1000
        assert len(card_of(model).tokenizer_files) == files
    model = open_checkpoint(tiny_path)
    assert card_of(model).tokenizer_files == ()
    assert (tokenizer_of(model).tokens, tokenizer_of(model).problem) == (0, "")


def test_a_broken_tokenizer_is_reported_without_an_exception(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    model = open_checkpoint(folder)
    assert card_of(model).tokenizer_files == ("tokenizer.json",)
    assert "tokenizer.json" in tokenizer_of(model).problem


def test_files_next_to_a_single_weight_file_are_found(folder: Path) -> None:
    (folder / "vocab.txt").write_text("a\nb\n")
    facts = card(folder / "model.safetensors")
    assert facts.name == "model.safetensors"
    assert facts.tokenizer_files == ("tokenizer.json", "vocab.txt")


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_a_multimodal_models_settings_are_found_in_its_section(folder: Path, section: str) -> None:
    inner = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "some_vlm", section: inner}))
    card = card_of(open_checkpoint(folder))
    assert (card.recognised, card.stated_layers) == ("config.json", inner["num_hidden_layers"])
