"""Files that change or vanish, code that tries to run, unusual names, places and sizes (FAULTS 17, 22 to 24, 39)."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.formats import read_budget
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.tensors import stream_tensor
from irwm.errors import CheckpointChangedError, DiskSpaceError, NotACheckpointError, OutputExistsError, PublishError
from irwm.release import publish
from tests.checkpoint.builders import CHANGES, EMBEDDING, KEY, QUERY, change_config, sparse, tree
from tests.checkpoint.gguf_builders import convert
from tests.checkpoint.parsing import without_child
from tests.checkpoint.torch_files import WHOLE, as_torch

FORMATS: dict[str, Callable[[Path, Path], Path]] = {
    "safetensors": lambda folder, out: shutil.copytree(folder, out) / "model.safetensors",
    "torch": lambda folder, out: as_torch(folder, out) / WHOLE,
    "gguf": lambda folder, out: convert(folder, out),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
def test_fault_17_a_file_changed_after_it_was_opened_is_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, change: str
) -> None:
    monkeypatch.setattr(read_budget, "run_parser", without_child)
    path = FORMATS[format](folder, tmp_path / "x.gguf")
    model = open_checkpoint(path)
    query = model.layout.q
    assert query is not None
    CHANGES[change](path, path.read_bytes())
    for use in (model.embedding, lambda: model.embedding([1]), lambda: model.fingerprint, lambda: model.read(query)):
        with pytest.raises(CheckpointChangedError) as caught:
            use()
        assert caught.value.file == str(path)


@pytest.mark.parametrize("change", ["cut", "longer", "touched"])
def test_fault_17_a_file_changed_between_two_reads_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(6_000_000)}, path)
    stream = stream_tensor(read_safetensors(path).tensors["w"])
    next(stream)
    CHANGES[change](path, path.read_bytes())
    with pytest.raises(CheckpointChangedError):
        list(stream)


# Code that tries to run; code in PyTorch files is in test_torch_files.py.


def test_fault_22_remote_code_is_ignored_with_a_note(folder: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Config"})
    (folder / "modeling_evil.py").write_text(f"open({str(canary)!r}, 'w')\n")
    model = open_checkpoint(folder)
    assert "auto_map" in " ".join(model.notes)
    assert torch.isfinite(model.embedding([1])).all()
    publish(model, tmp_path / "out", {})
    assert not canary.exists()


# Names and places.


def test_fault_23_unicode_and_case_colliding_names_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    names = ["Card.md", "card.md", *(unicodedata.normalize(form, "é.md") for form in ("NFC", "NFD")), "模型 🙂.txt"]
    for number, name in enumerate(names):
        (folder / name).write_text(str(number))
    home = tmp_path / "données 模型"
    folder.rename(home)
    released = publish(open_checkpoint(home), tmp_path / "Ausgabe für 顧客", {}, also=names)
    for number, name in enumerate(names):
        assert (released.path / name).read_text() == str(number)
    done = subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=released.path, check=False)
    assert done.returncode == 0


def test_fault_23_very_long_paths_work_or_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    deep = tmp_path
    while len(str(deep)) < 3500:
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    shutil.copytree(folder, deep / "model")
    assert publish(open_checkpoint(deep / "model"), deep / "out", {}).path == deep / "out"
    with pytest.raises(NotACheckpointError, match="longer"):
        open_checkpoint(deep / ("d" * 200) / ("e" * 200) / ("f" * 200) / ("g" * 200))
    with pytest.raises(PublishError, match="longer"):
        publish(open_checkpoint(folder), tmp_path / ("n" * 250), {})
    with pytest.raises(NotACheckpointError, match="longer"):
        open_checkpoint(tmp_path / ("n" * 300))


@pytest.mark.parametrize("where", [".", "inside", "config.json", "../model", "../model/inside", "sub/inside", ".."])
def test_fault_24_an_output_that_is_in_or_around_the_input_is_refused(folder: Path, where: str) -> None:
    (folder / "sub").mkdir()
    before = tree(folder.parent)
    with pytest.raises(OutputExistsError):
        publish(open_checkpoint(folder), folder / where, {})
    assert tree(folder.parent) == before


def test_fault_24_a_link_does_not_hide_that_the_output_is_inside(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    with pytest.raises(OutputExistsError):
        publish(open_checkpoint(folder), tmp_path / "alias" / "out", {})


def largest_size() -> int:
    """The most bytes of memory that this process has had since /proc/self/clear_refs was written."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


def test_fault_39_a_model_larger_than_memory_opens_and_gives_its_rows(folder: Path) -> None:
    rows, width = 4_000_000, 16_384
    shapes = {
        **{EMBEDDING: [rows, width], "model.layers.0.input_layernorm.weight": [width]},  # 262 GB, sparse on disk
        **{name: [width, width] for name in (QUERY, KEY)},
    }
    path = sparse(folder / "model.safetensors", shapes)
    with path.open("r+b") as file:
        file.seek(read_safetensors(path).tensors[EMBEDDING].parts[0].stop - 4 * width)
        file.write(struct.pack("<f", 7))
    heads = {"num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128}
    change_config(folder, vocab_size=rows, hidden_size=width, **heads)
    # This process's earlier peak may hide a later one: Linux resets it on request.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = largest_size()
    model = open_checkpoint(folder)
    assert model.bytes_total > 262e9
    assert model.embedding([0, rows - 1])[:, :2].tolist() == [[0, 0], [7, 0]]
    assert model.read(model.layout.q, rows=slice(0, 8)).shape == (8, width)
    assert largest_size() - before < 100e6
    with pytest.raises(DiskSpaceError, match=r"26\d\.\d GB"):
        publish(model, folder.parent / "out", {})
    assert os.listdir(folder.parent) == ["model"]
