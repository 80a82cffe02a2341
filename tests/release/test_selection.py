"""Files that a release copies from its source, and files that it omits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from irwm.checkpoint import open_checkpoint
from irwm.errors import CorruptCheckpointError, NotACheckpointError, ParameterError, PublishError
from irwm.release.selection import select_files
from tests.checkpoint.builders import hub_cache, read_index, split, unprivileged, write_index


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def names(path: Path) -> list[str]:
    return [file.name for file in select_files(open_checkpoint(path)).files]


def left_out(path: Path) -> tuple[str, ...]:
    return select_files(open_checkpoint(path)).left_out


PLAIN = ["README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]


def test_everything_that_belongs_to_the_model_is_taken(folder: Path) -> None:
    known = {"README.pt.md", "LICENSE", "tokenizer.model", "chat_template.jinja", "merges.txt", "1_Pooling/config.json"}
    fill(folder, *known, "SHA256SUMS", ".irwm-lock")  # the last two are of an earlier release
    taken = names(folder)
    assert set(taken) - set(PLAIN) == known
    assert taken == sorted(taken)
    assert left_out(folder) == ()


@pytest.mark.fault(97)
def test_only_files_on_the_list_are_taken_and_the_others_are_named(folder: Path) -> None:
    others = [
        *("fsdp/__0_0.distcp", "model.nemo", "model.tensors", "weights.zip", "model.tar.gz", "model.dduf"),
        *("sha256-0123abcd", "README.safetensors", "license.bin", "x.mlpackage/weight.bin", "modeling_own.py"),
        *("us.irwm-key", "report.json", "receipts.csv", "id_rsa", "vault.sqlite3", "tokenizer.pkl", "notes.txt"),
        *("pytorch_model.bin", "pytorch_model.bin.index.json", "x.pt", "y.pth", "flax_model.msgpack", "tf_model.h5"),
        *("model.fp16.safetensors", "model.safetensors.bak", "old/model.safetensors", "model-Q4.GGUF"),
        *("old/model.safetensors.index.json", "onnx/model.onnx", "onnx/model.onnx.data", "onnx/model.onnx_data"),
    ]
    fill(folder, *others)
    assert left_out(folder) == tuple(sorted(others))
    assert names(folder) == PLAIN


def test_a_file_that_the_caller_names_is_taken_too(folder: Path) -> None:
    fill(folder, "modeling_own.py", "extra/notes.txt", "secret.key")
    model = open_checkpoint(folder)
    selection = select_files(model, also=["modeling_own.py", "extra/notes.txt"])
    assert {"modeling_own.py", "extra/notes.txt"} <= {file.name for file in selection.files}
    assert selection.left_out == ("secret.key",)
    for absent in ("nothing.py", "../config.json", "extra"):
        with pytest.raises(ParameterError) as error:
            select_files(model, also=[absent])
        assert error.value.file == str(folder / absent)


def test_hidden_entries_and_non_files_are_omitted(folder: Path, tmp_path: Path) -> None:
    fill(folder, ".git/config", ".env", "sub/.cache/x")
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "around").symlink_to(".")
    assert left_out(folder) == (".env", ".git/", "around/", "dangling", "pipe", "sub/.cache/")
    assert names(folder) == PLAIN


def test_index_of_shards_and_links_of_a_hub_cache_are_taken(tiny_path: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(tiny_path, tmp_path)
    assert "model.safetensors.index.json" in names(split(tiny_path, tmp_path / "shards"))
    assert names(snapshot) == ["config.json", "generation_config.json", "model.safetensors"]
    assert left_out(snapshot) == ()


def test_a_file_linked_from_outside_stops_the_release(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (folder / "LICENSE").symlink_to(tmp_path / "secret")
    with pytest.raises(CorruptCheckpointError):
        names(folder)


def test_a_shard_behind_a_linked_folder_stops_the_release(sharded: Path) -> None:
    (sharded / "real").mkdir()
    (sharded / "weights").symlink_to("real")
    for shard in sharded.glob("*.safetensors"):
        shard.rename(sharded / "real" / shard.name)
    write_index(sharded, {key: f"weights/{name}" for key, name in read_index(sharded).items()})
    with pytest.raises(PublishError):
        names(sharded)


def test_only_known_companions_of_a_single_file_are_copied(folder: Path) -> None:
    fill(folder, "vocab.txt", "tokenizer.model", "merges.txt", "chat.jinja", "holiday.jpg", "tokenizer.bin", "b.json")
    fill(folder, "README.md", "vocabulary/notes.txt")
    known = {*PLAIN, "vocab.txt", "tokenizer.model", "merges.txt", "chat.jinja"} - {"README.md"}
    assert names(folder / "model.safetensors") == sorted(known)
    assert left_out(folder / "model.safetensors") == ()


def test_an_unreadable_companion_is_named(public_folder: Path) -> None:
    model = open_checkpoint(public_folder)
    os.chmod(public_folder / "README.md", 0)
    with unprivileged(), pytest.raises(NotACheckpointError) as caught:
        select_files(model)
    assert caught.value.file == str(public_folder / "README.md")
