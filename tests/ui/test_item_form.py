"""Dates typed by users."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from irwm.errors import IrwmError
from ui.components.item_form import day_utc


@pytest.mark.parametrize("empty", [None, "", "  "])
def test_empty_day_is_none(empty: str | None) -> None:
    assert day_utc(empty) == ""


def test_day_is_its_start_with_a_time_zone() -> None:
    assert day_utc(" 2024-01-28 ") == "2024-01-28T00:00:00+00:00"


@pytest.mark.parametrize("typed", ["28.1.2024", "2024-02-30", "yesterday", "2024-01-28T10:00"])
def test_invalid_date_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(IrwmError, match="not a date") as refused:
        day_utc(typed)
    assert "2024-01-28" in str(refused.value)


def test_future_day_is_refused() -> None:
    with pytest.raises(IrwmError, match="in the future"):
        day_utc((datetime.now(UTC).date() + timedelta(days=2)).isoformat())
