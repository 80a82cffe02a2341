"""The one tree of errors that this package raises on purpose.

Every error can say which file and tensor it is about, what was expected, what was found and what to do next.
The parts are kept as attributes so that a page, a log and a JSON answer can each show them in their own way.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Any

# Unicode's Default_Ignorable_Code_Point without the two joiners, which some scripts need: two names that differ only in
# these characters look the same.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# A byte of a path that is not valid UTF-8, as `shown_path` writes it.
_ESCAPED = re.compile(r"\\x[89a-f][0-9a-f]")
_ESCAPED_OR_DOUBLED = re.compile(rb"\\\\|\\x[89a-f][0-9a-f]")


class IrwmError(Exception):
    """Root of every error raised on purpose.

    Args:
        problem: one plain sentence about the problem.
        file: the file or folder that it concerns.
        tensor: the tensor that it concerns.
        expected, found: the expected and the actual value, as short phrases.
        advice: the next step for the reader.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        tensor: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = shown_path(file) if isinstance(file, Path) else _sendable(file)
        self.tensor = _sendable(tensor)
        self.expected = _sendable(expected)
        self.found = _sendable(found)
        self.advice = advice
        super().__init__(self._text())

    def _text(self) -> str:
        parts = [self.problem.rstrip(".") + "."]
        for label, value in (
            ("File", self.file),
            ("Tensor", self.tensor),
            ("Expected", self.expected),
            ("Actual", self.found),
        ):
            if value is not None:
                parts.append(f"{label}: {printable(value)}.")
        if self.advice:
            parts.append(self.advice.rstrip(".") + ".")
        return " ".join(parts)


def shown_path(path: str | Path) -> str:
    """A path as text that can be stored, sent and shown. Different paths give different texts. To the system, a path is
    bytes: bytes that are not UTF-8 are written as \\xNN, and then backslashes are doubled. `path_from` reverses it."""
    text = os.fspath(path)
    if not any("\ud800" <= c <= "\udfff" for c in text) and (os.name == "nt" or not _ESCAPED.search(text)):
        return text
    return str(_sendable(text.replace("\\", "\\\\")))


def _sendable(text: str | None) -> str | None:
    """A text without lone surrogates, which no encoding of Unicode can hold."""
    return text and "".join(_escaped(c) if "\ud800" <= c <= "\udfff" else c for c in text)


def path_from(text: str | Path) -> Path:
    """The path of a text that `shown_path` wrote; the text itself if neither that path nor its folder exists."""
    if isinstance(text, Path) or os.name == "nt" or _ESCAPED.search(text) is None:
        return Path(text)
    try:
        raw = _ESCAPED_OR_DOUBLED.sub(lambda found: _byte(found.group(0)), os.fsencode(text))
    except UnicodeEncodeError:  # a surrogate that does not represent a byte of a path
        return Path(text)
    path, plain = Path(os.fsdecode(raw)), Path(text)
    if os.path.lexists(path) or os.path.lexists(plain):
        return path if os.path.lexists(path) else plain
    return path if os.path.lexists(path.parent) else plain


def _byte(escape: bytes) -> bytes:
    return b"\\" if escape == b"\\\\" else bytes.fromhex(escape[2:].decode("ascii"))


def printable(text: str, limit: int = 300) -> str:
    """Text from a file made safe to show: control and direction characters escaped, length bounded.

    Names in a checkpoint are chosen by the attacker; a terminal escape or a right-to-left override in one must
    not change how a page, a log or a report reads.
    """
    # Numbers are grouped by no-break spaces, which change nothing.
    safe = "".join(c if c.isprintable() or c == "\u00a0" else _escaped(c) for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _escaped(c: str) -> str:
    # Python reads a byte of a path that is not UTF-8 as a surrogate of this range.
    if "\udc80" <= c <= "\udcff":
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode("ascii")


def holds_controls(text: str) -> bool:
    """Whether a text has characters that move a cursor, begin a line, change the writing direction or are invisible.

    Names that users enter may contain any other character, including a joiner between two letters.
    """
    return any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in text) or _UNSEEN.search(text) is not None


class ParameterError(IrwmError, ValueError):
    """A parameter is outside its range or contradicts another one."""


class RowIndexError(ParameterError, IndexError):
    """A requested row is not in the tensor."""


class WatermarkKeyError(IrwmError):
    """Base of the errors about watermark keys."""


class KeyFormatError(WatermarkKeyError):
    """Bytes that are not a key, or a key of a newer version."""


class KeyMismatchError(WatermarkKeyError):
    """A key that belongs to another original model."""


class DeviceMemoryError(IrwmError):
    """A GPU has too little memory for a tensor; the checkpoint may be intact, and the CPU may be able to read it."""


def lacks_memory(error: Exception) -> bool:
    """Whether Python or torch had too little of the computer's memory."""
    said = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("allocate" in said or "out of memory" in said)
    )


class InsufficientMemoryError(IrwmError, MemoryError):
    """The computer has too little memory to run a model, whose files may be intact."""


class CheckpointError(IrwmError):
    """A checkpoint cannot be used; the subclasses say why."""


class RemoteError(IrwmError):
    """A checkpoint on a server cannot be read; what was read before is kept.

    It is no CheckpointError: the checkpoint may be intact, so no code must continue without what it could not read.

    Args:
        as `IrwmError`; without `advice`, the reader is advised to download the files.
    """

    def __init__(self, problem: str, *, advice: str | None = None, **details: str | Path | None) -> None:
        given: Any = details
        super().__init__(problem, advice=advice or "Download the files and enter their path", **given)


class ServerUnavailableError(RemoteError):
    """A server cannot be reached, is too slow, or asks to wait; its other files cannot be read now either."""


class NotACheckpointError(CheckpointError):
    """The path is not a model checkpoint, or cannot be read at all."""


class CorruptCheckpointError(CheckpointError):
    """The files are of a known format but break its rules."""


class UnsupportedCheckpointError(CheckpointError):
    """A valid file of an unsupported type; the advice says how to convert it."""


class CheckpointChangedError(CheckpointError):
    """A file was truncated or edited while it was read."""


class UnknownFamilyError(CheckpointError):
    """No known family matches; the message lists the tensor names that were tried."""


class AnswersError(IrwmError):
    """Unusable answers of a served model."""


class AnswersFileError(AnswersError):
    """A file of recorded answers that cannot be used; the message names the file and what is wrong with it."""


class NotApplicableError(IrwmError):
    """A function-preserving transform would change what this model computes, or its weights are not understood."""


class InsertionError(IrwmError):
    """A mark could not be inserted. No release was published."""


class ConditionError(InsertionError):
    """No permutation reached cond(A2) < condition_limit within the tries allowed (Algorithm 2)."""


class MarginError(InsertionError):
    """The mark did not survive rounding to the checkpoint's dtype, so it could not be proven."""


class PublishError(IrwmError):
    """A release could not be written. Existing files are unchanged."""


class OutputExistsError(PublishError):
    """The output folder exists already or is inside the input. Existing files are never overwritten."""


class DiskSpaceError(PublishError):
    """Not enough space on the target disk; the message says how much is needed."""


class UnmarkedCopyError(PublishError):
    """A release would hold an unmarked copy of a matrix that is marked. No release was published."""


class CancelledError(IrwmError):
    """The work was stopped on request. No release was published."""


class MissingExtraError(IrwmError, ImportError):
    """A library of an optional extra is not installed; the message names the extra."""


class SigningKeyError(IrwmError):
    """A key file or a token's key cannot be opened, or cannot sign."""


class AttestationError(IrwmError):
    """A file that cannot be signed, attested or listed; the message says what is wrong with it."""


class SignatureError(IrwmError, ValueError):
    """A signature, or the chain of certificates behind it, is invalid; the message says which part."""
