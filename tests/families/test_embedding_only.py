"""Families whose layer 0 has no q·k: their scores are similarities between embedding rows, and they carry a mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING

import irwm
from irwm.errors import UnknownFamilyError
from irwm.families.family import families
from irwm.release.insertion import marked_rows
from irwm.scheme.invariant import Layer0
from tests.checkpoint.builders import change_config
from tests.families.reference import class_of, randomise
from tools.small_models import write_llama

_SIZES = {"vocab_size": 600, "hidden_size": 64, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2}
_LATENT = {
    "intermediate_size": 40, "moe_intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 4,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
_HEADS = {
    "intermediate_size": 40, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0,
}  # fmt: skip
_EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_INDEX = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 16}
_MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_d_ssm": 128, "shared_intermediate_size": 16,
}  # fmt: skip
_STREAMS = {"hc_mult": 2, "head_dim": 16, "q_lora_rank": 24, "o_lora_rank": 8, "o_groups": 2, "qk_rope_head_dim": 8}
_GEMMA3N = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 600, "laurel_rank": 4, "head_dim": 16}
_GEMMA3N |= {"num_kv_shared_layers": 0}
_CONVOLUTION = {"layer_types": ["conv", "full_attention"]}
_ZAMBA = {"num_hidden_layers": 4, "mamba_d_state": 8, "layers_block_type": ["mamba", "hybrid"] * 2}
MODELS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {**_SIZES, **_LATENT, **_EXPERTS},
    "deepseek_v3": {**_SIZES, **_LATENT, **_EXPERTS},
    "minicpm3": {**_SIZES, **_LATENT},
    "deepseek_v32": {**_SIZES, **_LATENT, **_EXPERTS, **_INDEX},
    "glm_moe_dsa": {**_SIZES, **_LATENT, **_EXPERTS, **_INDEX},
    "longcat_flash": {**_SIZES, **_LATENT, **_EXPERTS, "num_layers": 2, "zero_expert_num": 2},
    "mistral4": {**_SIZES, **_LATENT, **_EXPERTS},
    "mistral_large4_text": {**_SIZES, **_LATENT, **_EXPERTS, **_INDEX},
    "gemma3n_text": {**_SIZES, **_HEADS, **_GEMMA3N},
    "deepseek_v4": {**_SIZES, **_HEADS, **_STREAMS, "num_key_value_heads": 1},
    "glm5_next_text": {**_SIZES, **_LATENT, **_EXPERTS, **_INDEX, "hc_mult": 2, "qk_rope_head_dim": 0},
    "hy_v4": {**_SIZES, **_LATENT, **_EXPERTS, **_INDEX, "hc_mult": 2},
    "qwen3_5_text": {**_SIZES, **_HEADS, "num_hidden_layers": 4},
    "qwen3_5_moe_text": {**_SIZES, **_HEADS, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2},
    "kimi_linear": {**_SIZES, **_LATENT, **_EXPERTS, "q_lora_rank": None, "num_hidden_layers": 4, "num_experts": 4},
    "minimax": {**_SIZES, **_HEADS, "num_local_experts": 2, "layer_types": ["linear_attention", "full_attention"]},
    "falcon_h1": {**_SIZES, **_HEADS, **_MAMBA},
    "granitemoehybrid": {**_SIZES, **_HEADS, **_MAMBA, "num_local_experts": 2, "num_experts_per_tok": 2},
    "olmo_hybrid": {**_SIZES, **_HEADS, "num_hidden_layers": 4},
    "lfm2": {**_SIZES, **_HEADS, **_CONVOLUTION},
    "lfm2_moe": {**_SIZES, **_HEADS, **_CONVOLUTION, "num_experts": 2, "num_dense_layers": 1},
    "lfm3": {**_SIZES, **_HEADS, **_CONVOLUTION, "head_dim": 16},
    "zamba": {**_SIZES, **_HEADS, **_ZAMBA, "num_key_value_heads": 4, "mamba_expand": 2, "use_mamba_kernels": False},
    "zamba2": {**_SIZES, **_HEADS, **_ZAMBA, "num_key_value_heads": 4, "mamba_ngroups": 1, "n_mamba_heads": 2},
    "recurrent_gemma": {**_SIZES, **_HEADS, "num_key_value_heads": 1, "lru_width": 64},
    "nemotron_h": {**_SIZES, **_HEADS, "layers_block_type": ["mamba", "attention"], "mamba_num_heads": 8},
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


def make(model_type: str) -> torch.nn.Module:
    config = CONFIG_MAPPING[model_type](**MODELS[model_type])
    return class_of(config)(config)


def write(model_type: str, folder: Path, dtype: torch.dtype = torch.float32, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    model = make(model_type)
    randomise(model)
    model.to(dtype).save_pretrained(folder)
    return folder


def test_every_model_type_without_scores_is_tested() -> None:
    served = {t for family in families() if family.projections is None for t in family.model_types}
    assert served == set(MODELS)


@pytest.mark.parametrize("model_type", MODELS)
def test_scores_are_cosines_of_embedding_rows(model_type: str, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(write(model_type, tmp_path / "model", torch.bfloat16))
    assert (model.layout.scores, model.layout.q, model.layout.k) == ("embedding", None, None)
    assert "similarities between token embeddings" in " ".join(model.notes)
    rows = load_file(tmp_path / "model" / "model.safetensors")[model.layout.embedding.name].double()
    expected = torch.nn.functional.cosine_similarity(rows[QUERIES][:, None], rows[REFERENCES][None], dim=2)
    torch.testing.assert_close(Layer0(model).scores(QUERIES, REFERENCES), expected, rtol=0, atol=1e-12)


def marked(model_type: str, folder: Path, dtype: torch.dtype) -> tuple[irwm.Checkpoint, irwm.Key, irwm.Checkpoint]:
    """The model, a key, and the release."""
    model = irwm.open_checkpoint(write(model_type, folder / "model", dtype))
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    return model, key, irwm.open_checkpoint(irwm.insert(model, key, folder / "release").path)


@pytest.mark.sweep
@pytest.mark.parametrize("model_type", ["deepseek_v3", "mamba"])
def test_a_model_without_scores_is_marked_and_the_mark_found(model_type: str, tmp_path: Path) -> None:
    model, key, suspect = marked(model_type, tmp_path, torch.float32)
    found = irwm.detect(suspect, model, key)
    assert (found.verdict, found.passes) == ("found", True)
    assert found.paper is not None
    assert found.paper.count >= 49
    assert found.lineage.status == "derived"
    assert np.isnan(found.lineage.attention)
    assert irwm.detect(suspect, model, key, statistic="sum", invariant="suspect").verdict == "found"
    other = irwm.generate_key(model, secret=bytes(32), owner="them")
    assert irwm.detect(suspect, model, other).verdict == "not found"


@pytest.mark.sweep
@pytest.mark.sampled(2)
@pytest.mark.parametrize("model_type", MODELS)
def test_every_model_type_without_scores_carries_a_mark(model_type: str, tmp_path: Path) -> None:
    model, key, suspect = marked(model_type, tmp_path, torch.bfloat16)
    assert irwm.detect(suspect, model, key).verdict == "found"
    assert irwm.detect(model, model, key).verdict == "not found"


@pytest.mark.parametrize("model_type", ["rwkv", "mamba"])
def test_a_mark_contains_no_row_constant_if_readers_remove_it(model_type: str, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(write(model_type, tmp_path / "model"))
    key = irwm.generate_key(model, secret=bytes(range(32)), owner="us")
    choices = key.choices()
    changes = marked_rows(model, key, choices).double() - model.embedding(choices.marked_rows).double()
    medians = changes.quantile(0.5, dim=1).abs() / changes.std(dim=1)
    # rwkv's first norm is a LayerNorm, mamba's an RMSNorm, whose rows change only at the solved entries.
    assert model.layout.drops_row_constants == (model_type == "rwkv")
    if model_type == "rwkv":
        assert float(medians.max()) < 1e-5
    else:
        basis = key.noise(model, choices).basis
        changed = np.abs(basis.into(changes.numpy(), choices.marked_rows)) > 1e-5
        assert (changed.sum(axis=1) <= key.parameters.constraints).all()
        assert float(medians.max()) > 1e-2


def test_the_mark_is_found_after_a_rotation_and_under_other_names(tmp_path: Path) -> None:
    """A rotation of the residual stream does not change cosines; a renamed embedding is found by its shape."""
    model, key, release = marked("mamba", tmp_path, torch.float32)
    file = release.path / "model.safetensors"
    tensors, name = load_file(file), model.layout.embedding.name
    rotation = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))[0]
    tensors[name] = tensors[name] @ rotation * 3.0
    save_file(tensors, file)
    rotated = irwm.open_checkpoint(release.path)
    unmarked = np.setdiff1d(np.arange(600), key.choices().marked_rows)
    difference = Layer0(rotated).scores(unmarked[:5], unmarked) - Layer0(model).scores(unmarked[:5], unmarked)
    assert float(difference.abs().max()) < 1e-6
    save_file({f"t{i}": tensor for i, tensor in enumerate(tensors.values())}, file)
    (release.path / "config.json").unlink()
    renamed = irwm.open_checkpoint(release.path)
    assert renamed.family == "unknown"
    assert irwm.detect(renamed, model, key).verdict == "found"


@pytest.mark.parametrize("model_type", ["deepseek_v3", "mamba", "mamba2"])
def test_family_without_scores_is_recognised_by_names_without_config(model_type: str, tmp_path: Path) -> None:
    """There are no heads to count, so the tensors' names are sufficient."""
    folder = write(model_type, tmp_path / "model")
    known = irwm.open_checkpoint(folder)
    (folder / "config.json").unlink()
    model = irwm.open_checkpoint(folder)
    assert model.family == known.family
    assert torch.equal(Layer0(model).scores(QUERIES, REFERENCES), Layer0(known).scores(QUERIES, REFERENCES))


@pytest.mark.parametrize("change", ["prefix", "head", "names"])
def test_an_embedding_under_another_name_is_found(tmp_path: Path, change: str) -> None:
    file = write("mamba", tmp_path / "model") / "model.safetensors"
    tensors = load_file(file)
    if change == "prefix":
        tensors = {f"wrapped.{name}": tensor for name, tensor in tensors.items()}
    elif change == "head":
        tensors["lm_head.weight"] = tensors.pop("backbone.embeddings.weight")
    else:
        tensors = {f"t{i}": tensor for i, tensor in enumerate(tensors.values())}
    save_file(tensors, file)
    model = irwm.open_checkpoint(file.parent if change != "names" else file)
    known = change != "names"
    assert (model.family, model.layout.names_known) == ("mamba" if known else "unknown", known)
    assert model.vocab_size == 600
    if not known:
        with pytest.raises(UnknownFamilyError):
            model.require_markable()


NEW = "brand_new_2027"


def of_a_new_type(folder: Path, tied: bool, **more: torch.Tensor) -> Path:
    """A Llama with an unknown model type in its config."""
    write_llama(folder, tie_word_embeddings=tied)
    change_config(folder, model_type=NEW, architectures=["BrandNew"])
    file = folder / "model.safetensors"
    save_file(load_file(file) | more, file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_model_of_a_new_type_is_marked_and_found(tmp_path: Path, tied: bool) -> None:
    per_layer = {"model.embed_tokens_per_layer.weight": torch.randn(600, 64)}
    model = irwm.open_checkpoint(of_a_new_type(tmp_path / "model", tied, **per_layer))
    assert (model.family, model.layout.scores, model.tied) == ("unknown", "embedding", tied)
    assert model.layout.embedding.name == "model.embed_tokens.weight"
    assert NEW in model.notes[0]
    key = irwm.generate_key(model, irwm.Parameters(constraints=4), secret=bytes(32))
    assert (key.head is None) is tied
    release = irwm.insert(model, key, tmp_path / "release").path
    before, after = load_file(model.path / "model.safetensors"), load_file(release / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})
    for suspect, verdict in ((release, "found"), (model.path, "not found")):
        found = irwm.detect(irwm.open_checkpoint(suspect), model, key)
        assert found.verdict == verdict, found.reason
    wrong = irwm.generate_key(model, irwm.Parameters(constraints=4), secret=bytes([1]) * 32)
    assert irwm.detect(irwm.open_checkpoint(release), model, wrong).verdict == "not found"


def test_a_known_original_is_not_read_by_a_new_types_embedding(tmp_path: Path) -> None:
    """A suspect that claims a new type: the mark is read, but the paper's own reading is not possible."""
    original = irwm.open_checkpoint(write_llama(tmp_path / "model", tie_word_embeddings=True))
    key = irwm.generate_key(original, irwm.Parameters(constraints=4), secret=bytes(32))
    release = irwm.insert(original, key, tmp_path / "release").path
    change_config(release, model_type=NEW)
    found = irwm.detect(irwm.open_checkpoint(release), original, key)
    assert (found.verdict, found.paper) == ("found", None)


WRONG = [{"hidden_size": 32}, {"model_type": None}, *({"vocab_size": size} for size in (True, 0, -5, 601))]


@pytest.mark.parametrize("change", [{}, *WRONG])
def test_an_unknown_type_with_an_ambiguous_embedding_is_not_marked(tmp_path: Path, change: dict[str, Any]) -> None:
    more = {} if change else {"decoder.embed_tokens.weight": torch.randn(600, 64)}
    folder = of_a_new_type(tmp_path / "model", True, **more)
    change_config(folder, **change)
    with pytest.raises(UnknownFamilyError):
        irwm.open_checkpoint(folder).require_markable()
