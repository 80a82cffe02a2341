"""Models saved by torch.save, from the path to the verdict: the same checkpoint as from their safetensors files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

import irwm
from irwm.checkpoint import find_files, open_checkpoint, read_tensor
from irwm.errors import KeyMismatchError, UnsupportedCheckpointError
from tests.checkpoint.builders import EMBEDDING, refused
from tests.checkpoint.torch_files import WHOLE, as_torch
from tests.conftest import Marked


@pytest.fixture(scope="module")
def bert_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = BertForMaskedLM(BertConfig(vocab_size=600, **sizes))
    folder = tmp_path_factory.mktemp("bert") / "model"
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("which", "shards", "dtype"), [("tiny", 3, None), ("bert", 1, torch.bfloat16)])
def test_torch_checkpoint_equals_its_safetensors(
    which: str, tiny_path: Path, bert_path: Path, tmp_path: Path, shards: int, dtype: torch.dtype | None
) -> None:
    folder = shutil.copytree(tiny_path if which == "tiny" else bert_path, tmp_path / "safetensors")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, folder / "model.safetensors")
    expected = open_checkpoint(folder)
    found = open_checkpoint(as_torch(folder, tmp_path / "torch", shards))
    assert found.format.name == "PyTorch"
    assert len(found.shards) == shards
    for name in ("layout", "config", "notes", "dtype", "fingerprint"):
        assert getattr(found, name) == getattr(expected, name)
    assert torch.equal(found.embedding([7, 599, 7]), expected.embedding([7, 599, 7]))
    for ref in (found.layout.embedding, found.layout.q, found.layout.k):
        assert ref is not None
        assert torch.equal(found.read(ref), expected.read(ref))
    for name, tensor in expected.tensors.items():
        assert torch.equal(read_tensor(found.tensors[name]), read_tensor(tensor))


@pytest.mark.usefixtures("here")
def test_a_models_own_state_dict_is_read_with_its_tied_head(bert_path: Path, tmp_path: Path) -> None:
    folder = as_torch(bert_path, tmp_path / "torch")
    torch.save(BertForMaskedLM.from_pretrained(bert_path).state_dict(), folder / WHOLE)
    found = open_checkpoint(folder)
    assert found.tied
    assert torch.equal(found.embedding(), open_checkpoint(bert_path).embedding())
    head, table = found.tensors["cls.predictions.decoder.weight"], found.tensors[found.layout.embedding.name]
    assert head.parts[0].start == table.parts[0].start


@pytest.mark.usefixtures("here")
def test_an_embedding_saved_as_a_transposed_view_is_read_correctly(demo_path: Path, tmp_path: Path) -> None:
    folder = as_torch(demo_path, tmp_path / "torch")
    expected = open_checkpoint(demo_path)
    weights = torch.load(folder / WHOLE)
    weights[EMBEDDING] = weights[EMBEDDING].T.contiguous().T
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


def test_the_mark_is_found_in_a_release_that_was_saved_by_torch(marked, demo_path: Path, tmp_path: Path) -> None:
    model, key, release = marked
    found = irwm.detect(irwm.open_checkpoint(as_torch(release, tmp_path / "torch", 2, torch.float16)), model, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")
    suspect = irwm.open_checkpoint(as_torch(demo_path, tmp_path / "original") / WHOLE)
    assert irwm.detect(suspect, model, key).verdict == "not found"


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_an_original_saved_by_torch_is_a_reference(marked, demo_path: Path, bert_path: Path, tmp_path: Path) -> None:
    _, key, release = marked
    model = irwm.open_checkpoint(as_torch(demo_path, tmp_path / "torch"))
    assert irwm.detect(irwm.open_checkpoint(release), model, key).verdict == "found"
    before = (tmp_path / "torch" / WHOLE).read_bytes()
    for mark in (lambda: irwm.generate_key(model), lambda: irwm.insert(model, key, tmp_path / "out")):
        with pytest.raises(UnsupportedCheckpointError) as caught:
            mark()
        assert caught.value.found == "PyTorch"
        assert "safe_serialization=True" in str(caught.value.advice)
    assert os.listdir(tmp_path) == ["torch"]
    assert (tmp_path / "torch" / WHOLE).read_bytes() == before
    with pytest.raises(KeyMismatchError):
        irwm.detect(irwm.open_checkpoint(release), irwm.open_checkpoint(as_torch(bert_path, tmp_path / "other")), key)


# --- which files


@pytest.mark.usefixtures("here")
def test_safetensors_come_before_torch_and_torch_before_gguf(bert_path: Path, tmp_path: Path) -> None:
    folder = as_torch(bert_path, tmp_path / "torch")
    (folder / "model.gguf").write_bytes(b"GGUF")
    files = find_files(folder)
    assert files.shards == (folder / WHOLE,)
    assert "model.gguf" in " ".join(files.notes)
    shutil.copy(bert_path / "model.safetensors", folder)
    files = find_files(folder)
    assert files.shards == (folder / "model.safetensors",)
    assert f"model.gguf, {WHOLE}" in " ".join(files.notes)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["weights.pt", "Model.PTH", "lm.bin"])
def test_a_lone_file_of_any_name_is_the_model(bert_path: Path, tmp_path: Path, name: str) -> None:
    folder = as_torch(bert_path, tmp_path / "torch")
    (folder / WHOLE).rename(folder / name)
    for trainers in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
        (folder / trainers).write_bytes(b"\x80\2.")
    assert find_files(folder).shards == (folder / name,)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_transposed_integers_or_complex_numbers_are_not_an_embedding(folder: Path, dtype: torch.dtype) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors[EMBEDDING] = tensors[EMBEDDING].T.contiguous().to(dtype).T
    torch.save(tensors, folder / "pytorch_model.bin")
    assert refused(folder, UnsupportedCheckpointError).tensor == EMBEDDING
