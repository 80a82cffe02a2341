from __future__ import annotations

import os
from pathlib import Path

import pytest

from ui.components import browsing
from ui.components.browsing import (
    BrowsingLimits,
    PathRefusedError,
    describe,
    list_folder,
    new_folder,
    size_text,
    use_path,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "model").mkdir(parents=True)
    (root / "model" / "config.json").write_text("{}")
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (root / "model" / name).write_bytes(bytes(600_000))
    (root / "plain" / "deeper").mkdir(parents=True)
    (root / "notes.txt").write_text("x")
    (root / "one.safetensors").write_bytes(b"x")
    (root / "two.GGUF").write_bytes(b"x")
    (root / ".hidden").mkdir()
    (root / ".secret.safetensors").write_bytes(b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "theirs.safetensors").write_bytes(b"x")
    return root


@pytest.fixture
def limits(root: Path) -> BrowsingLimits:
    return BrowsingLimits((root,))


def names(listing: browsing.Listing) -> list[tuple[str, str]]:
    return [(entry.name, entry.kind) for entry in listing.entries]


def test_listing_has_only_folders_then_weights(root: Path, limits: BrowsingLimits) -> None:
    listing = list_folder(root, limits)
    assert names(listing) == [
        ("model", "model"),
        ("plain", "folder"),
        ("one.safetensors", "file"),
        ("two.GGUF", "file"),
    ]
    assert listing.entries[0].detail == "2 weights files, 1.2 MB"
    assert listing.parent is None, "folders above a root are not shown"
    assert list_folder(root / "plain", limits).parent == root
    assert names(list_folder(root, limits, kind="folder")) == [("model", "model"), ("plain", "folder")]
    assert ("two.GGUF", "file") not in names(list_folder(root, limits, suffixes=(".safetensors",)))


def test_a_name_that_is_not_utf_8_is_listed_and_can_be_chosen(root: Path, limits: BrowsingLimits) -> None:
    unusual = Path(os.fsdecode(os.fsencode(root) + b"/mod\xe8le"))
    (unusual / "deeper").mkdir(parents=True)
    (unusual / "w.gguf").write_bytes(b"x")
    (entry,) = (each for each in list_folder(root, limits).entries if each.name == "mod\\xe8le")
    assert (entry.kind, entry.detail) == ("model", "1 weights file, 1 byte")
    entry.path.encode("utf-8")
    assert use_path(entry.path, limits) == unusual
    assert names(list_folder(entry.path, limits)) == [("deeper", "folder"), ("w.gguf", "file")]
    assert use_path(list_folder(entry.path, limits).entries[1].path, limits) == unusual / "w.gguf"


def test_bin_files_make_a_model_only_with_a_config(root: Path, limits: BrowsingLimits) -> None:
    (root / "plain" / "firmware.bin").write_bytes(b"x")
    assert describe(root / "plain") == ""
    (root / "plain" / "config.json").write_text("{}")
    assert describe(root / "plain") == "1 weights file, 1 byte"


def test_links_inside_work_and_a_hub_cache_keeps_its_file_names(root: Path, limits: BrowsingLimits) -> None:
    (root / "blobs").mkdir()
    (root / "blobs" / "0f3a").write_bytes(b"weights")
    (root / "snapshot").mkdir()
    (root / "snapshot" / "model.safetensors").symlink_to("../blobs/0f3a")
    (root / "latest").symlink_to("snapshot")
    assert ("snapshot", "model") in names(list_folder(root, limits))
    assert use_path(str(root / "snapshot" / "model.safetensors"), limits) == root / "snapshot" / "model.safetensors"
    assert use_path(str(root / "latest"), limits) == root / "snapshot"


def test_long_listing_is_cut_with_a_note(root: Path, limits: BrowsingLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "MOST_ENTRIES", 3)
    listing = list_folder(root, limits)
    assert (len(listing.entries), listing.left_out) == (3, 1)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (14_520_000_000, "14.5 GB"),
        (2.5e13, "25.0 TB"),
        (412e6, "412 MB"),
    ],
)
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


def refusal(path: Path | str, limits: BrowsingLimits, **kind: str) -> PathRefusedError:
    with pytest.raises(PathRefusedError) as caught:
        use_path(str(path), limits, **kind)  # type: ignore[arg-type]
    assert caught.value.advice
    return caught.value


def test_weight_file_without_a_known_name_can_be_chosen(root: Path, limits: BrowsingLimits) -> None:
    (root / "sha256-0a").write_bytes(b"GGUF" + bytes(20_000))
    (root / "model.safetensors.index.json").write_text("{}")
    for name in ("sha256-0a", "model.safetensors.index.json"):
        assert use_path(f'  "{root / name}" ', limits) == root / name, "with quotes and spaces as it was pasted"


@pytest.mark.parametrize(
    "text", ["", '""', "model", "./model", "a\0b", "/" + "x" * 5000, "~no-such-user/x", "{root}/modle"]
)
def test_text_that_is_not_an_existing_path_is_refused(root: Path, limits: BrowsingLimits, text: str) -> None:
    refusal(text.format(root=root), limits)


@pytest.mark.parametrize(
    "outside",
    [
        "/etc",
        "/etc/passwd",
        "/",
        "{root}/../outside",
        "{root}-of-another",
        "{root}/model/../../outside/theirs.safetensors",
    ],
)
def test_paths_outside_the_roots_are_refused_with_the_words_for_missing_ones(
    root: Path, limits: BrowsingLimits, outside: str
) -> None:
    path = outside.format(root=root)
    assert refusal(path, limits).problem == refusal(root.parent / "never", limits).problem
    with pytest.raises(PathRefusedError):
        list_folder(path, limits)


def test_what_leads_out_of_a_root_or_into_our_home_or_is_no_file_is_closed(root: Path) -> None:
    home = root / "irwm"
    home.mkdir()
    (home / "vault.sqlite3").write_text("x")
    limits = BrowsingLimits((root,), (home,))
    for name, target in (
        ("to-home", "irwm"),
        ("way-out", root.parent / "outside"),
        ("leak.safetensors", root.parent / "outside" / "theirs.safetensors"),
        ("loop", "loop"),
        ("dangling", "nowhere"),
    ):
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe.safetensors")
    closed = {"irwm", "to-home", "way-out", "leak.safetensors", "loop", "dangling", "pipe.safetensors"}
    assert not {name for name, _ in names(list_folder(root, limits))} & closed
    for name in (*closed, "irwm/vault.sqlite3", "way-out/theirs.safetensors", "notes.txt"):
        refusal(root / name, limits)
    refusal(root / "one.safetensors", limits, kind="folder")
    (root / "latest").symlink_to("plain")
    for name in ("way-out", "to-home", "irwm", "loop"):
        with pytest.raises(PathRefusedError):
            new_folder(str(root), name, limits)
    for name in ("latest", "plain", "new"):
        assert new_folder(str(root), name, limits) == root / name


def test_folder_without_permission_is_reported(
    root: Path, limits: BrowsingLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PathRefusedError):
        list_folder(root, limits)
