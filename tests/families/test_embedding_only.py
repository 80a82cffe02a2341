"""Families whose layer 0 has no q·k: their scores are similarities between embedding rows, and they carry a mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

import irwm
from irwm.errors import UnknownFamilyError
from irwm.families import recognise
from irwm.families.family import families
from irwm.release.insertion import marked_rows
from irwm.scheme.invariant import Layer0
from tests.families.reference import randomise

_SIZES = {"vocab_size": 600, "hidden_size": 64, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2}
_LATENT = {
    "intermediate_size": 40,
    "moe_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_HEADS = {
    "intermediate_size": 40,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
_EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
MODELS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {**_SIZES, **_LATENT, **_EXPERTS},
    "deepseek_v3": {**_SIZES, **_LATENT, **_EXPERTS},
    "minicpm3": {**_SIZES, **_LATENT},
    "mamba": {**_SIZES, "state_size": 4, "tie_word_embeddings": True},
    "falcon_mamba": {**_SIZES, "state_size": 4},
    "mamba2": {**_SIZES, "state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 8},
    "qwen3_next": {**_SIZES, **_HEADS, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2},
    "jamba": {**_SIZES, **_HEADS, "num_experts": 2, "mamba_d_state": 4, "use_mamba_kernels": False},
    "bamba": {**_SIZES, **_HEADS, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8},
    "rwkv": {**_SIZES, "attention_hidden_size": 64, "intermediate_size": 96},
}
QUERIES = [3, 17, 44, 101, 198]
REFERENCES = list(range(1, 600, 5))


def write(model_type: str, folder: Path, dtype: torch.dtype = torch.float32, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[model_type](**MODELS[model_type])
    model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    randomise(model)
    model.to(dtype).save_pretrained(folder)
    return folder


def test_every_model_type_without_scores_is_tried() -> None:
    served = {t for family in families() if family.projections is None for t in family.model_types}
    assert served == set(MODELS)


@pytest.mark.parametrize("model_type", MODELS)
def test_scores_are_cosines_of_embedding_rows(model_type: str, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(write(model_type, tmp_path / "model", torch.bfloat16))
    assert (model.layout.scores, model.layout.q, model.layout.k) == ("embedding", None, None)
    (note,) = [note for note in model.notes if "similarities between token embeddings" in note]
    assert note.endswith("instead of layer 0's attention scores.")
    rows = load_file(tmp_path / "model" / "model.safetensors")[model.layout.embedding.name].double()
    expected = torch.nn.functional.cosine_similarity(rows[QUERIES][:, None], rows[REFERENCES][None], dim=2)
    torch.testing.assert_close(Layer0(model).scores(QUERIES, REFERENCES), expected, rtol=0, atol=1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("model_type", ["deepseek_v3", "mamba", "rwkv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_model_without_scores_is_marked_and_the_mark_found(
    model_type: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = irwm.open_checkpoint(write(model_type, tmp_path / "model", dtype))
    model.require_markable()
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    release = irwm.insert(model, key, tmp_path / "release")
    suspect = irwm.open_checkpoint(release.path)
    found = irwm.detect(suspect, model, key)
    assert (found.verdict, found.passes) == ("found", True)
    assert found.paper is not None
    assert found.paper.count >= 49
    assert found.lineage.status == "derived"
    assert np.isnan(found.lineage.attention)
    assert irwm.detect(suspect, model, key, statistic="sum", invariant="suspect").verdict == "found"
    assert irwm.detect(model, model, key).verdict == "not found"
    other = irwm.generate_key(model, secret=bytes(32), owner="them")
    assert irwm.detect(suspect, model, other).verdict == "not found"


@pytest.mark.parametrize("model_type", ["rwkv", "mamba"])
def test_a_mark_holds_no_constant_where_a_reader_takes_constants_away(model_type: str, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(write(model_type, tmp_path / "model"))
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    choices = key.choices()
    changes = marked_rows(model, key, choices).double() - model.embedding(choices.marked_rows).double()
    medians = changes.quantile(0.5, dim=1).abs() / changes.std(dim=1)
    # rwkv's first norm is a LayerNorm, mamba's an RMSNorm, whose rows are changed at the solved entries alone.
    assert model.layout.drops_row_constants == (model_type == "rwkv")
    if model_type == "rwkv":
        assert float(medians.max()) < 1e-5
    else:
        basis = key.noise(model, choices).basis
        changed = np.abs(basis.into(changes.numpy(), choices.marked_rows)) > 1e-5
        assert (changed.sum(axis=1) <= key.parameters.constraints).all()
        assert float(medians.max()) > 1e-2


@pytest.mark.sweep
@pytest.mark.parametrize("model_type", ["deepseek_v3", "mamba"])
def test_the_mark_is_found_after_a_rotation_and_under_other_names(model_type: str, tmp_path: Path) -> None:
    """A rotation of the residual stream leaves cosines as they are; renamed, the embedding is found by its shape."""
    model = irwm.open_checkpoint(write(model_type, tmp_path / "model"))
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    release = irwm.insert(model, key, tmp_path / "release")
    file = Path(release.path) / "model.safetensors"
    tensors, name = load_file(file), model.layout.embedding.name
    rotation = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))[0]
    tensors[name] = tensors[name] @ rotation * 3.0
    save_file(tensors, file)
    rotated = irwm.open_checkpoint(release.path)
    unmarked = np.setdiff1d(np.arange(600), key.choices().marked_rows)
    difference = Layer0(rotated).scores(unmarked[:5], unmarked) - Layer0(model).scores(unmarked[:5], unmarked)
    assert float(difference.abs().max()) < 1e-6
    save_file({f"t{i}": tensor for i, tensor in enumerate(tensors.values())}, file)
    (Path(release.path) / "config.json").unlink()
    renamed = irwm.open_checkpoint(release.path)
    assert renamed.family == "unknown"
    found = irwm.detect(renamed, model, key)
    assert found.verdict == "found"


@pytest.mark.parametrize("model_type", ["deepseek_v3", "mamba", "mamba2"])
def test_names_tell_a_family_without_scores_and_no_config_is_needed(model_type: str, tmp_path: Path) -> None:
    """There are no heads to be counted, so the tensors' names are enough."""
    folder = write(model_type, tmp_path / "model")
    known = irwm.open_checkpoint(folder)
    (folder / "config.json").unlink()
    model = irwm.open_checkpoint(folder)
    assert model.family == known.family
    assert any("recognised by tensor names" in note for note in model.notes)
    assert torch.equal(Layer0(model).scores(QUERIES, REFERENCES), Layer0(known).scores(QUERIES, REFERENCES))


def test_an_unusual_prefix_is_found_and_said(tmp_path: Path) -> None:
    folder = write("mamba", tmp_path / "model")
    file = folder / "model.safetensors"
    save_file({f"wrapped.{name}": tensor for name, tensor in load_file(file).items()}, file)
    model = irwm.open_checkpoint(folder)
    assert model.family == "mamba"
    assert any("unusual prefix" in note for note in model.notes)


def test_an_embedding_under_its_heads_name_is_found(tmp_path: Path) -> None:
    folder = write("mamba", tmp_path / "model")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors.pop("backbone.embeddings.weight")
    save_file(tensors, file)
    assert irwm.open_checkpoint(folder).layout.embedding.name == "lm_head.weight"


def test_no_embedding_lists_the_names_tried() -> None:
    with pytest.raises(UnknownFamilyError, match=r"embed_tokens\.weight"):
        recognise({"model_type": "deepseek_v3"}, {"model.layers.0.input_layernorm.weight": (64,)})


def test_an_unknown_family_is_still_examined_and_not_marked(tmp_path: Path) -> None:
    folder = write("mamba", tmp_path / "model")
    file = folder / "model.safetensors"
    save_file({f"t{i}": tensor for i, tensor in enumerate(load_file(file).values())}, file)
    model = irwm.open_checkpoint(folder / "model.safetensors")
    assert (model.family, model.layout.names_known) == ("unknown", False)
    with pytest.raises(UnknownFamilyError):
        model.require_markable()
