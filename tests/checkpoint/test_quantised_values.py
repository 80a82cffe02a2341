"""A quantised weight has exactly the numbers that its tool computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from irwm.checkpoint import PackedTensor, read_tensor, rows
from irwm.errors import CheckpointChangedError
from tests.checkpoint.data.vectors import load
from tests.checkpoint.quantised_builders import (
    NAME,
    Quantised,
    blocks_of_4_bits,
    compressed,
    fp8_blocks,
    fp8_rows,
    gptq,
    mlx,
    nvfp4,
    opened,
    packed,
    rows_of_8_bits,
)


def random(out: int, inputs: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return (0.05 * torch.randn(out, inputs, generator=torch.Generator().manual_seed(out))).to(dtype)


def assembled(folder: Path, parts: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> PackedTensor:
    """The weight assembled from the pieces; no other tensor may be left."""
    found = opened(folder, parts, config)
    assert set(found.tensors) == {NAME}
    tensor = found.tensors[NAME]
    assert isinstance(tensor, PackedTensor)
    return tensor


def require_equal(folder: Path, made: Quantised) -> PackedTensor:
    tensor = assembled(folder, made.parts, made.config)
    found = read_tensor(tensor)
    assert found.dtype == torch.float32
    assert tensor.shape == found.shape == made.expected.shape
    assert torch.equal(found, made.expected)
    chosen = [5, 0, 5, 3]
    assert torch.equal(read_tensor(tensor, chosen), made.expected[chosen])
    return tensor


@pytest.mark.parametrize("case", load("gptq"), ids=lambda case: f"{case['bits']}-bit-{case['by_activation']}")
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_gptq_values_equal_gptqmodel(tmp_path: Path, case: dict[str, Any], version: str) -> None:
    parts = case["parts"] | {"qzeros": case["qzeros"][version]}
    config = {"quant_method": "gptq", "bits": case["bits"], "group_size": 32, "checkpoint_format": version}
    require_equal(tmp_path / "stated", Quantised(parts, case["expected"].float(), config))
    if version == "gptq_v2" and not case["by_activation"]:  # numbers of groups and bits follow from the shapes
        del parts["g_idx"]
        tensor = require_equal(
            tmp_path / "silent", Quantised(parts, case["expected"].float(), {"checkpoint_format": version})
        )
        assert tensor.dtype == f"GPTQ, {case['bits']} bits"


def test_awq_values_equal_autoawq(tmp_path: Path) -> None:
    (case,) = load("awq")
    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    tensor = require_equal(tmp_path, Quantised(case["parts"], case["expected"].float(), config))
    assert tensor.dtype == "AWQ, 4 bits"


@pytest.mark.parametrize("case", load("mlx"), ids=lambda case: f"{case['mode']}-{case['bits']}-{case['group_size']}")
def test_mlx_values_equal_mlx(tmp_path: Path, case: dict[str, Any]) -> None:
    config = {name: case[name] for name in ("group_size", "bits", "mode")}
    tensor = require_equal(tmp_path, Quantised(case["parts"], case["expected"].float(), config))
    assert tensor.by_rows == set(tensor.stored)


WHOLE_NUMBERS = [
    {"num_bits": 4, "strategy": "group", "group_size": 32},
    {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False},
    {"num_bits": 8, "strategy": "channel"},
    {"num_bits": 8, "strategy": "channel", "symmetric": False},
    {"num_bits": 4, "strategy": "tensor"},
    {"num_bits": 3, "strategy": "group", "group_size": 32, "symmetric": False},
    {"num_bits": 5, "strategy": "channel"},
    {"num_bits": 2, "strategy": "group", "group_size": 64},
    {"num_bits": 6, "strategy": "group", "group_size": 64},
]


def words(arguments: Mapping[str, Any]) -> str:
    return "-".join(str(value) for value in arguments.values())


@pytest.mark.parametrize("arguments", WHOLE_NUMBERS, ids=words)
def test_packed_integers_equal_compressed_tensors(tmp_path: Path, arguments: dict[str, Any]) -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        made = compressed(random(40, 64, dtype), "pack-quantized", **arguments)
        tensor = require_equal(tmp_path / str(dtype), made)
        assert tensor.dtype == f"compressed-tensors, {arguments['num_bits']} bits"


def test_old_activation_order_of_compressed_tensors_is_read(tmp_path: Path) -> None:
    weight = random(40, 64)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    sorted_first = compressed(weight[:, order], "pack-quantized", num_bits=4, strategy="group", group_size=16)
    back = order.argsort()
    codes = read_tensor(assembled(tmp_path / "sorted", sorted_first.parts, {}))[:, back]
    scales = sorted_first.parts["weight_scale"].float()[:, (torch.arange(64) // 16)[back]]
    parts = sorted_first.parts | {
        "weight_packed": packed((codes / scales).round().int() + 8, 4),
        "weight_g_idx": (torch.arange(64) // 16)[back].int(),
    }
    assert torch.equal(read_tensor(assembled(tmp_path / "ordered", parts, {})), sorted_first.expected[:, back])


MX = {"type": "float", "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8}
BYTES = [
    ("int-quantized", {"num_bits": 8, "strategy": "channel"}),
    ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
    ("int-quantized", {"num_bits": 8, "strategy": "tensor"}),
    ("naive-quantized", {"num_bits": 8, "strategy": "group", "group_size": 32}),
    ("naive-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False}),
    ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]}),
    *((format, {"num_bits": bits, **MX}) for format, bits in (("mxfp4-pack-quantized", 4), ("mxfp8-quantized", 8))),
]


@pytest.mark.parametrize(
    ("format", "arguments"), BYTES, ids=lambda value: value if isinstance(value, str) else words(value)
)
def test_byte_codes_equal_compressed_tensors(tmp_path: Path, format: str, arguments: dict[str, Any]) -> None:
    require_equal(tmp_path, compressed(random(48, 64), format, **arguments))


def test_blocks_that_do_not_divide_the_weight_are_read(tmp_path: Path) -> None:
    arguments = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
    require_equal(tmp_path, compressed(random(200, 192), "float-quantized", **arguments))


def test_global_scale_is_applied_as_compressed_tensors_and_modelopt_write_it(tmp_path: Path) -> None:
    made = nvfp4(random(48, 64))
    require_equal(tmp_path / "compressed", made)
    parts = {"weight": made.parts["weight_packed"], "weight_scale": made.parts["weight_scale"]}
    parts["weight_scale_2"] = (1 / made.parts["weight_global_scale"]).reshape(())
    found = read_tensor(assembled(tmp_path / "modelopt", parts, {"quant_method": "modelopt", "quant_algo": "NVFP4"}))
    torch.testing.assert_close(found, made.expected, rtol=2**-7, atol=0)


@pytest.mark.parametrize("shape", [(256, 128), (200, 130)])
def test_fp8_block_values_equal_transformers(tmp_path: Path, shape: tuple[int, int]) -> None:
    made = fp8_blocks(random(*shape))
    tensor = require_equal(tmp_path, made)
    assert tensor.dtype == "FP8 with scales"
    assert tensor.by_rows == frozenset()


def test_codes_with_a_scale_for_each_row_are_read_by_rows(tmp_path: Path) -> None:
    assert require_equal(tmp_path / "fp8", fp8_rows(random(48, 64))).by_rows == {"codes", "scales"}
    made = rows_of_8_bits(random(48, 64, torch.float16))
    assert require_equal(tmp_path / "bitsandbytes", made).by_rows == {"codes", "scales"}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_fp8_with_one_scale_is_read(tmp_path: Path, shape: tuple[int, ...]) -> None:
    codes = random(48, 64).to(torch.float8_e4m3fn)
    scale = torch.full(shape, 0.37)
    require_equal(tmp_path, Quantised({"weight": codes, "weight_scale": scale}, codes.float() * 0.37, {}))


def test_a_lone_fp8_weight_is_read_as_the_numbers_it_holds(tmp_path: Path) -> None:
    codes = random(48, 64).to(torch.float8_e5m2)
    assert require_equal(tmp_path, Quantised({"weight": codes}, codes.float(), {})).dtype == "FP8"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_4_bit_blocks_equal_bitsandbytes(tmp_path: Path, nested: bool, kind: str, dtype: torch.dtype) -> None:
    for shape in ((48, 64), (33, 37)):
        tensor = require_equal(tmp_path / str(shape[0]), blocks_of_4_bits(random(*shape, dtype), nested, kind))
        assert tensor.dtype == f"bitsandbytes, {kind.upper()}"


def test_reading_some_rows_reads_only_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mlx(random(4096, 128), group=64)
    tensor = assembled(tmp_path, made.parts, made.config)
    read = 0
    plain = rows.read_into

    def counted(descriptor: int, path: Path, offset: int, target: memoryview) -> None:
        nonlocal read
        read += len(target)
        plain(descriptor, path, offset, target)

    monkeypatch.setattr(rows, "read_into", counted)
    read_tensor(tensor, [7, 4000])
    assert read == 2 * tensor.nbytes // 4096


def test_weights_are_read_on_request(tmp_path: Path) -> None:
    made = gptq(random(64, 64))
    tensor = assembled(tmp_path, made.parts, made.config)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointChangedError):
        read_tensor(tensor)
