"""Does a report hold? Each question asked of it is a `Check` with an answer in words; it takes no vault, no network.

    files           every file that the signature names is there and has the SHA-256 that was signed
    document        the JSON is strict, of a known schema, and in the one spelling that the program writes
    signature       made over these files by the key that it names
    certificates    that key's chain back to the signer's first one
    identity        the first key is the expected one
    numbers         the document's chances follow from its ranks (`irwm.report.consistency`)
    rulings         in place of the numbers: a dispute's rulings follow from its tests and dates (`irwm.report.rulings`)
                    a lab's numbers are measurements, and stay open
    page, pdf       HTML and PDF are what these numbers draw
    suspect, original   the models given are those that were examined, file by file
    key             the key given is the one that the report is about, with the names that the report gives it
    examination     run again, every number comes out as recorded

A check that fails says what is wrong; one that could not be made says why. Bad input is never an exception, and a
document of which something cannot be worked out fails: a file made to stop the verifier must not pass for one that
merely could not be checked. Only what needs more than the report itself (models, key, another program) stays open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from irwm import Checkpoint, Key
from irwm.checkpoint.files import read_small
from irwm.errors import IrwmError, SignatureError, printable
from irwm.report import dispute, lab, redrawn, rulings
from irwm.report.checks import Check, Verification, listed, said
from irwm.report.consistency import contradictions
from irwm.report.document import MOST_JSON_BYTES, from_json, to_json
from irwm.report.examined import check_examination, check_item, check_key, opened
from irwm.report.signature_file import ENDING, SignedReport, read_signature

__all__ = ["Check", "Verification", "report_name", "verify_report"]

# The largest part of a usual report, its HTML, has some five megabytes.
_MOST_BYTES = {ENDING: 1 << 20, ".json": MOST_JSON_BYTES, ".html": 64 << 20, ".pdf": 64 << 20}
_ENDINGS = tuple(_MOST_BYTES)
_PARTS = (".json", ".html", ".pdf")
_NOT_AGAIN = (
    "a dispute’s models are not examined again by this command; with the models and both keys at hand "
    "`irwm.ownership.dispute.resolve` makes every test anew"
)


@dataclass(frozen=True, slots=True)
class _Report:
    """The files of one report: their folder, the name they share, and their bytes by ending."""

    folder: Path
    name: str
    parts: Mapping[str, bytes]
    unread: Mapping[str, str]

    def file(self, ending: str) -> str:
        return f"{self.name}{ending}"


def verify_report(
    path: str | Path,
    suspect: Checkpoint | str | Path | None = None,
    original: Checkpoint | str | Path | None = None,
    key: Key | None = None,
    identity: str | None = None,
    keys: Sequence[Key] = (),
    device: str = "cpu",
) -> Verification:
    """Check a report.

    Args:
        path: its JSON, HTML, PDF or signature, or the folder of one report; the other files are looked for beside.
        suspect, original: the models examined, opened or as paths, to compare their files and examine them again.
        key: the key that its owner opened; with both models every number is computed again.
        identity: the signer's first public key as published, hex. Without it a signature shows only that the files fit
            the key that they name themselves.
        keys: recipients' keys, for a report that traced them; see `reproduce`.
        device: where to compute.
    """
    report = _found(Path(path))
    if isinstance(report, Check):
        return Verification((report,))
    document, of_json = _document(report)
    signed, of_signature = _signed(report, document, identity)
    checks = [_files(report, signed, of_signature), of_json, *of_signature]
    if document is None:
        return Verification(tuple(checks))
    if document["schema"]["name"] == dispute.SCHEMA:
        page = report.parts.get(".html")
        checks.append(_of_document("rulings", lambda: _rulings(document)))
        checks.append(_of_document("page", lambda: _page_of_dispute(document, page, report.file(".json"))))
        if (suspect, original, key) != (None, None, None) or keys:
            checks.append(Check("examination", None, _NOT_AGAIN, asked=True))
        return Verification(tuple(checks))
    html, pdf, json_name = report.parts.get(".html"), report.parts.get(".pdf"), report.file(".json")
    if document["schema"]["name"] == lab.SCHEMA:
        checks.append(Check("numbers", None, lab.NOT_AGAIN))
        checks.append(_of_document("page", lambda: redrawn.check_page(document, html, json_name, lab.lab_html)))
        if (suspect, original, key) != (None, None, None) or keys:
            checks.append(Check("examination", None, lab.NOT_AGAIN, asked=True))
        return Verification(tuple(checks))
    checks.append(_of_document("numbers", lambda: _numbers(document)))
    checks.append(_of_document("page", lambda: redrawn.check_page(document, html, json_name)))
    checks.append(_of_document("pdf", lambda: redrawn.check_pdf(document, pdf, json_name)))
    original, model_check = opened("original", original)
    suspect, suspect_check = opened("suspect", suspect, base=original)
    for role, item, failed in (("suspect", suspect, suspect_check), ("original", original, model_check)):
        if failed is not None:
            checks.append(failed)
        elif item is not None:
            checks.append(_guarded(role, partial(check_item, document, role, item), asked=True))
    if key is not None:
        checks.append(_guarded("key", lambda: check_key(document, key), asked=True))
    if suspect_check is None and model_check is None:
        checks.append(
            _guarded(
                "examination",
                lambda: check_examination(document, suspect, original, key, keys, device),
                asked=suspect is not None and original is not None and key is not None,
            )
        )
    return Verification(tuple(checks))


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


def _found(path: Path) -> _Report | Check:
    """The report that a path means."""
    if path.is_dir():
        names = sorted({name for name in map(report_name, _files_in(path)) if name})
        bases = [name for name in names if (path / f"{name}.json").is_file()] or names
        if len(bases) != 1:
            what = f"holds {len(bases)} reports: {listed(bases)}; name one of them" if bases else "holds no report"
            return Check("files", None, f"the folder {what}", asked=True)
        folder, name = path, bases[0]
    else:
        folder, name = path.parent, report_name(path.name)
        if not path.is_file():
            return Check("files", None, f"there is no file {printable(path.name)}", asked=True)
        if not name:
            ends = "its name ends neither in .json, .html, .pdf nor in .signature.json"
            return Check("files", None, f"{printable(path.name)} is not part of a report: {ends}", asked=True)
    parts, unread = {}, {}
    for ending in _ENDINGS:
        file = folder / f"{name}{ending}"
        if not file.exists() and not file.is_symlink():
            continue
        try:
            parts[ending] = read_small(file, _MOST_BYTES[ending], "report")
        except IrwmError as error:
            unread[ending] = said(error)
    return _Report(folder, name, parts, unread)


def _files_in(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir()]
    except OSError:
        return []


def report_name(name: str) -> str:
    """What the files of one report share: the name of one of them without its ending; "" where it is none."""
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), "")


def _document(report: _Report) -> tuple[dict[str, Any] | None, Check]:
    name = printable(report.file(".json"))
    if ".json" not in report.parts:
        why = report.unread.get(".json", "it is not there")
        return None, Check("document", None, f"{name} could not be read: {why}", asked=True)
    data = report.parts[".json"]
    try:
        read = dispute.from_json if dispute.is_dispute(data) else lab.from_json if lab.is_lab(data) else from_json
        document = read(data)
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
    try:
        return to_json(document) == data
    except (ValueError, RecursionError):  # a number beyond float64, which is read as an infinity
        return False


def _files(report: _Report, signed: SignedReport | None, of_signature: Sequence[Check]) -> Check:
    """Whether the files are those that were signed; without a signature, which are there."""
    wrong = [f"{printable(report.file(ending))} cannot be read: {why}" for ending, why in report.unread.items()]
    there = [report.file(ending) for ending in _PARTS if ending in report.parts]
    if signed is None:
        missing = [report.file(e) for e in _PARTS if e not in report.parts and e not in report.unread]
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
    if wrong:
        return Check("files", False, "; ".join(wrong))
    return Check("files", True, f"{listed(sorted(signed.files))}: each has the SHA-256 that the signature names")


def _signed(
    report: _Report, document: Mapping[str, Any] | None, identity: str | None
) -> tuple[SignedReport | None, list[Check]]:
    """The signature, if it can be read, and the checks of it, of its chain and of who signed."""
    status = document.get("status") if document else None
    status = status if isinstance(status, Mapping) else {}
    custody = status.get("custody")
    custody = custody if isinstance(custody, Mapping) else {}
    if ENDING not in report.parts:
        if ENDING in report.unread:
            return None, [Check("signature", False, f"the signature cannot be read: {report.unread[ENDING]}")]
        name = printable(report.file(ENDING))
        if status.get("signed"):
            return None, [Check("signature", False, f"the report says that it is signed, but {name} is not there")]
        if identity is not None:
            return None, [
                Check("signature", False, f"signed by {identity[:16]}… was expected, but {name} is not there")
            ]
        return None, [Check("signature", None, "the report is not signed, so anybody could have made it so")]
    try:
        signed = read_signature(report.parts[ENDING])
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
    return signed, [*checks, *_identity(first, identity, custody, signed, bool(status.get("signed")))]


def _chain(signed: SignedReport) -> Check:
    count = len(signed.signature.certificates)
    if not count:
        return Check("certificates", True, "signed by the vault’s first key itself, so none are needed")
    steps = "one certificate leads" if count == 1 else f"{count} certificates lead"
    return Check("certificates", True, f"{steps} from the vault’s first key to the one that signed")


def _identity(
    first: str, expected: str | None, custody: Mapping[str, Any], signed: SignedReport, announced: bool
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
    if announced and log != (signed.audit_head, signed.audit_count):
        yield Check("custody", False, "report and signature name different states of the audit log")
    elif announced:
        yield Check("custody", True, f"report and signature name the same audit log, {signed.audit_count} entries")


def _rulings(document: Mapping[str, Any]) -> Check:
    """Whether the rulings of a dispute follow from its tests and dates."""
    wrong = rulings.contradictions(document)
    if not wrong:
        return Check("rulings", True, "every ruling follows from the tests and dates in the document")
    named = [f"{d.where} is {printable(str(d.recorded), 120)}, should be {printable(str(d.found), 120)}" for d in wrong]
    return Check("rulings", False, f"do not follow from the tests and dates: {listed(named, 6)}")


def _page_of_dispute(document: Mapping[str, Any], html: bytes | None, json_name: str) -> Check:
    """Whether the page of a dispute is what its numbers draw."""
    if html is None:
        return Check("page", None, "there is no HTML beside the JSON")
    if html == dispute.dispute_html(document, json_name).encode("utf-8"):
        return Check("page", True, "the HTML is, byte for byte, what the JSON’s numbers draw")
    return Check("page", False, "the HTML is not what the JSON’s numbers draw")


def _numbers(document: Mapping[str, Any]) -> Check:
    wrong = contradictions(document)
    if not wrong:
        return Check("numbers", True, "every chance in the document follows from its ranks and settings")
    named = [f"{d.where} is {printable(str(d.recorded), 60)}, should be {printable(str(d.found), 60)}" for d in wrong]
    return Check("numbers", False, f"contradict one another: {listed(named, 6)}")
