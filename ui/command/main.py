"""From what was typed to the answer on standard output. Nothing is imported here that could fail to be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ui.command import answers
from ui.command.parser import UsageError, command_in, parse
from ui.command.stop import Stop, Stopped
from ui.command.streams import open_missing, say


def main(arguments: Sequence[str]) -> int:
    """Carries out the command in the arguments, prints its answer, and returns the exit status.

    Whatever goes wrong has an answer: Python's own status for an error, 1, would say that no mark was found.
    """
    command = command_in(arguments)
    try:
        open_missing()
        try:
            answer, sentence = _answer(arguments, command, Stop.installed())
        except Stopped:
            answer = answers.document(command, answers.STOPPED)
            sentence = answers.plain_sentence(answer)
        except BaseException as error:
            if isinstance(error, SystemExit) and not error.code:  # --help, which has said all
                raise
            say(answers.trace_of(error))
            answer = answers.of_unforeseen(command, error)
            sentence = answers.plain_sentence(answer)
        say(sentence)
        say(answers.text(answer), sys.stdout)
        return int(answer["exit_status"])
    except SystemExit:
        raise
    except BaseException:
        return answers.EXIT[answers.ERROR]


def _answer(arguments: Sequence[str], command: str | None, stop: Stop) -> tuple[dict[str, Any], str]:
    """The answer, and the sentence that a person reads."""
    try:
        given = parse(arguments)
    except UsageError as error:
        say(error.usage, end="")
        answer = answers.of_usage(command, error.text)
        return answer, answers.plain_sentence(answer)
    # Seconds of imports, which --help and a slip of the finger do not need.
    from irwm.errors import printable
    from ui.command import words
    from ui.command.run import run

    answer = run(given, stop)
    return answer, printable(words.sentence(answer).replace("\u00a0", " "), 2000)  # a log's spaces are plain ones
