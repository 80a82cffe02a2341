"""Verifies a report. Each question about it is a `Check` with an answer in words; no vault and no network is needed.

    files           every file that the signature names is there and has the SHA-256 that was signed
    document        the JSON is strict, has the structure of its kind (`irwm.report.structure`), and is byte for byte as
                    the program writes it
    signature       made by the key that it names, over the hashes that it lists
    certificates    that key's chain back to the signer's first one
    identity        the first key is the expected one
    numbers         the document's chances follow from its ranks (`irwm.report.consistency`), a lab's from its readings
                    (`irwm.report.lab_claims`), a sweep's rows from its reports (`irwm.report.sweep_claims`), and a
                    review's statements agree with its recorded checks (`irwm.report.verify_review`)
    rulings         instead of the numbers: a dispute's rulings follow from its tests and dates (`irwm.report.rulings`)
    page, pdf       HTML and PDF are drawn from these numbers
    suspect, original   the models given are those that were examined, file by file
    key             the key given is the one that the report is about, with the names that the report gives it
    timestamp      the authority's response is signed, for this key's commitment, in answer to this request, and gives
                    the date and name that the document prints; its certificate leads to a root that the reader gave
    examination     run again, every number is as recorded
    controls        run again, every control reads as recorded, and all are there
    recipients      of a tracing: every recipient's key was given, and all of them were traced again
    choices         the signer chose no seed, and the chances are corrected for every key that is given
    models, claimants   of a dispute: the models given are those examined; each claimant opened a key of that name
    seen            the report and its reader have known the suspect since the same time
    log             the given audit log holds the entry that the signature names
    report_files    of a sweep: pages, PDFs and signatures next to the overview are those that its signer signed
    reviewed        of a review: the report next to it is the one that it names, and its checks give the same answers

`irwm.report.value_states` then says which values of a report are derived, consistent or stated.

A check that fails says what is wrong; one that could not be made says why. Bad input raises no exception, and a
document with a value that cannot be computed fails: a file made to stop the verifier must not pass for one that could
not be checked. Only checks that need more than the report (models, key, another program) stay open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from irwm import Key
from irwm.errors import IrwmError, SignatureError, printable
from irwm.report import (
    consistency,
    dispute,
    lab,
    review,
    rulings,
    schema,
    stamps,
    sweep,
    sweep_claims,
    verify_drawings,
    verify_review,
)
from irwm.report.audit_log import check_log
from irwm.report.checks import EXAMINATION, TIME_STAMP, Check, Verification, held, listed, of_document, said
from irwm.report.document import SCHEMA, from_json, json_pieces
from irwm.report.reader_inputs import Brought, Model
from irwm.report.received import PARTS, SIGNATURE, Received, receive
from irwm.report.reproduction import Difference, should_be
from irwm.report.signature_file import SignedReport, read_signature
from irwm.report.value_states import Stated, States, states
from irwm.report.verify_dispute import resolved_again
from irwm.report.verify_examination import examined_again
from irwm.report.verify_sweep import SweepReports, check_sweep, swept_again

__all__ = ["Check", "Verification", "verify_report"]

_READ: Mapping[str, Callable[[bytes], schema.Document]] = {
    SCHEMA: from_json,
    dispute.SCHEMA: dispute.from_json,
    lab.SCHEMA: lab.from_json,
    sweep.SCHEMA: sweep.from_json,
    review.SCHEMA: review.read_review,
}
# The pages of other kinds than a report's.
_DRAWN: Mapping[str, Callable[[Any, str], str]] = {
    dispute.SCHEMA: dispute.dispute_html,
    lab.SCHEMA: lab.lab_html,
    sweep.SCHEMA: sweep.overview_html,
    review.SCHEMA: review.review_html,
}


def verify_report(
    path: str | Path | Received,
    suspect: Model | None = None,
    original: Model | None = None,
    key: Key | None = None,
    identity: str | None = None,
    keys: Sequence[Key] = (),
    device: str = "cpu",
    roots_pem: bytes | None = None,
    models: Sequence[Model] = (),
    audit_log: Path | None = None,
    seen_utc: str | None = None,
) -> Verification:
    """Check a report.

    Args:
        path: its JSON, HTML, PDF or signature, or the folder of one report; the other files must be in the same folder.
            Or its files as `receive` read them.
        key: the report's own key; it may also be in `keys`.
        suspect, original, identity, keys, device, roots_pem, models, audit_log, seen_utc: see `Brought`.
    """
    opened_keys = tuple(keys) if key is None else (key, *keys)
    brought = Brought(
        identity=identity,
        roots_pem=roots_pem,
        suspect=suspect,
        original=original,
        models=tuple(models),
        keys=opened_keys,
        audit_log=audit_log,
        seen_utc=seen_utc,
        device=device,
    )
    return verified(path, brought)


def verified(path: str | Path | Received, brought: Brought) -> Verification:
    """`verify_report`, with all that the reader brings in one object."""
    report = path if isinstance(path, Received) else receive(Path(path))
    if isinstance(report, Check):
        return Verification((report,))
    document, of_json = _document(report)
    signed, of_signature = _signed(report, document, brought.identity)
    checks = [_files(report, signed, of_signature), of_json, *of_signature]
    if signed is not None and brought.audit_log is not None:
        checks.append(check_log(brought.audit_log, signed.audit_head, signed.audit_count))
    if document is None:
        # Files that are no report and are not signed need no further check.
        return Verification((of_json,) if not of_json.ok and SIGNATURE not in report.parts else tuple(checks))
    kind, assigned = document["schema"]["name"], set[str]()
    reports = SweepReports(document["rows"] if kind == sweep.SCHEMA else (), report.folder)
    checks += _own(report, document, kind, reports, assigned)
    open_states: States | None = None
    if kind == sweep.SCHEMA:
        checks += check_sweep(reports, signed, brought.roots_pem)
        again, open_states = swept_again(document, reports, brought, held(checks))
        checks += again
    elif kind == review.SCHEMA:
        checks.append(verify_review.check_reviewed(document, report, brought, verified))
    else:
        checks += _time_stamp(document, kind, brought.roots_pem, assigned)
        checks += _AGAIN[kind](document, brought)
    found = states(document, assigned, *_inputs(kind, document), held(checks))
    whole = found if open_states is None else found.and_of(open_states)
    return Verification(tuple(checks), whole, hashlib.sha256(report.parts[".json"]).hexdigest())


def _inputs(kind: str, document: Any) -> tuple[tuple[Stated, ...], Mapping[str, Sequence[str]]]:
    """The inputs of a kind of document in groups, and which check computes which of its values again."""
    if kind == lab.SCHEMA:
        from irwm.report import lab_claims

        return lab_claims.STATED, lab_claims.SHOWN
    if kind == dispute.SCHEMA:
        return rulings.inputs(document), rulings.SHOWN
    if kind == sweep.SCHEMA:
        return sweep_claims.STATED, sweep_claims.SHOWN
    if kind == review.SCHEMA:
        return verify_review.STATED, verify_review.SHOWN
    return consistency.inputs(document), consistency.SHOWN


def _own(report: Received, document: Any, kind: str, reports: Mapping[str, bytes], assigned: set[str]) -> list[Check]:
    """The checks that need only the report's files: whether its numbers agree, and whether its pages show them.

    Args:
        assigned: receives the places whose values follow from others.
    """
    json_name = report.file(".json")

    def compared(name: str, compare: Callable[[bytes | None], Check]) -> Check:
        ending = ".html" if name == "page" else ".pdf"
        if (why := report.unread.get(ending)) is not None:
            return Check(name, False, f"the file could not be read: {why}")
        return of_document(name, lambda: compare(report.parts.get(ending)))

    checks = [
        of_document(
            "rulings" if kind == dispute.SCHEMA else "numbers", lambda: _numbers(document, kind, reports, assigned)
        ),
        compared("page", lambda html: verify_drawings.check_page(document, html, json_name, _DRAWN.get(kind))),
    ]
    if kind == SCHEMA:
        checks.append(compared("pdf", lambda pdf: verify_drawings.check_pdf(document, pdf, json_name)))
    return checks


def _time_stamp(document: Any, kind: str, roots_pem: bytes | None, assigned: set[str]) -> Iterator[Check]:
    """The check of the timestamps, if there are any or if the reader gave a root for them."""

    def check() -> Check:
        if kind == dispute.SCHEMA:
            wrong = stamps.contradictions_of_claims(document, assigned)
            relied_on = [claim["time_stamp"] for claim in stamped if claim["committed_utc"] is not None]
            passed_over = [claim["time_stamp"] for claim in stamped if claim["committed_utc"] is None]
        else:
            wrong = stamps.contradictions(document, assigned) if stamped else []
            relied_on, passed_over = [part["time_stamp"] for part in stamped], []
        return stamps.check(wrong, relied_on, roots_pem, passed_over)

    parts = [document] if kind == SCHEMA else document["claims"] if kind == dispute.SCHEMA else ()
    stamped = [part for part in parts if part["time_stamp"] is not None]
    if roots_pem is not None or stamped:
        yield of_document(TIME_STAMP, check)


def _lab_again(document: schema.Lab, brought: Brought) -> list[Check]:
    return [Check(EXAMINATION, None, lab.NOT_AGAIN, asked=True)] if brought.examines else []


# What computes the values of a kind of report again.
_AGAIN: Mapping[str, Callable[[Any, Brought], list[Check]]] = {
    SCHEMA: examined_again,
    dispute.SCHEMA: resolved_again,
    lab.SCHEMA: _lab_again,
}


def _document(report: Received) -> tuple[Any, Check]:
    """The document, of the type of its kind, or None, and the check of its form."""
    name = printable(report.file(".json"))
    if ".json" not in report.parts:
        why = report.unread.get(".json", "the file is missing")
        return None, Check("document", None, f"{name} could not be read: {why}", asked=True)
    if report.refused:
        return None, Check("document", False, f"{name} is not a report: {report.refused}")
    if report.schema not in _READ:
        what = f"its schema is {printable(report.schema)}"
        return None, Check("document", None, f"{name} is not a report: {what}", asked=True)
    data = report.parts[".json"]
    try:
        document = _READ[report.schema](data)
    except IrwmError as error:
        return None, Check("document", False, f"{name}: {said(error)}")
    if not _as_written(document, data):
        what = f"{name} does not match, byte for byte, what this program writes, so another program has rewritten it"
        return document, Check("document", False, what)
    schema = document["schema"]
    return document, Check(
        "document", True, f"{name} is a report with schema {schema['name']}, version {schema['version']}"
    )


def _as_written(document: schema.Document, data: bytes) -> bool:
    """Whether these are the bytes that the program writes for the document: others could be read in another way."""
    at = 0
    for piece in json_pieces(document):
        if not data.startswith(piece, at):
            return False
        at += len(piece)
    return at == len(data)


def _files(report: Received, signed: SignedReport | None, of_signature: Sequence[Check]) -> Check:
    """Whether the files are those that were signed; without a signature, which files there are."""
    wrong = [f"{printable(report.file(ending))} cannot be read: {why}" for ending, why in report.unread.items()]
    there = [report.file(ending) for ending in PARTS if ending in report.parts]
    if signed is None:
        missing = [report.file(e) for e in PARTS if e not in report.parts and e not in report.unread]
        note = f"; missing: {listed(missing)}" if missing else ""
        text = f"present: {listed(there)}{note}. No signature contains their hashes"
        text = text if there else "none of the report’s files is present"
        return Check("files", False if wrong else None, "; ".join(wrong) or text)
    for name, digest in signed.files.items():
        ending = name.removeprefix(report.name)
        data = report.parts.get(ending) if name == report.file(ending) else None
        if ending in report.unread and name == report.file(ending):
            continue
        if data is None:
            wrong.append(f"{printable(name)} was signed but is missing")
        elif hashlib.sha256(data).hexdigest() != digest:
            wrong.append(f"{printable(name)} is not the file that was signed: its SHA-256 differs")
    wrong += [f"{printable(name)} is not among the signed files" for name in there if name not in signed.files]
    if not there and not report.unread:
        none = "none of the signed files is present"
        return Check("files", None, f"{none}: {listed(sorted(signed.files))}", asked=True)
    if wrong:
        return Check("files", False, "; ".join(wrong))
    return Check("files", True, f"{listed(sorted(signed.files))}: each file’s SHA-256 matches the signature")


def _signed(report: Received, document: Any, identity: str | None) -> tuple[SignedReport | None, list[Check]]:
    """The signature, if it can be read, and the checks of the signature, its chain and the signer."""
    status = (document or {}).get("status", {})  # a sweep has none
    custody = status.get("custody", {})
    if SIGNATURE not in report.parts:
        if SIGNATURE in report.unread:
            return None, [Check("signature", False, f"the signature cannot be read: {report.unread[SIGNATURE]}")]
        name = printable(report.file(SIGNATURE))
        if status.get("signed"):
            return None, [Check("signature", False, f"the report says that it is signed, but {name} is missing")]
        if identity is not None:
            return None, [
                Check("signature", False, f"a signature by {identity[:16]}… was expected, but {name} is missing")
            ]
        return None, [Check("signature", None, "the report is not signed, so anyone could have made or changed it")]
    try:
        signed = read_signature(report.parts[SIGNATURE])
    except (IrwmError, SignatureError) as error:
        return None, [Check("signature", False, said(error))]
    try:
        first = signed.holds()
    except SignatureError as error:
        name = "certificates" if "certificate" in str(error) else "signature"
        passed = [Check("signature", True, "the signature itself matches the files")] if name == "certificates" else []
        return signed, [*passed, Check(name, False, said(error))]
    when = printable(signed.signed_utc, 40)
    checks = [
        Check(
            "signature",
            True,
            f"the signature is valid for the hashes in it, and was made on {when} according to the signer’s clock",
        ),
        _chain(signed),
    ]
    # An overview of a sweep does not mention its signature, and neither does a missing document.
    announced = bool(status.get("signed")) if status else None
    return signed, [*checks, *_identity(first, identity, custody, signed, announced)]


def _chain(signed: SignedReport) -> Check:
    count = len(signed.signature.certificates)
    if not count:
        return Check(
            "certificates", True, "the signature was made with the vault’s first key, so no certificate is needed"
        )
    one = "one certificate links the vault’s first key to the signing key"
    several = f"{count} certificates link the vault’s first key to the signing key"
    return Check("certificates", True, one if count == 1 else several)


def _identity(
    first: str, expected: str | None, custody: Mapping[str, object], signed: SignedReport, announced: bool | None
) -> Iterator[Check]:
    if expected is not None and expected.strip().lower() != first:
        yield Check("identity", False, f"signed by {first}, but {printable(expected, 80)} was expected")
    elif announced and custody.get("identity") != first:
        named = printable(str(custody.get("identity")), 80)
        yield Check("identity", False, f"the report says it is signed by {named}, but the signature is by {first}")
    elif expected is not None:
        yield Check("identity", True, f"signed by {first}, as expected")
    else:
        yield Check(
            "identity",
            None,
            f"signed by {first}; this program cannot tell who owns this key, so compare it with the published key",
        )
    log = (custody.get("audit_head"), custody.get("audit_entries"))
    if announced is False:
        yield Check("custody", False, "the report says that it is not signed, but there is a signature file")
    elif announced and log != (signed.audit_head, signed.audit_count):
        yield Check("custody", False, "the report and the signature refer to different states of the audit log")
    elif announced:
        yield Check(
            "custody",
            True,
            f"the report and the signature refer to the same audit log, up to entry {signed.audit_count}",
        )


def _numbers(document: Any, kind: str, reports: Mapping[str, bytes], assigned: set[str]) -> Check:
    """Whether the values of a document follow from one another, and those of an overview from its reports."""
    if kind == dispute.SCHEMA:
        wrong = rulings.contradictions(document, assigned)
        good = "every ruling follows from the tests and dates in the document"
        return _follow("rulings", wrong, good, "some values do not follow from the tests and dates")
    if kind == lab.SCHEMA:
        # The catalogue of attacks takes a second to load.
        from irwm.report import lab_claims

        wrong = lab_claims.contradictions(document, assigned)
        good = "every probability follows from the readings, and every attack is in the catalogue"
    elif kind == sweep.SCHEMA:
        wrong = sweep_claims.contradictions(document, reports, assigned)
        gone = sweep_claims.missing(document, reports)
        if gone and not wrong:
            return Check(
                "numbers", None, f"these reports are missing from the overview’s folder: {listed(gone)}", asked=True
            )
        good = f"every row agrees with its report, and each report’s numbers are consistent (reports: {len(reports)})"
    elif kind == review.SCHEMA:
        wrong = verify_review.contradictions(document, assigned)
        good = "the reviewer’s statements agree with the recorded checks"
    else:
        wrong = consistency.contradictions(document, assigned)
        good = "every probability in the document follows from the ranks and settings"
    return _follow("numbers", wrong, good, "some values contradict one another")


def _follow(name: str, wrong: Sequence[Difference], good: str, bad: str) -> Check:
    if not wrong:
        return Check(name, True, good)
    return Check(name, False, f"{bad}: {should_be(wrong)}")
