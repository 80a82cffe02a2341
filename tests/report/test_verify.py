"""Every change of a report is detected and named; with the models and the key every number is computed again."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import SignatureError
from irwm.report import ReportError, dispute, to_json
from irwm.report.checks import KEY, LOG, ORIGINAL, SUSPECT
from irwm.report.signature_file import Signer, announced, sign_report
from irwm.report.verify import Verification, verify_report
from irwm.report.write import report_files, write_document
from irwm.signing import Signature, verify
from storage import Cost, Vault
from tests.report.conftest import Examined, failed, held
from tests.report.leaves import changed
from tests.report.signers import HEAD, SIGNED_UTC, Signatory, log_of, sign_alone

SIGNATURE = "report.signature.json"
FIRST = Signatory().first
PASSPHRASE, CHEAP = "four unrelated plain words", Cost(memory_kib=8, passes=1, lanes=1)
Change = Callable[[Path], object]


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


def alone(folder: Path, document: dict[str, Any], **brought: Any) -> Verification:
    """The result for a document without pages, which would show that it was altered."""
    (folder / "report.json").write_bytes(to_json(document))
    return verify_report(folder, **brought)


def sign_again(folder: Path, signatory: Signatory, head: str = HEAD) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != SIGNATURE}
    (folder / SIGNATURE).write_bytes(sign_report(files, signatory.signer(head)))


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Change:
    """A change of a file's bytes."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of a JSON file's values."""

    def edit(data: bytes) -> bytes:
        values = json.loads(data)
        change(values)
        return to_json(values)

    return rewritten(name, edit)


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def without_signature(folder: Path) -> None:
    """As if the report never was signed."""
    removed(SIGNATURE)(folder)
    edited("report.json", lambda d: d["status"].update(signed=False))(folder)


def swapped_p(folder: Path) -> None:
    """Both p are exchanged, and every file is drawn again; only the ranks give the true values."""
    document = json.loads((folder / "report.json").read_bytes())
    for part in (document["evaluation"], document["reading"]):
        part["log10_p"], part["log10_p_count"] = part["log10_p_count"], part["log10_p"]
    for name, data in report_files(document).items():
        (folder / name).write_bytes(data)


def other_title(page: bytes) -> bytes:
    """The page with a wrong number in the title of a figure."""
    before, name, after = page.partition(b'"figure-ranks":')
    return before + name + after.replace(b'"title":{"text":"', b'"title":{"text":"1', 1)


def flipped(data: bytes) -> bytes:
    """The bytes with one bit in the middle changed."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def json_of(content: bytes) -> Change:
    return rewritten("report.json", lambda _: content)


def pages_of(content: bytes) -> Change:
    return lambda folder: [(folder / f"report.{each}").write_bytes(content) for each in ("html", "pdf")]


SCHEMA = b'{"schema": {"name": "irwm-report", "version": %s'
# Each change with the checks that fail, and a part of what they say.
CHANGES: dict[str, tuple[Change, dict[str, str]]] = {
    "a number": (
        edited("report.json", lambda d: d["verdict"].update(count=49)),
        {"files": "report.json", "numbers": "verdict.count is 49 but should be 50", "page": "", "pdf": ""},
    ),
    "a swapped p": (swapped_p, {"files": "report.json", "numbers": "reading.log10_p_count is"}),
    "a part removed": (
        edited("report.json", lambda d: d.pop("limitations")),
        {"files": "report.json", "document": "limitations does not have"},
    ),
    "a figure": (rewritten("report.html", other_title), {"files": "report.html", "page": "figure-ranks"}),
    "a sentence": (
        rewritten("report.html", lambda page: page.replace(b"Northwind", b"Southwind", 1)),
        {"files": "report.html", "page": "Southwind"},
    ),
    "a byte of the PDF": (rewritten("report.pdf", flipped), {"files": "report.pdf", "pdf": ""}),
    "a hash in the signature": (
        edited(SIGNATURE, lambda s: s["files"].update({"report.pdf": "0" * 64})),
        {"files": "report.pdf", "signature": ""},
    ),
    "no JSON": (removed("report.json"), {"files": "report.json"}),
    "no page": (removed("report.html"), {"files": "report.html"}),
    "no PDF": (removed("report.pdf"), {"files": "report.pdf"}),
    "no signature": (removed(SIGNATURE), {"signature": SIGNATURE}),
    "never signed": (without_signature, {"numbers": "", "page": "", "pdf": ""}),
    "another log": (lambda folder: sign_again(folder, Signatory(), "cd" * 32), {"custody": ""}),
    "empty pages": (pages_of(b""), {"files": "report.html", "page": "", "pdf": ""}),
    "binary pages": (pages_of(b"\xff" * 1000), {"files": "report.html", "page": "", "pdf": ""}),
    "opened tags": (pages_of(b"<main>" * 50_000), {"files": "report.html", "page": "", "pdf": ""}),
    "the start of a PDF": (pages_of(b"%PDF-1.7"), {"files": "report.html", "page": "", "pdf": ""}),
    "an empty JSON": (json_of(b""), {"files": "report.json", "document": ""}),
    "JSON without a schema": (json_of(b"{}"), {"files": "report.json", "document": ""}),
    "nested lists": (json_of(b"[" * 200_000), {"files": "report.json", "document": ""}),
    "another version": (json_of(SCHEMA % b"99}}"), {"files": "report.json", "document": ""}),
    "a schema alone": (json_of(SCHEMA % b"22}}"), {"files": "report.json", "document": "does not have"}),
    "parts of other types": (
        json_of(SCHEMA % b'22}, "items": [], "status": 7, "reading": "x"}'),
        {"files": "report.json", "document": "does not have"},
    ),
    "a name twice": (
        rewritten("report.json", lambda data: data.replace(b'"seed":', b'"seed": 1,\n "seed":', 1)),
        {"files": "report.json", "document": "a duplicate name"},
    ),
    "other spaces": (
        rewritten("report.json", lambda data: json.dumps(json.loads(data)).encode()),
        {"files": "report.json", "document": "byte for byte, what this program writes"},
    ),
    "one more byte": (
        rewritten("report.json", lambda data: data + b"\n"),
        {"files": "report.json", "document": "byte for byte, what this program writes"},
    ),
    "a number spelled otherwise": (
        rewritten("report.json", lambda data: data.replace(b'"seed": 7', b'"seed": 7e0', 1)),
        {"files": "report.json", "document": "seed does not have"},
    ),
    "an infinite number": (
        rewritten("report.json", lambda data: data.replace(b'"seed": 7', b'"seed": 1e999', 1)),
        {"files": "report.json", "document": "seed does not have"},
    ),
}


@pytest.mark.fault(56)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_fails_the_checks_that_it_concerns(signed: Path, change: str) -> None:
    make, expected = CHANGES[change]
    make(signed)
    wrong = failed(verify_report(signed))
    assert wrong.keys() == expected.keys()
    assert {name: said for name, said in expected.items() if said not in wrong[name]} == {}


@pytest.mark.sweep
@pytest.mark.parametrize("ending", ["", ".json", ".html", ".pdf", ".signature.json"])
def test_any_file_of_a_report_or_their_folder_can_be_given(signed: Path, ending: str) -> None:
    outcome = verify_report(signed / f"report{ending}" if ending else signed, identity=FIRST)
    assert outcome.ok
    assert outcome.exit_code == 2  # only the report was given
    every = {"files", "document", "signature", "certificates", "identity", "custody", "numbers", "page", "pdf"}
    assert held(outcome) == every


def test_an_unsigned_report_is_reported_as_unsigned(unsigned: Path) -> None:
    outcome = verify_report(unsigned)
    assert outcome.ok
    unchecked = {check.name for check in outcome.checks if check.ok is None}
    assert unchecked == {"files", "signature", "choices", "examination"}
    assert "signature" in failed(verify_report(unsigned, identity=FIRST))


def test_a_signature_of_another_vault_is_named(signed: Path) -> None:
    """The signature is valid and covers the same files."""
    other = Signatory(seed=2)
    sign_again(signed, other)
    for identity in (None, FIRST):
        wrong = failed(verify_report(signed, identity=identity))
        assert set(wrong) == {"identity"}
        assert other.first in wrong["identity"]


def test_a_forgery_signed_by_another_vault_needs_the_published_key(found: Examined, tmp_path: Path) -> None:
    write_document(tmp_path / "forged", found.document, signer=Signatory(seed=2).signer())
    assert verify_report(tmp_path / "forged").ok
    assert set(failed(verify_report(tmp_path / "forged", identity=FIRST))) == {"identity"}


@pytest.mark.fault(56)
def test_a_certificate_removed_from_the_chain_is_named(signed: Path) -> None:
    signatory = Signatory()
    for _ in range(3):
        signatory.rotate()
    sign_again(signed, signatory)
    assert not failed(verify_report(signed, identity=FIRST))
    edited(SIGNATURE, lambda s: s["signature"]["certificates"].pop(1))(signed)
    assert set(failed(verify_report(signed, identity=FIRST))) == {"certificates"}
    edited(SIGNATURE, lambda s: s["signature"]["certificates"].clear())(signed)
    assert set(failed(verify_report(signed, identity=FIRST))) == {"identity"}


@pytest.mark.fault(58, 76)
def test_only_a_report_signed_by_the_expected_identity_passes(whole: Examined, tmp_path: Path) -> None:
    folder, log = tmp_path / "report", tmp_path / "audit-log.jsonl"
    log.write_bytes(log_of())
    write_document(folder, whole.document, signer=Signatory().signer())
    brought = {"suspect": whole.suspect, "original": whole.model, "key": whole.key, "audit_log": log}
    honest = verify_report(folder, identity=FIRST, **brought)
    assert honest.exit_code == 0, honest.result
    assert {SUSPECT, ORIGINAL, KEY, LOG, "examination", "controls", "choices"} <= held(honest)
    assert [check.name for check in honest.checks if not check.ok] == []
    assert not any(group.carries for group in honest.states.left)
    unknown = verify_report(folder, **brought)
    assert (unknown.ok, unknown.exit_code, len(unknown.open)) == (True, 2, 1)
    without = verify_report(folder, identity=FIRST)
    assert (without.exit_code, without.needed) == (2, (SUSPECT, ORIGINAL, KEY, LOG))
    assert verify_report(folder, identity="ab" * 32).exit_code == 1
    write_document(tmp_path / "plain", whole.document)
    unsigned = verify_report(tmp_path / "plain", **brought)
    assert (unsigned.ok, unsigned.exit_code, len(unsigned.open)) == (True, 2, 1)


@pytest.mark.fault(76)
@pytest.mark.parametrize("key", [
    "01" + "00" * 31,
    "00" * 32,
    "ec" + "ff" * 30 + "7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
    "01" + "00" * 30 + "80",
])  # fmt: skip
def test_signature_key_of_small_order_is_refused(key: str) -> None:
    """Under the neutral point, and the others of order 8 at most, a signature of zeros fits one message in eight."""
    for signature in ("01" + "00" * 63, "00" * 64, key + "00" * 32):
        for message in range(16):
            with pytest.raises(SignatureError):
                verify(bytes([message]), Signature(key, signature))


@pytest.mark.fault(57)
def test_a_report_reveals_an_audit_log_that_ends_before_it(found: Examined, tmp_path: Path) -> None:
    """Without it nothing shows that the vault is an older one, or that its log was cut together with its count."""
    vault = Vault.create(tmp_path / "home", PASSPHRASE, cost=CHEAP)
    shutil.copytree(vault.home, tmp_path / "older")
    signer = Signer(vault.sign, vault.identity().first_public_key, SIGNED_UTC, vault.audit_head, vault.audit_count)
    head = announced(found.document, signer)["status"]["custody"]["audit_head"]
    vault.sign(b"the report")
    assert vault.verify_audit(head).ok
    shutil.copytree(vault.home, tmp_path / "cut")
    with closing(sqlite3.connect(tmp_path / "cut" / "vault.sqlite3")) as opened, opened:
        opened.execute("DELETE FROM audit WHERE seq > 1")
        opened.execute("UPDATE audit_state SET count = 1")
    assert Vault.open(tmp_path / "older").verify_audit().ok
    for name in ("older", "cut"):
        assert not Vault.open(tmp_path / name).verify_audit(head).ok


@pytest.mark.fault(59)
def test_reports_signed_by_a_clock_that_jumps_are_valid_and_ordered_by_the_log(found: Examined, tmp_path: Path) -> None:
    clock = [datetime(2026, 3, 1, tzinfo=UTC)]
    vault = Vault.create(tmp_path / "home", PASSPHRASE, cost=CHEAP, now=lambda: clock[0])
    first = vault.identity().first_public_key
    for year in (2099, 1971, 2026):
        clock[0] = datetime(year, 1, 1, 1, tzinfo=timezone(timedelta(hours=13)))  # in UTC still the year before
        time = clock[0].astimezone(UTC).isoformat()
        signer = Signer(vault.sign, first, time, vault.audit_head, vault.audit_count)
        outcome = verify_report(sign_alone(tmp_path / str(year), found.document, signer), identity=first)
        assert failed(outcome) == {}
        assert "signature" in held(outcome)
    entries = vault.audit_log()
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.time[:4] for entry in entries[-3:]] == ["2098", "1970", "2025"]
    assert all(entry.time.endswith("Z") for entry in entries)


@pytest.mark.fault(66)
@pytest.mark.parametrize(
    "opened", ["<script", "<script>", '<script type="application/json" id="figure-data">', "<", "</"]
)
def test_a_page_of_opened_tags_is_compared_in_one_pass(unsigned: Path, opened: str) -> None:
    """A search that goes back over the page for each tag hangs here: its steps grow with the square of the size."""
    (unsigned / "report.html").write_text(opened * ((8 << 20) // len(opened)), encoding="utf-8")
    assert "page" in failed(verify_report(unsigned))


def test_number_that_only_the_models_disprove_is_named(found: Examined, tmp_path: Path) -> None:
    """A false length of rows: no other value in the document follows from it."""
    document = changed(found.document, ("alignment", "row_scale"), 0.75)
    assert alone(tmp_path, document).ok
    wrong = failed(alone(tmp_path, document, suspect=found.suspect, original=found.model, key=found.key))
    assert set(wrong) == {"examination"}
    assert "alignment.row_scale: recorded 0.75" in wrong["examination"]


def test_different_key_and_suspect_are_named(signed: Path, found: Examined, world: dict[str, Any]) -> None:
    wrong = failed(verify_report(signed, world["trimmed"], found.model, world["other"]))
    assert set(wrong) == {"suspect", "key", "examination"}
    assert "items.suspect.fingerprint" in wrong["examination"]


@pytest.mark.fault(58)
@pytest.mark.parametrize("name", ["model.safetensors", "SHA256SUMS"])
def test_a_release_changed_after_the_report_is_named_by_file(signed: Path, found: Examined, tmp_path, name) -> None:
    copied = shutil.copytree(found.suspect.path, tmp_path / "copied")
    rewritten(name, flipped)(copied)
    wrong = failed(verify_report(signed, suspect=copied))
    assert set(wrong) == {"suspect"}
    assert name in wrong["suspect"]


def test_retrained_original_is_named_without_a_file_hash(signed: Path, found: Examined, tmp_path: Path) -> None:
    copied = shutil.copytree(found.model.path, tmp_path / "copied")
    tensors = load_file(copied / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 3] += 1
    save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    assert set(failed(verify_report(signed, original=irwm.open_checkpoint(copied)))) == {"original"}


def test_a_missing_report_could_not_be_checked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path / "nothing.json", tmp_path / "empty", tmp_path / "notes.txt"):
        outcome = verify_report(path)
        assert outcome.exit_code == 2
        assert [check.ok for check in outcome.checks] == [None]


def test_of_two_reports_in_a_folder_one_must_be_named(signed: Path) -> None:
    shutil.copy(signed / "report.json", signed / "other.json")
    outcome = verify_report(signed)
    assert outcome.exit_code == 2
    assert "other; report" in outcome.checks[0].said
    assert verify_report(signed / "report.json").ok


def test_a_model_that_cannot_be_opened_is_reported_and_does_not_pass(unsigned: Path, tmp_path: Path) -> None:
    outcome = verify_report(unsigned, suspect=tmp_path / "\u202egone")
    assert outcome.exit_code == 2
    said = {check.name: check.said for check in outcome.checks}["suspect"]
    assert "\u202e" not in said


def test_a_report_drawn_by_another_version_stays_open(unsigned: Path, found: Examined) -> None:
    outcome = alone(unsigned, changed(found.document, ("versions", "irwm"), "0.0.9"))
    checks = {check.name: check for check in outcome.checks}
    assert checks["page"].ok is checks["pdf"].ok is None
    assert "0.0.9" in checks["page"].said
    assert outcome.exit_code == 2  # a page that was not compared may say anything, so it does not pass


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
def test_a_document_whose_numbers_cannot_be_computed_fails(found: Examined, tmp_path: Path, path, value) -> None:
    assert alone(tmp_path, found.document).ok
    outcome = alone(tmp_path, changed(found.document, path, value))
    assert set(failed(outcome)) in ({"document"}, {"numbers"})
    assert outcome.exit_code == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("recipient", "Southwind"), ("owner", "Someone"), ("scale", 0.5), ("model_fingerprint", "ab" * 32)],
)
def test_names_that_differ_from_the_key_are_found_with_the_opened_key(found, tmp_path, name: str, value) -> None:
    outcome = alone(tmp_path, changed(found.document, ("key", name), value), key=found.key)
    assert f"its {name.replace('_', ' ')} is" in failed(outcome)["key"]


@pytest.mark.parametrize("more", [b'"seed": NaN', b'"seed": 1, "seed": 1', b'"schema": {}'])
def test_ambiguous_dispute_is_refused(more: bytes) -> None:
    with pytest.raises(ReportError, match="not a dispute’s JSON file"):
        dispute.from_json(b'{"schema": {"name": "irwm-dispute", "version": 1}, "outcome": {}, %s}' % more)
