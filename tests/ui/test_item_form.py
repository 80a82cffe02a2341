"""Dates typed by users."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from irwm.errors import IrwmError
from ui.components.item_form import day_utc

IN_TWO_DAYS = (datetime.now(UTC).date() + timedelta(days=2)).isoformat()


@pytest.mark.parametrize("empty", [None, "", "  "])
def test_empty_day_is_none(empty: str | None) -> None:
    assert day_utc(empty) == ""


def test_day_is_its_start_with_a_time_zone() -> None:
    assert day_utc(" 2024-01-28 ") == "2024-01-28T00:00:00+00:00"


@pytest.mark.parametrize("typed", ["28.1.2024", "2024-02-30", "yesterday", "2024-01-28T10:00", IN_TWO_DAYS])
def test_invalid_or_future_date_is_refused(typed: str) -> None:
    with pytest.raises(IrwmError):
        day_utc(typed)
