"""64 MiB of garbage, given to `irwm verify`, ends with a sentence, takes little memory and never passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import irwm
from benchmarks.garbage import MIB, MOST_BYTES, NEXT_TO_REPORT, SHAPES, one
from irwm.canonical import MOST_JSON_BYTES, MOST_NAMES, MOST_TEXT, MOST_VALUES, strict_json
from irwm.report.checks import Check
from irwm.report.received import Received, receive
from irwm.report.verify_sweep import SweepReports
from tools.waiting import PATIENCE

# The benchmark's shapes, whose time `benchmarks.garbage` measures, and three that are read before they are refused.
GARBAGE = SHAPES | {
    "empty lists, largest parsed size": one("r.json", lambda: b"[" + b"[]," * (10 * MIB) + b"[]]"),
    "nested lists, largest parsed size": one("r.json", lambda: b"[" * (31 * MIB)),
    "nested objects as a large signature": one("r.signature.json", lambda: b'{"a":' * (12 * MIB)),
}
COMMAND = """
import json, resource, subprocess, sys
ended = subprocess.run([sys.executable, "-m", "irwm", "verify", sys.argv[1]], capture_output=True, text=True)
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps([most, ended.returncode, ended.stdout, ended.stderr]))
"""


@pytest.mark.slow
@pytest.mark.fault(67)
@pytest.mark.parametrize("shape", GARBAGE)
def test_garbage_report_ends_with_a_sentence_and_takes_little_memory(shape: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, str(GARBAGE[shape](tmp_path))]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    most_of_a_process, code, printed, errors = json.loads(ended.stdout)
    assert errors == ""
    assert printed.rstrip().endswith(".")
    if shape in NEXT_TO_REPORT:  # the rest is a report, so each check has a result
        assert code == 1
    else:
        assert code in (1, 2)
        assert len(printed.splitlines()) == 1, printed
        assert most_of_a_process < MOST_BYTES


def test_oversized_report_is_refused_unread(tmp_path: Path) -> None:
    """Files of holes: reading one would take its size in memory."""
    for ending in (".json", ".html", ".pdf", ".signature.json"):
        with (tmp_path / f"r{ending}").open("wb") as file:
            file.truncate(1 << 40)
    found = receive(tmp_path)
    assert isinstance(found, Received)
    assert (found.parts, len(found.unread)) == ({}, 4)
    hopeless = found.hopeless()
    assert hopeless is not None
    assert hopeless.ok is False


def test_the_size_limit_of_a_page_admits_every_real_report(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"{}")
    (tmp_path / "r.html").write_bytes(bytes(13 << 20))
    found = receive(tmp_path)
    assert isinstance(found, Received)
    assert ".html" in found.unread


BEYOND = {
    "bytes": b"[]" + b" " * MOST_JSON_BYTES,
    "values": b"[" + b"0," * MOST_VALUES + b"0]",
    "text": b'["' + b"a" * (MOST_TEXT + 1) + b'"]',
    "name": b'{"' + b"a" * (MOST_TEXT + 1) + b'":0}',
    "names": b"{" + b",".join(b'"%d":0' % i for i in range(MOST_NAMES + 1)) + b"}",
    "name twice": b'{"a":1,"a":1}',
    "NaN": b"[NaN]",
}


@pytest.mark.parametrize("limit", BEYOND)
def test_json_beyond_the_limits_of_reports_is_refused(limit: str) -> None:
    with pytest.raises(ValueError, match=r"at most|duplicate|not JSON"):
        strict_json(BEYOND[limit])


def test_very_large_folder_is_not_read_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irwm.report.received._MOST_FILES", 10)
    for number in range(30):
        (tmp_path / f"{number}.json").touch()
    found = receive(tmp_path)
    assert isinstance(found, Check)
    assert "10 reports" in found.said


def test_reports_of_an_overview_are_read_lazily_from_their_folder_only(tmp_path: Path) -> None:
    """An overview of a hundred rows may name a hundred files of the largest size."""
    for name in ("a.json", "b.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    (tmp_path / "folder").mkdir()

    def naming(*names: str) -> list[dict[str, Any]]:
        return [{"json": name, "error": None} for name in names]

    reports = SweepReports(naming("../a.json", "a.json"), tmp_path / "folder")
    assert list(reports) == []
    reports = SweepReports(naming("a.json", "b.json", "none.json", "folder"), tmp_path)
    assert sorted(reports) == ["a.json", "b.json"]
    assert "a.json" in reports
    assert len(reports) == 2
    with pytest.raises(irwm.IrwmError, match="implausibly large"):
        reports["a.json"]
