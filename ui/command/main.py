"""From the arguments to the answer on standard output. This module imports nothing that could fail to import."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ui.command import output
from ui.command.parser import UsageError, command_in, parse
from ui.command.stop import Stop, Stopped
from ui.command.streams import open_missing, say
from ui.services.outcomes import ERROR, STOPPED


def main(arguments: Sequence[str]) -> int:
    """Runs the command in the arguments, prints its answer, and returns the exit status.

    Every failure has an answer: Python's own status for an error, 1, would mean that no mark was found.
    """
    command = command_in(arguments)
    try:
        open_missing()
        try:
            answer, sentence = _answer(arguments, command, Stop.installed())
        except Stopped:
            answer = output.document(command, STOPPED)
            sentence = output.plain_sentence(answer)
        except BaseException as error:
            if isinstance(error, SystemExit) and not error.code:  # --help, which has already printed its text
                raise
            say(output.trace_of(error))
            answer = output.of_unforeseen(command, error)
            sentence = output.plain_sentence(answer)
        say(sentence)
        say(output.text(answer), sys.stdout)
        return answer["exit_status"]
    except SystemExit:
        raise
    except BaseException:
        return output.EXIT[ERROR]


def _answer(arguments: Sequence[str], command: str | None, stop: Stop) -> tuple[output.Answer, str]:
    """The answer, and its sentence for the user."""
    try:
        given = parse(arguments)
    except UsageError as error:
        say(error.usage, end="")
        answer = output.of_usage(command, error.text)
        return answer, output.plain_sentence(answer)
    # Seconds of imports, which --help and a typing error do not need.
    from irwm.errors import printable
    from ui.command import words
    from ui.command.run import run

    answer = run(given, stop)
    return answer, printable(words.sentence(answer).replace("\u00a0", " "), 2000)  # plain spaces for logs
