"""The real quantisers: llama.cpp and transformers read their output, and the mark is found in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import irwm
from irwm.attacks.quantisers import dequantised, gguf_obstacle, mixture, to_bitsandbytes, to_gguf
from irwm.attacks.quantisers.converter import Place
from irwm.attacks.quantisers.gguf_file import _rope_factors
from irwm.checkpoint import special_token_ids, token_ids
from irwm.errors import CorruptCheckpointError, OutputExistsError, UnsupportedCheckpointError
from tests.attacks.models import edited
from tests.attacks.test_collusion_attacks import all_tensors
from tests.conftest import Marked
from tools.small_models import write_llama


def require_found(suspect: irwm.Checkpoint, marked: Marked) -> None:
    found = irwm.detect(suspect, marked.original, marked.key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")


def logits_of(folder: Path, **options: object) -> torch.Tensor:
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
        return model(torch.arange(300, 330)[None]).logits


# --- GGUF


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "kind", "embedding"),
    [
        ("demo", "Q8_0", "Q8_0"),
        ("demo", "Q4_K_M", "Q4_K"),
        ("gemma", "Q4_0", "Q8_0"),  # also the head; its rows are too short for a K-quant
        ("phi3", "Q4_K_M", "Q5_0"),
        ("minilm", "Q4_K_M", "Q8_0"),
    ],
)
def test_the_mark_is_found_in_the_gguf_file(
    release_of: Callable[[str], Marked], tmp_path: Path, name: str, kind: str, embedding: str
) -> None:
    marked = release_of(name)
    file = to_gguf(marked.release, tmp_path / "out", kind)
    assert [f.name for f in (tmp_path / "out").iterdir()] == [f"model-{kind}.gguf"]
    suspect = irwm.open_checkpoint(file)
    assert (suspect.family, suspect.dtype) == (marked.original.family, embedding)
    require_found(suspect, marked)
    if marked.original.tied:  # its head is not written a second time
        assert not [tensor.name for tensor in gguf.GGUFReader(file).tensors if tensor.name == "output.weight"]


@pytest.mark.parametrize(("name", "kind"), [("demo", "Q4_K_M"), ("phi3", "Q4_0")])
def test_transformers_reads_the_same_model_in_the_file(
    release_of: Callable[[str], Marked], tmp_path: Path, name: str, kind: str
) -> None:
    """Its own loader of GGUF files restores names and arrangement of all layers, independently of our code."""
    release = release_of(name).release
    file = to_gguf(release, tmp_path / "out", kind)
    theirs = logits_of(file.parent, gguf_file=file.name)
    ours = logits_of(dequantised(file, release, tmp_path / "plain"))
    assert torch.allclose(theirs, ours, rtol=0, atol=1e-4 * float(ours.abs().max()))


@pytest.mark.slow
def test_f16_gguf_is_lossless_and_arrangement_is_reversed(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    for name in ("demo", "gemma", "phi3"):
        release = release_of(name).release
        plain = dequantised(to_gguf(release, tmp_path / name, "F16"), release, tmp_path / f"{name}-plain")
        numbers = all_tensors(plain)
        assert numbers.keys() == all_tensors(release).keys()
        for tensor, value in all_tensors(release).items():
            assert torch.allclose(numbers[tensor], value.float(), rtol=1e-3, atol=1e-6), tensor
        assert json.loads((plain / "config.json").read_text())["dtype"] == "float32"


def test_vocabulary_is_written_to_the_gguf_file(demo_path: Path, minilm_path: Path, tmp_path: Path) -> None:
    for name, folder in (("demo", demo_path), ("minilm", minilm_path)):
        release = irwm.open_checkpoint(folder)
        suspect = irwm.open_checkpoint(to_gguf(release.path, tmp_path / name, "Q8_0"))
        assert token_ids(suspect) == token_ids(release)
        assert special_token_ids(suspect) == special_token_ids(release)


def test_tokens_that_only_the_tokenizer_names_are_special_in_the_gguf_file(minilm_path: Path, tmp_path: Path) -> None:
    config = json.loads((minilm_path / "config.json").read_text())
    assert not {"unk_token_id", "sep_token_id", "mask_token_id"} & set(config)
    settings = gguf.GGUFReader(to_gguf(minilm_path, tmp_path / "out", "Q8_0")).fields
    keys = gguf.Keys.Tokenizer
    named = {"[UNK]": keys.UNK_ID, "[SEP]": keys.SEP_ID, "[MASK]": keys.MASK_ID}
    ids = token_ids(irwm.open_checkpoint(minilm_path))
    assert {text: settings[name].contents() for text, name in named.items()} == {text: ids[text] for text in named}


def test_a_model_without_a_tokenizer_becomes_a_file_without_a_vocabulary(tiny_path: Path, tmp_path: Path) -> None:
    file = to_gguf(tiny_path, tmp_path / "out", "F16")
    assert token_ids(irwm.open_checkpoint(file)) == {}


def test_type_mixture_equals_published_files() -> None:
    """Llama-2-7B in Q4_K_M as it is published: 193 tensors Q4_K, 33 Q6_K, 65 float32."""
    parts = (
        *("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"),
        *("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
    )
    matrices = [Place("", f"blk.{layer}.{part}", (4096, 4096)) for layer in range(32) for part in parts]
    norms = [Place("", f"blk.{layer}.{part}_norm.weight", (4096,)) for layer in range(32) for part in ("attn", "ffn")]
    ends = [Place("", f"{name}.weight", (32000, 4096)) for name in ("token_embd", "output")]
    everything = [*matrices, *norms, *ends, Place("", "output_norm.weight", (4096,))]
    chosen = mixture.formats(everything, "Q4_K_M")
    assert {name: chosen.count(name) for name in set(chosen)} == {"Q4_K": 193, "Q6_K": 33, "F32": 65}
    fine = [place.name for place, name in zip(everything, chosen, strict=True) if name == "Q6_K"]
    assert [f"blk.{layer}.attn_v.weight" in fine for layer in range(8)] == [True] * 4 + [False, False, True, False]
    assert mixture.formats(everything, "Q4_0").count("Q6_K") == 1
    assert set(mixture.formats(everything, "Q8_0")) == {"Q8_0", "F32"}


def test_ggml_and_the_package_round_alike() -> None:
    """Two independent implementations of one format agree, so the library is called correctly."""
    library = mixture._library()
    assert library is not None
    value = torch.randn(4, 256, generator=torch.Generator().manual_seed(5))
    content = np.zeros(mixture.stored_bytes(value.shape, "Q8_0"), np.uint8)
    numbers = value.numpy()
    library.ggml_quantize_chunk(8, numbers.ctypes.data, content.ctypes.data, 0, 4, 256, None)
    assert content.tobytes() == mixture.rounded(value, "Q8_0").tobytes()
    for name, most in (("Q4_K", 0.1), ("Q6_K", 0.03)):
        back = gguf.quants.dequantize(mixture.rounded(value, name).reshape(4, -1), gguf.GGMLQuantizationType[name])
        assert np.linalg.norm(back - numbers) / np.linalg.norm(numbers) < most


def test_llama_3_frequencies_are_written() -> None:
    rope = {
        **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        **{"original_max_position_embeddings": 8192, "rope_theta": 500000.0},
    }
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters=rope, max_position_embeddings=131072)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 500000.0 ** (-torch.arange(0, 128, 2) / 128)
    found = _rope_factors(config.to_dict())
    assert found is not None
    assert np.allclose(found, (plain / scaled).numpy(), rtol=1e-5)
    assert _rope_factors({"rope_theta": 10000.0}) is None


UNSUPPORTED = {
    "family": {"model_type": "olmo"},
    "kind of rotation": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
    "tensor": {"model.layers.0.self_attn.extra.weight": torch.ones(4, 4)},
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_model_without_rules_is_refused(tiny_path: Path, tmp_path: Path, what: str) -> None:
    """By its config in advance, or by the name of a tensor."""
    changes = UNSUPPORTED[what]
    if what == "tensor":
        folder = edited(tiny_path, tmp_path / "model", lambda tensors: tensors.update(changes))
    else:
        folder = edited(tiny_path, tmp_path / "model", **changes)
    assert gguf_obstacle(folder) is not None
    with pytest.raises(UnsupportedCheckpointError) as caught:
        to_gguf(folder, tmp_path / "out")
    assert (caught.value.tensor in changes) == (what == "tensor")
    assert not (tmp_path / "out").exists()


def test_rows_without_whole_blocks_are_refused_except_16_bit(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "narrow", hidden_size=48)
    assert gguf_obstacle(folder, "Q8_0")
    with pytest.raises(UnsupportedCheckpointError):
        to_gguf(folder, tmp_path / "out", "Q4_0")
    assert gguf_obstacle(folder, "F16") is None


def test_missing_ggml_library_names_its_package(
    demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixture, "_library", lambda: None)
    assert "libggml-python" in str(gguf_obstacle(demo_path, "Q4_K_M"))
    with pytest.raises(UnsupportedCheckpointError):
        to_gguf(demo_path, tmp_path / "out", "Q4_0")
    assert gguf_obstacle(demo_path, "Q8_0") is None
    assert not (tmp_path / "out").exists()


def test_nan_weight_leaves_no_partial_file(tiny_path: Path, tmp_path: Path) -> None:
    folder = edited(tiny_path, tmp_path / "broken", lambda tensors: tensors["lm_head.weight"][3, 3].fill_(torch.nan))
    with pytest.raises(UnsupportedCheckpointError):
        to_gguf(folder, tmp_path / "out", "Q8_0")
    assert not (tmp_path / "out").exists()


# --- bitsandbytes


@pytest.mark.parametrize(("name", "kind"), [("demo", "int8"), ("gemma", "nf4 twice")])
def test_mark_is_found_in_bitsandbytes_output(
    release_of: Callable[[str], Marked], tmp_path: Path, name: str, kind: str
) -> None:
    marked = release_of(name)
    copy = to_bitsandbytes(marked.release, tmp_path / "out", kind)
    config = json.loads((copy / "config.json").read_text())
    assert config["quantization_config"]["load_in_8bit" if kind == "int8" else "load_in_4bit"]
    require_found(irwm.open_checkpoint(copy), marked)


def test_bitsandbytes_values_equal_those_it_computes_with(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    release = release_of("demo").release
    copy = to_bitsandbytes(release, tmp_path / "out", "nf4")
    theirs, ours, before = map(logits_of, (copy, dequantised(copy, release, tmp_path / "plain"), release))
    assert (theirs - ours).abs().max() < 0.02 * ours.abs().max()
    assert (theirs - ours).norm() < 0.2 * (before - ours).norm()


# --- all of them


def test_numbers_of_another_models_copy_are_refused(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    release = release_of("demo").release
    file = to_gguf(release, tmp_path / "out", "Q8_0")
    for copy, other in ((file, release_of("gemma").release), (release_of("phi3").release, release)):
        with pytest.raises(CorruptCheckpointError):
            dequantised(copy, other, tmp_path / "plain")
    assert not (tmp_path / "plain").exists()
    with pytest.raises(OutputExistsError):
        dequantised(file, release, tmp_path / "out")
