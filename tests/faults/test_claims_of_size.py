"""Suspects that claim to be far larger than they are."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from irwm.checkpoint import open_checkpoint

# Prints the error's text, and the largest size of this process in bytes beyond that before the suspect was looked at.
EXAMINE = """
import resource, sys, irwm
from irwm.evidence.examination import Examination
original = irwm.open_checkpoint(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    Examination(irwm.open_checkpoint(sys.argv[2]), original).aligned
except irwm.IrwmError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def sparse_copy(model: Path, copy: Path, rows: int) -> Path:
    """The model with an embedding and a head of so many rows, none of which is on the disk."""
    shutil.copytree(model, copy)
    weights = copy / "model.safetensors"
    content = weights.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    opened = open_checkpoint(model)
    width = opened.hidden_size
    large = {ref.name for ref in (opened.layout.embedding, opened.layout.head) if ref is not None}
    offset, made = 0, {}
    for each, entry in header.items():
        begin, end = entry["data_offsets"]
        shape, size = entry["shape"], end - begin
        if each in large:
            shape, size = [rows, width], rows * width * (size // (shape[0] * shape[1]))
        made[each] = entry | {"shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(made).encode()
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"vocab_size": rows}))
    return copy


# fault 73
@pytest.mark.slow
@pytest.mark.parametrize("rows", [1 << 22, 1 << 20])
def test_a_sparse_suspect_that_claims_millions_of_rows_is_compared_with_the_original_first(
    tiny_path: Path, tmp_path: Path, rows: int
) -> None:
    suspect = sparse_copy(tiny_path, tmp_path / "suspect", rows)
    command = [sys.executable, "-c", EXAMINE, str(tiny_path), str(suspect)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    *said, peak = run.stdout.splitlines()
    width = open_checkpoint(tiny_path).hidden_size
    if rows * width > 1 << 26:
        assert "far more rows than the original" in " ".join(said)
        assert int(peak) < 200 * 1024**2
    assert int(peak) < 1200 * 1024**2
