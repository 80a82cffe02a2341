from __future__ import annotations

from pathlib import Path

import pytest

from ui.recent import KEPT, SHARED, RecentPaths


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"model {n}" for n in range(KEPT + 2)]
    for model in made:
        model.mkdir()
    return made


def test_recent_list_is_newest_first_unique_and_short(tmp_path: Path, models: list[Path]) -> None:
    recent = RecentPaths(tmp_path)
    for model in [*models, models[3]]:
        recent.add("suspect", model)
    kept = RecentPaths(tmp_path).paths("suspect")
    assert kept[0] == str(models[3])
    assert len(kept) == len(set(kept)) == KEPT


def test_marked_original_is_offered_in_every_original_field(tmp_path: Path, models: list[Path]) -> None:
    RecentPaths(tmp_path).add("original", models[0])
    again = RecentPaths(tmp_path)
    for purpose in ("original", "original-of", "lab-original", "explored", "verify-original"):
        assert again.paths(purpose) == (str(models[0]),)
    again.add("explored", models[1])
    assert again.paths("original") == (str(models[1]), str(models[0]))
    assert again.paths("suspect") == again.paths("target") == ()
    assert SHARED.keys().isdisjoint(SHARED.values())


def test_missing_paths_are_not_offered(tmp_path: Path, models: list[Path]) -> None:
    recent = RecentPaths(tmp_path)
    recent.add("target", models[0])
    models[0].rmdir()
    assert recent.paths("target") == ()


def test_unchanged_recent_list_is_not_rewritten(tmp_path: Path, models: list[Path]) -> None:
    recent = RecentPaths(tmp_path)
    recent.add("explored", models[0])
    before = (tmp_path / "recent.json").stat().st_ino
    recent.add("explored", models[0])
    assert (tmp_path / "recent.json").stat().st_ino == before
    assert (tmp_path / "recent.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b'{"suspect": 7}', b"\xff", b'{"suspect": ["/a\\u0000b", 7]}'])
def test_a_damaged_list_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recent.json").write_bytes(content)
    recent = RecentPaths(tmp_path)
    assert recent.paths("suspect") == ()
    recent.add("suspect", tmp_path)
    assert recent.paths("suspect") == (str(tmp_path),)
