"""The timestamp of a key's commitment inside a document: its unchanged files, and what they prove without a network.

    {"time_utc", "authority", "policy", "serial", "accuracy_s", "sha256": of the response,
     "commitment", "request", "response": base64 of the files, in lines}

The commitment is the document that was stamped (`irwm.ownership.Commitment`), request and response are DER (RFC 3161).
The response holds the certificate that signed it, and the intermediate certificates that the authority sent along.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.files import read_small
from irwm.errors import printable
from irwm.ownership.commitment import MAX_BYTES, Commitment
from irwm.ownership.timestamp import (
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    MAX_ROOTS_BYTES,
    Timestamp,
    read_response,
    root_certificates,
)
from irwm.report import schema
from irwm.report.checks import TIME_STAMP, Check, listed
from irwm.report.claims import Claim, contradicted, each
from irwm.report.document import ReportError
from irwm.report.reproduction import Difference, should_be
from irwm.report.structure import plain

_LINE = 76
_MOST = {"commitment": MAX_BYTES, "request": MAX_REQUEST_BYTES, "response": MAX_RESPONSE_BYTES}
# The fields of a report's key and original that the commitment repeats.
_OF_KEY, _OF_ORIGINAL = ("commitment", "owner", "model_fingerprint"), ("vocab_size", "hidden_size")


@dataclass(frozen=True, slots=True)
class StampedCommitment:
    """The files of one timestamp: the commitment's document, and request and response of an authority (DER)."""

    commitment: bytes
    request: bytes
    response: bytes

    @classmethod
    def of(cls, section: schema.TimeStamp) -> StampedCommitment:
        """The files in a document's section.

        Raises:
            ReportError: a part is not canonical base64, or is too large.
        """
        files = section["commitment"], section["request"], section["response"]
        return cls(*(_decoded(name, lines) for name, lines in zip(_MOST, files, strict=True)))

    def read(self, roots_pem: bytes | None = None) -> Timestamp:
        """The timestamp that the files prove.

        Raises:
            CommitmentError, TimestampError: they are no commitment, or prove nothing about it.
        """
        digest = Commitment.from_bytes(self.commitment).digest
        return read_response(self.request, self.response, digest, roots_pem)

    def section(self) -> schema.TimeStamp:
        """The section of a document.

        Raises:
            CommitmentError, TimestampError: as `read`.
        """
        stamp = self.read()
        return {
            "time_utc": stamp.time_utc,
            "authority": stamp.authority,
            "policy": stamp.policy,
            "serial": f"{stamp.serial:x}",
            "accuracy_s": stamp.accuracy_s,
            "sha256": hashlib.sha256(self.response).hexdigest(),
            "commitment": _lines(self.commitment),
            "request": _lines(self.request),
            "response": _lines(self.response),
        }


def contradictions(document: schema.Report, assigned: set[str] | None = None) -> list[Difference]:
    """Where a report contradicts the files of its timestamp; empty if it holds no timestamp.

    Raises:
        ReportError: the files cannot be read, or prove nothing about the commitment.
    """
    if document["time_stamp"] is None:
        return []
    original, key = document["items"]["original"], document["key"]
    said_of: dict[str, object] = {f"key.{name}": value for name, value in key.items() if name in _OF_KEY}
    said_of |= {f"items.original.{name}": value for name, value in original.items() if name in _OF_ORIGINAL}
    claims = _claims("time_stamp", document["time_stamp"], said_of, document["parameters"], "parameters")
    return contradicted(claims, "the timestamp proves nothing", assigned)


def contradictions_of_claims(document: schema.Dispute, assigned: set[str] | None = None) -> list[Difference]:
    """The same for every claim of a dispute."""
    found: list[Difference] = []
    for i, claim in enumerate(document["claims"]):
        if claim["time_stamp"] is not None:
            where = f"claims[{i}]"
            original = claim["original"]
            said_of: dict[str, object] = {f"{where}.commitment": claim["commitment"], f"{where}.owner": claim["owner"]}
            said_of |= {f"{where}.original.{n}": value for n, value in original.items() if n in _OF_ORIGINAL}
            at, settings = f"{where}.time_stamp", f"{where}.parameters"
            claims = _claims(at, claim["time_stamp"], said_of, claim["parameters"], settings)
            problem = f"the timestamp of {printable(claim['claimant'])} proves nothing"
            found += contradicted(claims, problem, assigned)
    return found


def trusted_roots(names: Sequence[str | Path]) -> bytes | None:
    """The certificates in these files, PEM; None if no files are given.

    Raises:
        IrwmError: a file cannot be read, is too large, or holds none.
    """
    if not names:
        return None
    return b"\n".join(root_certificates(read_small(Path(name), MAX_ROOTS_BYTES, "certificate")) for name in names)


def check(
    wrong: Sequence[Difference],
    relied_on: Sequence[schema.TimeStamp],
    roots_pem: bytes | None,
    passed_over: Sequence[schema.TimeStamp] = (),
) -> Check:
    """The answer for all timestamps that a document relies on.

    Args:
        wrong: where the document contradicts the files of its timestamps.
        relied_on: their sections.
        passed_over: the sections of timestamps that the document does not rely on, because its signer trusts no root
            of theirs.
        roots_pem: certificates of authorities that the reader trusts; None if the reader gave none.
    """
    if wrong:
        return Check(TIME_STAMP, False, f"the report contradicts its timestamp: {should_be(wrong, 80)}")
    if roots_pem is not None:
        trusted = [stamp for stamp in _read(passed_over, roots_pem) if stamp.trusted]
        if trusted:
            proven = listed([f"{stamp.time_utc} by {stamp.authority}" for stamp in trusted])
            what = (
                "your root certificates prove a date that the report ignores because its signer does not trust them: "
                f"{proven}"
            )
            return Check(TIME_STAMP, None, what, asked=True)
    if passed_over and roots_pem is None:
        unknown = (
            "the report ignores a timestamp; only the root certificate of the timestamp’s authority can show whether "
            "it should"
        )
        return Check(TIME_STAMP, None, unknown)
    if not relied_on and passed_over:
        return Check(
            TIME_STAMP,
            True,
            "your root certificates do not verify any timestamp in the report, and the report relies on none",
        )
    if not relied_on:
        return Check(
            TIME_STAMP, None, "the report does not rely on a timestamp, so no root certificate is needed", asked=True
        )
    stamps = _read(relied_on, roots_pem)
    dated = listed([f"{stamp.time_utc} by {stamp.authority}, policy {stamp.policy}" for stamp in stamps])
    fits = f"signed for this commitment in response to this request: {dated}"
    if roots_pem is None:
        unknown = (
            "it is not known whether this authority can be trusted, because anyone can set up an authority; "
            "provide its root certificate"
        )
        return Check(TIME_STAMP, None, f"{fits}; {unknown}")
    unknown = listed([stamp.authority for stamp in stamps if not stamp.trusted])
    if unknown:
        return Check(
            TIME_STAMP, False, f"no certificate chain leads from {unknown} to a root certificate that you provided"
        )
    return Check(TIME_STAMP, True, f"{fits}; its certificate chains to a root certificate that you provided")


def _read(sections: Sequence[schema.TimeStamp], roots_pem: bytes | None) -> list[Timestamp]:
    return [StampedCommitment.of(section).read(roots_pem) for section in sections]


def _claims(
    where: str, section: schema.TimeStamp, said_of: Mapping[str, object], settings: schema.Parameters, settings_at: str
) -> Iterator[Claim]:
    """Claims that compare the section and the document with the files."""
    files = StampedCommitment.of(section)
    # The files themselves need no claim: decoding accepts only one spelling of them.
    found = {name: value for name, value in files.section().items() if name not in _MOST}
    yield from each(where, {name: value for name, value in section.items() if name not in _MOST}, found)
    committed = Commitment.from_bytes(files.commitment)
    for place, value in said_of.items():
        yield place, value, plain(getattr(committed, place.rpartition(".")[2]))
    yield from each(settings_at, settings, committed.parameters.to_dict())


def _lines(data: bytes) -> list[str]:
    text = base64.b64encode(data).decode("ascii")
    return [text[at : at + _LINE] for at in range(0, len(text), _LINE)]


def _decoded(name: str, lines: Sequence[str]) -> bytes:
    most = _MOST[name]
    try:
        # Check the size first: four characters encode three bytes.
        if len(lines) > most // 57 + 1:
            raise ValueError(f"more than {most // 57 + 1} lines")
        data = base64.b64decode("".join(lines), validate=True)
    except ValueError as error:
        raise ReportError(f"the timestamp's {name} is not valid base64", found=printable(str(error), 120)) from error
    if len(data) > most or _lines(data) != lines:
        raise ReportError(f"the timestamp's {name} is too large or not canonical", expected=f"at most {most} bytes")
    return data
