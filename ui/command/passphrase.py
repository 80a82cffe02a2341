"""The passphrase of a command: from a pipe or the keyboard only.

Arguments and environment can be read by every process of the account, and end up in logs and histories. One line is
read, without its line end and otherwise unchanged: spaces count (`storage.encryption.passphrase_bytes`).
"""

from __future__ import annotations

import getpass
import os
import sys

from irwm.errors import IrwmError
from storage.encryption import LONGEST_PASSPHRASE
from storage.errors import PassphraseError

# Limit for a line: the maximum length of a passphrase, with up to four bytes per character in UTF-8.
MOST_BYTES = 4 * LONGEST_PASSPHRASE


def read(*, stdin: bool, descriptor: int | None, again: bool = False) -> str:
    """The passphrase.

    Args:
        stdin: read it from standard input; if that is a terminal, ask for it without showing the input.
        descriptor: read it from this one, which is closed afterwards; None to use another source.
        again: on a terminal, ask twice and compare.

    Raises:
        PassphraseError: the line is empty, too long or not UTF-8.
        IrwmError: no source is available, or the two entries differ.
    """
    if descriptor is not None:
        line = _line(descriptor)
        if descriptor > 2:  # so that processes started later cannot read on
            os.close(descriptor)
        return _text(line)
    keyboard = sys.stdin is not None and sys.stdin.isatty()
    if stdin and not keyboard:
        return _text(_line(0))
    if not keyboard:
        raise IrwmError(
            "there is no passphrase",
            expected="a line on standard input or on a file descriptor, or a terminal",
            advice="Give --passphrase-stdin or --passphrase-fd N",
        )
    first = getpass.getpass("Passphrase of the vault: ")
    if again and getpass.getpass("Once more: ") != first:
        raise IrwmError("the two entries differ", advice="Start again and type the same passphrase twice")
    return first


def _line(descriptor: int) -> bytes:
    """Reads up to the first line end and not a byte further: the rest may be meant for another reader."""
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
