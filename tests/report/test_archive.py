"""The report for outsiders, and reports as one archive: Verify accepts our archives and refuses similar files."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from irwm.report import finding_document, from_json, to_json, wording
from irwm.report.checks import Check
from irwm.report.document import withheld
from irwm.report.received import Received, receive
from irwm.report.verify import verify_report
from irwm.report.write import archive, for_outsiders, signed_files
from tests.report.conftest import Examined
from tests.report.signers import Signatory

MARKED = ("token", "text")


@pytest.fixture(scope="session")
def outside(found: Examined) -> dict[str, bytes]:
    return for_outsiders(found.document, Signatory().signer())


def packed(entries: list[tuple[str, bytes]], **more: Any) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **more) as made:
        for name, content in entries:
            made.writestr(name, content)
    return stream.getvalue()


def test_withheld_report_equals_one_made_without_rows(found: Examined) -> None:
    made = finding_document(found.finding, **found.particulars, disclose_rows=False)
    assert withheld(found.document) == made
    assert withheld(made) == made
    assert wording.ROWS_WITHHELD in made["limitations"]
    assert found.document["rows_disclosed"]  # the document itself is unchanged


def test_the_report_for_outsiders_has_no_marked_row(found: Examined, outside: dict[str, bytes], tmp_path: Path) -> None:
    (name,) = outside
    assert name == "report-without-rows.zip"
    with zipfile.ZipFile(io.BytesIO(outside[name])) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    endings = (".json", ".pdf", ".signature.json")
    assert sorted(files) == [f"report-without-rows{ending}" for ending in endings]
    document = from_json(files["report-without-rows.json"])
    for reading in (document["reading"], document["paper"]):
        assert {position[field] for position in reading["positions"] for field in MARKED} == {None}
    assert document["reading"]["count"] == found.document["reading"]["count"]
    rows = {str(position["token"]) for position in found.document["reading"]["positions"]}
    # Every whole number, also those in sentences. Small numbers are counts of other things as well.
    numbers = set(re.findall(r"(?<![\w.])\d+(?![\w.])", files["report-without-rows.json"].decode()))
    assert not {row for row in rows if int(row) > 300} & numbers
    assert {row for row in rows if int(row) > 300} <= set(
        re.findall(r"(?<![\w.])\d+(?![\w.])", to_json(found.document).decode())
    ), "which the full report would not pass"


@pytest.mark.slow
def test_the_full_report_is_one_archive_too_with_or_without_a_folder_in_it(found: Examined, tmp_path: Path) -> None:
    files = signed_files(found.document, Signatory().signer())
    whole = tmp_path / "whole.zip"
    whole.write_bytes(archive(files))
    assert archive(files) == whole.read_bytes()
    again = tmp_path / "again.zip"
    again.write_bytes(
        packed([*((f"sent/{name}", data) for name, data in files.items()), ("__MACOSX/sent/._report.json", b"x")])
    )
    for path in (whole, again):
        outcome = verify_report(path, identity=Signatory().first)
        assert outcome.ok, outcome.checks
        report = receive(path)
        assert isinstance(report, Received)
        assert report.parts.keys() == {".json", ".html", ".pdf", ".signature.json"}


def long_zip(content: bytes) -> bytes:
    """A ZIP with the ZIP64 locator (for more than 4 GB) before its end."""
    return content[:-22] + struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1) + content[-22:]


def claiming(content: bytes, size: int) -> bytes:
    """The archive with another size of its only file in the list."""
    at = content.rindex(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<L", size) + content[at + 28 :]


BAD: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "cut off": lambda: packed([("r.json", b"{}")])[:-5],
    "a comment": lambda: packed([("r.json", b"{}")])[:-2] + b"\x04\x00abcd",
    "more than 4 GB": lambda: long_zip(packed([("r.json", b"{}")])),
    "no report": lambda: packed([("a/", b"")]),
    "something else": lambda: packed([("r.json", b"{}"), ("r.htm", b"acquitted")]),
    "something before": lambda: b"PK" + packed([("r.json", b"{}")]),
    "two reports": lambda: packed([("a.json", b"{}"), ("b.json", b"{}")]),
    "a file twice": lambda: packed([("a/r.json", b"{}"), ("b/r.json", b"{}")]),
    "many files": lambda: packed([(f"{n}.json", b"{}") for n in range(40)]),
}


@pytest.mark.fault(67)
@pytest.mark.parametrize("what", BAD)
def test_other_archives_are_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "r.zip"
    path.write_bytes(BAD[what]())
    found = receive(path)
    assert isinstance(found, Check)
    assert found.ok is None


UNREAD: dict[str, Callable[[], bytes]] = {
    "a file larger than any": lambda: claiming(packed([("r.json", b"{}")]), 1 << 31),
    "a claim beyond what is there": lambda: claiming(packed([("r.json", b"{}")]), 999),
    "packed by another method": lambda: packed([("r.json", b"{}")], compression=zipfile.ZIP_LZMA),
}


@pytest.mark.fault(67)
@pytest.mark.parametrize("what", UNREAD)
def test_a_file_of_an_archive_that_cannot_be_read_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "r.zip"
    path.write_bytes(UNREAD[what]())
    found = receive(path)
    assert isinstance(found, Received)
    assert "r.json" in found.unread[".json"]
