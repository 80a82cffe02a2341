"""A second examiner's review: what it may say, and what the verifier finds in a signed one."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from irwm.errors import IrwmError
from irwm.report import ReportError, schema, to_json
from irwm.report.checks import HOLDS, NOT_ESTABLISHED, REVIEWED, Check, Verification
from irwm.report.review import (
    AGREES,
    CONCLUSIONS,
    DISAGREES,
    EXAMINED,
    EXTENTS,
    LIMITATIONS,
    NAME,
    READ,
    RECOMPUTED,
    REMARKS,
    read_review,
    review_document,
    review_html,
    reviewed,
)
from irwm.report.signature_file import ENDING, announced, sign_report
from irwm.report.structure import fault
from irwm.report.verify import verify_report
from irwm.report.verify_review import contradictions
from irwm.report.write import signed_files
from tests.report.conftest import Examined
from tests.report.signers import Signatory

REPORT = "report.json"
PASSED = Verification(
    (
        Check("files", True, "each file matches"),
        Check("numbers", True, "they agree"),
        Check("examination", True, "every number agrees"),
        Check("controls", True, "rerunning all gave the recorded results"),
    )
)


def review_of(data: bytes, verification: Verification = PASSED, **changed: str) -> schema.Review:
    said = {"reviewer": "B. Second", "extent": READ, "conclusion": AGREES, "remarks": ""} | changed
    return review_document(
        reviewed(REPORT, data),
        verification,
        case={"Case": "Leak of January"},
        created_utc="2026-02-02T10:00:00+00:00",
        tool_versions={"irwm": "1"},
        **said,
    )


@pytest.fixture
def report(found: Examined) -> bytes:
    return to_json({**found.document, "case": {"Case": "Leak of January", "Examiner": "A. First"}})


def test_review_names_the_report_and_its_result(report: bytes, found: Examined) -> None:
    document = review_of(report)
    about = document["reviewed"]
    assert about["sha256"] == hashlib.sha256(report).hexdigest()
    assert (about["examiner"], about["result"], about["identity"]) == ("A. First", "found", "")
    assert read_review(to_json(document)) == document
    assert fault(document, schema.Review) is None
    assert not contradictions(document)
    page = review_html(document, "review.json")
    shown = (about["sha256"], "B. Second", "A. First", CONCLUSIONS[AGREES], EXTENTS[READ], "every number agrees")
    assert all(text in page for text in (*shown, *LIMITATIONS))
    assert "<script" not in page


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"reviewer": "  "}, "the reviewer’s name is missing"),
        ({"reviewer": " a.  FIRST "}, "the reviewer is the examiner"),
        ({"reviewer": "A. F\u00edrst"}, "the reviewer is the examiner"),
        ({"reviewer": "First, A"}, "the reviewer is the examiner"),
        ({"reviewer": "A. \uff26irst"}, "the reviewer is the examiner"),
        ({"reviewer": "\u0410. F\u0456rst"}, "the reviewer is the examiner"),
        ({"reviewer": "\u0391. FIRST"}, "the reviewer is the examiner"),
        ({"reviewer": "A. First\u3164"}, "an invisible character"),
        ({"conclusion": REMARKS, "remarks": "x" * 2001}, "the remarks are too long"),
        ({"conclusion": REMARKS}, "the remarks are missing"),
        ({"conclusion": DISAGREES, "remarks": " \n"}, "the remarks are missing"),
    ],
)
def test_statement_without_its_reason_is_refused(report: bytes, said: dict[str, str], problem: str) -> None:
    with pytest.raises(IrwmError, match=problem):
        review_of(report, **said)


def test_agreement_with_a_failed_check_is_refused(report: bytes) -> None:
    failed = Verification((Check("numbers", False, "a value contradicts another"),))
    for conclusion in (AGREES, REMARKS):
        with pytest.raises(IrwmError, match="these checks of the report failed: numbers"):
            review_of(report, failed, conclusion=conclusion, remarks="See above.")
    assert review_of(report, failed, conclusion=DISAGREES, remarks="The numbers are wrong.")["checks"][0]["ok"] is False


def test_recomputed_needs_a_passed_examination(report: bytes) -> None:
    only_files = Verification((Check("files", True, "each file matches"), Check("examination", None, "no model")))
    with pytest.raises(IrwmError, match="were not computed again"):
        review_of(report, only_files, extent=RECOMPUTED)
    assert review_of(report, extent=RECOMPUTED)["extent"] == RECOMPUTED
    assert review_of(report, only_files, extent=EXAMINED)["extent"] == EXAMINED
    for name in ("examination", "controls"):
        twice = Verification((*PASSED.checks, Check(name, None, "not made")))
        with pytest.raises(IrwmError, match="were not computed again"):
            review_of(report, twice, extent=RECOMPUTED)


def test_remarks_of_several_lines_are_one_paragraph(report: bytes) -> None:
    document = review_of(report, conclusion=REMARKS, remarks=" First point.\n\nSecond point. ")
    assert document["remarks"] == "First point. Second point."


@pytest.mark.parametrize(
    "name", ["report.pdf", "report.signature.json", "a/b.json", "..json/", "a:b.json", "x" * 251 + ".json"]
)
def test_only_a_plain_name_of_a_json_file_is_reviewed(report: bytes, name: str) -> None:
    """The verifier of a report reads the files with the same beginning, so another ending could be another report."""
    with pytest.raises(IrwmError, match="not the name of a report’s JSON file"):
        review_document(
            reviewed(name, report), PASSED, reviewer="B. Second", extent=READ, conclusion=AGREES, remarks="",
            case={}, created_utc="", tool_versions={},
        )  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"[]", b'{"schema": {"name": "irwm-lab", "version": 6}}', b'{"schema": 1}'])
def test_other_documents_cannot_be_reviewed(data: bytes) -> None:
    with pytest.raises(ReportError, match="only the report of an examination or of a dispute"):
        reviewed(REPORT, data)


def test_hostile_words_are_inert(report: bytes) -> None:
    hostile = "<script>alert(1)</script>"
    document = review_of(report, reviewer=hostile, conclusion=REMARKS, remarks=hostile)
    assert "<script" not in review_html(document, "review.json")
    for unseen in ("\u202e", "\x1b[31m"):
        with pytest.raises(IrwmError):
            review_of(report, conclusion=REMARKS, remarks=f"good{unseen}")
        with pytest.raises(IrwmError):
            review_of(report, reviewer=f"B. Second{unseen}")


@pytest.fixture(scope="module")
def signed(found: Examined, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a signed report and its review, signed by another vault."""
    folder = tmp_path_factory.mktemp("review")
    with_case = {**found.document, "case": {"Case": "Leak of January", "Examiner": "A. First"}}
    for name, data in signed_files(with_case, Signatory().signer("1" * 64)).items():
        (folder / name).write_bytes(data)
    sign(folder, review_of((folder / REPORT).read_bytes(), verify_report(folder / REPORT)))
    return folder


def sign(folder: Path, review: schema.Review) -> None:
    """Writes a review next to its report, signed by the second examiner."""
    second = Signatory(2).signer("2" * 64)
    document = announced(review, second)
    files = {f"{NAME}.json": to_json(document), f"{NAME}.html": review_html(document, f"{NAME}.json").encode()}
    for name, content in {**files, f"{NAME}{ENDING}": sign_report(files, second)}.items():
        (folder / name).write_bytes(content)


def of_reviewed(folder: Path) -> Check:
    (check,) = (each for each in verify_report(folder / f"{NAME}.json").checks if each.name == REVIEWED)
    return check


def identity_of(folder: Path) -> str:
    return json.loads((folder / f"{NAME}.json").read_bytes())["status"]["custody"]["identity"]


def test_signed_review_verifies_next_to_its_report(signed: Path) -> None:
    said = verify_report(signed / f"{NAME}.json", identity=identity_of(signed))
    answers = {check.name: check.ok for check in said.checks}
    assert answers[REVIEWED], said
    assert answers["numbers"]
    assert answers["page"]
    assert answers["identity"]
    assert said.exit_code == 2, "a review is an opinion"
    assert HOLDS not in said.result
    assert "one key signed both" not in {check.name: check.said for check in said.checks}[REVIEWED]


def zipped(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.iterdir()):
            packed.write(file, f"sent/{file.name}")
    return archive


def test_folder_and_archive_of_a_review_and_its_report_are_read_as_the_review(signed: Path, tmp_path: Path) -> None:
    for path in (signed, zipped(signed, tmp_path / "both.zip")):
        said = verify_report(path, identity=identity_of(signed))
        answers = {check.name: check.ok for check in said.checks}
        assert answers[REVIEWED], said
        assert said.exit_code == 2, "a review is an opinion"


def test_third_document_or_another_name_leaves_it_unclear(signed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(signed, tmp_path / "both")
    (folder / REPORT).rename(folder / "renamed.json")
    third = shutil.copytree(signed, tmp_path / "three")
    shutil.copy(third / REPORT, third / "third.json")
    for place in (folder, third):
        for path in (place, zipped(place, tmp_path / f"{place.name}.zip")):
            (check,) = verify_report(path).checks
            assert check.ok is None
            assert "reports" in check.said


def test_review_in_an_archive_is_not_compared_with_a_file_outside(signed: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    for file in signed.glob(f"{NAME}*"):
        shutil.copy(file, alone)
    path = zipped(alone, tmp_path / "alone.zip")
    for file in signed.glob("report*"):
        shutil.copy(file, tmp_path)
    (check,) = (each for each in verify_report(path).checks if each.name == REVIEWED)
    assert check.ok is None
    assert "not next to the review" in check.said


def test_review_without_its_report_is_not_established(signed: Path, tmp_path: Path) -> None:
    for file in signed.glob(f"{NAME}*"):
        shutil.copy(file, tmp_path)
    said = verify_report(tmp_path / f"{NAME}.json", identity=identity_of(signed))
    assert said.ok
    assert said.exit_code == 2
    assert NOT_ESTABLISHED in said.result
    assert HOLDS not in said.result
    assert REVIEWED in said.needed


def test_another_report_in_its_place_fails(signed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(signed, tmp_path / "copy")
    data = (folder / REPORT).read_bytes()
    (folder / REPORT).write_bytes(data.replace(b"Leak of January", b"Leak of October"))
    check = of_reviewed(folder)
    assert check.ok is False
    assert "sha256" in check.said


def test_check_that_now_fails_is_named(signed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(signed, tmp_path / "copy")
    (folder / "report.html").write_bytes(b"<p>Not found.</p>")
    check = of_reviewed(folder)
    assert check.ok is False
    assert "files" in check.said
    assert "page" in check.said


def test_forged_statement_contradicts_the_checks(report: bytes) -> None:
    document: dict[str, Any] = dict(review_of(report))
    forgeries = (
        ("extent", RECOMPUTED, "extent"),
        ("reviewer", "A. First", "reviewer"),
        ("conclusion", REMARKS, "remarks"),
    )
    for field, value, place in forgeries:
        forged = document | {"checks": document["checks"][:1], field: value}
        assert [each.where for each in contradictions(forged)] == [place]


def test_review_that_leaves_out_a_check_fails(signed: Path, tmp_path: Path) -> None:
    """A signer could otherwise agree with a report that fails."""
    folder = shutil.copytree(signed, tmp_path / "copy")
    whole = json.loads((folder / f"{NAME}.json").read_bytes())
    checks = whole["checks"]
    without = [check for check in checks if check["name"] != "numbers"]
    unmade = [check | {"ok": None} if check["name"] == "numbers" else check for check in checks]
    twice = [*checks, {"name": "numbers", "ok": None, "said": ""}]
    for changed in ([], without, unmade, twice):
        status = {name: value for name, value in whole["status"].items() if name != "custody"} | {"signed": False}
        sign(folder, whole | {"checks": changed, "status": status})
        assert of_reviewed(folder).ok is False


def test_review_of_a_failing_report_has_to_say_so(signed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(signed, tmp_path / "copy")
    (folder / "report.html").write_bytes(b"<p>Not found.</p>")
    data = (folder / REPORT).read_bytes()
    sign(folder, review_of(data, verify_report(folder / REPORT), conclusion=DISAGREES, remarks="Its page was changed."))
    assert of_reviewed(folder).ok
    sign(folder, review_of(data))
    assert of_reviewed(folder).ok is False


def test_long_name_in_a_review_is_a_failed_check(signed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(signed, tmp_path / "copy")
    whole = json.loads((folder / f"{NAME}.json").read_bytes())
    sign(folder, whole | {"reviewed": whole["reviewed"] | {"json": "x" * 300 + ".json"}})
    assert of_reviewed(folder).ok is False


def test_same_key_for_report_and_review_is_said(signed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(signed, tmp_path / "copy")
    document = json.loads((folder / REPORT).read_bytes())
    for name, data in signed_files(document, Signatory(2).signer("1" * 64)).items():
        (folder / name).write_bytes(data)
    sign(folder, review_of((folder / REPORT).read_bytes(), verify_report(folder / REPORT)))
    assert "one key signed both" in of_reviewed(folder).said


def test_page_that_the_reviewer_did_not_have_fails_nobody(signed: Path, tmp_path: Path) -> None:
    """An honest reviewer may have only the JSON and its signature; the page that comes later has to hold."""
    folder = shutil.copytree(signed, tmp_path / "copy")
    page = folder / "report.html"
    whole = verify_report(folder / REPORT)
    had = Verification(tuple(replace(each, ok=None) if each.name in ("page", "pdf") else each for each in whole.checks))
    sign(folder, review_of((folder / REPORT).read_bytes(), had))
    assert of_reviewed(folder).ok
    page.write_bytes(b"<p>Not found.</p>")
    assert of_reviewed(folder).ok is False
