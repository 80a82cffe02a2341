"""The locked partial folder: one owner at a time, and removal of folders of interrupted runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from irwm.errors import NotACheckpointError, OutputExistsError
from irwm.release import sweep_partials
from irwm.release.partial import partial_folder
from tests.checkpoint.builders import tree

LOCK = ".irwm-lock"


def dead_run(tmp_path: Path, name: str = "r") -> Path:
    path = tmp_path / f"{name}.partial"
    (path / "sub").mkdir(parents=True)
    (path / LOCK).touch()
    (path / "model.safetensors").write_bytes(b"half")
    (path / "sub" / "file").write_bytes(b"x")
    return path


@pytest.mark.parametrize("published", [False, True])
def test_only_a_published_folder_stays_and_has_no_lock(tmp_path: Path, published: bool) -> None:
    with partial_folder(tmp_path / "r") as partial:
        (partial.path / "a").write_text("x")
        if published:
            partial.publish()
    assert tree(tmp_path) == ({"r": None, "r/a": b"x"} if published else {})
    with pytest.raises(NotACheckpointError):
        sweep_partials(tmp_path / "none")


def test_the_folder_of_an_interrupted_run_is_reused(tmp_path: Path) -> None:
    dead_run(tmp_path)
    with partial_folder(tmp_path / "r") as partial:
        assert os.listdir(partial.path) == [LOCK]


def test_a_second_publisher_gets_an_error_that_the_folder_is_in_use(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "r") as partial:
        (partial.path / "a").write_text("x")
        with pytest.raises(OutputExistsError), partial_folder(tmp_path / "r"):
            pass
        assert (partial.path / "a").read_text() == "x"


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_foreign_partial_folder_is_left_alone(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "r.partial"
    if kind == "file":
        other.write_text("mine")
    elif kind == "link":
        (tmp_path / "home").mkdir()
        other.symlink_to("home")
    else:
        other.mkdir()
        (other / "thesis.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(OutputExistsError), partial_folder(tmp_path / "r"):
        pass
    assert sweep_partials(tmp_path) == []
    assert tree(tmp_path) == before


def test_cleanup_removes_only_interrupted_runs(tmp_path: Path) -> None:
    dead = [dead_run(tmp_path, "a"), dead_run(tmp_path, "b")]
    (tmp_path / "c.partial").mkdir()  # a run that ended before its lock existed
    with partial_folder(tmp_path / "live") as live:
        (live.path / "model.safetensors").write_bytes(b"half")
        assert sweep_partials(tmp_path) == [*dead, tmp_path / "c.partial"]
        assert tree(tmp_path) == {
            "live.partial": None,
            f"live.partial/{LOCK}": b"",
            "live.partial/model.safetensors": b"half",
        }


def test_links_in_a_dead_run_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").write_text("mine")
    (dead_run(tmp_path) / "link").symlink_to(tmp_path / "home")
    assert sweep_partials(tmp_path) == [tmp_path / "r.partial"]
    assert (tmp_path / "home" / "thesis").read_text() == "mine"


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path = dead_run(tmp_path)
    (path / LOCK).unlink()
    (path / LOCK).symlink_to(tmp_path / "created by the link")
    assert sweep_partials(tmp_path) == []
    assert not (tmp_path / "created by the link").exists()
