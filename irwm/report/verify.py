"""Does a report hold? Each question asked of it is a `Check` with an answer in words; it takes no vault, no network.

    files           every file that the signature names is there and has the SHA-256 that was signed
    document        the JSON is strict, of a known schema, and in the one spelling that the program writes
    signature       made over these files by the key that it names
    certificates    that key's chain back to the signer's first one
    identity        the first key is the expected one
    numbers         the document's chances follow from its ranks (`irwm.report.consistency`), a lab's from what was read
                    (`irwm.report.lab_claims`), a sweep's rows from the reports beside (`irwm.report.sweep_claims`)
    rulings         in place of the numbers: a dispute's rulings follow from its tests and dates (`irwm.report.rulings`)
    page, pdf       HTML and PDF are what these numbers draw
    suspect, original   the models given are those that were examined, file by file
    key             the key given is the one that the report is about, with the names that the report gives it
    time-stamp      the authority's response is signed, for this key's commitment, in answer to this request, and gives
                    the date and name that the document prints; its certificate leads to a root that the reader gave
    examination     run again, every number comes out as recorded
    beside          of a sweep: pages, PDFs and signatures beside the overview are those that its signer signed
    recipients      of a tracing: every recipient's key was given, and all of them were traced again

Each kind of report has a list of the fields that no check shows, `UNCHECKED` beside its claims; what of it is left
after the checks that were made comes with the result.

A check that fails says what is wrong; one that could not be made says why. Bad input is never an exception, and a
document of which something cannot be worked out fails: a file made to stop the verifier must not pass for one that
merely could not be checked. Only what needs more than the report itself (models, key, another program) stays open.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from irwm import Checkpoint, Key
from irwm.checkpoint.files import read_small
from irwm.errors import IrwmError, SignatureError, printable
from irwm.report import consistency, dispute, lab, redrawn, rulings, stamps, sweep, sweep_claims
from irwm.report.canonical import MOST_JSON_BYTES
from irwm.report.checks import (
    EXAMINATION,
    KEY,
    ORIGINAL,
    SUSPECT,
    TIME_STAMP,
    Check,
    Unchecked,
    Verification,
    left_unchecked,
    listed,
    said,
)
from irwm.report.document import SCHEMA, from_json, json_pieces
from irwm.report.examined import check_examination, check_item, check_key, check_recipients, opened
from irwm.report.received import PARTS, SIGNATURE, Received, receive
from irwm.report.reproduction import Difference
from irwm.report.signature_file import SignedReport, read_signature

__all__ = ["Check", "Verification", "verify_report"]

# Why models and keys are of no use here, by the kind of report.
_NOT_AGAIN = {
    dispute.SCHEMA: "a dispute’s models are not examined again by this command; with the models and both keys at hand "
    "`irwm.ownership.dispute.resolve` makes every test anew",
    lab.SCHEMA: lab.NOT_AGAIN,
    sweep.SCHEMA: "a sweep’s models are not examined again at once; verify the report of each suspect",
}
_READ: Mapping[str, Callable[[bytes], dict[str, Any]]] = {
    SCHEMA: from_json,
    dispute.SCHEMA: dispute.from_json,
    lab.SCHEMA: lab.from_json,
    sweep.SCHEMA: sweep.from_json,
}
_CONTRADICT = "contradict one another"


def verify_report(
    path: str | Path | Received,
    suspect: Checkpoint | str | Path | None = None,
    original: Checkpoint | str | Path | None = None,
    key: Key | None = None,
    identity: str | None = None,
    keys: Sequence[Key] = (),
    device: str = "cpu",
    roots_pem: bytes | None = None,
) -> Verification:
    """Check a report.

    Args:
        path: its JSON, HTML, PDF or signature, or the folder of one report; the other files are looked for beside. Or
            its files as `receive` read them.
        suspect, original: the models examined, opened or as paths, to compare their files and examine them again.
        key: the key that its owner opened; with both models every number is computed again.
        identity: the signer's first public key as published, hex. Without it a signature shows only that the files fit
            the key that they name themselves.
        keys: recipients' keys, for a report that traced them; see `reproduce`.
        device: where to compute.
        roots_pem: certificates of time-stamping authorities that the reader trusts, PEM. Without any, a time-stamp
            shows only what some authority says.
    """
    report = path if isinstance(path, Received) else receive(Path(path))
    if isinstance(report, Check):
        return Verification((report,))
    document, of_json = _document(report)
    signed, of_signature = _signed(report, document, identity)
    checks = [_files(report, signed, of_signature), of_json, *of_signature]
    if document is None:
        # Of files that are no report and that nobody signed there is nothing more to say.
        return Verification((of_json,) if not of_json.ok and SIGNATURE not in report.parts else tuple(checks))
    kind = document["schema"]["name"]
    checks += _own(report, document, kind)
    if kind == sweep.SCHEMA:
        checks += _of_sweep(document, report.folder, signed, roots_pem)
    else:
        checks += _time_stamp(document, kind, roots_pem)
    if kind != SCHEMA:
        if (suspect, original, key) != (None, None, None) or keys:
            checks.append(Check(EXAMINATION, None, _NOT_AGAIN[kind], asked=True))
    else:
        checks += _against_models(document, suspect, original, key, keys, device)
    return Verification(tuple(checks), left_unchecked(_unchecked(kind), document, checks))


def _unchecked(kind: str) -> tuple[Unchecked, ...]:
    """The fields of a kind of document that its checks leave open."""
    if kind == lab.SCHEMA:
        from irwm.report import lab_claims

        return lab_claims.UNCHECKED
    return {dispute.SCHEMA: rulings.UNCHECKED, sweep.SCHEMA: sweep_claims.UNCHECKED}.get(kind, consistency.UNCHECKED)


def _own(report: Received, document: dict[str, Any], kind: str) -> list[Check]:
    """The checks that need the report's files alone: does one number follow from another, and are the pages theirs?"""
    json_name = report.file(".json")

    def compared(name: str, compare: Callable[[bytes | None], Check]) -> Check:
        ending = ".html" if name == "page" else ".pdf"
        if (why := report.unread.get(ending)) is not None:
            return Check(name, False, f"it could not be read: {why}")
        return _of_document(name, lambda: compare(report.parts.get(ending)))

    if kind == dispute.SCHEMA:
        draw: Callable[[Mapping[str, Any], str], str] = dispute.dispute_html
        numbers = _of_document("rulings", lambda: _rulings(document))
    elif kind == lab.SCHEMA:
        draw = lab.lab_html
        numbers = _of_document("numbers", lambda: _numbers_of_lab(document))
    elif kind == sweep.SCHEMA:
        draw = sweep.overview_html
        numbers = _of_document("numbers", lambda: _numbers_of_sweep(document, report.folder))
    else:
        return [
            _of_document("numbers", lambda: _numbers(document)),
            compared("page", lambda html: redrawn.check_page(document, html, json_name)),
            compared("pdf", lambda pdf: redrawn.check_pdf(document, pdf, json_name)),
        ]
    return [numbers, compared("page", lambda html: redrawn.check_page(document, html, json_name, draw))]


def _time_stamp(document: Mapping[str, Any], kind: str, roots_pem: bytes | None) -> Iterator[Check]:
    """The check of the time-stamps, where there are any, or where somebody gave a root for them."""

    def check() -> Check:
        if kind == dispute.SCHEMA:
            claims, wrong = document["claims"], stamps.contradictions_of_claims(document)
            relied_on = [claim["time_stamp"] for claim in claims if claim["committed_utc"] is not None]
        else:
            given = document["time_stamp"] if kind == SCHEMA else None
            wrong = stamps.contradictions(document) if given is not None else []
            relied_on = [] if given is None else [given]
        return stamps.check(wrong, relied_on, roots_pem)

    holds = [document] if kind == SCHEMA else document.get("claims", ())
    if roots_pem is not None or any(isinstance(part, Mapping) and part.get("time_stamp") for part in holds):
        yield _of_document(TIME_STAMP, check)


def _of_sweep(
    document: Mapping[str, Any], folder: Path, signed: SignedReport | None, roots_pem: bytes | None
) -> Iterator[Check]:
    """The checks of a sweep that its numbers are not: the files beside the overview, and the time-stamps in them."""

    def files() -> Check:
        return _files_beside(_reports_of(document, folder), signed)

    def time_stamps() -> Check:
        # What each report says of its own is checked with its numbers.
        return stamps.check([], relied_on, roots_pem)

    yield _of_document("beside", files)
    relied_on = []
    with contextlib.suppress(LookupError, TypeError, IrwmError):  # said where the numbers are checked
        given = (from_json(data)["time_stamp"] for data in _reports_of(document, folder).values())
        relied_on = [stamp for stamp in given if stamp is not None]
    if relied_on or roots_pem is not None:
        yield _of_document(TIME_STAMP, time_stamps)


def _reports_of(document: Mapping[str, Any], folder: Path) -> _Beside:
    return _Beside(folder, [row["json"] for row in document["rows"] if row["error"] is None])


def _files_beside(reports: _Beside, signed: SignedReport | None) -> Check:
    """Whether page, PDF and signature of each report of a sweep, where they are, are of the overview's signer."""
    signer = None
    with contextlib.suppress(SignatureError):  # said where the overview's signature is checked
        signer = signed.holds() if signed is not None else None
    wrong, seen = [], 0
    for name in reports:
        stem = name.removesuffix(".json")
        signature = f"{stem}{SIGNATURE}"
        there = [each for each in (f"{stem}.html", f"{stem}.pdf", signature) if (reports.folder / each).is_file()]
        seen += len(there)
        if signature not in there:
            wrong += [f"{each} is not signed" for each in there]
            continue
        there.remove(signature)
        own = read_signature(_small(reports.folder / signature))
        try:
            by = own.holds()
            if signer is not None and by != signer:
                wrong.append(f"{signature} was not made by whoever signed the overview")
        except SignatureError as error:
            wrong.append(f"{signature} does not hold: {said(error)}")
        for each in (name, *there):
            if own.files.get(each) != hashlib.sha256(_small(reports.folder / each)).hexdigest():
                wrong.append(f"{each} is not what was signed")
    good = f"the {seen} files beside the reports are what was signed with them"
    return Check("beside", not wrong, listed(wrong, 6) if wrong else good)


def _small(path: Path) -> bytes:
    """A file beside an overview; none is larger than the largest report.

    Raises:
        IrwmError: it is, or cannot be read.
    """
    return read_small(path, MOST_JSON_BYTES, "file of a report")


def _against_models(
    document: Mapping[str, Any],
    suspect: Checkpoint | str | Path | None,
    original: Checkpoint | str | Path | None,
    key: Key | None,
    keys: Sequence[Key],
    device: str,
) -> Iterator[Check]:
    """The checks that need the models and the key."""
    original, model_check = opened(ORIGINAL, original)
    suspect, suspect_check = opened(SUSPECT, suspect, base=original)
    for role, item, failed in ((SUSPECT, suspect, suspect_check), (ORIGINAL, original, model_check)):
        if failed is not None:
            yield failed
        elif item is not None:
            yield _guarded(role, partial(check_item, document, role, item), asked=True)
    if key is not None:
        yield _guarded(KEY, lambda: check_key(document, key), asked=True)
    if suspect_check is None and model_check is None:
        given = suspect is not None and original is not None and key is not None
        run = _guarded(
            EXAMINATION, lambda: check_examination(document, suspect, original, key, keys, device), asked=given
        )
        yield run
        if run.ok and document["tracing"] is not None:
            yield check_recipients(document, [each for each in (key, *keys) if each is not None])


def _of_document(name: str, check: Callable[[], Check]) -> Check:
    """The outcome of a check that needs the report's own files alone, so that whatever stops it lies in them.

    Every exception is meant: which one a template or a typesetter raises on a crooked document is theirs to choose.
    """
    try:
        return check()
    except IrwmError as error:
        return Check(name, False, f"the document cannot be checked: {said(error)}")
    except Exception as error:
        what = printable(f"{type(error).__name__}: {error}", 200)
        return Check(name, False, f"the document is not of its own form ({what})")


def _guarded(name: str, check: Callable[[], Check], asked: bool = False) -> Check:
    """The outcome of a check against a model or a key, which may be what stops it; a crooked document fails too."""
    try:
        return check()
    except IrwmError as error:
        return Check(name, None, f"could not be checked: {said(error)}", asked)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, RuntimeError) as error:
        what = f"{type(error).__name__}: {error}"
        return Check(name, False, f"the document is not of its own form ({printable(what, 200)})")


def _document(report: Received) -> tuple[dict[str, Any] | None, Check]:
    name = printable(report.file(".json"))
    if ".json" not in report.parts:
        why = report.unread.get(".json", "it is not there")
        return None, Check("document", None, f"{name} could not be read: {why}", asked=True)
    if report.refused:
        return None, Check("document", False, f"{name} is not a report: {report.refused}")
    if report.schema not in _READ:
        what = f"it is a file of the form {printable(report.schema)}"
        return None, Check("document", None, f"{name} is not a report: {what}", asked=True)
    data = report.parts[".json"]
    try:
        document = _READ[report.schema](data)
    except IrwmError as error:
        return None, Check("document", False, f"{name}: {said(error)}")
    if not _as_written(document, data):
        what = "is not in the spelling that this program writes, so it was written again by something else"
        return document, Check("document", False, f"{name} {what}")
    schema = document["schema"]
    return document, Check(
        "document", True, f"{name} is a report, schema {schema['name']}, version {schema['version']}"
    )


def _as_written(document: Mapping[str, Any], data: bytes) -> bool:
    """Whether these are the bytes that the program writes for the document: another spelling may be read otherwise."""
    at = 0
    try:
        for piece in json_pieces(document):
            if not data.startswith(piece, at):
                return False
            at += len(piece)
    except (ValueError, RecursionError):  # a number beyond float64, which is read as an infinity
        return False
    return at == len(data)


def _files(report: Received, signed: SignedReport | None, of_signature: Sequence[Check]) -> Check:
    """Whether the files are those that were signed; without a signature, which are there."""
    wrong = [f"{printable(report.file(ending))} cannot be read: {why}" for ending, why in report.unread.items()]
    there = [report.file(ending) for ending in PARTS if ending in report.parts]
    if signed is None:
        missing = [report.file(e) for e in PARTS if e not in report.parts and e not in report.unread]
        note = f"; {listed(missing)} not there" if missing else ""
        text = (
            f"there: {listed(there)}{note}. No signature names their hashes" if there else "none of its files is there"
        )
        return Check("files", False if wrong else None, "; ".join(wrong) or text)
    for name, digest in signed.files.items():
        ending = name.removeprefix(report.name)
        data = report.parts.get(ending) if name == report.file(ending) else None
        if ending in report.unread and name == report.file(ending):
            continue
        if data is None:
            wrong.append(f"{printable(name)}, which was signed, is not there")
        elif hashlib.sha256(data).hexdigest() != digest:
            wrong.append(f"{printable(name)} was changed after it was signed: its SHA-256 is another one")
    wrong += [f"{printable(name)} was not among the files signed" for name in there if name not in signed.files]
    if not there and not report.unread:
        none = "none of the files that were signed is there"
        return Check("files", None, f"{none}: {listed(sorted(signed.files))}", asked=True)
    if wrong:
        return Check("files", False, "; ".join(wrong))
    return Check("files", True, f"{listed(sorted(signed.files))}: each has the SHA-256 that the signature names")


def _signed(
    report: Received, document: Mapping[str, Any] | None, identity: str | None
) -> tuple[SignedReport | None, list[Check]]:
    """The signature, if it can be read, and the checks of it, of its chain and of who signed."""
    status = document.get("status") if document else None
    status = status if isinstance(status, Mapping) else {}
    custody = status.get("custody")
    custody = custody if isinstance(custody, Mapping) else {}
    if SIGNATURE not in report.parts:
        if SIGNATURE in report.unread:
            return None, [Check("signature", False, f"the signature cannot be read: {report.unread[SIGNATURE]}")]
        name = printable(report.file(SIGNATURE))
        if status.get("signed"):
            return None, [Check("signature", False, f"the report says that it is signed, but {name} is not there")]
        if identity is not None:
            return None, [
                Check("signature", False, f"signed by {identity[:16]}… was expected, but {name} is not there")
            ]
        return None, [Check("signature", None, "the report is not signed, so anybody could have made it so")]
    try:
        signed = read_signature(report.parts[SIGNATURE])
    except (IrwmError, SignatureError) as error:
        return None, [Check("signature", False, said(error))]
    try:
        first = signed.holds()
    except SignatureError as error:
        name = "certificates" if "certificate" in str(error) else "signature"
        passed = [Check("signature", True, "the signature itself fits the files")] if name == "certificates" else []
        return signed, [*passed, Check(name, False, said(error))]
    when = printable(signed.signed_utc, 40)
    checks = [Check("signature", True, f"made over these files on {when} (by the signer’s clock)"), _chain(signed)]
    # An overview of a sweep says nothing of its signature, and neither does a document that is not there.
    announced = bool(status.get("signed")) if status else None
    return signed, [*checks, *_identity(first, identity, custody, signed, announced)]


def _chain(signed: SignedReport) -> Check:
    count = len(signed.signature.certificates)
    if not count:
        return Check("certificates", True, "signed by the vault’s first key itself, so none are needed")
    steps = "one certificate leads" if count == 1 else f"{count} certificates lead"
    return Check("certificates", True, f"{steps} from the vault’s first key to the one that signed")


def _identity(
    first: str, expected: str | None, custody: Mapping[str, Any], signed: SignedReport, announced: bool | None
) -> Iterator[Check]:
    if expected is not None and expected.strip().lower() != first:
        yield Check("identity", False, f"signed by {first}, and not by {printable(expected, 80)}, which was expected")
    elif announced and custody.get("identity") != first:
        named = printable(str(custody.get("identity")), 80)
        yield Check("identity", False, f"the report says it is signed by {named}, but the signature is of {first}")
    elif expected is not None:
        yield Check("identity", True, f"signed by {first}, as expected")
    else:
        yield Check(
            "identity",
            None,
            f"signed by {first}; whose key that is, is not known here: compare it with the published one",
        )
    log = (custody.get("audit_head"), custody.get("audit_entries"))
    if announced is False:
        yield Check("custody", False, "the report says that it is not signed, but a signature is beside it")
    elif announced and log != (signed.audit_head, signed.audit_count):
        yield Check("custody", False, "report and signature name different states of the audit log")
    elif announced:
        yield Check("custody", True, f"report and signature name the same audit log, {signed.audit_count} entries")


def _rulings(document: Mapping[str, Any]) -> Check:
    """Whether the rulings of a dispute follow from its tests and dates."""
    good = "every ruling follows from the tests and dates in the document"
    return _follow("rulings", rulings.contradictions(document), good, "do not follow from the tests and dates")


def _numbers(document: Mapping[str, Any]) -> Check:
    good = "every chance in the document follows from its ranks and settings"
    return _follow("numbers", consistency.contradictions(document), good, _CONTRADICT)


def _numbers_of_lab(document: Mapping[str, Any]) -> Check:
    # The catalogue of attacks takes a second to load.
    from irwm.report import lab_claims

    good = "every chance follows from what was read, and every attack is one of the catalogue"
    return _follow("numbers", lab_claims.contradictions(document), good, _CONTRADICT)


def _numbers_of_sweep(document: Mapping[str, Any], folder: Path) -> Check:
    """Whether an overview says what the reports beside it say."""
    reports = _reports_of(document, folder)
    wrong = sweep_claims.contradictions(document, reports)
    gone = sweep_claims.missing(document, reports)
    if gone and not wrong:
        return Check("numbers", None, f"these reports are not beside the overview: {listed(gone)}", asked=True)
    good = f"every row says what its report says, and {len(reports)} reports hold by themselves"
    return _follow("numbers", wrong, good, _CONTRADICT)


class _Beside(Mapping[str, bytes]):
    """The reports beside an overview, by name. Each is read when it is asked for: together they may be of any size."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self._files = {name: folder / name for name in names if Path(name).name == name and (folder / name).is_file()}

    def __getitem__(self, name: str) -> bytes:
        return _small(self._files[name])

    def __contains__(self, name: object) -> bool:
        return name in self._files  # the usual one would read it

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _follow(name: str, wrong: Sequence[Difference], good: str, bad: str) -> Check:
    if not wrong:
        return Check(name, True, good)
    named = [f"{d.where} is {printable(str(d.recorded), 120)}, should be {printable(str(d.found), 120)}" for d in wrong]
    return Check(name, False, f"{bad}: {listed(named, 6)}")
