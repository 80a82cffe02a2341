"""Models saved by torch.save, from the path to the verdict: the same checkpoint as from their safetensors files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.checkpoint import find_files, open_checkpoint, read_tensor
from irwm.errors import (
    CorruptCheckpointError,
    KeyMismatchError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.builders import EMBEDDING
from tests.checkpoint.torch_files import INDEX, WHOLE, as_torch
from tests.conftest import Marked


def write_bert(folder: Path) -> Path:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=600, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert") / "model")


def as_safetensors(folder: Path, out: Path, dtype: torch.dtype | None) -> Path:
    shutil.copytree(folder, out)
    if dtype is not None:
        tensors = load_file(out / "model.safetensors")
        save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, out / "model.safetensors")
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "dtype"), [(3, None), (1, torch.float32), (1, torch.bfloat16)], ids=["three shards", "f32", "bf16"]
)
@pytest.mark.parametrize("which", ["demo", "bert"])
def test_torch_checkpoint_equals_its_safetensors(
    which: str, demo_path: Path, bert_path: Path, tmp_path: Path, shards: int, dtype: torch.dtype | None
) -> None:
    folder = demo_path if which == "demo" else bert_path
    expected = open_checkpoint(as_safetensors(folder, tmp_path / "safetensors", dtype))
    found = open_checkpoint(as_torch(folder, tmp_path / "torch", shards, dtype))
    assert found.format.name == "PyTorch"
    assert len(found.shards) == shards
    assert found.layout == expected.layout
    assert found.config == expected.config
    assert found.notes == expected.notes
    assert found.dtype == expected.dtype
    assert found.fingerprint == expected.fingerprint
    assert torch.equal(found.embedding(), expected.embedding())
    assert torch.equal(found.embedding([7, 599, 7]), expected.embedding([7, 599, 7]))
    for ref in (found.layout.q, found.layout.k):
        assert ref is not None
        assert torch.equal(found.read(ref), expected.read(ref))
    for name, tensor in expected.tensors.items():
        assert torch.equal(read_tensor(found.tensors[name]), read_tensor(tensor))


@pytest.mark.usefixtures("here")
def test_a_models_own_state_dict_is_read_with_its_tied_head(tmp_path: Path) -> None:
    from transformers import BertForMaskedLM

    folder = write_bert(tmp_path / "model")
    expected = open_checkpoint(folder).embedding()
    model = BertForMaskedLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / WHOLE)
    found = open_checkpoint(folder)
    assert found.tied
    assert torch.equal(found.embedding(), expected)
    head, table = found.tensors["cls.predictions.decoder.weight"], found.tensors[found.layout.embedding.name]
    assert head.parts[0].start == table.parts[0].start


@pytest.mark.usefixtures("here")
def test_an_embedding_saved_as_a_transposed_view_is_read_correctly(demo_path: Path, tmp_path: Path) -> None:
    folder = as_torch(demo_path, tmp_path / "torch")
    expected = open_checkpoint(demo_path)
    weights = torch.load(folder / WHOLE)
    name = expected.layout.embedding.name
    weights[name] = weights[name].T.contiguous().T
    torch.save(weights, folder / WHOLE)
    found = open_checkpoint(folder)
    assert found.dtype == "BF16, strided"
    assert torch.equal(found.embedding(), expected.embedding())
    assert torch.equal(found.embedding([5, 3]), expected.embedding([5, 3]))
    assert len(found.fingerprint) == 64


# --- the mark


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_the_mark_is_found_in_a_release_that_was_saved_by_torch(
    marked, tmp_path: Path, dtype: torch.dtype | None
) -> None:
    model, key, release = marked
    found = irwm.detect(irwm.open_checkpoint(as_torch(release, tmp_path / "torch", 2, dtype)), model, key)
    assert found.verdict == "found"
    assert found.lineage.status == "derived"


@pytest.mark.usefixtures("here")
def test_the_mark_is_not_found_in_the_original_saved_by_torch(marked, demo_path: Path, tmp_path: Path) -> None:
    model, key, _ = marked
    suspect = irwm.open_checkpoint(as_torch(demo_path, tmp_path / "torch") / WHOLE)
    assert irwm.detect(suspect, model, key).verdict == "not found"


@pytest.mark.slow
def test_an_original_saved_by_torch_serves_as_reference_but_is_not_marked(
    marked, demo_path: Path, tmp_path: Path
) -> None:
    _, key, release = marked
    model = irwm.open_checkpoint(as_torch(demo_path, tmp_path / "torch"))
    assert irwm.detect(irwm.open_checkpoint(release), model, key).verdict == "found"
    before = (tmp_path / "torch" / WHOLE).read_bytes()
    for mark in (lambda: irwm.generate_key(model), lambda: irwm.insert(model, key, tmp_path / "out")):
        with pytest.raises(UnsupportedCheckpointError, match="safe_serialization=True") as caught:
            mark()
        assert "not marked" in caught.value.problem
        assert caught.value.found == "PyTorch"
    assert os.listdir(tmp_path) == ["torch"]
    assert (tmp_path / "torch" / WHOLE).read_bytes() == before


@pytest.mark.usefixtures("here")
def test_another_originals_torch_file_is_no_reference_for_the_key(marked, bert_path: Path, tmp_path: Path) -> None:
    _, key, release = marked
    other = irwm.open_checkpoint(as_torch(bert_path, tmp_path / "torch"))
    with pytest.raises(KeyMismatchError):
        irwm.detect(irwm.open_checkpoint(release), other, key)


# --- which files


@pytest.mark.usefixtures("here")
def test_safetensors_come_before_torch_and_torch_before_gguf(bert_path: Path, tmp_path: Path) -> None:
    folder = as_torch(bert_path, tmp_path / "torch")
    (folder / "model.gguf").write_bytes(b"GGUF")
    files = find_files(folder)
    assert files.shards == (folder / WHOLE,)
    assert any("model.gguf" in note for note in files.notes)
    shutil.copy(bert_path / "model.safetensors", folder)
    files = find_files(folder)
    assert files.shards == (folder / "model.safetensors",)
    assert any(f"model.gguf, {WHOLE}" in note for note in files.notes)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["weights.pt", "Model.PTH", "lm.bin"])
def test_a_lone_file_of_any_name_is_the_model(bert_path: Path, tmp_path: Path, name: str) -> None:
    folder = as_torch(bert_path, tmp_path / "torch")
    (folder / WHOLE).rename(folder / name)
    for trainers in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
        (folder / trainers).write_bytes(b"\x80\2.")
    assert find_files(folder).shards == (folder / name,)


@pytest.mark.usefixtures("here")
def test_a_tensor_in_two_torch_shards_is_noted(bert_path: Path, tmp_path: Path) -> None:
    folder = as_torch(bert_path, tmp_path / "torch", shards=2)
    first, second = sorted(folder.glob("*.bin"))
    name, tensor = next(iter(torch.load(first).items()))
    others = torch.load(second)
    torch.save(others | {name: tensor}, second)
    assert f"Two shards hold {name}, with the same numbers." in find_files(folder).notes
    torch.save(others | {name: tensor + 1}, second)
    said = f"Two shards hold {name}, with different numbers; the index names the shard that is used."
    files = find_files(folder)
    assert said in files.notes
    assert torch.equal(read_tensor(files.tensors[name]), tensor)
    torch.save(others, second)
    assert not any("Two shards hold" in note for note in find_files(folder).notes)


def test_mismatched_torch_index_is_refused(bert_path: Path, tmp_path: Path) -> None:
    folder = as_torch(bert_path, tmp_path / "torch", shards=2)
    index = json.loads((folder / INDEX).read_text())
    name = next(iter(index["weight_map"]))
    for shard in ("../torch/pytorch_model-00001-of-00002.bin", "model.safetensors", "/etc/x.bin"):
        changed = index["weight_map"] | {name: shard}
        (folder / INDEX).write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(CorruptCheckpointError, match="leads out"):
            find_files(folder)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_transposed_integers_or_complex_numbers_are_not_an_embedding(folder: Path, dtype: torch.dtype) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors[EMBEDDING] = tensors[EMBEDDING].T.contiguous().to(dtype).T
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedCheckpointError) as caught:
        open_checkpoint(folder)
    assert caught.value.tensor == EMBEDDING
