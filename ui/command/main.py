"""From what was typed to the answer on standard output."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from ui.command.parser import UsageError, command_in, parse
from ui.command.stop import Stop, Stopped


def main(arguments: Sequence[str]) -> int:
    """Carries out the command in the arguments, prints its answer, and returns the exit status.

    Whatever goes wrong has an answer: Python's own status for an error, 1, would say that no mark was found.
    """
    command, stop = command_in(arguments), Stop.installed()
    try:
        answer = _answer(arguments, command, stop)
    except Stopped:
        from ui.command import words

        answer = words.document(command, words.STOPPED)
    except Exception as error:
        from ui.command import words

        # Without its text, which may hold anything: this goes into the logs of pipelines.
        sys.stderr.writelines([*traceback.format_tb(error.__traceback__), f"{type(error).__name__}\n"])
        answer = words.of_unforeseen(command, error)
    return _tell(answer)


def _answer(arguments: Sequence[str], command: str | None, stop: Stop) -> dict[str, Any]:
    try:
        given = parse(arguments)
    except UsageError as error:
        from irwm.errors import IrwmError
        from ui.command import words

        print(error.usage, end="", file=sys.stderr)
        advice = f"Try: python app.py {f'{command} ' if command else ''}--help"
        return words.of_error(command, IrwmError(error.text, advice=advice))
    # Seconds of imports, which --help and a slip of the finger do not need.
    from ui.command.run import run

    return run(given, stop)


def _tell(answer: dict[str, Any]) -> int:
    from irwm.errors import printable
    from ui.command import words

    with contextlib.suppress(OSError):  # whoever asked is gone; the status says it all the same
        print(printable(words.sentence(answer), 2000), file=sys.stderr)
        print(words.text(answer), flush=True)
    return int(answer["exit_status"])
