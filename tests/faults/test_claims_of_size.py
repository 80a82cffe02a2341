"""Suspects that claim to be far larger than they are, in every format, and checkpoints that are large in all (73, 74).

Every suspect here is a sparse file: it takes a few kilobytes of disk space and claims gigabytes or terabytes.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf
import pytest
import torch
from safetensors.torch import load_file

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.formats import parser_child, read_budget
from irwm.errors import CorruptCheckpointError
from tests.checkpoint.builders import EMBEDDING, KEY, QUERY, change_config, entry, raw, sparse
from tests.checkpoint.gguf_builders import _write_settings, converted, header, setting, text
from tools.waiting import PATIENCE
from ui.services.examining import HASHED_BYTES, described, hashes

# Prints the error's text, the growth of this process's largest size in bytes since before the suspect was opened, and
# the number of bytes read since then.
EXAMINE = """
import resource, sys, irwm
from pathlib import Path
def read():
    return int(Path("/proc/self/io").read_text().split()[1])
from irwm.evidence.examination import Examination
original = irwm.open_checkpoint(sys.argv[1])
key = irwm.generate_key(original, secret=bytes(32))
irwm.detect(original, original, key)
before, first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, read()
try:
    found = irwm.detect(irwm.open_checkpoint(sys.argv[2]), original, key)
    print(found.verdict, found.reason)
except irwm.IrwmError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, read() - first)
"""
WIDTH, FLOAT = 64, 4


SILENT = SimpleNamespace(progress=lambda done, total, what: None)  # as much of a reporter as is used


def bytes_read() -> int:
    """By this process, since its start."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def as_safetensors(model: Path, copy: Path, shapes: Mapping[str, list[int]]) -> None:
    sparse(copy / "model.safetensors", shapes)


def as_torch(model: Path, copy: Path, shapes: Mapping[str, list[int]]) -> None:
    # Memory that was never written to takes none, and torch leaves the file's space for it empty.
    with torch.serialization.skip_data():
        torch.save({name: torch.empty(shape) for name, shape in shapes.items()}, copy / "pytorch_model.bin")


def as_gguf(model: Path, copy: Path, shapes: Mapping[str, list[int]]) -> None:
    writer = gguf.GGUFWriter(copy / "model.gguf", "llama")
    _write_settings(writer, json.loads((copy / "config.json").read_text()))
    total = 0
    for name, value in converted(model).items():
        shape = shapes[EMBEDDING] if name in ("token_embd.weight", "output.weight") else value.shape
        size = FLOAT * int(torch.tensor(shape).prod())
        writer.add_tensor_info(name, list(shape), value.dtype, size)
        total += -(-size // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    (copy / "config.json").unlink()
    with (copy / "model.gguf").open("r+b") as file:
        file.truncate(-(-file.seek(0, 2) // 32) * 32 + total)


FORMATS = {"safetensors": as_safetensors, "torch": as_torch, "gguf": as_gguf}


def sparse_copy(
    model: Path, copy: Path, rows: int, changed: Mapping[str, list[int]] = {}, write: Callable = as_safetensors
) -> Path:
    """The model with an embedding and a head of this many rows, with no row on the disk."""
    copy.mkdir()
    shutil.copy(model / "config.json", copy)
    change_config(copy, vocab_size=rows)
    shapes = {name: list(value.shape) for name, value in load_file(model / "model.safetensors").items()}
    write(model, copy, shapes | {name: [rows, WIDTH] for name in (EMBEDDING, "lm_head.weight")} | changed)
    assert sum(file.stat().st_blocks * 512 for file in copy.iterdir()) < 1 << 20, "not a sparse file"
    return copy


def examined(original: Path, suspect: Path) -> tuple[str, int, int]:
    """The answer about a suspect, the bytes of memory that it took, and the bytes that were read."""
    command = [sys.executable, "-c", EXAMINE, str(original), str(suspect)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    *said, used = run.stdout.splitlines()
    peak, read = used.split()
    return " ".join(said), int(peak), int(read)


@pytest.mark.fault(73)
@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_claim_of_millions_of_rows_is_first_compared(tiny_path: Path, tmp_path: Path, format: str) -> None:
    suspect = sparse_copy(tiny_path, tmp_path / "suspect", 1 << 22, write=FORMATS[format])
    said, peak, _ = examined(tiny_path, suspect)
    assert "far more rows than the original" in said
    assert peak < 200 << 20


@pytest.mark.fault(73)
@pytest.mark.slow
def test_as_many_rows_as_are_read_take_a_gigabyte_and_few_reads(tiny_path: Path, tmp_path: Path) -> None:
    said, peak, read = examined(tiny_path, sparse_copy(tiny_path, tmp_path / "suspect", 1 << 20))
    assert said.startswith("inconclusive")
    assert peak < 1200 << 20
    assert read < 10 * (1 << 20) * WIDTH * FLOAT


@pytest.mark.fault(73)
@pytest.mark.slow
def test_a_layer_that_claims_millions_of_rows_is_not_read(tiny_path: Path, tmp_path: Path) -> None:
    suspect = sparse_copy(tiny_path, tmp_path / "suspect", 600, {QUERY: [1 << 24, WIDTH]})
    said, peak, read = examined(tiny_path, suspect)
    assert "found" not in said.split()[0]
    assert peak < 1200 << 20
    assert read < 1 << 20


@pytest.mark.fault(95)
@pytest.mark.slow
@pytest.mark.parametrize(("heads", "key_heads"), [(1 << 14, 1 << 13), (1 << 18, 1 << 18)])
def test_a_layer_of_any_stated_size_is_compared(tiny_path: Path, tmp_path: Path, heads: int, key_heads: int) -> None:
    """Embedding and head are valid, so they are read. q and k are read as tensors that could also be an embedding: once
    for each place of a mark, and not at all if they have too many rows for one."""
    size = open_checkpoint(tiny_path).layout.head_dim
    changed = {QUERY: [heads * size, WIDTH], KEY: [key_heads * size, WIDTH]}
    suspect = sparse_copy(tiny_path, tmp_path / "suspect", 600, changed)
    change_config(suspect, num_attention_heads=heads, num_key_value_heads=key_heads)
    values = load_file(tiny_path / "model.safetensors")
    with (suspect / "model.safetensors").open("r+b") as stream:
        for name in (EMBEDDING, "lm_head.weight"):
            stream.seek(open_checkpoint(suspect).tensors[name].parts[0].start)
            stream.write(values[name].numpy().tobytes())
    said, peak, read = examined(tiny_path, suspect)
    assert said.split()[0] == "not", said
    assert peak < 600 << 20
    once = 0 if heads == 1 << 18 else FLOAT * WIDTH * size * (heads + key_heads)
    assert read < 2 * once + (4 << 20)


@pytest.mark.fault(95)
def test_more_query_rows_than_any_model_has_leave_the_embedding_to_be_read(tiny_path: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_path, tmp_path / "suspect")
    change_config(tmp_path / "suspect", num_attention_heads=1 << 18)
    suspect = open_checkpoint(tmp_path / "suspect")
    assert suspect.layout.q is None
    assert any("more query rows for layer 0 than any model" in note for note in suspect.notes), suspect.notes


@pytest.mark.fault(73, 74)
def test_sparse_terabytes_are_not_hashed(tiny_path: Path, tmp_path: Path) -> None:
    """Tensors that no model reads, next to a valid model: the verdict does not need them, and the report says so."""
    shutil.copytree(tiny_path, tmp_path / "suspect")
    (tmp_path / "suspect" / "model.safetensors").rename(tmp_path / "suspect" / "model-00001-of-00002.safetensors")
    sparse(tmp_path / "suspect" / "model-00002-of-00002.safetensors", {"junk": [HASHED_BYTES // 64, 64]})
    original, suspect = open_checkpoint(tiny_path), open_checkpoint(tmp_path / "suspect")
    before = bytes_read()
    received = hashes(suspect, SILENT, original)  # type: ignore[arg-type]
    assert list(received) == ["model-00001-of-00002.safetensors"]
    item = described(suspect, received)
    assert bytes_read() - before < 64 << 20
    unhashed = [file.name for file in item.files if not file.sha256]
    assert (len(item.files), unhashed) == (3, ["model-00002-of-00002.safetensors"])
    assert unhashed[0] in item.notes[-1]
    assert len(hashes(original, SILENT, original)) == 1  # type: ignore[arg-type]


def long_safetensors(path: Path, number: int) -> None:
    raw(path, {"__metadata__": {"a": "x" * (30 << 20)}, f"t{number}": entry("F32", [1], 0, 4)}, bytes(4))


def long_gguf(path: Path, number: int) -> None:
    tokens = struct.pack("<IQ", 8, 1 << 20) + text("x" * 20) * (1 << 20)
    head = header([setting("general.architecture", 8, text("llama")), setting("tokenizer.ggml.tokens", 9, tokens),
                   setting("split.count", 2, struct.pack("<H", 8))], [])  # fmt: skip
    path.write_bytes(head + bytes(-len(head) % 32))


@pytest.mark.fault(74)
@pytest.mark.slow
@pytest.mark.parametrize(("ending", "write"), [("safetensors", long_safetensors), ("gguf", long_gguf)])
def test_long_headers_in_total_are_refused_early(tiny_path: Path, tmp_path: Path, ending: str, write: Callable) -> None:
    """Each header has the maximum length, and so would two thousand of them."""
    for number in range(1, 9):
        write(tmp_path / f"model-{number:05}-of-00008.{ending}", number)
    said, peak, _ = examined(tiny_path, tmp_path)
    assert "implausibly large in total" in said or "return more than" in said
    assert peak < 1000 << 20


@pytest.mark.fault(74)
def test_the_headers_of_a_checkpoint_are_counted_together(tmp_path: Path) -> None:
    file = sparse(tmp_path / "model.safetensors", {"a": [1]})
    one = read_budget.ReadBudget(tmp_path, files=3)
    one.take_header(file, read_budget.HEADER_BYTES - 1000)
    with one.child(file) as (limits, _):
        assert limits == replace(parser_child.LIMITS, output=1000)
    with pytest.raises(CorruptCheckpointError):
        one.take_header(file, 1001)
