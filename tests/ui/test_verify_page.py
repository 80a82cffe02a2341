"""Handlers of the page Verify: check uploads, with and without the passphrase, and refuse."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

import irwm
from irwm.report import ItemDescription, KeyInfo, finding_document, installed_versions
from irwm.report.checks import NOT_ESTABLISHED, Check, Verification
from irwm.report.sandbox import to_json
from irwm.report.verify import verify_report
from irwm.report.write import write_document
from storage.case_archive import export_case
from tests.ui.handlers import Pages, told, value
from tools.small_models import write_llama
from ui.components.uploads import browser_folder
from ui.pages.cases import case_lines
from ui.pages.verify import About
from ui.services.filing import CaseFiling, examiner_of

# No root, day, models, keys or log.
NOTHING = (None,) * 7
# Its limits need a real process, which loads the libraries and typesets the PDF again: about two seconds each time.


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The document of a small model's examination."""
    folder = tmp_path_factory.mktemp("verify")
    model = irwm.open_checkpoint(write_llama(folder / "model"))
    key = irwm.generate_key(model, irwm.Parameters(constraints=5), owner="Example Labs")
    finding = irwm.detect(model, model, key)
    item = ItemDescription.of(model)
    return finding_document(
        finding,
        suspect=item,
        original=item,
        key_info=KeyInfo.of(key),
        case={"Case": "Leak of January"},
        created_utc="2024-02-01T10:00:00+00:00",
        tool_versions=installed_versions(),
    )


@pytest.fixture
def report(pages: Pages, document: dict) -> Path:
    """A signed report in a folder that the app may read."""
    case = pages.vault.add_case("Leak of January")
    _, json_file = write_document(pages.root / "report", document, signer=CaseFiling(pages.vault, case.id, "").signer())
    return json_file


def posted(folder: Path) -> list[str]:
    """A folder's files as Gradio passes uploads: each in its own folder."""
    paths = []
    for number, file in enumerate(sorted(folder.iterdir())):
        place = browser_folder() / f"posted-{number}"
        place.mkdir(exist_ok=True)
        paths.append(str(shutil.copyfile(file, place / file.name)))
    return paths


@pytest.mark.slow
def test_report_on_disk_and_uploaded_report_verify(pages: Pages, report: Path) -> None:
    """The uploaded one also at the locked gate, where it is not kept."""
    known = pages.vault.identity().first_public_key
    on_disk = pages.call("start-verify", "click", str(report), None, None, *NOTHING)["verified"]
    uploaded = pages.call("start-verify", "click", "", posted(report.parent), "", *NOTHING)["verified"]
    assert NOT_ESTABLISHED in on_disk
    assert uploaded == on_disk
    assert "as expected" in pages.call("start-verify", "click", str(report), None, known, *NOTHING)["verified"]
    files = posted(report.parent)
    pages.lock()
    assert pages.call("outside-verify", "click", files, "", None)["outside-verified"] == on_disk
    assert "was not uploaded here" in pages.call("outside-verify", "click", [str(report)], "", None)["outside-verified"]
    assert not list(pages.context.settings.home.rglob("report.json"))


@pytest.mark.slow
def test_unexpected_signer_and_a_changed_byte_fail(pages: Pages, report: Path) -> None:
    said = pages.call("start-verify", "click", str(report), None, "ab" * 32, *NOTHING)["verified"]
    assert "Verification failed" in said
    report.write_bytes(report.read_bytes().replace(b"Leak of January", b"Leak of January!", 1))
    said = pages.call("start-verify", "click", str(report), None, None, *NOTHING)["verified"]
    assert "Verification failed" in said
    assert "report.json is not the file that was signed" in said


def test_path_and_upload_together_or_neither_are_refused(pages: Pages, report: Path) -> None:
    for given in (("", None), (str(report), posted(report.parent))):
        assert told(pages.call("start-verify", "click", *given, None, *NOTHING)) == ["path-report-note"]


def test_each_wrong_value_is_an_error_at_its_field(pages: Pages, report: Path) -> None:
    broken = pages.root / "broken"
    broken.write_text("no key", encoding="utf-8")
    (file,) = (each for each in posted(report.parent) if each.endswith(".json") and "signature" not in each)
    for identity, roots, seen, keys, place in (
        ("xyz", None, None, None, "verify-identity-notice"),
        ("ab" * 32 + "cd", None, None, None, "verify-identity-notice"),
        (None, [file], None, None, "verify-roots-notice"),
        (None, None, "yesterday", None, "verify-seen-notice"),
        (None, None, None, str(broken), "path-verify-key-note"),
        (None, None, None, "/etc/passwd", "path-verify-key-note"),
    ):
        asked = (str(report), None, identity, roots, seen, None, None, keys, None, None)
        out = pages.call("start-verify", "click", *asked)
        assert told(out) == [place]
        assert out["verified"] == "", "the result of an earlier report is removed"
        opened = {name for name, part in out.items() if isinstance(part, gr.Accordion) and part.open}
        fold = {"verify-roots-notice": "verify-authorities", "verify-identity-notice": None}.get(place, "verify-models")
        assert opened == {fold} - {None}
    assert not pages.jobs.recent()


def test_unsigned_page_among_signed_files_and_files_of_no_report_fail(pages: Pages, report: Path) -> None:
    unsigned = report.with_name("final.html")
    unsigned.write_text("<p>Found.</p>", encoding="utf-8")
    said = pages.call("outside-verify", "click", posted(report.parent), "", None)["outside-verified"]
    unsigned.unlink()
    assert "notice-fault" in said
    assert "final, report" in said
    folder = pages.root / "other"
    folder.mkdir()
    (folder / "letter.txt").write_text("Dear Sirs", encoding="utf-8")
    assert "notice-fault" in pages.call("outside-verify", "click", posted(folder), None, None)["outside-verified"]


@pytest.mark.slow
def test_results_of_this_report_stay_and_others_disappear(pages: Pages, report: Path) -> None:
    """If both are requested at once, the page learns of a pasted path only after Verify has answered."""
    told = told_by(pages.call("start-verify", "click", str(report), None, "", *NOTHING))
    kept, other = (gr.skip(), gr.skip()), str(report.with_suffix(".html"))
    assert changed(pages, str(report), None, told) == kept
    assert changed(pages, other, None, told) == ("", About.of(other, None))
    assert changed(pages, None, None, told) == ("", About.of(None, None))
    assert changed(pages, str(report), [str(report)], told)[0] == ""
    assert changed(pages, str(report), None, None)[0] == ""
    assert changed(pages, None, None, None) == kept, "the result that a reload shows again stays"
    uploaded = posted(report.parent)
    told = told_by(pages.call("start-verify", "click", "", uploaded, "", *NOTHING))
    assert changed(pages, None, uploaded[::-1], told) == kept
    assert changed(pages, None, uploaded[1:], told)[0] == ""


def test_verify_task_updates_only_its_own_report(pages: Pages, report: Path) -> None:
    """A reload shows the last task again, which must not replace a newer request."""
    jobs, request = pages.jobs, pages.request
    job = jobs.create("verify", "Verify report.json", {"report": str(report)})
    jobs.start(job.id, os.getpid())
    jobs.finish(job.id, "done", result=to_json(Verification((Check("signature", True, "It holds"),))))
    show = pages.handler("show", "verified").fn
    about = About.of(str(report), None)
    assert "It holds" in show(job.id, None, request)
    assert "It holds" in show(job.id, replace(about, job=job.id), request)
    assert show(job.id, replace(about, job="another"), request) == gr.skip()
    assert show(job.id, about, request) == gr.skip(), "this one was answered without a task"
    assert changed(pages, str(report), None, replace(about, job=job.id)) == (gr.skip(), gr.skip())


REVIEW = ("B. Second", "", "read", "agrees", "")


@pytest.mark.slow
def test_review_is_signed_and_filed_in_the_case_of_the_report(pages: Pages, report: Path, tmp_path: Path) -> None:
    (case,) = pages.vault.cases()
    pages.vault.add_run(case.id, {}, "suspect", "found", files={"report.json": report.read_bytes()})
    about = told_by(pages.call("start-verify", "click", str(report), None, None, *NOTHING))
    out = pages.call("sign-review", "click", about, *REVIEW)
    assert told(out) == []
    assert "Leak of January" in value(out["review-done"])
    (_, run) = pages.vault.runs_of(case.id)
    assert (run.suspect, run.verdict, run.note) == ("report.json", "agrees", "Review by B. Second")
    (item,) = pages.vault.case_items(case.id)
    assert examiner_of(pages.vault, case.id) != "B. Second", "the next report is not by the reviewer"
    assert (item.name, item.note, item.added_by) == ("report.json", "Reviewed report", "B. Second")
    for name in ("review-html", "review-json", "review-signature"):
        shutil.copy(value(out[name])["path"], report.parent)
    path = report.parent / value(out["review-json"])["orig_name"]
    found = verify_report(path, identity=pages.vault.identity().first_public_key)
    assert {check.name: check.ok for check in found.checks}["reviewed"]
    assert [line.last for line in case_lines(pages.vault)] == ["found"], "a review is no verdict on a suspect"
    archive = zipfile.ZipFile(export_case(pages.vault, case.id, tmp_path / "case.zip"))
    graph = json.loads(archive.read("case.jsonld"))["@graph"]
    of_id = {node["@id"]: node for node in graph}
    (review,) = (node for node in graph if node.get("uco-core:name") == "Run 2" and "uco-action:performer" in node)
    assert of_id[review["uco-action:performer"]["@id"]]["uco-core:name"] == "B. Second"
    assert [of_id[each["@id"]]["uco-core:name"] for each in review["uco-action:object"]] == ["report.json"]
    said = pages.call("start-verify", "click", "", posted(report.parent), "", *NOTHING)["verified"]
    assert "is the reviewed report" in said, "both can be uploaded together"
    assert (
        "The reviewer agrees with the result" in pages.call("case-runs", "chosen", data={"record": run.id})["run-card"]
    )


def test_review_needs_a_verified_report_and_a_name(pages: Pages, report: Path) -> None:
    for about in (None, About.of(str(report), None)):
        out = pages.call("sign-review", "click", about, *REVIEW)
        assert told(out) == ["review-notice"]
        assert "Verify the report first" in value(out["review-notice"])
    checked = replace(About.of(str(report), None), sha256="ab" * 32)
    assert told(pages.call("sign-review", "click", checked, " ", *REVIEW[1:])) == ["review-name-notice"]
    assert not pages.vault.runs_of(pages.vault.cases()[0].id)


def test_report_that_changed_after_its_task_is_not_reviewed(pages: Pages, report: Path) -> None:
    jobs = pages.jobs
    job = jobs.create("verify", "Verify report.json", {"report": str(report)})
    jobs.start(job.id, os.getpid())
    sha256 = hashlib.sha256(report.read_bytes()).hexdigest()
    names = ("files", "numbers", "page", "examination", "controls")
    passed = Verification(tuple(Check(name, True, "It holds") for name in names))
    jobs.finish(job.id, "done", result=to_json(replace(passed, sha256=sha256)))
    about = replace(About.of(str(report), None), job=job.id)
    said = ("B. Second", "", "recomputed", "agrees", "")
    assert told(pages.call("sign-review", "click", about, *said)) == []
    report.write_bytes(report.read_bytes().replace(b"Leak of January", b"Leak of October"))
    out = pages.call("sign-review", "click", about, *said)
    assert "Verify it again" in value(out["review-notice"])
    shown = replace(About.of(str(report), None), sha256=sha256)
    out = pages.call("sign-review", "click", shown, *REVIEW)
    assert "Verify it again" in value(out["review-notice"]), "without a task too"


def told_by(out: dict[str, Any]) -> About:
    (told,) = [part for part in out.values() if isinstance(part, About)]
    return told


def changed(pages: Pages, *values: Any) -> Any:
    """The effect of another path or another upload, by the event of the upload."""
    return tuple(pages.call("report-files", "change", *values).values())
