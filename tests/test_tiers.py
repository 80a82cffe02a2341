"""Which tier a test is in, on a small suite, and how `tests.kept` keeps a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kept import kept

ROOT = Path(__file__).resolve().parents[1]
SUITE = """
import time
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.browser
def test_browser(): pass

@pytest.fixture
def chromium(): pass

def test_by_fixture(chromium): pass

@pytest.mark.sweep
@pytest.mark.parametrize("n", range(3))
def test_swept(n): pass

@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("n", range(4))
def test_sampled(n): pass

@pytest.mark.slow
@pytest.mark.quick("stands for the others")
def test_back_again(): pass

@pytest.mark.in_full
@pytest.mark.slow
def test_by_night(): pass
"""
QUICK = {"test_plain", "test_swept[0]", "test_sampled[0]", "test_back_again"}
SLOW = {"test_slow", "test_browser", "test_by_fixture", "test_swept[1]", "test_swept[2]", "test_sampled[3]"}


def run(folder: Path, suite: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n slow\n browser\n sweep\n sampled\n quick\n in_full\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.tiers", "-p", "no:cacheprovider", "-v", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


def passed(said: str) -> set[str]:
    return set(re.findall(r"::(\S+) PASSED", said))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), QUICK | SLOW),
        (("--tier", "quick"), QUICK),
        (("--tier", "slow"), SLOW),
        (("--every",), QUICK | SLOW | {"test_sampled[1]", "test_sampled[2]", "test_by_night"}),
    ],
    ids=["both", "quick", "slow", "every"],
)
def test_each_test_is_of_just_one_tier(tmp_path: Path, options: tuple[str, ...], names: set[str]) -> None:
    done = run(tmp_path, SUITE, *options)
    assert done.returncode == 0, done.stdout
    assert passed(done.stdout) == names


def test_kept_folders_are_made_once_and_partial_ones_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cache:
        def mkdir(self, name: str) -> Path:
            (tmp_path / name).mkdir(exist_ok=True)
            return tmp_path / name

    class Config:
        cache = Cache()

    made: list[str] = []

    def fail(folder: Path) -> None:
        folder.mkdir()
        raise OSError("no room")

    def make(folder: Path) -> None:
        made.append("once")
        folder.mkdir()
        (folder / "file").write_text("whole", encoding="utf-8")

    config: pytest.Config = Config()  # type: ignore[assignment]
    with pytest.raises(OSError, match="no room"):
        kept(config, "model", fail)
    first = kept(config, "model", make)
    assert (first / "file").read_text(encoding="utf-8") == "whole"
    assert kept(config, "model", make) == first
    assert made == ["once"]
    # Other sources, another folder; that of the previous sources is kept next to it, older ones are removed.
    for key in ("a" * 16, "b" * 16, "c" * 16):
        monkeypatch.setattr("tests.kept.key_of_sources", lambda key=key: key)
        assert kept(config, "model", make) != first
    assert made == ["once"] * 4
    assert sorted(each.name for each in (tmp_path / "kept").iterdir() if each.is_dir()) == ["b" * 16, "c" * 16]
