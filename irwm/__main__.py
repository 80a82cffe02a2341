"""`python -m irwm verify REPORT`: does this report hold? For whoever receives one; no vault, no page and no network.

The only module of this package that talks to a person; what it runs lies on floors above (`irwm.report.verify`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from irwm import Key
from irwm.errors import IrwmError, printable

_ANSWERS = {True: "holds", False: "FAILS", None: "not checked"}
_RESULTS = (
    "All that was checked holds.",
    "This report does not hold: something was changed, or differs.",
    "What was asked could not be checked.",
)
# A key has some hundred bytes; a file that was named by mistake may be a model.
_MOST_KEY_BYTES = 1 << 20
_EPILOG = "Exit code: 0 all that was checked holds; 1 something was changed or differs; 2 it could not be checked."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        keys = [_key(Path(name)) for name in given.key]
    except IrwmError as error:
        print(printable(str(error), 1000), file=sys.stderr)
        return 2
    # A second's import, which --help does not need.
    from irwm.report.verification import BY_WHOM
    from irwm.report.verify import verify_report

    found = verify_report(
        given.report,
        suspect=given.suspect,
        original=given.original,
        key=keys[0] if keys else None,
        keys=keys[1:],
        identity=given.identity,
        device=given.device,
    )
    if given.json:
        checks = [{"name": c.name, "ok": c.ok, "said": c.said} for c in found.checks]
        print(json.dumps({"ok": found.ok, "exit_code": found.exit_code, "checks": checks}, indent=1))
        return found.exit_code
    for check in found.checks:
        print(f"{_ANSWERS[check.ok]:<11}  {check.name + ':':<13} {printable(check.said, 4000)}")
    unknown = found.exit_code == 0 and given.identity is None
    print(f"{_RESULTS[found.exit_code]} {BY_WHOM}" if unknown else _RESULTS[found.exit_code])
    return found.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m irwm", description="IRWM Studio at the command line.")
    commands = parser.add_subparsers(required=True, metavar="verify")
    verify = commands.add_parser(
        "verify",
        help="check a report's signature, files and numbers",
        description="Check a report: signature, files, numbers and, given the models and the key, the examination.",
        epilog=_EPILOG,
    )
    verify.add_argument("report", metavar="REPORT", help="its JSON, HTML, PDF or signature, or the folder they are in")
    verify.add_argument("--suspect", metavar="PATH", help="the model that was examined")
    verify.add_argument("--original", metavar="PATH", help="the unmarked model")
    verify.add_argument(
        "--key", metavar="FILE", action="append", default=[],
        help="the key as its owner opened it; once more for each recipient who is to be traced again",
    )  # fmt: skip
    verify.add_argument("--identity", metavar="HEX", help="the signer's first public key, as the signer published it")
    verify.add_argument("--device", default="cpu", help="where to compute (default: cpu)")
    verify.add_argument("--json", action="store_true", help="print the checks as JSON")
    return parser


def _key(path: Path) -> Key:
    try:
        with path.open("rb") as file:
            return Key.from_bytes(file.read(_MOST_KEY_BYTES))
    except OSError as error:
        raise IrwmError("the key file cannot be read", file=path, found=error.strerror) from error


if __name__ == "__main__":
    sys.exit(main())
