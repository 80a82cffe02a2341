from __future__ import annotations

import stat

import pytest

import irwm.report.write as write_module
from irwm.errors import OutputExistsError
from irwm.report import ReportError, from_json, to_json, write_report


def test_all_files_are_written_complete_and_private(found, tmp_path):
    html, json_file = write_report(tmp_path / "case" / "7", found.finding, **found.particulars)
    assert (html.name, json_file.name) == ("report.html", "report.json")
    assert json_file.read_bytes() == to_json(found.document)
    assert html.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert from_json(json_file.read_bytes())["verdict"]["word"] == "found"
    assert (html.parent / "report.pdf").read_bytes().startswith(b"%PDF")
    assert {stat.S_IMODE(path.stat().st_mode) for path in html.parent.iterdir()} == {0o600}
    assert sorted(p.name for p in html.parent.iterdir()) == ["report.html", "report.json", "report.pdf"]


@pytest.mark.parametrize("there", ["report.html", "report.json", "report.pdf"])
def test_no_file_is_overwritten_and_no_partial_file_remains(found, tmp_path, there):
    (tmp_path / there).write_text("earlier")
    with pytest.raises(OutputExistsError):
        write_report(tmp_path, found.finding, **found.particulars)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(there, "earlier")]


def test_file_system_without_links_does_not_overwrite(found, tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError("not supported")

    monkeypatch.setattr(write_module.os, "link", no_links)
    write_report(tmp_path, found.finding, **found.particulars)
    with pytest.raises(OutputExistsError):
        write_report(tmp_path, found.finding, **found.particulars)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "report.json", "report.pdf"]


def test_full_disk_leaves_no_partial_file(found, tmp_path, monkeypatch):
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(write_module.os, "fsync", full)
    with pytest.raises(ReportError):
        write_report(tmp_path, found.finding, **found.particulars)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", "..", "x\n", "\u202ex"])
def test_a_name_that_is_not_a_plain_file_name_is_refused(found, tmp_path, name):
    with pytest.raises(ReportError):
        write_report(tmp_path, found.finding, name=name, **found.particulars)
    assert list(tmp_path.iterdir()) == []
