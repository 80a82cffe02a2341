"""Every stored copy of the embedding is marked; tests/test_every_family.py marks models with one."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, T5ForConditionalGeneration

import irwm
from tests.families.reference import randomise


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
