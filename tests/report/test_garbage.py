"""64 MiB of garbage, given to `irwm verify`, ends with a sentence and never passes; `benchmarks.garbage` times it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import irwm
from benchmarks.garbage import NEXT_TO_REPORT, SHAPES, verified
from irwm.canonical import MOST_JSON_BYTES, MOST_NAMES, MOST_TEXT, MOST_VALUES, strict_json
from irwm.report.checks import Check
from irwm.report.received import Received, receive
from irwm.report.swept import SweepReports


@pytest.mark.slow
@pytest.mark.fault(67)
@pytest.mark.parametrize("shape", SHAPES)
def test_garbage_report_ends_with_a_sentence(shape: str, tmp_path: Path) -> None:
    took = verified(SHAPES[shape](tmp_path))
    assert took.said_well, (took.code, took.printed, took.errors)
    lines = took.printed.splitlines()
    if shape in NEXT_TO_REPORT:  # the rest is a report, so each check has a result
        assert lines[-1].startswith("Verification failed: ")
    else:
        assert len(lines) == 1, took.printed


def test_oversized_report_is_refused_unread(tmp_path: Path) -> None:
    """Files of holes: reading one would take its size in memory."""
    for ending in (".json", ".html", ".pdf", ".signature.json"):
        with (tmp_path / f"r{ending}").open("wb") as file:
            file.truncate(1 << 40)
    found = receive(tmp_path)
    assert isinstance(found, Received)
    assert found.parts == {}
    assert sorted(found.unread) == [".html", ".json", ".pdf", ".signature.json"]
    hopeless = found.hopeless()
    assert hopeless is not None
    assert hopeless.ok is False


def test_the_size_limit_of_a_page_admits_every_real_report(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"{}")
    (tmp_path / "r.html").write_bytes(bytes(13 << 20))
    found = receive(tmp_path)
    assert isinstance(found, Received)
    assert ".html" in found.unread


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b" " * (MOST_JSON_BYTES + 1), "bytes; a report has at most"),
        (b"[" + b"0," * MOST_VALUES + b"0]", "values; a report has at most"),
        (b'["' + b"a" * (MOST_TEXT + 1) + b'"]', "characters; a report’s texts have at most"),
        (b'{"' + b"a" * (MOST_TEXT + 1) + b'":0}', "characters; a report’s texts have at most"),
        (
            b"{" + b",".join(b'"%d":0' % i for i in range(MOST_NAMES + 1)) + b"}",
            "names; a report’s objects have at most",
        ),
        (b'{"a":1,"a":1}', "the same name twice"),
        (b"[NaN]", "not JSON"),
    ],
    ids=["bytes", "values", "text", "name", "names", "twice", "NaN"],
)
def test_json_beyond_the_limits_of_reports_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        strict_json(data)


def test_very_large_folder_is_not_read_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irwm.report.received._MOST_FILES", 10)
    for number in range(30):
        (tmp_path / f"{number}.json").touch()
    found = receive(tmp_path)
    assert isinstance(found, Check)
    assert "holds files of 10 reports" in found.said


def test_reports_of_an_overview_are_read_lazily_from_their_folder_only(tmp_path: Path) -> None:
    """An overview of a hundred rows may name a hundred files of the largest size."""
    for name in ("a.json", "b.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    (tmp_path / "folder").mkdir()

    def naming(*names: str) -> dict[str, Any]:
        return {"rows": [{"json": name, "error": None} for name in names]}

    reports = SweepReports(naming("../a.json", "a.json"), tmp_path / "folder")
    assert list(reports) == []
    reports = SweepReports(naming("a.json", "b.json", "none.json", "folder"), tmp_path)
    assert sorted(reports) == ["a.json", "b.json"]
    assert "a.json" in reports
    assert len(reports) == 2
    with pytest.raises(irwm.IrwmError, match="larger than any real one"):
        reports["a.json"]
