"""The timestamp inside a report: what it proves with and without a root, and that alterations are found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from irwm.__main__ import main
from irwm.ownership import Commitment
from irwm.ownership.key_search import standing
from irwm.ownership.timestamp import request
from irwm.report import ReportError, from_json, to_json, wording
from irwm.report.stamps import StampedCommitment, _lines, contradictions
from irwm.report.verify import Verification, verify_report
from tests.ownership.authority import Authority, make_authority
from tests.report.conftest import SEEN, Examined, dated, examine, stamped
from tests.report.leaves import changed
from tests.report.signers import Signatory, sign_alone


@pytest.fixture(scope="module")
def document(world: dict[str, Any], found: Examined, authority: Authority) -> dict[str, Any]:
    return from_json(to_json(examine(world, "copy", **dated(authority, found.key)).document))


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority, of the same name."""
    return make_authority(tmp_path_factory.mktemp("other_authority") / "tsa")


def verified(folder: Path, *roots: bytes) -> Verification:
    return verify_report(folder, identity=Signatory().first, roots_pem=b"\n".join(roots) or None)


def answer(outcome: Verification) -> tuple[bool | None, str]:
    return next((check.ok, check.said) for check in outcome.checks if check.name == "timestamp")


def with_stamp(document: dict[str, Any], section: dict[str, Any], at: str | None = None) -> dict[str, Any]:
    """The document with another stamp, and all values that follow from it, as by a careful forger."""
    forged = copy.deepcopy(document)
    forged["time_stamp"] = section
    time = at or section["time_utc"]
    stands = standing(forged["evaluation"]["log10_risk"], time, SEEN)
    sentence = wording.standing_sentence(stands, section["authority"], forged["verdict"]["word"])
    forged["standing"] |= {"committed_utc": time, "authority": section["authority"], "sentence": sentence}
    return forged


def test_a_date_proven_under_a_root_that_the_reader_trusts_holds(
    document: dict[str, Any], authority: Authority, other_authority: Authority, tmp_path: Path
) -> None:
    outcome = verified(sign_alone(tmp_path / "r", document), other_authority.root, authority.root)
    assert outcome.ok
    assert "root" not in outcome.needed
    ok, said = answer(outcome)
    assert ok
    assert document["standing"]["committed_utc"] in said


def test_without_a_root_the_authority_is_reported_as_unknown(document: dict[str, Any], tmp_path: Path) -> None:
    outcome = verified(sign_alone(tmp_path / "r", document))
    ok, said = answer(outcome)
    assert ok is None
    assert document["standing"]["committed_utc"] in said
    assert (outcome.ok, outcome.exit_code) == (True, 2)
    assert {"root", "seen"} <= set(outcome.needed)


def test_authority_with_the_same_name_is_not_trusted(
    document: dict[str, Any], other_authority: Authority, tmp_path: Path
) -> None:
    outcome = verified(sign_alone(tmp_path / "r", document), other_authority.root)
    assert outcome.exit_code == 1
    assert answer(outcome)[0] is False


def test_a_root_for_a_report_without_a_time_stamp_proves_nothing(
    found: Examined, authority: Authority, tmp_path: Path
) -> None:
    outcome = verified(sign_alone(tmp_path / "r", found.document), authority.root)
    assert outcome.exit_code == 2
    assert answer(outcome)[0] is None
    assert all(check.name != "timestamp" for check in verified(tmp_path / "r").checks)
    assert verified(tmp_path / "r").ok


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        (("time_stamp", "time_utc"), "2020-01-01T00:00:00Z", "timestamp"),
        (("time_stamp", "authority"), "CN=Someone", "timestamp"),
        (("standing", "committed_utc"), "2020-01-01T00:00:00Z", "numbers"),
        (("time_stamp",), None, "numbers"),
        (("key", "owner"), "Someone", "timestamp"),
        (("parameters", "condition_limit"), 31.0, "timestamp"),
    ],
)
def test_a_report_that_contradicts_its_stamp_fails(
    document: dict[str, Any], authority: Authority, tmp_path: Path, place: tuple[str, ...], value: Any, line: str
) -> None:
    outcome = verified(sign_alone(tmp_path / "r", changed(document, place, value)), authority.root)
    assert outcome.exit_code == 1
    assert next(check.ok for check in outcome.checks if check.name == line) is False


def test_a_stamp_of_another_key_is_refused(
    document: dict[str, Any], world: dict[str, Any], authority: Authority
) -> None:
    wrong = contradictions(with_stamp(document, stamped(authority, world["other"]).section()))
    assert "key.commitment" in {each.where for each in wrong}


def test_a_stamp_that_answers_another_request_is_refused(document: dict[str, Any]) -> None:
    files = StampedCommitment.of(document["time_stamp"])
    digest = Commitment.from_bytes(files.commitment).digest
    other = StampedCommitment(files.commitment, request(digest, nonce=1), files.response)
    forged = changed(document, ("time_stamp", "request"), _lines(other.request))
    with pytest.raises(ReportError):
        contradictions(forged)


def altered(document: dict[str, Any], name: str, at: int) -> dict[str, Any]:
    """The document with one bit of one byte of a stamp's file altered."""
    data = bytearray(getattr(StampedCommitment.of(document["time_stamp"]), name))
    data[at] ^= 1 << at % 8
    return {**document, "time_stamp": document["time_stamp"] | {name: _lines(bytes(data))}}


def noticed(document: dict[str, Any]) -> bool:
    try:
        return bool(contradictions(document))
    except ReportError:
        return True


@pytest.mark.parametrize("step", [50, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["commitment", "request", "response"])
def test_every_altered_byte_is_noticed(document: dict[str, Any], name: str, step: int) -> None:
    size = len(getattr(StampedCommitment.of(document["time_stamp"]), name))
    assert [at for at in range(0, size, step) if not noticed(altered(document, name, at))] == []


@pytest.mark.parametrize(
    "respell",
    [
        lambda lines: ["".join(lines)],
        lambda lines: [*lines, ""],
        lambda lines: [line + "\n" for line in lines],
        lambda lines: ["A" * 76] * 1_000_000,
        lambda lines: "".join(lines),
        lambda lines: [1, 2],
        lambda lines: None,
    ],
)
def test_non_canonical_base64_of_a_stamp_is_refused(
    document: dict[str, Any], respell: Callable[[list[str]], Any]
) -> None:
    response = respell(document["time_stamp"]["response"])
    forged = {**document, "time_stamp": document["time_stamp"] | {"response": response}}
    with pytest.raises(ReportError):
        contradictions(forged)


@pytest.mark.slow
def test_the_command_takes_roots_as_pem_and_as_der(
    document: dict[str, Any],
    authority: Authority,
    other_authority: Authority,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = sign_alone(tmp_path / "r", document)
    (tmp_path / "one.pem").write_bytes(other_authority.root)
    (tmp_path / "two.cer").write_bytes(x509.load_pem_x509_certificate(authority.root).public_bytes(Encoding.DER))
    roots = ["--tsa-root", tmp_path / "one.pem", "--tsa-root", tmp_path / "two.cer"]
    command = ["verify", folder, "--identity", Signatory().first, *roots]
    assert main(list(map(str, command))) == 2
    said = capsys.readouterr().out
    assert "holds        timestamp:" in said
    assert "--tsa-root" not in said


@pytest.mark.parametrize("content", [b"", b"not a certificate", b"-----BEGIN CERTIFICATE-----\n"])
def test_file_without_certificates_is_refused_as_root(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root.pem").write_bytes(content)
    assert main(["verify", str(tmp_path), "--tsa-root", str(tmp_path / "root.pem")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
