"""Other tensors next to quantised and plain weights: irrelevant ones hide no weight, and some change a weight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from irwm.checkpoint import open_checkpoint, read_tensor
from irwm.errors import UnsupportedCheckpointError
from tests.checkpoint.builders import EMBEDDING, contradiction
from tests.checkpoint.quantised_builders import (
    NAME,
    STEM,
    Quantised,
    blocks_of_4_bits,
    fp8_rows,
    gptq,
    mlx,
    opened,
    written,
)

WEIGHT = 0.05 * torch.randn(64, 128, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def config(tiny_path: Path) -> dict[str, Any]:
    return dict(open_checkpoint(tiny_path).config)


@pytest.fixture(scope="module")
def plain(tiny_path: Path) -> dict[str, torch.Tensor]:
    return load_file(tiny_path / "model.safetensors")


def with_q(plain: Mapping[str, torch.Tensor], q: Quantised, *without: str) -> dict[str, torch.Tensor]:
    """The model with a quantised q."""
    parts = {STEM + part: value for part, value in q.parts.items() if part not in without}
    return {name: value for name, value in plain.items() if name != NAME} | parts


def with_embedding(
    plain: Mapping[str, torch.Tensor], codes: Quantised, **more: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The model with codes of its embedding, some of its pieces added or replaced."""
    return {**plain, **{EMBEDDING.removesuffix("weight") + part: value for part, value in (codes.parts | more).items()}}


def state_of(weight: torch.Tensor, rows: int) -> dict[str, torch.Tensor]:
    """A text that calls a tensor the 4-bit codes of a matrix with `rows` rows."""
    parts = blocks_of_4_bits(torch.ones(rows, weight.shape[1]).bfloat16(), nested=False).parts
    return {part.removeprefix("weight."): value for part, value in parts.items() if part != "weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_text_does_not_turn_plain_numbers_into_codes(config, plain, tmp_path: Path, dtype: torch.dtype) -> None:
    """transformers ignores the text, and the bytes of the numbers would look like codes of a taller matrix."""
    tensors = {name: value.to(dtype) for name, value in plain.items()}
    for name in (EMBEDDING, NAME):
        rows = 2 * tensors[name].nbytes // tensors[name].shape[1]
        tensors |= {f"{name}.{part}": value for part, value in state_of(tensors[name], rows).items()}
    model = open_checkpoint(written(tmp_path, tensors, config))
    assert torch.equal(model.embedding(), tensors[EMBEDDING].float())
    assert model.layout.q is not None
    assert torch.equal(model.read(model.layout.q), tensors[NAME].float())
    assert model.notes


@pytest.mark.parametrize("method", ["bitsandbytes", ""])
def test_codes_declared_as_floats_are_read_with_a_bitsandbytes_config(tmp_path: Path, method: str) -> None:
    sound = blocks_of_4_bits(WEIGHT.bfloat16())
    codes = sound.parts["weight"].view(-1, 2).view(torch.bfloat16)
    assert codes.shape[1] == 1
    found = opened(tmp_path, {**sound.parts, "weight": codes}, {"quant_method": method}).tensors[NAME]
    assert torch.equal(read_tensor(found).float(), sound.expected) is bool(method)


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


JUNK: dict[str, dict[str, torch.Tensor]] = {
    "gptq": {"junk.qweight": zeros(2, 3), "junk.qzeros": zeros(1, 9), "junk.scales": torch.ones(1, 3)},
    "mlx": {"junk.weight": zeros(2, 2), "junk.scales": torch.ones(3, 1), "junk.biases": torch.ones(3, 1)},
    "bitsandbytes": {
        **{"junk": zeros(1, 1, dtype=torch.uint8), "junk.absmax": torch.ones(1)},
        "junk.quant_state.bitsandbytes__nf4": zeros(3, dtype=torch.uint8),
    },
    "fp8": {"junk.weight": torch.zeros(4, 4).to(torch.float8_e4m3fn), "junk.weight_scale": torch.ones(9, 9)},
}


@pytest.mark.parametrize("kind", JUNK)
def test_contradictory_pieces_next_to_a_model_do_not_prevent_reading_it(
    config, plain, tmp_path: Path, kind: str
) -> None:
    model = open_checkpoint(written(tmp_path, plain | JUNK[kind], config))
    assert torch.equal(model.embedding(), plain[EMBEDDING].float())
    assert model.layout.q is not None
    assert any("junk" in note for note in model.notes)


def test_contradictory_pieces_in_layer_0_leave_the_embedding(config, plain, tmp_path: Path) -> None:
    tensors = with_q(plain, gptq(plain[NAME], group=32))
    tensors[STEM + "scales"] = tensors[STEM + "scales"][:, :-1].clone()
    tensors |= JUNK["fp8"]
    assert str(contradiction(written(tmp_path / "q", tensors, config)).tensor).startswith(STEM)
    tensors = with_embedding(plain, fp8_rows(plain[EMBEDDING]), weight_scale=torch.ones(3, 3, 3))
    unusual = written(tmp_path / "e", tensors, config | {"tie_word_embeddings": True})
    assert str(contradiction(unusual).tensor).startswith(EMBEDDING)
    assert open_checkpoint(unusual).unread == (EMBEDDING,), "another tensor was used, so no key is ruled out"


@pytest.mark.parametrize(
    ("section", "whole"),
    [
        ({"quant_method": "auto-round", "packing_format": "auto_round"}, True),
        ({"quant_method": "auto-round", "packing_format": "auto_round:gptqmodel"}, True),
        ({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}, False),
        ({"quant_method": "intel/auto-round", "backend": "auto_round:gptq:exllamav2"}, False),
        ({"quant_method": "gptq", "packing_format": "auto_round"}, False),
        ({"quant_method": "gptq", "checkpoint_format": "gptq_v2"}, True),
    ],
)
def test_autorounds_packings_with_and_without_one_less(tmp_path: Path, section: dict[str, str], whole: bool) -> None:
    sound = gptq(WEIGHT)
    parts = dict(sound.parts)
    if whole:
        parts["qzeros"] = parts["qzeros"] + 0x11111111
    found = opened(tmp_path, parts, {"bits": 4, "group_size": 64, "sym": False, **section}).tensors[NAME]
    assert torch.equal(read_tensor(found), sound.expected)


def test_autoround_layer_settings_apply_to_their_layer(tmp_path: Path) -> None:
    sound = gptq(WEIGHT, group=64)
    parts = {part: value for part, value in sound.parts.items() if part != "g_idx"}
    section = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "group_size": 32}
    assert NAME in opened(tmp_path / "all", parts, section).refused
    section["extra_config"] = {STEM[:-1]: {"bits": 4, "group_size": 64}, "other": 1}
    assert torch.equal(read_tensor(opened(tmp_path / "own", parts, section).tensors[NAME]), sound.expected)


def test_modelopts_column_factors_are_applied(config, plain, tmp_path: Path) -> None:
    """The module multiplies its input by them, so the weight for the plain input includes them."""
    factors = torch.linspace(0.2, 3.0, plain[NAME].shape[1])
    codes = fp8_rows(plain[NAME] / factors)
    tensors = with_q(plain, codes) | {STEM + "pre_quant_scale": factors}
    section = {"quantization_config": {"quant_method": "modelopt"}}
    model = open_checkpoint(written(tmp_path, tensors, config | section))
    assert model.layout.q is not None
    expected = codes.expected * factors
    assert torch.equal(model.read(model.layout.q), expected)
    assert torch.equal(model.read(model.layout.q, [5, 2]), expected[[5, 2]])
    assert torch.nn.functional.cosine_similarity(expected.flatten(), plain[NAME].flatten(), dim=0) > 0.99


def test_invalid_column_factors_leave_the_embedding(config, plain, tmp_path: Path) -> None:
    tensors = with_q(plain, fp8_rows(plain[NAME])) | {STEM + "pre_quant_scale": torch.ones(3)}
    section = {"quantization_config": {"quant_method": "modelopt"}}
    assert contradiction(written(tmp_path, tensors, config | section)).tensor == STEM + "pre_quant_scale"


@pytest.mark.parametrize("piece", ["pre_quant_scale", "weight_scale_2", "svdquant_lora_a", "lora_A.weight"])
@pytest.mark.parametrize("quantise", [fp8_rows, gptq, mlx, blocks_of_4_bits])
def test_a_weight_with_an_unknown_piece_is_noted_and_not_read(
    config, plain, tmp_path: Path, quantise: Any, piece: str
) -> None:
    q = quantise(plain[NAME].bfloat16())
    section = {"quantization" if quantise is mlx else "quantization_config": dict(q.config)}
    assert open_checkpoint(written(tmp_path / "sound", with_q(plain, q), config | section)).layout.q is not None
    tensors = with_q(plain, q) | {STEM + piece: torch.ones(64)}
    model = open_checkpoint(written(tmp_path / "unusual", tensors, config | section))
    assert any(piece in note for note in model.notes)
    assert model.layout.q is not None
    for rows in (None, [1]):
        with pytest.raises(UnsupportedCheckpointError) as caught:
            model.read(model.layout.q, rows)
        assert (caught.value.tensor, caught.value.found) == (NAME, STEM + piece)
    assert torch.equal(model.embedding(), plain[EMBEDDING].float())


@pytest.mark.parametrize("piece", ["bias", "input_scale", "input_zero_point", "output_scale"])
def test_harmless_pieces_do_not_prevent_reading_a_weight(tmp_path: Path, piece: str) -> None:
    q = fp8_rows(WEIGHT)
    files = opened(tmp_path, {**q.parts, piece: torch.ones(1)}, q.config)
    assert torch.equal(read_tensor(files.tensors[NAME]), q.expected)


def test_an_unknown_piece_does_not_hide_a_quantised_embedding(config, plain, tmp_path: Path) -> None:
    codes = fp8_rows(plain[EMBEDDING])
    model = open_checkpoint(written(tmp_path, with_embedding(plain, codes, junk=torch.ones(1)), config))
    assert torch.equal(model.embedding(), codes.expected)
    assert any("junk" in note for note in model.notes)


def test_transformed_inputs_are_noted(config, plain, tmp_path: Path) -> None:
    section = {"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"u": {"type": "hadamard"}}}}
    model = open_checkpoint(written(tmp_path, plain, config | {"quantization_config": section}))
    assert any("transform_config" in note for note in model.notes)


def test_empty_row_selection_of_a_quantised_weight_works(config, plain, tmp_path: Path) -> None:
    codes = mlx(plain[EMBEDDING])
    stated = config | {"quantization": dict(codes.config)}
    model = open_checkpoint(written(tmp_path, with_embedding(plain, codes), stated))
    assert model.embedding([]).shape == (0, model.hidden_size)
    assert torch.equal(model.embedding([3]), codes.expected[[3]].float())
