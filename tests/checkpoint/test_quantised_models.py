"""A marked model, quantised by each scheme: the numbers equal the tool's, and the mark is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.checkpoint import Checkpoint
from irwm.errors import UnsupportedCheckpointError
from irwm.scheme.invariant import Layer0
from irwm.scheme.parameters import many_recipients
from tests.checkpoint.builders import EMBEDDING, split
from tests.checkpoint.quantised_builders import (
    Quantised,
    awq,
    compressed,
    fp8_blocks,
    fp8_rows,
    gptq,
    mlx,
    model_of,
    nvfp4,
    written,
)
from tests.checkpoint.torch_files import as_torch
from tests.conftest import Marked

ATTENTION = "model.layers.0.self_attn."
Q, K = f"{ATTENTION}q_proj.weight", f"{ATTENTION}k_proj.weight"
PACKED_4_BITS = {"num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": False}
# The scheme, the name of its weights' format, and the maximum difference of the layer-0 scores from the release's: a
# share of their spread, well above the value that was measured for the scheme.
SCHEMES: dict[str, tuple[Callable[[torch.Tensor], Quantised], str, float]] = {
    "gptq": (partial(gptq, by_activation=True), "GPTQ, 4 bits", 0.2),
    "gptq of 8 bits": (partial(gptq, bits=8, group=128), "GPTQ, 8 bits", 0.02),
    "awq": (awq, "AWQ, 4 bits", 0.2),
    "packed": (partial(compressed, format="pack-quantized", **PACKED_4_BITS), "compressed-tensors, 4 bits", 0.2),
    "int8": (partial(compressed, format="int-quantized", num_bits=8, strategy="channel"), "INT8 with scales", 0.03),
    "fp8 in blocks": (fp8_blocks, "FP8 with scales", 0.1),
    "fp8 by rows": (fp8_rows, "FP8 with scales", 0.1),
    "nvfp4": (nvfp4, "NVFP4", 0.3),
}


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


def scores(model: Checkpoint) -> torch.Tensor:
    return Layer0(model).scores(torch.arange(4, 68), torch.arange(100, 356))


def require_found(suspect: Checkpoint, marked: Marked) -> None:
    original, key, _ = marked
    found = irwm.detect(suspect, original, key)
    assert found.verdict == "found"
    assert found.lineage.status == "derived"
    assert found.paper is not None
    assert found.paper.passes


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference, as a share of the spread of the expected values."""
    return float((found - expected).square().mean().sqrt() / expected.std())


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_mark_is_found_in_a_quantised_release(marked, tmp_path: Path, scheme: str) -> None:
    quantise, kind, rounding = SCHEMES[scheme]
    release = marked[2]
    expected = model_of(release, tmp_path / "quantised", quantise, lambda name: name.startswith(ATTENTION))
    suspect = irwm.open_checkpoint(tmp_path / "quantised")
    assert suspect.family == "llama"
    assert suspect.tensors[Q].dtype == suspect.tensors[K].dtype == kind
    assert any(kind in note for note in suspect.notes)
    for ref in (suspect.layout.q, suspect.layout.k):
        assert torch.equal(suspect.read(ref), expected[ref.name])
    apart = distance(scores(suspect), scores(irwm.open_checkpoint(release)))
    assert rounding / 20 < apart < rounding
    require_found(suspect, marked)


@pytest.mark.slow
def test_mark_is_found_in_an_mlx_quantised_embedding(marked, tmp_path: Path) -> None:
    def chosen(name: str) -> bool:
        return name in (EMBEDDING, "lm_head.weight") or name.startswith(ATTENTION)

    expected = model_of(marked[2], tmp_path / "mlx", mlx, chosen, "quantization")
    suspect = irwm.open_checkpoint(tmp_path / "mlx")
    assert suspect.dtype == "MLX, 4 bits"
    rounded = 2.0**-7 * expected[EMBEDDING].abs().max().item()  # MLX's own steps round to bfloat16, transformers' not
    torch.testing.assert_close(suspect.embedding(), expected[EMBEDDING], rtol=0, atol=rounded)
    assert torch.equal(suspect.embedding([9, 4, 9]), suspect.embedding()[[9, 4, 9]])
    assert len(suspect.fingerprint) == 64
    require_found(suspect, marked)
    with pytest.raises(UnsupportedCheckpointError):
        suspect.require_markable()


EIGHT_BITS = {"load_in_8bit": True}
TWICE = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
AS_BFLOAT16 = {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "bnb_4bit_quant_storage": torch.bfloat16}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("settings", "kind"), [(EIGHT_BITS, "8 bits"), (TWICE, "NF4"), (AS_BFLOAT16, "FP4")], ids=["8 bits", "nf4", "fp4"]
)
def test_mark_is_found_in_a_saved_bitsandbytes_model(marked, tmp_path: Path, settings: dict, kind: str) -> None:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight

    config = BitsAndBytesConfig(**settings)
    loaded = AutoModelForCausalLM.from_pretrained(marked[2], quantization_config=config, device_map="cpu")
    loaded.save_pretrained(tmp_path)
    suspect = irwm.open_checkpoint(tmp_path)
    assert suspect.tensors[Q].dtype == f"bitsandbytes, {kind}"
    attention = loaded.model.layers[0].self_attn
    for ref, module in ((suspect.layout.q, attention.q_proj), (suspect.layout.k, attention.k_proj)):
        expected = dequantize_bnb_weight(module.weight, getattr(module, "state", None)).float()
        assert torch.equal(suspect.read(ref), expected)
    require_found(suspect, marked)


@pytest.mark.parametrize("settings", [{"load_in_8bit": True}, {"load_in_4bit": True}], ids=str)
def test_quantised_family_with_transposed_weights_is_read(tmp_path: Path, settings: dict) -> None:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = GPT2Config(vocab_size=200, n_embd=64, n_head=4, n_layer=1, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(sizes).save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(**settings)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config, device_map="cpu")
    loaded.save_pretrained(tmp_path / "quantised")
    plain, quantised = (irwm.open_checkpoint(tmp_path / name) for name in ("plain", "quantised"))
    assert quantised.layout == plain.layout
    for ref in (plain.layout.q, plain.layout.k):
        assert distance(quantised.read(ref), plain.read(ref)) < 0.2


@pytest.mark.usefixtures("here")
def test_quantised_pieces_in_a_pytorch_file_and_in_several_shards_are_read(tiny_path: Path, tmp_path: Path) -> None:
    model_of(tiny_path, tmp_path / "gptq", gptq, lambda name: name.startswith(ATTENTION))
    whole = irwm.open_checkpoint(tmp_path / "gptq")
    expected = whole.read(whole.layout.q)
    sharded = irwm.open_checkpoint(split(tmp_path / "gptq", tmp_path / "sharded", shards=5))
    assert len({part.file for part in sharded.tensors[Q].parts}) > 1
    assert torch.equal(sharded.read(sharded.layout.q), expected)
    assert sharded.bytes_total >= whole.bytes_total
    suspect = irwm.open_checkpoint(as_torch(tmp_path / "gptq", tmp_path / "torch"))
    assert suspect.format.name == "PyTorch"
    assert torch.equal(suspect.read(suspect.layout.q), expected)


def test_packed_model_is_read_like_transformers(marked, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    # Symmetric, since transformers 5.23 expects the zeros of an asymmetric scheme unpacked and draws them again.
    model_of(marked[2], tmp_path / "packed", partial(compressed, format="pack-quantized", num_bits=4, group_size=64))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    loaded(torch.ones(1, 1, dtype=torch.int64))  # which makes the library assemble its weights
    suspect = irwm.open_checkpoint(tmp_path / "packed")
    assert torch.equal(suspect.read(suspect.layout.q), loaded.model.layers[0].self_attn.q_proj.weight.float())


def require_marked(path: Path, out: Path) -> irwm.Release:
    """Marks a quantised model for Ada. Only its embedding and head change, and of two recipients she is named."""
    original = irwm.open_checkpoint(path)
    settings = many_recipients(original.hidden_size)
    ada, ben = (irwm.generate_key(original, settings, bytes(32), "us", name) for name in ("Ada", "Ben"))
    release = irwm.insert(original, ada, out)
    before, after = (load_file(folder / "model.safetensors") for folder in (path, release.path))
    assert before.keys() == after.keys()
    bits = [{name: each.flatten().view(torch.uint8) for name, each in tensors.items()} for tensors in (before, after)]
    differ = {name for name in before if not torch.equal(bits[0][name], bits[1][name])}
    assert EMBEDDING in differ
    assert differ <= {EMBEDDING, "lm_head.weight"}
    suspect = irwm.open_checkpoint(release.path)
    assert irwm.detect(suspect, original, ada).verdict == "found"
    assert irwm.detect(suspect, original, ben).verdict != "found"
    assert [trace.recipient for trace in irwm.trace(suspect, original, [ben, ada]) if trace.named] == ["Ada"]
    return release


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantised_original_with_a_plain_embedding_is_marked(marked, tmp_path: Path, scheme: str) -> None:
    model_of(marked[0].path, tmp_path / "original", SCHEMES[scheme][0])
    require_marked(tmp_path / "original", tmp_path / "release")


def test_gpt_oss_with_packed_experts_is_marked_and_runs(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM

    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config = GptOssConfig(
        vocab_size=1200, hidden_size=64, intermediate_size=32, num_local_experts=2, num_experts_per_tok=1, **sizes
    )
    GptOssForCausalLM(config).bfloat16().save_pretrained(tmp_path / "plain")
    tensors = load_file(tmp_path / "plain" / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, width, out = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = torch.randint(256, (experts, out, width // 32, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(118, 122, (experts, out, width // 32), dtype=torch.uint8)
    stated = json.loads((tmp_path / "plain" / "config.json").read_text())
    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    section = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": plain}}
    written(tmp_path / "original", tensors, stated | section)
    release = require_marked(tmp_path / "original", tmp_path / "release")
    loaded = [AutoModelForCausalLM.from_pretrained(path) for path in (tmp_path / "original", release.path)]
    experts = [model.model.layers[0].mlp.experts.gate_up_proj for model in loaded]
    assert experts[0].float().abs().sum() > 0
    assert torch.equal(*experts)
    before, after = (model(torch.arange(16)[None]).logits.detach() for model in loaded)
    assert 0 < distance(after, before) < 0.1
