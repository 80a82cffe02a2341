"""Every arrangement of public bug reports is opened, or refused with the reason; no model is missed."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.candidates import find_checkpoints
from irwm.checkpoint.weight_sets import is_companion
from irwm.errors import (
    CorruptCheckpointError,
    NotACheckpointError,
    UnmarkedCopyError,
    UnsupportedCheckpointError,
    path_from,
    printable,
    shown_path,
)
from tests.checkpoint.as_found import KINDS, adapter, below, contradictory, split_gguf, tensors_of, with_tensors
from tests.checkpoint.builders import EMBEDDING, QUERY, change_config, read_index, refused, split, write_index


@pytest.fixture
def copy(tiny_path: Path, tmp_path: Path) -> Path:
    """The tiny model, to which the test may add files."""
    return Path(shutil.copytree(tiny_path, tmp_path / "m"))


@pytest.mark.fault(30, 100)
@pytest.mark.usefixtures("here")
@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_every_arrangement_is_read_and_its_mark_found(tiny_marked, tmp_path: Path, kind: str) -> None:
    """tests/command/test_as_found.py gives the unmarked model to each entry point in every arrangement."""
    original, key, release = tiny_marked
    given = KINDS[kind](release, tmp_path / "suspect")
    found = open_checkpoint(given)
    if "adapter" not in kind and "old shard" not in kind:
        assert found.unread == (), "all given files were read"
    assert torch.equal(found.embedding(), tensors_of(release)[EMBEDDING].float())
    # Also as text, which pages and jobs send.
    assert open_checkpoint(shown_path(given)).fingerprint == found.fingerprint
    plain = irwm.detect(open_checkpoint(release), original, key)
    finding = irwm.detect(irwm.open_suspect(given, original), original, key)
    assert finding.verdict == plain.verdict == "found"
    assert (finding.count, finding.present) == (plain.count, plain.present)
    assert finding.log10_p == pytest.approx(plain.log10_p)


@pytest.mark.parametrize("what", ["packed", "empty", "hidden size", "heads"])
def test_a_model_with_a_contradiction_is_noted_and_not_marked(tiny_path: Path, tmp_path: Path, what: str) -> None:
    model = open_checkpoint(contradictory(what, tiny_path, tmp_path / "m"))
    assert model.contradiction is not None
    assert model.notes
    for use in (model.require_markable, partial(irwm.generate_key, model)):
        with pytest.raises(CorruptCheckpointError) as caught:
            use()
        assert str(caught.value.file).startswith(str(tmp_path))


def test_unread_weights_are_named_and_rule_out_no_key(tiny_marked, copy: Path) -> None:
    original, key, _ = tiny_marked
    assert open_checkpoint(copy).unread == ()
    assert irwm.detect(open_checkpoint(copy), original, key).verdict == "not found"
    torch.save(tensors_of(copy), copy / "weights.pth")
    (copy / "deeper").mkdir()
    (copy / "deeper" / "tf_model.h5").write_bytes(b"x")
    suspect = open_checkpoint(copy)
    assert suspect.unread == ("deeper/tf_model.h5", "weights.pth")
    finding = irwm.detect(suspect, original, key)
    assert finding.verdict == "inconclusive"
    assert "not read: deeper/tf_model.h5, weights.pth" in finding.warnings
    # The file itself was given, so the files next to it are not searched.
    assert irwm.detect(open_checkpoint(copy / "model.safetensors"), original, key).verdict == "not found"


@pytest.mark.parametrize(("piece", "plain"), [("_qpacked", False), (":qdata", True)])
def test_unknown_packed_embedding_rules_out_no_key(tiny_path: Path, tmp_path: Path, piece: str, plain: bool) -> None:
    tensors = tensors_of(tiny_path)
    tensors[EMBEDDING + piece] = torch.zeros(len(tensors[EMBEDDING]), 8, dtype=torch.uint8)
    if not plain:
        del tensors[EMBEDDING]
    assert open_checkpoint(with_tensors(tiny_path, tmp_path / "m", tensors)).unread == (EMBEDDING + piece,)


def test_a_folder_with_several_models_is_not_one_checkpoint(tiny_path: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(tiny_path, tmp_path / "several" / name)
    assert refused(tmp_path / "several", NotACheckpointError).found == "one, two"


def test_weights_next_to_an_adapter_that_are_not_a_model_are_named(tiny_path: Path, tmp_path: Path) -> None:
    base = open_checkpoint(tiny_path)
    folder = adapter(tmp_path / "adapter", base.hidden_size)
    torch.save({"value_head": torch.ones(3)}, folder / "head.bin")
    found = open_checkpoint(folder, base=base)
    assert found.base is base
    assert found.unread == ("head.bin",)


def test_an_mlx_adapter_needs_its_base_and_is_read_on_it(tiny_path: Path, tmp_path: Path) -> None:
    base = open_checkpoint(tiny_path)
    folder = adapter(tmp_path / "mlx", base.hidden_size, "mlx")
    assert "someone/model" in str(refused(folder, UnsupportedCheckpointError).found)
    found = open_checkpoint(folder, base=base)
    a, b = (load_file(folder / "adapters.safetensors")[f"{QUERY.removesuffix('weight')}lora_{which}"] for which in "ab")
    expected = tensors_of(tiny_path)[QUERY].float() + 2.0 * (a @ b).T
    assert torch.allclose(found.read(found.layout.q), expected, atol=1e-6)
    stem = EMBEDDING.removesuffix("weight")
    a, b = torch.randn(base.vocab_size, 4), torch.randn(4, base.hidden_size)
    save_file({f"{stem}lora_a": a, f"{stem}lora_b": b}, folder / "adapters.safetensors")
    found = open_checkpoint(folder, base=base)
    assert torch.allclose(found.embedding([3, 1]), base.embedding([3, 1]) + 2.0 * (a @ b)[[3, 1]], atol=1e-5)


def test_a_stale_index_is_noted_and_missing_tensors_are_refused(tiny_path: Path, tmp_path: Path) -> None:
    out = KINDS["stale index, whole file"](tiny_path, tmp_path / "m")
    assert "model.safetensors.index.json" in " ".join(open_checkpoint(out).notes)
    write_index(out, read_index(out) | {"model.one_more.weight": "model-00002-of-00002.safetensors"})
    assert refused(out, CorruptCheckpointError).found == "missing: model-00002-of-00002.safetensors"


def with_a_second_embedding(folder: Path, out: Path, embedding: torch.Tensor) -> Path:
    """The model in shards, one of which holds another embedding than the one that the index names."""
    split(folder, out)
    other = next(file for file in sorted(out.glob("*.safetensors")) if file.name != read_index(out)[EMBEDDING])
    save_file(load_file(other) | {EMBEDDING: embedding.contiguous()}, other, {"format": "pt"})
    return other


def test_an_embedding_in_two_shards_is_read_and_never_released_half_marked(tiny_path: Path, tmp_path: Path) -> None:
    embedding = tensors_of(tiny_path)[EMBEDDING]
    with_a_second_embedding(tiny_path, tmp_path / "same", embedding)
    model = open_checkpoint(tmp_path / "same")
    with pytest.raises(UnmarkedCopyError):
        irwm.insert(model, irwm.generate_key(model), tmp_path / "release")
    assert not (tmp_path / "release").exists()
    other = with_a_second_embedding(tiny_path, tmp_path / "other", embedding.flip(0))
    found = open_checkpoint(tmp_path / "other")
    assert torch.equal(found.embedding(), embedding.float())
    assert [each.name for each in found.layout.alternatives] == [f"{other.name}.{EMBEDDING}"]


def test_incomplete_split_gguf_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    last = split_gguf(2, tiny_path, tmp_path / "m")
    (last.parent / "model-00001-of-00003.gguf").unlink()
    refused(last.parent)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_the_empty_tensors_of_zero_3_are_refused(tiny_path: Path, tmp_path: Path, name: str) -> None:
    out = with_tensors(tiny_path, tmp_path / "m", {key: torch.empty(0) for key in tensors_of(tiny_path)})
    if name.endswith(".bin"):
        torch.save(tensors_of(out), out / name)
        (out / "model.safetensors").unlink()
    error = refused(out, UnsupportedCheckpointError)
    assert (error.tensor, error.found) == (EMBEDDING, "(0,)")
    assert "zero_to_fp32.py" in str(error.advice)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        *(("__0_0.distcp", "dcp_to_torch"), ("model.nemo", "tar"), ("model.zip", "Unpack")),
        *((f"model.{suffix}", "safe_serialization=True") for suffix in ("onnx", "h5", "msgpack", "ckpt")),
    ],
)
def test_formats_that_are_not_read_come_with_advice_that_fits(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "config.json").write_text("{}")
    torch.save({}, tmp_path / "scheduler.pt")
    for path, found in ((tmp_path, name), (tmp_path / name, "a text file")):
        error = refused(path, UnsupportedCheckpointError)
        assert error.found == found
        assert advice in str(error.advice)


# Attempts of an attacker


def test_the_given_adapter_file_is_the_one_that_is_read(tiny_path: Path, tmp_path: Path) -> None:
    base = open_checkpoint(tiny_path)
    folder = adapter(tmp_path / "adapter", base.hidden_size)
    name = f"base_model.model.{EMBEDDING}"
    save_file({name: torch.zeros(600, base.hidden_size)}, folder / "adapter_model.safetensors")
    torch.save({name: torch.ones(600, base.hidden_size)}, folder / "adapter_model.bin")
    for file, value in (("adapter_model.safetensors", 0.0), ("adapter_model.bin", 1.0)):
        assert float(open_checkpoint(folder / file, base).embedding([5])[0, 0]) == value
    assert open_checkpoint(folder, base).unread == ("adapter_model.bin",)


@pytest.mark.parametrize("name", ["optimizer.safetensors", "scaler.gguf", "training_args.bin", "rng_state_0.pth"])
def test_weights_with_a_trainers_file_name_are_read(copy: Path, name: str) -> None:
    (copy / name).write_bytes(bytes(5 << 20))
    assert open_checkpoint(copy).unread == (name,)
    (copy / name).unlink()
    for own in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (copy / own).write_bytes(bytes(1000))
    assert open_checkpoint(copy).unread == ()


@pytest.mark.parametrize(
    "start", [b"\x80\x02", b"\x1f\x8b", b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"\x89HDF\r\n\x1a\n"]
)
def test_a_container_with_an_unknown_name_is_listed(copy: Path, start: bytes) -> None:
    (copy / "weights").write_bytes(start + bytes(20_000))
    (copy / "notes").write_bytes(b"words " * 5000)
    assert open_checkpoint(copy).unread == ("weights",)


@pytest.mark.parametrize("stem", [f"{EMBEDDING}:", f"{EMBEDDING.removesuffix('weight')}_weight_"])
def test_torchaos_embedding_next_to_a_plain_one_is_read_too(tiny_path: Path, tmp_path: Path, stem: str) -> None:
    tensors = tensors_of(tiny_path)
    codes = torch.randint(-127, 127, tensors[EMBEDDING].shape, dtype=torch.int8)
    tensors |= {f"{stem}qdata": codes, f"{stem}scale": torch.ones(codes.shape[0], 1)}
    found = open_checkpoint(with_tensors(tiny_path, tmp_path / "m", tensors))
    assert [each.name for each in found.layout.alternatives] == [f"torchao.{EMBEDDING}"]
    assert torch.equal(found.read(found.layout.alternatives[0]), codes.float())


def test_embeddings_in_files_of_the_same_name_are_both_read(tiny_path: Path, tmp_path: Path) -> None:
    tensors = tensors_of(tiny_path)
    out = with_tensors(tiny_path, tmp_path / "m", tensors, "main.safetensors")
    index = dict.fromkeys(tensors, "main.safetensors")
    for place, factor in (("a", 1.01), ("b", 1.02)):
        (out / place).mkdir()
        extra = {EMBEDDING: tensors[EMBEDDING] * factor, place: torch.ones(1)}
        save_file(extra, out / place / "m.safetensors")
        index[place] = f"{place}/m.safetensors"
    write_index(out, index)
    found = open_checkpoint(out)
    names = [f"{place}/m.safetensors.{EMBEDDING}" for place in "ab"]
    assert sorted(each.name for each in found.layout.alternatives) == names


def test_an_adapters_own_head_on_a_tied_base_rules_out_no_key(copy: Path, tmp_path: Path) -> None:
    change_config(copy, tie_word_embeddings=True)
    tensors = tensors_of(copy)
    tensors["lm_head.weight"] = tensors.pop(EMBEDDING)  # savers keep either name of a shared tensor
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    folder = adapter(tmp_path / "adapter", 64)
    own = {f"base_model.model.{name}": torch.ones(600, 64) for name in (EMBEDDING, "lm_head.weight")}
    save_file(own, folder / "adapter_model.safetensors")
    assert open_checkpoint(folder, open_checkpoint(copy)).unread == ("lm_head.weight",)


def test_a_whole_file_with_another_second_embedding_is_another_model(tiny_path: Path, tmp_path: Path) -> None:
    tensors = tensors_of(tiny_path)
    first = tensors | {f"teacher.{EMBEDDING}": tensors[EMBEDDING] * 1.01}
    whole = with_tensors(tiny_path, tmp_path / "whole", first)
    out = split(whole, tmp_path / "m")
    save_file(first | {f"teacher.{EMBEDDING}": tensors[EMBEDDING].flip(0).contiguous()}, out / "model.safetensors")
    assert refused(out, CorruptCheckpointError).file == str(out)
    shutil.copy(whole / "model.safetensors", out)
    assert open_checkpoint(out).unread == ()


def test_search_ends_at_many_large_indexes(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (copy / f"{number}.safetensors.index.json").write_bytes(bytes(1000))
    monkeypatch.setattr("irwm.checkpoint.candidates.MOST_INDEX_BYTES", 4000)
    assert irwm.find_checkpoints(copy).cut
    assert open_checkpoint(copy).unread == ("files beyond the search limit",)


def test_a_companion_is_not_read_through_a_link_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "outside").write_bytes(bytes.fromhex("00051607") + bytes(100))
    (tmp_path / "m" / "._x").symlink_to(tmp_path / "outside")
    assert not is_companion(tmp_path / "m" / "._x", tmp_path / "m")


@pytest.mark.parametrize("text", ["x" * 300, "a\0b", "\ud800\\xe8", "/nowhere/\\xe8"])
def test_impossible_paths_are_typed_errors(text: str) -> None:
    for ask in (open_checkpoint, irwm.find_checkpoints, irwm.open_suspect):
        with pytest.raises(irwm.IrwmError):
            ask(text)


# Folders


def names(folder: Path) -> list[str]:
    found = find_checkpoints(folder)
    return [found.name_of(path) for path in found.paths]


def test_each_set_of_weights_in_a_folder_is_a_candidate(copy: Path, tiny_path: Path, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "b.gguf", "flax_model.msgpack", ".hidden.safetensors", "training_args.bin"):
        (copy / name).write_bytes(b"x")
    split(tiny_path, tmp_path / "shards")
    (tmp_path / "shards" / "adapter_model.safetensors").write_bytes(b"x")
    assert names(tmp_path) == [
        "m/.hidden.safetensors", "m/b.gguf", "m/flax_model.msgpack", "m/model.safetensors", "m/pytorch_model.bin",
        "shards/adapter_model.safetensors", "shards/model.safetensors.index.json",
    ]  # fmt: skip


def test_an_unreadable_file_is_a_candidate(tiny_path: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.safetensors")
    below(".cache/m", tiny_path, tmp_path)
    assert names(tmp_path) == [".cache/m", "gone.gguf", "pipe.safetensors"]
    for path in find_checkpoints(tmp_path).paths[1:]:
        with pytest.raises(NotACheckpointError):
            open_checkpoint(path)


def test_names_that_are_not_utf_8_are_shown_and_read_back(tiny_path: Path, tmp_path: Path) -> None:
    unusual = KINDS["name in Latin-1"](tiny_path, tmp_path / "all")
    (tmp_path / "all" / "mod\\xe8le.gguf").write_bytes(b"x")
    assert names(tmp_path / "all") == ["mod\\\\xe8le.gguf", "mod\\xe8le"]
    assert shown_path(unusual).endswith("/mod\\xe8le")
    assert path_from(shown_path(unusual)) == unusual
    assert printable(unusual.name) == "mod\\xe8le"
    literal = tmp_path / "all" / "mod\\xe8le"
    literal.mkdir()
    for path in (unusual, literal):
        assert path_from(shown_path(path)) == path, "each has a different text, although both look alike"


def test_a_hub_cache_is_one_candidate_although_its_blobs_hold_the_weights_too(tiny_path: Path, tmp_path: Path) -> None:
    KINDS["hub cache, model in a subfolder"](tiny_path, tmp_path / "hub")
    (name,) = names(tmp_path / "hub")
    assert name.endswith("/Q8_0")
