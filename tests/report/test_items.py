"""An item's description distinguishes it from every other item, and is compared with a reader's item file by file."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import irwm
from irwm.report import items
from irwm.report.document import plain
from irwm.report.items import FileRecord, ItemDescription
from irwm.report.verify_examination import wrong_in_item


@pytest.fixture
def suspect(demo_path: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "suspect"
    shutil.copytree(demo_path, folder)
    (folder / "extra").mkdir()
    (folder / "extra" / "notes.txt").write_text("seen on a forum")
    return folder


def described(folder: Path) -> ItemDescription:
    return ItemDescription.of(irwm.open_checkpoint(folder))


def edited(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + b"\n")


# A change of the folder, with the file that it concerns.
CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "config changed": (edited("config.json"), "config.json"),
    "tokenizer changed": (edited("tokenizer.json"), "tokenizer.json"),
    "tokenizer gone": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
    "code added": (lambda folder: (folder / "modeling_own.py").write_text("x = 1"), "modeling_own.py"),
    "a file below changed": (edited("extra/notes.txt"), "extra/notes.txt"),
    "a file below gone": (lambda folder: (folder / "extra" / "notes.txt").unlink(), "extra/notes.txt"),
}


@pytest.mark.fault(93)
@pytest.mark.parametrize("change", CHANGES)
def test_different_items_have_different_descriptions(suspect: Path, change: str) -> None:
    before = described(suspect)
    assert plain(asdict(described(suspect))) == plain(asdict(before))
    act, name = CHANGES[change]
    act(suspect)
    assert described(suspect) != before
    wrong = wrong_in_item(plain(asdict(before)), irwm.open_checkpoint(suspect))
    assert [each for each in wrong if each.startswith(name)]


@pytest.mark.fault(93)
def test_every_file_of_the_folder_is_listed_with_its_digest(suspect: Path) -> None:
    item = described(suspect)
    listed = {file.name: file for file in (*item.files, *item.other_files)}
    there = {path.relative_to(suspect).as_posix(): path for path in suspect.rglob("*") if path.is_file()}
    assert set(listed) == set(there)
    for name, path in there.items():
        digest = "" if name == "model.safetensors" else hashlib.sha256(path.read_bytes()).hexdigest()
        assert listed[name] == FileRecord(name, path.stat().st_size, digest)


def test_large_files_that_were_not_read_are_listed_with_their_size(
    suspect: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "MOST_OTHER_BYTES", 2000)
    (suspect / "old.pt.zip").write_bytes(bytes(3000))
    assert FileRecord("old.pt.zip", 3000, "") in described(suspect).other_files
    assert all(file.sha256 for file in described(suspect).other_files if file.bytes < 500)


def test_hidden_folders_and_links_out_of_the_folder_are_not_read(suspect: Path, tmp_path: Path) -> None:
    (suspect / ".cache").mkdir()
    (suspect / ".cache" / "when.metadata").write_text("1764180000")
    for name in (".DS_Store", "._config.json", "Thumbs.db"):
        (suspect / name).write_bytes(b"x")
    (tmp_path / "secret").write_text("of another person")
    (suspect / "link.txt").symlink_to(tmp_path / "secret")
    (suspect / "nowhere.txt").symlink_to(tmp_path / "gone")
    others = {file.name: file for file in described(suspect).other_files}
    assert not others.keys() & {".cache/when.metadata", ".DS_Store", "._config.json", "Thumbs.db"}
    assert others["link.txt"] == FileRecord("link.txt", 0, "")
    assert "nowhere.txt" not in others


def test_a_note_says_if_not_all_files_are_listed(suspect: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "MOST_OTHER", 2)
    for number in range(4):
        (suspect / f"{number}.txt").write_text("x")
    assert items.MORE_FILES in described(suspect).notes
    assert len(described(suspect).other_files) == 2
    monkeypatch.setattr(items, "MOST_OTHER", 2000)
    assert items.MORE_FILES not in described(suspect).notes


def test_a_single_weights_file_is_the_complete_item(suspect: Path) -> None:
    assert ItemDescription.of(irwm.open_checkpoint(suspect / "model.safetensors")).other_files == ()


@pytest.mark.fault(93)
def test_answers_in_another_order_of_tokens_are_another_item(gemma_path: Path) -> None:
    original = irwm.open_checkpoint(gemma_path)
    table = -torch.rand(200, 400, generator=torch.Generator().manual_seed(0))
    tokens = torch.randperm(original.vocab_size, generator=torch.Generator().manual_seed(1))[:400].tolist()
    one, other = (ItemDescription.of(irwm.suspect_from_answers(table, original, ids)) for ids in (tokens, tokens[::-1]))
    assert one.fingerprint != other.fingerprint
