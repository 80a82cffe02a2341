"""Families that store or combine q and k differently carry a mark, from key to verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModel, T5ForConditionalGeneration

import irwm
from tests.families.reference import randomise

_GPT = {"vocab_size": 600, "n_embd": 64, "n_layer": 1, "n_head": 4, "n_positions": 32}
_PLAIN = {"vocab_size": 600, "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 32}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transposed (GPT-2)": ("gpt2", _GPT),
    "fused by head, normed embedding (BLOOM)": ("bloom", {**_GPT, "hidden_size": 64}),
    "fused by key head (Falcon 40B)": (
        "falcon",
        {**_PLAIN, "hidden_size": 64, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "embedding narrower than the layers (OPT-350m)": (
        "opt",
        {**_PLAIN, "hidden_size": 128, "word_embed_proj_dim": 64, "do_layer_norm_before": False, "ffn_dim": 64},
    ),
    "clipped (OLMo)": ("olmo", {**_PLAIN, "hidden_size": 64, "intermediate_size": 64, "clip_qkv": 0.5}),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", MODELS)
def test_a_family_with_special_q_and_k_is_marked_and_found(name: str, tmp_path: Path) -> None:
    model_type, settings = MODELS[name]
    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](**settings)
    written = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    randomise(written)
    written.to(torch.bfloat16).save_pretrained(tmp_path / "model")
    model = irwm.open_checkpoint(tmp_path / "model")
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    release = irwm.insert(model, key, tmp_path / "release")
    assert irwm.detect(irwm.open_checkpoint(release.path), model, key).verdict == "found"
    assert irwm.detect(model, model, key).verdict == "not found"
    AutoModel.from_pretrained(release.path)


def test_every_stored_copy_of_the_embedding_is_marked(tmp_path: Path) -> None:
    """Old T5 files hold the embedding three times; an unmarked copy would untie the model when it is loaded."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING["t5"](vocab_size=600, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4)
    written = T5ForConditionalGeneration(config)
    randomise(written)
    written.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    save_file(tensors | {name: tensors["shared.weight"].clone() for name in copies}, file)
    model = irwm.open_checkpoint(tmp_path / "model")
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    release = irwm.insert(model, key, tmp_path / "release")
    marked = load_file(Path(release.path) / "model.safetensors")
    assert not torch.equal(marked["shared.weight"], tensors["shared.weight"])
    for name in copies:
        assert torch.equal(marked[name], marked["shared.weight"])
    assert irwm.detect(irwm.open_checkpoint(release.path), model, key).verdict == "found"
