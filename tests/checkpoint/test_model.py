"""An opened checkpoint: its attributes, rows and fingerprint, and that opening reads no weights."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import open_checkpoint
from irwm.errors import CorruptCheckpointError, RowIndexError, UnknownFamilyError, UnsupportedCheckpointError
from irwm.families import TensorRef
from tests.checkpoint.builders import EMBEDDING, QUERY, change_config, contradiction, refused, split
from tools.small_models import write_llama


def test_attributes(folder: Path) -> None:
    model = open_checkpoint(folder)
    assert (model.family, model.vocab_size, model.hidden_size) == ("llama", 600, 64)
    assert (model.dtype, model.tied) == ("float32", False)
    assert model.path == folder
    assert model.layout.heads == 4
    assert model.bytes_total == (folder / "model.safetensors").stat().st_size
    assert model.config["vocab_size"] == 600


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    model = open_checkpoint(write_llama(tmp_path / "m", dtype=dtype, tie_word_embeddings=True))
    stored = load_file(tmp_path / "m" / "model.safetensors")[EMBEDDING]
    assert model.dtype == str(dtype).removeprefix("torch.")
    assert model.tied
    assert torch.equal(model.embedding([5, 0]), stored[[5, 0]].float())
    assert model.embedding().dtype == torch.float32


def test_rows_of_the_embedding(model) -> None:
    stored = load_file(model.path / "model.safetensors")[EMBEDDING]
    assert torch.equal(model.embedding(), stored)
    assert torch.equal(model.embedding([599, 0, 0]), stored[[599, 0, 0]])
    assert torch.equal(model.embedding(slice(10, 20), device=torch.device("cpu")), stored[10:20])
    assert model.embedding([]).shape == (0, 64)
    with pytest.raises(RowIndexError):
        model.embedding([600])


def test_a_large_tensor_is_converted_in_blocks(model, monkeypatch: pytest.MonkeyPatch) -> None:
    from irwm.checkpoint import model as module

    whole = model.embedding()
    monkeypatch.setattr(module, "_BLOCK", 7 * 64 * 4)
    assert torch.equal(model.embedding(), whole)
    assert torch.equal(model.embedding(range(599, -1, -1)), whole.flip(0))


def test_slices_and_transposed_parts_of_a_tensor_and_rows_within_them(model) -> None:
    stored = load_file(model.path / "model.safetensors")
    matrix, part = stored[QUERY], TensorRef(QUERY, rows=(16, 48))
    assert torch.equal(model.read(part), matrix[16:48])
    assert torch.equal(model.read(part, rows=[31, 0]), matrix[[47, 16]])
    with pytest.raises(RowIndexError):
        model.read(part, rows=[32])
    part = TensorRef(QUERY, rows=(8, 16), transposed=True)
    assert torch.equal(model.read(TensorRef(QUERY, transposed=True)), matrix.T)
    assert torch.equal(model.read(part), matrix[:, 8:16].T)
    assert torch.equal(model.read(part, rows=[7, 1]), matrix[:, [15, 9]].T)
    name = "model.layers.0.input_layernorm.weight"
    assert torch.equal(model.read(TensorRef(name)), stored[name])
    assert torch.equal(model.read(TensorRef(name, rows=(8, 16), transposed=True)), stored[name][8:16])


@pytest.mark.parametrize("ref", [TensorRef("none"), TensorRef(QUERY, rows=(0, 65)), TensorRef(QUERY, rows=(9, 8))])
def test_mismatched_reference_is_refused(model, ref: TensorRef) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        model.read(ref)
    assert caught.value.tensor == ref.name


def stored_as(folder: Path, name: str, dtype: torch.dtype) -> Path:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: tensors[name].to(dtype)}, folder / "model.safetensors")
    return folder


@pytest.mark.fault(32)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_codes_without_a_known_quantisation_are_refused_with_advice(folder: Path, dtype: torch.dtype) -> None:
    model = open_checkpoint(stored_as(folder, QUERY, dtype))
    with pytest.raises(UnsupportedCheckpointError) as caught:
        model.read(TensorRef(QUERY))
    assert "Dequantise" in str(caught.value.advice)
    error = refused(stored_as(folder, EMBEDDING, dtype), UnsupportedCheckpointError)
    assert error.tensor == EMBEDDING
    assert "Dequantise" in str(error.advice)


def test_a_double_precision_embedding_is_examined_but_not_marked(folder: Path) -> None:
    expected = open_checkpoint(folder).embedding([3])
    model = open_checkpoint(stored_as(folder, EMBEDDING, torch.float64))
    assert torch.equal(model.embedding([3]), expected)
    with pytest.raises(UnsupportedCheckpointError):
        model.require_markable()


def test_the_fingerprint_is_the_documented_hash(model) -> None:
    stored = load_file(model.path / "model.safetensors")[EMBEDDING]
    expected = hashlib.sha256()
    expected.update(struct.pack("<Q", 17) + b"irwm-embedding-v1")
    expected.update(struct.pack("<Q", 7) + b"float32" + struct.pack("<QQ", 600, 64))
    expected.update(stored.numpy().tobytes())
    assert model.fingerprint == expected.hexdigest()


def test_fingerprint_depends_only_on_the_embedding(tiny_path: Path, model, tmp_path: Path) -> None:
    sharded = open_checkpoint(split(tiny_path, tmp_path / "s"))
    assert sharded.fingerprint == model.fingerprint
    tensors = load_file(tiny_path / "model.safetensors")
    tensors[EMBEDDING][3, 5] += 1
    save_file(tensors, model.path / "model.safetensors")
    assert open_checkpoint(model.path).fingerprint != sharded.fingerprint


def test_the_fingerprint_is_computed_once(model) -> None:
    first = model.fingerprint
    (model.path / "model.safetensors").unlink()
    assert model.fingerprint == first


def test_opening_reads_headers_only(folder: Path) -> None:
    model = open_checkpoint(folder)
    with (folder / "model.safetensors").open("r+b") as file:  # all weights gone, size kept: only headers may matter
        file.seek(min(entry.start for entry in model.tensors.values()))
        file.write(bytes(model.tensors[EMBEDDING].nbytes))
    assert open_checkpoint(folder).vocab_size == 600


def test_checkpoints_can_be_pickled_and_hashed(model) -> None:
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(copy.embedding([1]), model.embedding([1]))
    assert len({copy, model}) == 2


def test_an_unknown_family_names_the_folder(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "mystery"}))
    save_file({"x.weight": torch.zeros(8, 8)}, folder / "model.safetensors")
    assert refused(folder, UnknownFamilyError).file == str(folder)


def test_a_config_that_contradicts_the_tensors_names_a_file(folder: Path) -> None:
    change_config(folder, num_attention_heads=7, head_dim=None)
    assert str(contradiction(folder).file).startswith(str(folder))
