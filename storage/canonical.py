"""One way to turn values into bytes and times into text, so that hashed or sealed values can be rebuilt later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from irwm.canonical import canonical_json
from storage.errors import RecordValueError


def json_bytes(value: Any, what: str = "the value") -> bytes:
    """Canonical JSON: keys sorted, no spaces, ASCII only, and no NaN or infinity, which are not JSON.

    Raises:
        RecordValueError: the value is not plain JSON.
    """
    try:
        return canonical_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordValueError(
            f"{what} cannot be stored as JSON",
            expected="text, finite numbers, true, false, null, and lists or objects of these, with text as keys",
            found=str(error),
        ) from error


def required_text(**values: str) -> None:
    """Refuses a value that is not text or is empty.

    Raises:
        RecordValueError: names the value.
    """
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise RecordValueError(f"{name} is missing", expected="text that is not empty", found=repr(value))


def optional_text(**values: str) -> None:
    """Refuses a value that is not text; it may be empty.

    Raises:
        RecordValueError: names the value.
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise RecordValueError(f"{name} is not text", expected="text, which may be empty", found=repr(value))


def limited_text(what: str, text: str, most: int) -> None:
    """Refuses a text of more than `most` characters.

    Raises:
        RecordValueError: says what is too long.
    """
    if len(text) > most:
        raise RecordValueError(
            f"the {what} is too long", expected=f"at most {most} characters", found=f"{len(text)} characters"
        )


def checked_manifest(manifest: Mapping[str, str]) -> dict[str, str]:
    """The manifest, after a check: file name to SHA-256 as 64 lower-case hexadecimal digits.

    Raises:
        RecordValueError: names the file.
    """
    for name, digest in manifest.items():
        if not isinstance(name, str) or not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise RecordValueError(
                "the manifest does not map file names to SHA-256 digests",
                file=str(name),
                expected="64 hexadecimal digits",
                found=repr(digest),
            )
    return dict(manifest)


def checked_time(name: str, text: str) -> str:
    """A moment in UTC: a time in another zone is converted; an empty text stays empty.

    Raises:
        RecordValueError: it is not an ISO 8601 time with its zone. Times without a zone cannot be ordered.
    """
    optional_text(**{name: text})
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("the time zone is missing")
        if not moment.utcoffset():
            return text
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError) as error:
        raise RecordValueError(
            f"{name} is not a time",
            expected="ISO 8601 with a time zone, such as 2026-01-31T12:00Z",
            found=f"{text!r} ({error})",
        ) from None


def utc_now() -> datetime:
    """The wall clock in UTC. It may jump; use sequence numbers where the order matters."""
    return datetime.now(UTC)


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds, such as 2026-01-31T12:00:00.000Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
