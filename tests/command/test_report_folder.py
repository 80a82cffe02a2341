"""A report is copied into a new or empty folder, completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from irwm.errors import IrwmError, OutputExistsError
from ui.command.report_folder import check_free, copy_report


@pytest.fixture
def files() -> dict[str, bytes]:
    return {name: name.encode() for name in ("report.html", "report.json")}


@pytest.mark.parametrize("there", [True, False])
def test_all_files_are_copied(tmp_path: Path, files: dict[str, bytes], there: bool) -> None:
    folder = tmp_path / "deep" / "report"
    if there:
        folder.mkdir(parents=True)
    check_free(folder)
    assert copy_report(files, folder) == [folder / "report.html", folder / "report.json"]
    assert [path.read_text() for path in sorted(folder.iterdir())] == ["report.html", "report.json"]
    assert list(folder.parent.iterdir()) == [folder]


def test_file_added_before_copy_is_not_overwritten(tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = tmp_path / "report"
    check_free(folder)
    folder.mkdir()
    (folder / "report.json").write_text("another's")
    with pytest.raises(OutputExistsError):
        copy_report(files, folder)
    assert [path.read_text() for path in folder.iterdir()] == ["another's"]


@pytest.mark.parametrize("there", [True, False])
def test_file_added_during_copy_is_not_overwritten(
    tmp_path: Path, files: dict[str, bytes], there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "report"
    if there:
        folder.mkdir()
    real = __import__("ui.command.report_folder", fromlist=["_copy"])._copy

    def late(given: dict[str, bytes], target: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "report.json").write_text("another's")
        real(given, target)

    monkeypatch.setattr("ui.command.report_folder._copy", late)
    with pytest.raises(IrwmError, match="cannot be written"):
        copy_report(files, folder)
    assert [path.read_text() for path in folder.iterdir()] == ["another's"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report"]


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, files: dict[str, bytes]) -> None:
    files["x" * 300] = b"a name that no file system takes"
    with pytest.raises(IrwmError, match="cannot be written"):
        copy_report(files, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_no_report_makes_no_folder(tmp_path: Path) -> None:
    assert copy_report({}, tmp_path / "report") == []
    assert list(tmp_path.iterdir()) == []
