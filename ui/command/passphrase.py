"""The passphrase of a command: from a pipe or the keyboard, and from nowhere else.

Arguments and environment can be read by every process of the account, and end up in logs and histories. One line is
taken, without its line end and otherwise as it is: spaces count (`storage.encryption.passphrase_bytes`).
"""

from __future__ import annotations

import getpass
import os
import sys

from irwm.errors import IrwmError
from storage.encryption import LONGEST_PASSPHRASE
from storage.errors import PassphraseError

# Of a line: as many characters as a passphrase may have, each of up to four bytes in UTF-8.
MOST_BYTES = 4 * LONGEST_PASSPHRASE


def read(*, stdin: bool, descriptor: int | None, again: bool = False) -> str:
    """The passphrase.

    Args:
        stdin: read it from standard input; where that is a terminal it is asked for, so that nobody sees it typed.
        descriptor: read it from this one, which is closed afterwards; None for not.
        again: on a terminal, ask twice and compare.

    Raises:
        PassphraseError: the line is empty, too long or not UTF-8.
        IrwmError: there is nowhere to read it from, or the two entries differ.
    """
    if descriptor is not None:
        line = _line(descriptor)
        if descriptor > 2:  # so that nothing that is started later can read on
            os.close(descriptor)
        return _text(line)
    keyboard = sys.stdin is not None and sys.stdin.isatty()
    if stdin and not keyboard:
        return _text(_line(0))
    if not keyboard:
        raise IrwmError(
            "there is no passphrase",
            expected="a line on standard input or on a file descriptor, or a terminal to ask on",
            advice="Give --passphrase-stdin or --passphrase-fd N",
        )
    first = getpass.getpass("Passphrase of the vault: ")
    if again and getpass.getpass("Once more: ") != first:
        raise IrwmError("the two entries differ", advice="Start again and type it the same way twice")
    return first


def _line(descriptor: int) -> bytes:
    """Up to the first line end and not a byte further: what follows may be somebody else's."""
    line = bytearray()
    try:
        while len(line) <= MOST_BYTES and (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
            line += byte
    except OSError as error:
        raise IrwmError(
            "the passphrase cannot be read",
            expected="an open file descriptor",
            found=f"descriptor {descriptor}: {error.strerror}",
            advice="Open it for the command, as in --passphrase-fd 3 3< FILE",
        ) from error
    return bytes(line)


def _text(line: bytes) -> str:
    if len(line) > MOST_BYTES:
        raise PassphraseError(
            "the passphrase is too long", expected=f"one line of at most {LONGEST_PASSPHRASE} characters"
        )
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        # Without the cause, which quotes the bytes.
        raise PassphraseError("the passphrase is not valid text", expected="UTF-8") from None
    if not text:
        raise PassphraseError("the passphrase is empty", advice="Write it as one line into the pipe")
    return text
