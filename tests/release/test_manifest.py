"""SHA256SUMS: readable by the sha256sum tool, and compared with a folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irwm.errors import CancelledError, CorruptCheckpointError, NotACheckpointError
from irwm.release import read_manifest, verify_manifest
from irwm.release.manifest import format_manifest

AWKWARD = [
    "plain.txt", "two words", "back\\slash", "new\nline", "car\rriage", " lead", "-dash", "*star", "é模🙂", "a/b/c",
]  # fmt: skip


def sums(folder: Path, names: list[str]) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    names = [*AWKWARD, os.fsdecode(b"not UTF-8: latin-\xe9")]
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes([number]) * (number * 1000))
    (folder / "SHA256SUMS").write_bytes(format_manifest(sums(folder, names)))
    return folder


def test_sha256sum_itself_accepts_it(release: Path) -> None:
    done = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=release, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(b"OK") == len(AWKWARD) + 1


def test_it_reads_what_sha256sum_writes(release: Path) -> None:
    ours = read_manifest(release).files
    done = subprocess.run(["sha256sum", "--", *ours], cwd=release, capture_output=True, check=True)
    (release / "SHA256SUMS").write_bytes(done.stdout)
    assert read_manifest(release).files == ours
    binary = done.stdout.replace(b"  plain.txt", b" *plain.txt")
    (release / "SHA256SUMS").write_bytes(binary)
    assert read_manifest(release / "SHA256SUMS").files == ours


def test_missing_extra_and_changed_files_are_distinguished(release: Path) -> None:
    check = verify_manifest(release)
    assert (check.ok, check.missing, check.extra, check.changed) == (True, (), (), ())
    (release / "plain.txt").unlink()
    (release / "a" / "b" / "new").write_text("x")
    (release / "two words").write_bytes(b"other")
    check = verify_manifest(release)
    found = (check.ok, check.missing, check.extra, check.changed)
    assert found == (False, ("plain.txt",), ("a/b/new",), ("two words",))


def test_links_pipes_and_unreadable_things_count_as_changed(release: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes((release / "two words").read_bytes())
    for name in ("two words", "back\\slash", "plain.txt"):
        (release / name).unlink()
    (release / "two words").symlink_to(outside)  # the right bytes, but not in the folder
    (release / "back\\slash").symlink_to("nowhere")
    os.mkfifo(release / "plain.txt")
    (release / "loop").symlink_to(".")
    check = verify_manifest(release)
    assert check.changed == ("back\\slash", "plain.txt", "two words")
    assert check.extra == ("loop",)


def test_progress_and_stop(release: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    verify_manifest(release, progress=lambda *args: seen.append(args))
    assert seen[-1][0] == seen[-1][1] == sum(n * 1000 for n in range(len(AWKWARD) + 1))
    with pytest.raises(CancelledError):
        verify_manifest(release, cancelled=lambda: True)


@pytest.mark.parametrize(
    "line",
    [
        *(f"{'0' * 64}  {name}" for name in ("../a", "/etc/passwd", "a/../../b", "a\0b", "", ".")),
        *(f"{digest}  a" for digest in ("nonsense", "0" * 63, "G" * 64, f"{'0' * 64}  a\n{'0' * 64}")),
        *("0" * 64 + " a", "\n"),
    ],
)
def test_malformed_lines_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "SHA256SUMS").write_text(line + "\n")
    with pytest.raises(CorruptCheckpointError) as caught:
        verify_manifest(tmp_path)
    assert caught.value.file == str(tmp_path / "SHA256SUMS")


def test_a_folder_without_manifest(tmp_path: Path) -> None:
    for read, folder in ((verify_manifest, tmp_path), (read_manifest, tmp_path / "none")):
        with pytest.raises(NotACheckpointError):
            read(folder)


def test_an_empty_manifest_lists_nothing(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"")
    assert verify_manifest(tmp_path).extra == ("a",)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1).filter(
            lambda name: name not in (".", "..")
        ),
        st.just("ab" * 32),
        max_size=5,
    )
)
def test_names_survive_writing_and_reading(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> None:
    path = tmp_path_factory.mktemp("m") / "SHA256SUMS"
    path.write_bytes(format_manifest(files))
    assert read_manifest(path).files == files
