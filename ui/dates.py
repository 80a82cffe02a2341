"""Dates typed by users."""

from __future__ import annotations

from datetime import UTC, date, datetime

from irwm.errors import IrwmError


def day_utc(text: str | None) -> str:
    """The beginning of a typed day, ISO 8601 in UTC; "" for none.

    The beginning, because that is the assumption least favourable to the person who states the date.

    Raises:
        IrwmError: not a date, or a date in the future.
    """
    typed = (text or "").strip()
    if not typed:
        return ""
    try:
        day = date.fromisoformat(typed)
    except ValueError:
        raise IrwmError("this is not a date", expected="year-month-day, such as 2024-01-28", found=typed) from None
    if day > datetime.now(UTC).date():
        raise IrwmError(
            "the date is in the future", found=typed, advice="Enter the day on which the suspect first appeared"
        )
    return f"{day.isoformat()}T00:00:00+00:00"
