"""AutoRound in a separate process: its output carries the mark, and its failures are reported."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import irwm
from irwm.attacks.quantisers import autoround, autoround_obstacle, dequantised
from irwm.attacks.quantisers.autoround import run_autoround
from irwm.errors import CancelledError, NotACheckpointError, OutputExistsError, UnsupportedCheckpointError
from tests.conftest import Marked

# Extras (requirements-tools.txt): large, and needed only here.
needs_autoround = pytest.mark.skipif(importlib.util.find_spec("auto_round") is None, reason="auto-round is an extra")


@needs_autoround
@pytest.mark.parametrize("name", ["demo", "gemma"])
@pytest.mark.parametrize("layout", ["gptq", "awq"])
def test_mark_is_found_in_autoround_output(
    release_of: Callable[[str], Marked], tmp_path: Path, name: str, layout: str
) -> None:
    original, key, release = release_of(name)
    text = "def answer(question):\n    return question + 42\n" * 200
    out = autoround(release, tmp_path / "out", layout, text, iterations=2, samples=4, length=64)
    assert json.loads((out / "config.json").read_text())["quantization_config"]["quant_method"] == layout
    suspect = irwm.open_checkpoint(out)
    assert any(layout.upper() in note for note in suspect.notes)
    found = irwm.detect(suspect, original, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")
    assert dequantised(out, release, tmp_path / "plain").is_dir()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["out", "plain"]


def test_missing_autoround_starts_no_tool(demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "auto_round" else real(name, *rest)
    )
    assert "auto-round==" in str(autoround_obstacle(demo_path))
    with pytest.raises(UnsupportedCheckpointError):
        autoround(demo_path, tmp_path / "out", "gptq", "text")
    assert list(tmp_path.iterdir()) == []


@needs_autoround
def test_encoders_are_refused(minilm_path: Path) -> None:
    assert "generate text" in str(autoround_obstacle(minilm_path))


def test_tool_failure_reports_last_line_and_cleans_up(tmp_path: Path) -> None:
    asked = {"model": "nowhere", "long": "x" * 200_000}  # more than a pipe holds
    with pytest.raises(UnsupportedCheckpointError, match=r"AutoRound failed.*[Ee]rror"):
        run_autoround(asked, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_stopping_ends_the_tool(tmp_path: Path) -> None:
    def stop(_done: int, _all: int, _what: str) -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        run_autoround({"model": "nowhere"}, tmp_path / "out", stop)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(OutputExistsError):
        run_autoround({}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_obstacle_of_folder_without_model_raises(tmp_path: Path) -> None:
    if importlib.util.find_spec("auto_round") is not None:
        with pytest.raises(NotACheckpointError):
            autoround_obstacle(tmp_path)
    else:
        assert "auto-round" in str(autoround_obstacle(tmp_path))
