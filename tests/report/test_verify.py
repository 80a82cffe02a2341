"""Every change of a report is detected and named."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.report import ReportError, dispute, from_json, to_json
from irwm.report.consistency import contradictions
from irwm.report.signature_file import announced, sign_report
from irwm.report.states import text_of
from irwm.report.verify import Verification, verify_report
from irwm.report.write import report_files, write_document
from tests.report.conftest import Examined
from tests.report.leaves import changed
from tests.report.signers import ENTRIES, HEAD, SIGNED_UTC, Signatory


@pytest.fixture(scope="session")
def signed_once(found: Examined, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    signatory = Signatory()
    signatory.rotate()
    write_document(folder, found.document, signer=signatory.signer())
    return folder


@pytest.fixture
def signed(signed_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(signed_once, tmp_path / "signed")


@pytest.fixture(scope="session")
def unsigned_once(found: Examined, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unsigned")
    write_document(folder, found.document)
    return folder


@pytest.fixture
def unsigned(unsigned_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unsigned_once, tmp_path / "unsigned")


def failed(outcome: Verification) -> dict[str, str]:
    return {check.name: check.said for check in outcome.checks if check.ok is False}


def held(outcome: Verification) -> set[str]:
    return {check.name for check in outcome.checks if check.ok}


def edit(path: Path, change: Callable[[dict], None]) -> None:
    values = json.loads(path.read_bytes())
    change(values)
    path.write_bytes(to_json(values))


def sign_again(folder: Path, signatory: Signatory) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if ".signature" not in path.name}
    (folder / "report.signature.json").write_bytes(sign_report(files, signatory.sign, SIGNED_UTC, HEAD, ENTRIES))


def test_an_unchanged_signed_report_holds(signed):
    outcome = verify_report(signed, identity=Signatory().first)
    assert outcome.ok
    assert outcome.exit_code == 2  # only the report was given
    every = {"files", "document", "signature", "certificates", "identity", "custody", "numbers", "page", "pdf"}
    assert held(outcome) == every


@pytest.mark.sweep
@pytest.mark.parametrize("ending", [".json", ".html", ".pdf", ".signature.json"])
def test_any_file_of_a_report_can_be_given(signed, ending):
    outcome = verify_report(signed / f"report{ending}")
    assert outcome.ok
    assert "signature" in held(outcome)


def test_an_unsigned_report_is_reported_as_unsigned(unsigned):
    outcome = verify_report(unsigned)
    assert outcome.ok
    assert {c.name: c.ok for c in outcome.checks if c.ok is None}.keys() == {
        "files",
        "signature",
        "choices",
        "examination",
    }
    assert "signature" in failed(verify_report(unsigned, identity=Signatory().first))


@pytest.mark.fault(56)
def test_a_number_changed_in_the_json_is_named(signed):
    edit(signed / "report.json", lambda d: d["verdict"].update(count=49))
    wrong = failed(verify_report(signed))
    assert "report.json is not the file that was signed" in wrong["files"]
    assert "verdict.count is 49, should be 50" in wrong["numbers"]
    assert "reads “" in wrong["page"]
    assert "pdf" in wrong


@pytest.mark.fault(56)
def test_a_swapped_p_is_named_without_any_signature(unsigned):
    """Both p, their floor and the risk are changed consistently; the ranks still give the true values."""

    def swap(document: dict) -> None:
        e, r = document["evaluation"], document["reading"]
        e["log10_p"], e["log10_p_count"] = e["log10_p_count"], e["log10_p"]
        r["log10_p"], r["log10_p_count"] = r["log10_p_count"], r["log10_p"]

    document = from_json((unsigned / "report.json").read_bytes())
    swap(document)
    for name, data in report_files(document).items():  # and every file is drawn again
        (unsigned / name).write_bytes(data)
    wrong = failed(verify_report(unsigned))
    assert set(wrong) == {"numbers"}
    assert "reading.log10_p is" in wrong["numbers"]
    assert "reading.log10_p_count is" in wrong["numbers"]


def test_a_figure_changed_in_the_html_is_named(signed):
    page = signed / "report.html"
    text = page.read_text(encoding="utf-8")
    start = text.index('"figure-ranks":')
    at = text.index('"title":{"text":"', start) + len('"title":{"text":"')
    page.write_text(text[:at] + "1" + text[at:], encoding="utf-8")  # "50 of 50 positions rank below" more
    wrong = failed(verify_report(signed))
    assert set(wrong) == {"files", "page"}
    assert "report.html is not the file that was signed" in wrong["files"]
    assert "other numbers in figure-ranks" in wrong["page"]


def test_a_sentence_changed_in_the_html_is_quoted_both_ways(unsigned):
    page = unsigned / "report.html"
    page.write_text(page.read_text(encoding="utf-8").replace("Northwind", "Southwind", 1), encoding="utf-8")
    wrong = failed(verify_report(unsigned))
    assert set(wrong) == {"page"}
    assert "Southwind" in wrong["page"]
    assert "Northwind" in wrong["page"]


@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
def test_a_byte_changed_in_the_pdf_is_found(signed, place):
    pdf = bytearray((signed / "report.pdf").read_bytes())
    at = int(place * len(pdf))
    pdf[at] ^= 1
    (signed / "report.pdf").write_bytes(bytes(pdf))
    wrong = failed(verify_report(signed))
    assert set(wrong) == {"files", "pdf"}
    assert f"first at byte {at + 1:,}" in wrong["pdf"]


@pytest.mark.parametrize("name", ["report.json", "report.html", "report.pdf"])
def test_a_removed_file_is_named(signed, name):
    (signed / name).unlink()
    wrong = failed(verify_report(signed))
    assert f"{name}, which was signed, is not there" in wrong["files"]


@pytest.mark.fault(56)
def test_a_removed_signature_is_noticed(signed):
    (signed / "report.signature.json").unlink()
    wrong = failed(verify_report(signed))
    assert set(wrong) == {"signature"}
    assert "says that it is signed, but report.signature.json is not there" in wrong["signature"]
    edit(signed / "report.json", lambda d: d["status"].update(signed=False))  # as if it never was signed
    assert "page" in failed(verify_report(signed))


def test_a_signature_of_another_vault_is_named(signed):
    """The signature is valid and covers the same files."""
    sign_again(signed, Signatory(seed=2))
    for identity in (None, Signatory().first):
        wrong = failed(verify_report(signed, identity=identity))
        assert set(wrong) == {"identity"}
        assert Signatory(seed=2).first in wrong["identity"]


def test_a_forgery_signed_by_another_vault_needs_the_published_key(signed, found, tmp_path):
    write_document(tmp_path / "forged", found.document, signer=Signatory(seed=2).signer())
    assert verify_report(tmp_path / "forged").ok
    assert set(failed(verify_report(tmp_path / "forged", identity=Signatory().first))) == {"identity"}


@pytest.mark.fault(56)
def test_a_certificate_removed_from_the_chain_is_named(signed):
    signatory = Signatory()
    for _ in range(3):
        signatory.rotate()
    sign_again(signed, signatory)
    assert not failed(verify_report(signed, identity=Signatory().first))
    path = signed / "report.signature.json"
    edit(path, lambda s: s["signature"]["certificates"].pop(1))
    wrong = failed(verify_report(signed, identity=Signatory().first))
    assert set(wrong) == {"certificates"}
    edit(path, lambda s: s["signature"]["certificates"].clear())
    wrong = failed(verify_report(signed, identity=Signatory().first))
    assert set(wrong) == {"identity"}


def test_a_hash_changed_in_the_signature_is_a_broken_signature(signed):
    edit(signed / "report.signature.json", lambda s: s["files"].update({"report.pdf": "0" * 64}))
    assert {"signature", "files"} <= set(failed(verify_report(signed)))


def test_the_report_of_another_log_is_found(signed):
    files = {path.name: path.read_bytes() for path in signed.iterdir() if ".signature" not in path.name}
    again = sign_report(files, Signatory().sign, SIGNED_UTC, "cd" * 32, ENTRIES)
    (signed / "report.signature.json").write_bytes(again)
    assert set(failed(verify_report(signed))) == {"custody"}


def test_models_and_opened_key_reproduce_every_number(whole, tmp_path):
    write_document(tmp_path, whole.document, signer=Signatory().signer())
    outcome = verify_report(tmp_path, whole.suspect.path, whole.model.path, whole.key)
    assert outcome.ok
    assert {"suspect", "original", "key", "examination", "controls", "choices"} <= held(outcome)


def test_number_that_only_the_models_disprove_is_named(unsigned, found):
    """A false length of rows: no other value in the document follows from it, and every file is drawn again."""
    document = changed(found.document, ("alignment", "row_scale"), 0.75)
    for name, data in report_files(document).items():
        (unsigned / name).write_bytes(data)
    assert verify_report(unsigned).ok
    wrong = failed(verify_report(unsigned, found.suspect, found.model, found.key))
    assert set(wrong) == {"examination"}
    assert "alignment.row_scale: recorded 0.75" in wrong["examination"]


def test_different_key_and_suspect_are_named(signed, found, world):
    wrong = failed(verify_report(signed, world["trimmed"], found.model, world["other"]))
    assert set(wrong) == {"suspect", "key", "examination"}
    assert "items.suspect.fingerprint" in wrong["examination"]


@pytest.mark.fault(58)
def test_a_model_byte_changed_after_the_report_names_the_file(signed, found, tmp_path):
    copied = shutil.copytree(found.suspect.path, tmp_path / "copied")
    file = copied / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    wrong = failed(verify_report(signed, suspect=copied))
    assert set(wrong) == {"suspect"}
    assert "model.safetensors is not the file examined: its SHA-256 differs" in wrong["suspect"]
    assert "model.safetensors does not match SHA256SUMS" in wrong["suspect"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_settings_that_were_changed_or_added_after_the_report_are_named(signed, found, tmp_path, name):
    """Settings say which tensor and which row is which; an extra space would not change how they are read."""
    copied = shutil.copytree(found.model.path, tmp_path / "copied")
    file = copied / name
    file.write_text((file.read_text() if file.exists() else "{}") + " ")
    wrong = failed(verify_report(signed, original=copied))
    assert set(wrong) == {"original"}
    known = "is not the file examined" if name == "config.json" else "was not there when it was examined"
    assert f"{name} {known}" in wrong["original"]


def test_a_release_whose_manifest_was_changed_is_named(signed, found, tmp_path):
    copied = shutil.copytree(found.suspect.path, tmp_path / "copied")
    manifest = copied / "SHA256SUMS"
    manifest.write_text(manifest.read_text().replace("model.safetensors", "model.safetensors", 1).replace("a", "b", 1))
    wrong = failed(verify_report(signed, suspect=copied))
    assert "SHA256SUMS" in wrong["suspect"]


def test_retrained_original_is_named_without_a_file_hash(signed, found, tmp_path):
    copied = shutil.copytree(found.model.path, tmp_path / "copied")
    tensors = load_file(copied / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 3] += 1
    save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    wrong = failed(verify_report(signed, original=irwm.open_checkpoint(copied)))
    assert "the embedding is not the one examined" in wrong["original"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "document"),
        (b"{}", "document"),
        (b"[" * 200_000, "document"),
        (b'{"schema": {"name": "irwm-report", "version": 99}}', "document"),
        (b'{"schema": {"name": "irwm-report", "version": 12}}', "numbers"),
        (b'{"schema": {"name": "irwm-report", "version": 12}, "items": [], "status": 7, "reading": "x"}', "page"),
    ],
)
def test_an_invalid_json_is_a_failed_check_and_no_exception(signed, content, name):
    (signed / "report.json").write_bytes(content)
    outcome = verify_report(signed)
    assert not outcome.ok
    checks = {check.name: check for check in outcome.checks}
    assert checks[name].ok is not True
    assert checks["files"].ok is False


@pytest.mark.parametrize("content", [b"", b"\xff" * 1000, b"<main>" * 50_000, b"%PDF-1.7"])
def test_invalid_pages_are_failed_checks(signed, content):
    for name in ("report.html", "report.pdf"):
        (signed / name).write_bytes(content)
    assert {"files", "page", "pdf"} <= set(failed(verify_report(signed)))


def test_a_missing_report_could_not_be_checked(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path / "nothing.json", tmp_path / "empty", tmp_path / "notes.txt"):
        outcome = verify_report(path)
        assert outcome.exit_code == 2
        assert [check.ok for check in outcome.checks] == [None]


def test_of_two_reports_in_a_folder_one_must_be_named(signed):
    shutil.copy(signed / "report.json", signed / "other.json")
    outcome = verify_report(signed)
    assert outcome.exit_code == 2
    assert "other; report" in outcome.checks[0].said
    assert verify_report(signed / "report.json").ok


def test_a_model_that_cannot_be_opened_is_reported_and_does_not_pass(signed, tmp_path):
    outcome = verify_report(signed, suspect=tmp_path / "\u202egone")
    assert outcome.exit_code == 2
    said = {check.name: check.said for check in outcome.checks}["suspect"]
    assert "\u202e" not in said


def test_a_report_drawn_by_another_version_stays_open(unsigned, found):
    document = changed(found.document, ("versions", "irwm"), "0.0.9")
    (unsigned / "report.json").write_bytes(to_json(document))
    outcome = verify_report(unsigned)
    checks = {check.name: check for check in outcome.checks}
    assert checks["page"].ok is checks["pdf"].ok is None
    assert "0.0.9" in checks["page"].said
    assert outcome.exit_code == 2  # a page that was not compared may say anything, so it does not pass


def alone(folder: Path, document: dict) -> Verification:
    """A document alone, as a forger would send it: signed, without pages that would reveal the forgery."""
    folder.mkdir()
    signer = Signatory(seed=2).signer()
    files = {"report.json": to_json(announced(document, signer))}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    sign_again(folder, Signatory(seed=2))
    return verify_report(folder, identity=Signatory(seed=2).first)


def test_a_document_without_pages_holds(found, tmp_path):
    outcome = alone(tmp_path / "report", found.document)
    assert outcome.ok
    assert outcome.open == ("its verdict depends on values that only the signer states",)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("parameters", "more"), 1),
        (("reading", "positions", 0, "rank"), 2.0),
        (("reading", "positions", 0, "rank"), "0.1"),
        (("reading", "positions"), []),
        (("evaluation", "keys_tried"), 0),
        (("odds",), {}),
        (("error_rates",), {"decoys": {"number": 0}}),
        (("standing", "committed_utc"), "yesterday"),
    ],
)
def test_a_document_whose_numbers_cannot_be_computed_fails(found, tmp_path, path, value):
    outcome = alone(tmp_path / "report", changed(found.document, path, value))
    assert set(failed(outcome)) == {"numbers"}
    assert outcome.exit_code == 1


def test_a_document_that_cannot_be_drawn_fails(unsigned, found):
    document = copy.deepcopy(found.document)
    del document["limitations"]
    (unsigned / "report.json").write_bytes(to_json(document))
    wrong = failed(verify_report(unsigned))
    assert set(wrong) == {"numbers", "page", "pdf"}
    assert "does not have the form of a report" in wrong["page"]


@pytest.mark.parametrize("more", [b'"seed": NaN', b'"seed": 1, "seed": 1', b'"schema": {}'])
def test_ambiguous_dispute_is_refused(more):
    with pytest.raises(ReportError, match="not a dispute"):
        dispute.from_json(b'{"schema": {"name": "irwm-dispute", "version": 1}, "outcome": {}, %s}' % more)


def test_a_duplicate_name_in_json_is_refused(unsigned):
    path = unsigned / "report.json"
    path.write_bytes(path.read_bytes().replace(b'"seed":', b'"seed": 1,\n "seed":', 1))
    assert "the same name twice" in failed(verify_report(unsigned))["document"]


@pytest.mark.sweep
@pytest.mark.parametrize(
    "respell",
    [
        lambda data: json.dumps(json.loads(data)).encode(),
        lambda data: data + b"\n",
        lambda data: data.replace(b'"seed": 7', b'"seed": 7e0', 1),
        lambda data: data.replace(b'"seed": 7', b'"seed": 1e999', 1),
    ],
)
def test_another_encoding_of_the_same_document_is_named(unsigned, respell):
    path = unsigned / "report.json"
    path.write_bytes(respell(path.read_bytes()))
    assert "not byte for byte as this program writes it" in failed(verify_report(unsigned))["document"]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("recipient", "Southwind", "its recipient is Northwind, the report says Southwind"),
        ("owner", "Someone", "its owner is Acme Labs"),
        ("scale", 0.5, "its scale is"),
        ("model_fingerprint", "ab" * 32, "its model fingerprint is"),
    ],
)
def test_names_that_differ_from_the_key_are_found_with_the_opened_key(unsigned, found, name, value, words):
    (unsigned / "report.json").write_bytes(to_json(changed(found.document, ("key", name), value)))
    assert words in failed(verify_report(unsigned, key=found.key))["key"]


def test_the_numbers_of_an_honest_report_agree(any_case):
    assert contradictions(from_json(to_json(any_case.document))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("reading", "positions", 3, "rank"), 0.25),
        (("reading", "positions", 3, "rank"), 0.0015),
        (("reading", "positions", 3, "counts"), False),
        (("reading", "positions", 3, "observed"), 1e9),
        (("reading", "log10_p"), -20.0),
        (("paper", "log10_p_count"), -1.0),
        (("evaluation", "log10_risk"), -99.0),
        (("evaluation", "log10_p_floor"), -999.0),
        (("evaluation", "keys_tried"), 1),
        (("evaluation", "found_at_log10_risk"), -1.0),
        (("odds", "log10_wrong_user"), -50.0),
        (("verdict", "word"), "not found"),
        (("verdict", "required"), 1),
        (("parameters", "rank_threshold"), 0.45),
        (("evaluation", "keys_tried"), 1e-60),
    ],
)
def test_inconsistent_number_is_named(found, path, value):
    wrong = {each.where for each in contradictions(changed(found.document, path, value))}
    assert wrong
    if path[0] != "parameters" and path[-1] != "keys_tried":
        assert text_of(path) in wrong or path[-1] == "word"


def test_a_report_with_forbidden_parameters_is_refused(found):
    with pytest.raises(ReportError, match="rank_threshold is out of range"):
        contradictions(changed(found.document, ("parameters", "rank_threshold"), 0.9))
