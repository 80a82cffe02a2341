"""Quantised weights as the real tools write them, and whole models made from them.

bitsandbytes, compressed-tensors and transformers are called. GPTQ and AWQ, whose tools need a GPU, are packed here
by their published layouts, number by number; the readers are also tested with the tools' own vectors in data/.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import CheckpointFiles, find_files

NAME = "model.layers.0.self_attn.q_proj.weight"
STEM = NAME.removesuffix("weight")


@dataclass(frozen=True, slots=True)
class Quantised:
    """One weight.

    Attributes:
        parts: its pieces by the end of their names: "qweight", "weight.absmax".
        expected: (out, in) float32, the numbers that the tool itself computes.
        config: its section of config.json.
    """

    parts: Mapping[str, torch.Tensor]
    expected: torch.Tensor
    config: Mapping[str, Any]


def written(folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None = None) -> Path:
    """A folder with these tensors and this config."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(dict(config or {})))
    return folder


def opened(folder: Path, parts: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> CheckpointFiles:
    """The files of the weight `NAME`, stored in these pieces."""
    tensors = {STEM + part: value for part, value in parts.items()}
    return find_files(written(folder, tensors, {"quantization_config": dict(config)}))


def model_of(
    source: Path,
    out: Path,
    quantise: Callable[[torch.Tensor], Quantised],
    chosen: Callable[[str], bool] = lambda name: name.endswith("_proj.weight"),
    section: str = "quantization_config",
) -> dict[str, torch.Tensor]:
    """A copy of a one-file model with the chosen weights quantised; returns the tool's numbers for each."""
    shutil.copytree(source, out)
    tensors, expected = load_file(source / "model.safetensors"), {}
    stated: Mapping[str, Any] = {}
    for name in [name for name in tensors if chosen(name)]:
        found = quantise(tensors.pop(name))
        tensors |= {name.removesuffix("weight") + part: value for part, value in found.parts.items()}
        expected[name], stated = found.expected, found.config
    config = json.loads((source / "config.json").read_text())
    written(out, tensors, config | {section: dict(stated)})
    return expected


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Rows of codes as int32 words, one bit after the other: slow and simple."""
    rows = []
    for row in codes.tolist():
        stream = sum(int(code) << (bits * place) for place, code in enumerate(row))
        count = -(-bits * len(row) // 32)
        rows.append([(stream >> (32 * word)) & 0xFFFFFFFF for word in range(count)])
    return (torch.tensor(rows) - (torch.tensor(rows) >> 31 << 32)).to(torch.int32)


def affine(weight: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes (out, in), float16 scales and zeros (out, groups) of the asymmetric rule that GPTQ and AWQ share."""
    runs = weight.float().view(len(weight), -1, group)
    low, high = runs.amin(2).clamp(max=0), runs.amax(2).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).half()
    zeros = (-low / scales.float()).round().clamp(1, 2**bits - 1)
    codes = (runs / scales.float()[..., None] + zeros[..., None]).round().clamp(0, 2**bits - 1)
    return codes.flatten(1).int(), scales, zeros.int()


def gptq(weight: torch.Tensor, bits: int = 4, group: int = 64, by_activation: bool = False) -> Quantised:
    """As in the first version of the format: every zero is stored minus one."""
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(0))
    order = order if by_activation else torch.arange(weight.shape[1])
    codes, scales, zeros = affine(weight[:, order], bits, group)
    back = order.argsort()
    groups = torch.arange(weight.shape[1])[back] // group
    expected = (codes[:, back] - zeros[:, groups]) * scales.float()[:, groups]
    parts = {
        "qweight": packed(codes[:, back], bits).T,
        "qzeros": packed(zeros.T - 1, bits),
        "scales": scales.T,
        "g_idx": groups.int(),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": by_activation, "sym": False}
    return Quantised(parts, expected.half().float(), config)


def awq(weight: torch.Tensor, group: int = 64) -> Quantised:
    codes, scales, zeros = affine(weight, 4, group)
    interleaved = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    places = (torch.arange(0, len(weight), 8)[:, None] + interleaved).flatten()
    expected = (codes.view(len(weight), -1, group) - zeros[..., None]) * scales.float()[..., None]
    parts = {"qweight": packed(codes.T[:, places], 4), "qzeros": packed(zeros.T[:, places], 4), "scales": scales.T}
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return Quantised(parts, expected.flatten(1).half().float(), config)


def compressed(weight: torch.Tensor, format: str, **arguments: Any) -> Quantised:
    """By compressed-tensors' own quantiser and compressor; `arguments` are its QuantizationArgs."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    out, inputs = weight.shape
    rows, columns = {
        "tensor": (1, 1),
        "channel": (out, 1),
        "group": (out, inputs // (args.group_size or 1)),
        "tensor_group": (out, inputs // (args.group_size or 1)),
        "block": (-(-out // (args.block_structure or (1, 1))[0]), -(-inputs // (args.block_structure or (1, 1))[1])),
    }[args.strategy]
    height, width = args.block_structure or (out // rows, inputs // columns)
    padded = torch.nn.functional.pad(weight.float(), (0, columns * width - inputs, 0, rows * height - out))
    blocks = padded.view(rows, height, columns, width)
    state = {"weight": weight}
    overall = None
    if args.strategy == "tensor_group":
        overall = (448 * 6 / weight.float().abs().max()).reshape(1)
        state["weight_global_scale"] = overall
    scales, zeros = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), args, overall)
    scales = scales.to(weight.dtype if scales.dtype == torch.float32 else scales.dtype)
    if args.strategy == "tensor":
        scales, zeros = scales.flatten(), zeros.flatten()
    state |= {"weight_scale": scales, "weight_zero_point": zeros.to(args.zp_dtype or zeros.dtype)}
    compressor = BaseCompressor.get_value_from_registry(format)
    parts = compressor.compress(state, scheme)
    expected = compressor.decompress(parts, scheme)["weight"].float()
    parts = {name: value for name, value in parts.items() if value is not None}
    config = {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": json.loads(scheme.model_dump_json())},
    }
    return Quantised(parts, expected, config)


def packed_with_zeros(weight: torch.Tensor) -> Quantised:
    return compressed(weight, "pack-quantized", num_bits=4, strategy="group", group_size=32, symmetric=False)


def nvfp4(weight: torch.Tensor) -> Quantised:
    arguments = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    return compressed(weight, "nvfp4-pack-quantized", **arguments)


def blocks_of_4_bits(weight: torch.Tensor, nested: bool = True, kind: str = "nf4") -> Quantised:
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    codes, state = quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=nested)
    parts = {"weight": codes} | {f"weight.{name}": value for name, value in state.as_dict(packed=True).items()}
    return Quantised(parts, dequantize_4bit(codes, state).float(), {"quant_method": "bitsandbytes"})


def rows_of_8_bits(weight: torch.Tensor) -> Quantised:
    from bitsandbytes.functional import int8_vectorwise_dequant, int8_vectorwise_quant

    codes, largest, _ = int8_vectorwise_quant(weight.half())
    parts = {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return Quantised(parts, int8_vectorwise_dequant(codes, largest), {"quant_method": "bitsandbytes"})


def fp8_blocks(weight: torch.Tensor, block: int = 128) -> Quantised:
    """As DeepSeek publishes its models; expected by transformers' own dequantiser, which needs whole blocks."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    out, inputs = weight.shape
    rows, columns = -(-out // block), -(-inputs // block)
    padded = torch.nn.functional.pad(weight.float(), (0, columns * block - inputs, 0, rows * block - out))
    blocks = padded.view(rows, block, columns, block)
    scales = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    codes = (blocks / scales[:, None, :, None]).reshape(rows * block, -1).to(torch.float8_e4m3fn)
    expected = Fp8Dequantize(None)._dequantize_one(codes, scales)[:out, :inputs]
    config = {"quant_method": "fp8", "weight_block_size": [block, block], "activation_scheme": "dynamic"}
    return Quantised({"weight": codes[:out, :inputs], "weight_scale_inv": scales}, expected, config)


def fp8_rows(weight: torch.Tensor) -> Quantised:
    """As in FBGEMM: a scale for each row."""
    scales = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / torch.finfo(torch.float8_e4m3fn).max
    codes = (weight.float() / scales).to(torch.float8_e4m3fn)
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
    return Quantised({"weight": codes, "weight_scale": scales}, codes.float() * scales, config)


def mlx(weight: torch.Tensor, bits: int = 4, group: int = 64) -> Quantised:
    """By transformers' own code for MLX's layout."""
    from transformers.integrations.metal_quantization import _affine_dequantize_tensor, _affine_quantize_tensor

    codes, scales, biases = _affine_quantize_tensor(weight, group, bits)
    expected = _affine_dequantize_tensor(codes, scales, biases, group, bits)
    parts = {"weight": codes, "scales": scales, "biases": biases}
    return Quantised(parts, expected, {"group_size": group, "bits": bits})
