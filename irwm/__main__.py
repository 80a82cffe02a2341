"""The command `irwm`, also `python -m irwm`: verify a report, inspect a checkpoint, look for a key's mark in a suspect,
map which models were made from which, and sign and describe a release for the tools of a supply chain (sign, attest,
bom, rekor).

For users who have files but no vault, and no page. Nothing uses the network, except that a suspect or a model may be
the address of one. Only this module of the package prints to the terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import irwm
from irwm.checkpoint.remote.opening import local_path
from irwm.errors import IrwmError, path_from, printable, shown_path
from irwm.report.checks import NEEDED, Verification, in_words, said

if TYPE_CHECKING:
    from irwm.report.reader_inputs import Brought

_ANSWERS = {True: "holds", False: "FAILS", None: "not checked"}
# The option, or the place, for what a report still needs.
_OPTIONS = {
    "identity": "--identity",
    "root": "--tsa-root",
    "suspect": "--suspect",
    "folder": "--suspect",
    "original": "--original",
    "models": "--model",
    "key": "--key",
    "log": "--audit-log",
    "seen": "--seen",
    "reviewed": "same folder",  # not an option
}
# Exit codes, the same as in `python app.py investigate` (docs/headless.md). Of several verdicts, the first one counts.
_CODES = {"found": 0, "inconclusive": 3, "not found": 1}
_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        code: int = given.run(given)
        return code
    except IrwmError as error:
        print(f"{said(error)}.", file=sys.stderr)
        return _ERROR


def run() -> int:
    """The installed command. The processes that it starts import no module from the working folder."""
    os.environ["PYTHONSAFEPATH"] = "1"
    return main()


def _verify(given: argparse.Namespace) -> int:
    from irwm.report.sandbox import judge_report

    roots = _roots(given.tsa_root)
    found = judge_report(given.report, given.identity, roots_pem=roots, brought=_brought(given))
    if given.json:
        _print_json(_as_json(found))
        return found.exit_code
    if len(found.checks) == 1:  # it is not a report, so no option would help
        print(f"{_inert(found.checks[0].said)}.")
        return found.exit_code
    for check in found.checks:
        print(f"{_ANSWERS[check.ok]:<11}  {check.name + ':':<13} {_inert(check.said)}")
    if found.states.left:
        print("Stated by the signer and not confirmed by the given files:")
        for line in in_words(found.states.left):
            print(f"  {_inert(line)}.")
    if found.exit_code == 2 and found.needed:
        print("To check these as well, give:")
        for need in found.needed:
            print(f"  {_OPTIONS[need]:<11}  {NEEDED[need]}")
    print(_inert(found.result))
    return found.exit_code


def _brought(given: argparse.Namespace) -> Brought | None:
    """The models, keys and other inputs that were given with the report; None without any."""
    if not (given.suspect or given.original or given.model or given.key or given.audit_log or given.seen):
        return None
    # Takes a second to import; --help and most malformed input do not need it.
    from irwm.report.reader_inputs import Brought, opened_keys

    return Brought(
        suspect=_path(given.suspect),
        original=_path(given.original),
        models=tuple(path_from(model) for model in given.model),
        keys=tuple(key for name in given.key for key in opened_keys(path_from(name))),
        audit_log=_path(given.audit_log),
        seen_utc=given.seen,
        device=given.device,
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else path_from(text)


class _Reading(TypedDict):
    """The result of one key in a suspect."""

    key: str
    owner: str
    recipient: str
    verdict: str
    reason: str
    count: int
    present: int
    log10_p: float
    log10_risk: float
    screened: bool
    warnings: list[str]


class _Suspect(TypedDict):
    """The result of one suspect in a folder of several."""

    suspect: str
    error: str | None
    keys: list[_Reading]


def _as_json(found: Verification) -> dict[str, object]:
    return {
        "ok": found.ok,
        "exit_code": found.exit_code,
        "result": found.result,
        "checks": [{"name": check.name, "ok": check.ok, "said": check.said} for check in found.checks],
        "open": list(found.open),
        "needed": list(found.needed),
        "states": {state: list(fields) for state, fields in found.states.fields.items()},
        "stated": [
            {"name": group.name, "why": group.why, "carries": group.carries, "needed": list(group.bring)}
            for group in found.states.left
        ],
    }


def _roots(names: Sequence[str]) -> bytes | None:
    if not names:
        return None
    # Takes a second to import and doubles the memory used.
    from irwm.report.stamps import trusted_roots

    return trusted_roots(names)


def _inspect(given: argparse.Namespace) -> int:
    model = irwm.open_checkpoint(given.model)
    facts = {
        "family": model.family,
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "dtype": model.dtype,
        "tied": model.tied,
        "bytes": model.bytes_total,
        "fingerprint": model.fingerprint,
        "notes": list(model.notes),
    }
    if given.json:
        _print_json(facts)
        return 0
    for name, value in facts.items():
        for line in value if isinstance(value, list) else [value]:
            shown = {True: "yes", False: "no"}[line] if isinstance(line, bool) else _inert(str(line))
            print(f"{name + ':':<13} {shown}")
    return 0


def _detect(given: argparse.Namespace) -> int:
    from irwm.report.reader_inputs import opened_key

    keys = [opened_key(path_from(name)) for name in given.key]
    original = irwm.open_checkpoint(given.original)
    suspect = local_path(given.suspect)
    several = irwm.find_checkpoints(suspect) if os.path.isdir(suspect) else None
    if several is None or len(several.paths) < 2:
        found = _read(given, suspect, original, keys)
        code = _code(each["verdict"] for each in found)
        if given.json:
            _print_json({"exit_code": code, "keys": found})
        else:
            _print_findings(found)
        return code
    rows = [_suspect(given, several.name_of(path), path, original, keys) for path in several.paths]
    passed_over = [*several.refused, *several.too_deep, *(["files beyond the search limit"] if several.cut else [])]
    not_cleared = ["inconclusive"] if passed_over or any(row["error"] for row in rows) else []
    code = _code([*not_cleared, *(each["verdict"] for row in rows for each in row["keys"])])
    if given.json:
        _print_json({"exit_code": code, "suspects": rows, "not_examined": passed_over})
        return code
    for row in rows:
        print(f"{_inert(row['suspect'])}:{' could not be examined' if row['error'] else ''}")
        if row["error"]:
            print(f"  {_inert(row['error'])}")
        _print_findings(row["keys"], "  ")
    if passed_over:
        print(f"Not searched: {_inert(', '.join(passed_over))}")
    return code


def _map(given: argparse.Namespace) -> int:
    from irwm.evidence.descent import lines_of

    models = [irwm.open_checkpoint(name) for name in (*given.original, *given.model)]
    found = irwm.map_descent(models, range(len(given.original)))
    if given.json:
        _print_json(asdict(found))
        return 0
    for line in lines_of(found):
        print(_inert(line))
    return 0


def _sign(given: argparse.Namespace) -> int:
    from irwm.attestation import open_signing_key, public_pem, sign_release

    key = open_signing_key(given.key, given.secret_file)
    _print_written(sign_release(path_from(given.release), key))
    return _public_key(given, public_pem(key.public_key()))


def _attest(given: argparse.Namespace) -> int:
    from irwm.attestation import enveloped, open_signing_key, public_pem, report_statement

    key = open_signing_key(given.key, given.secret_file)
    _write(given.out, enveloped(report_statement(path_from(given.report), given.identity), key))
    return _public_key(given, public_pem(key.public_key()))


def _bom(given: argparse.Namespace) -> int:
    from irwm.attestation import BillDetails, bill_of_materials

    described = BillDetails(given.commitment, given.base_model, given.recipient)
    _write(given.out, bill_of_materials(path_from(given.release), described))
    return 0


def _rekor(given: argparse.Namespace) -> int:
    from irwm.attestation import rekor_entry

    _write(given.out, rekor_entry(path_from(given.signed), path_from(given.public_key)))
    return 0


def _public_key(given: argparse.Namespace, pem: bytes) -> int:
    if given.public_key is not None:
        _write(given.public_key, pem)
    return 0


def _write(name: str, content: bytes) -> None:
    from irwm.attestation.new_file import write_new

    _print_written(write_new(path_from(name), content))


def _print_written(path: Path) -> None:
    print(f"Written: {_inert(shown_path(path))}")


def _suspect(
    given: argparse.Namespace, name: str, path: Path, original: irwm.Checkpoint, keys: Sequence[irwm.Key]
) -> _Suspect:
    """One suspect in a folder of several."""
    try:
        return {"suspect": name, "error": None, "keys": _read(given, path, original, keys)}
    except IrwmError as error:
        return {"suspect": name, "error": said(error), "keys": []}


def _read(
    given: argparse.Namespace, path: str | Path, original: irwm.Checkpoint, keys: Sequence[irwm.Key]
) -> list[_Reading]:
    """The result of each key in a suspect."""
    examination = irwm.Examination(irwm.open_suspect(path, original), original, given.device)
    findings = irwm.detect_each(examination, keys, given.seed, screen=given.screen)
    return [
        {
            "key": shown_path(name),
            "owner": key.owner,
            "recipient": key.recipient,
            "verdict": finding.verdict,
            "reason": finding.reason,
            "count": finding.count,
            "present": finding.present,
            "log10_p": finding.log10_p,
            "log10_risk": finding.log10_risk,
            "screened": finding.screened,
            "warnings": list(finding.warnings),
        }
        for name, key, finding in zip(given.key, keys, findings, strict=True)
    ]


def _code(verdicts: Iterable[str]) -> int:
    there = set(verdicts)
    return next(code for verdict, code in _CODES.items() if verdict in there)


def _print_findings(found: Sequence[_Reading], indent: str = "") -> None:
    for each in found:
        print(f"{indent}{_inert(each['key'])}: {each['verdict']}")
        for line in (each["reason"], *each["warnings"]):
            print(f"{indent}  {_inert(line)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="irwm", description="Watermarks in the weights of language models.")
    parser.add_argument("--version", action="version", version=f"irwm {irwm.__version__}")
    commands = parser.add_subparsers(
        required=True, metavar="verify | inspect | detect | map | sign | attest | bom | rekor"
    )

    verify = commands.add_parser(
        "verify",
        help="check a report's signature, files and numbers",
        description="Check a report: signature, files, numbers and, given the models and the key, the examination.",
        epilog="Exit code: 0 signed by the identity given with --identity, and everything that the verdict "
        "depends on recomputed from the given files; 1 something was changed or differs; 2 neither, and the "
        "last lines say what to give.",
    )
    verify.set_defaults(run=_verify)
    verify.add_argument("report", metavar="REPORT", help="its JSON, HTML, PDF or signature file, or their folder")
    verify.add_argument("--suspect", metavar="PATH", help="the model that was examined; for a sweep, its folder")
    verify.add_argument("--original", metavar="PATH", help="the unmarked model")
    verify.add_argument(
        "--model", metavar="PATH", action="append", default=[],
        help="for a dispute, a model that was examined, or a folder of them; repeat for each",
    )  # fmt: skip
    verify.add_argument(
        "--key", metavar="PATH", action="append", default=[],
        help="a key as its owner opened it, or a folder of such keys; repeat for each key that was tried",
    )  # fmt: skip
    verify.add_argument("--identity", metavar="HEX", help="the signer's first public key, as published by the signer")
    verify.add_argument(
        "--tsa-root", metavar="FILE", action="append", default=[],
        help="root certificate (PEM or DER) of a timestamping authority that you trust; repeat for each",
    )  # fmt: skip
    verify.add_argument("--audit-log", metavar="FILE", help="the signer's audit log, as exported from the Vault page")
    verify.add_argument(
        "--seen", metavar="TIME",
        help="the date from which you know the suspect to have existed (ISO 8601 with time zone), or the word unknown",
    )  # fmt: skip

    inspect = commands.add_parser(
        "inspect",
        help="describe a checkpoint",
        description="Describe a checkpoint: family, sizes, number format, and the fingerprint of its embedding.",
        epilog="Exit code: 0 the checkpoint was read; 2 it could not be read.",
    )
    inspect.set_defaults(run=_inspect)
    inspect.add_argument("model", metavar="MODEL", help="a folder or a file")

    detect = commands.add_parser(
        "detect",
        help="look for the mark of a key in a suspect",
        description="Look for the mark of one or more keys in a suspect. "
        "The verdict is corrected for every key that is tried.",
        epilog="Exit code: 0 a mark is found; 1 no mark is found; 2 an error; 3 inconclusive.",
    )
    detect.set_defaults(run=_detect)
    detect.add_argument("suspect", metavar="SUSPECT", help="the model under examination: folder, file or address")
    detect.add_argument("--original", metavar="PATH", required=True, help="the unmarked model that the key is for")
    detect.add_argument("--key", metavar="FILE", action="append", required=True, help="a key file; repeat for each key")
    detect.add_argument("--seed", type=int, default=0, help="seed of the public permutations (default: 0)")
    detect.add_argument(
        "--screen", action="store_true",
        help="dismiss keys without a signal after 49 permutations; much faster with many keys",
    )  # fmt: skip

    mapped = _add_map(commands)
    _add_release_commands(commands)
    for command in (verify, detect):
        command.add_argument("--device", default="cpu", help="device to compute on (default: cpu)")
    for command in (verify, inspect, detect, mapped):
        command.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _add_map(commands: Any) -> argparse.ArgumentParser:
    mapped: argparse.ArgumentParser = commands.add_parser(
        "map",
        help="show which of several models were made from which",
        description="Join models to the trees of their descent. Each model is below the one that it is joined to, with "
        "the relative difference of the two, and what shows that it was made from it. A question mark means that the "
        "direction is unknown.",
        epilog="Exit code: 0 the map was made; 2 a model could not be read.",
    )
    mapped.set_defaults(run=_map)
    mapped.add_argument("model", metavar="MODEL", nargs="+", help="a folder, a file or an address")
    mapped.add_argument(
        "--original", metavar="MODEL", action="append", default=[],
        help="a model that was made from none of the others; repeat for each",
    )  # fmt: skip
    return mapped


def _add_release_commands(commands: Any) -> None:
    """The commands that need the extra `release`."""
    ended = "Exit code: 0 the file was written; 2 an error."

    sign = commands.add_parser(
        "sign",
        help="sign a release",
        description="Write model.sig, an OpenSSF Model Signing signature, into the folder of a release. It covers the "
        "hashes in SHA256SUMS; no weights are read.",
        epilog=f"{ended} To check it: model_signing verify key --signature RELEASE/model.sig --public_key FILE RELEASE",
    )
    sign.set_defaults(run=_sign)
    sign.add_argument("release", metavar="RELEASE", help="its folder, with SHA256SUMS")

    attest = commands.add_parser(
        "attest",
        help="export a signed report as an in-toto attestation",
        description="Write a DSSE envelope with an in-toto statement of a signed report: the suspect's files, the "
        "verdict, the key's commitment, log10 p, and the report's SHA-256.",
        epilog=ended,
    )
    attest.set_defaults(run=_attest)
    attest.add_argument("report", metavar="REPORT", help="any file of the report, its folder, or its archive")
    attest.add_argument("--out", metavar="FILE", required=True, help="the new file")
    attest.add_argument("--identity", metavar="HEX", default="", help="the expected signer's first public key")

    for command in (sign, attest):
        command.add_argument(
            "--key", metavar="KEY", required=True,
            help="a PEM file with an EC P-256 key, or a PKCS#11 URI: pkcs11:token=...;object=...?module-path=...",
        )  # fmt: skip
        command.add_argument(
            "--secret-file", metavar="FILE", default="", help="its first line is the key file's password or the PIN"
        )
        command.add_argument("--public-key", metavar="FILE", help="also write the public key into this new PEM file")

    bom = commands.add_parser(
        "bom",
        help="describe a release in a CycloneDX bill of materials",
        description="Write a CycloneDX ML-BOM of a release: its files with their hashes, its licence and base model "
        "from its model card, and the commitment of its mark.",
        epilog=ended,
    )
    bom.set_defaults(run=_bom)
    bom.add_argument("release", metavar="RELEASE", help="its folder, with SHA256SUMS")
    bom.add_argument("--out", metavar="FILE", required=True, help="the new file, outside the release")
    bom.add_argument("--commitment", metavar="HEX", default="", help="the key's commitment, as in the receipt")
    bom.add_argument("--base-model", metavar="NAME", default="", help="the original, if the model card names none")
    bom.add_argument("--recipient", metavar="NAME", default="", help="name the recipient in the bill")

    rekor = commands.add_parser(
        "rekor",
        help="write an entry for a Rekor transparency log",
        description="Check a signature and write the entry with which it can be handed in to a Rekor transparency log. "
        "It sends no data.",
        epilog=ended,
    )
    rekor.set_defaults(run=_rekor)
    rekor.add_argument("signed", metavar="FILE", help="model.sig of a release, or an attestation")
    rekor.add_argument("--public-key", metavar="FILE", required=True, help="the signer's public key, PEM")
    rekor.add_argument("--out", metavar="FILE", required=True, help="the new file")


def _inert(text: str) -> str:
    return printable(text, 4000)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


if __name__ == "__main__":
    sys.exit(main())
