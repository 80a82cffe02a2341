"""The benchmarks of `make bench` run, and docs/speed agrees with their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed import interface, page
from benchmarks.speed.__main__ import CLAIMS, OUT
from benchmarks.speed.claim import Figure
from benchmarks.speed.growth import exponent
from irwm.release.cloning import clones_in

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_quick_run_measures_and_writes_a_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.speed", "--quick", "--write"]
    command += ["--only", "insertion", "copies", "detection", "keys", "text", "functions", "peers", "growth"]
    command += ["--folder", str(tmp_path / "models"), "--out", str(tmp_path / "out")]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "bytes read of the suspect" in said
    assert ("met: bytes that a further copy" in said) == clones_in(tmp_path)
    assert ("not measured: the disk of" in said) != clones_in(tmp_path)
    found = json.loads((tmp_path / "out" / "detection.json").read_text())["result"]
    assert {run["verdict"] for run in (*found["plain"], *found["disguised"])} == {"found"}
    # Every row once: a detection reads of the suspect only what it examines, and headers.
    assert found["plain"][0]["suspect_bytes"] < 1.1 * found["needed"]
    assert found["plain"][0]["read"] >= found["plain"][0]["suspect_bytes"] + found["plain"][0]["model_bytes"]
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert all(
        f"## {CLAIMS[name].TITLE}" in text
        for name in ("insertion", "detection", "keys", "text", "functions", "peers", "growth")
    )
    assert "--quick" in text, "a quick run must not look like a full one"
    assert (tmp_path / "out" / "growth.svg").stat().st_size > 1000
    assert not (tmp_path / "models" / "copy").exists()


@pytest.mark.slow
@pytest.mark.skipif(not OUT.is_dir(), reason="not measured yet")
def test_speed_page_agrees_with_its_results(tmp_path: Path) -> None:
    for file in OUT.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert page.write(tmp_path, CLAIMS).read_text(encoding="utf-8") == (OUT / "README.md").read_text(encoding="utf-8")


@pytest.mark.browser
def test_the_vaults_page_is_timed_in_a_browser() -> None:
    timed = interface._vault(60)
    assert timed["count"] == 60
    assert len(timed["took"]) == 4
    assert all(0 < seconds < 60 for seconds in timed["took"].values())


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    points = [{"value": n, "seconds": 3.0 * n**1.5} for n in (10, 40, 90, 500)]
    assert exponent(points, "seconds") == pytest.approx(1.5)


def test_missed_speed_target_is_stated_with_its_reason(tmp_path: Path) -> None:
    class Missed:
        TITLE = "Missed"
        figures = staticmethod(lambda result: [Figure("x", "below 1 s", "2 s", False, "The disk is slow")])
        details = staticmethod(lambda result: [])

    (tmp_path / "missed.json").write_text(
        json.dumps({"about": dict.fromkeys(("command", "date", "machine", "model", "sources"), ""), "result": {}})
    )
    text = page.write(tmp_path, {"missed": Missed}).read_text(encoding="utf-8")  # type: ignore[dict-item]
    assert "| x | below 1 s | 2 s | no. The disk is slow |" in text
