"""From GGML's blocks to numbers, compared with GGML's own C code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from irwm.checkpoint.dtypes import BLOCK_FORMATS, dequantised, stored_as
from irwm.errors import CorruptCheckpointError

GOLDEN = json.loads((Path(__file__).parent / "data" / "ggml.json").read_text())["blocks"]


@pytest.mark.parametrize("block", GOLDEN, ids=lambda block: f"{block['format']} {block['made']}")
def test_blocks_decode_to_the_numbers_of_ggmls_own_code(block: dict[str, Any]) -> None:
    """The blocks were quantised, and read back, by the C library in ggml-python: tools/golden_ggml.py."""
    content = torch.frombuffer(bytearray.fromhex(block["bytes"]), dtype=torch.uint8)
    expected = np.frombuffer(bytes.fromhex(block["float32"]), np.float32)
    found = dequantised(content, block["format"], (1, expected.size))
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy()[0], expected, equal_nan=True)
    if block["made"] == "quantised":
        assert np.abs(expected).max() > 0.01


def test_the_formats_are_those_that_the_package_reads_and_all_have_golden_blocks() -> None:
    found = {(block["format"], block["made"]) for block in GOLDEN}
    assert found == {(name, made) for name in BLOCK_FORMATS for made in ("quantised", "random")}
    readable = set()
    for kind, (_, block_bytes) in GGML_QUANT_SIZES.items():
        try:
            dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except NotImplementedError:
            continue
        readable.add(kind.name)
    assert readable - {"F32", "F16", "BF16"} == BLOCK_FORMATS


def test_every_type_is_known_by_its_number() -> None:
    for kind, sizes in GGML_QUANT_SIZES.items():
        assert stored_as(kind.value) == (kind.name, *sizes)


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
def test_rows_read_separately_and_together_are_equal(name: str) -> None:
    """More numbers than are computed at a time, in rows whose length is not a power of two."""
    rng = np.random.default_rng(0)
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    rows, width = 300, 3 * 256
    content = rng.integers(0, 256, rows * width // block * block_bytes, dtype=np.uint8)
    whole = dequantised(torch.from_numpy(content), name, (rows, width))
    assert whole.shape == (rows, width)
    row_bytes = width // block * block_bytes
    for row in (0, 170, 299):
        piece = torch.from_numpy(content[row * row_bytes : (row + 1) * row_bytes])
        assert torch.equal(dequantised(piece, name, (1, width))[0].nan_to_num(), whole[row].nan_to_num())
    experts = dequantised(torch.from_numpy(content), name, (3, 100, width))
    assert torch.equal(experts.reshape(rows, width).nan_to_num(), whole.nan_to_num())
    assert dequantised(torch.empty(0, dtype=torch.uint8), name, (0, 256)).shape == (0, 256)


@pytest.mark.parametrize("shape", [(1, 33), (2, 32), (64,), (1, 2**40)])
def test_bytes_that_do_not_match_the_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(CorruptCheckpointError):
        dequantised(torch.zeros(18, dtype=torch.uint8), "Q4_0", shape)
