"""Files that pages offer for download."""

from __future__ import annotations

from pathlib import Path

import pytest

from ui.components.uploads import offer
from ui.guard import OFFERED


def test_a_file_is_offered_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    report = b"one"
    first = [offer(report, "report.html") for _ in range(3)]
    assert (len(set(first)), len(offer(report, "other.html").split("/"))) == (1, len(first[0].split("/")))
    assert Path(first[0]).read_text() == "one"
    assert Path(first[0]).is_relative_to(tmp_path / "uploads" / OFFERED)
    assert Path(first[0]).parent.stat().st_mode & 0o077 == 0
    Path(first[0]).unlink()  # for its age
    assert offer(report, "report.html") == first[0]
    report = b"another"
    second = offer(report, "report.html")
    assert (second != first[0], Path(second).read_text(), Path(first[0]).read_text()) == (True, "another", "one")
    assert len(list((tmp_path / "uploads").rglob("*.html"))) == 3
