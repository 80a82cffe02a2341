from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.canonical import checked_manifest, checked_time, json_bytes, required_text, utc_text
from storage.errors import RecordValueError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_insertion_does_not_change_the_bytes(values: dict[str, object]) -> None:
    assert json_bytes(values) == json_bytes(dict(reversed(values.items())))


def test_canonical_form_is_fixed() -> None:
    assert json_bytes({"b": [1, 2.5, None], "a": "é\n"}) == b'{"a":"\\u00e9\\n","b":[1,2.5,null]}'


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [{"rank": math.nan}, {"rank": math.inf}, {1: "a"}, {"deep": [{True: 1}]}, {"bytes": b"x"}, {"set": {1}}, LOOP],
    ids=str,
)
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(RecordValueError, match="the finding"):
        json_bytes(value, "the finding")


def test_times_are_converted_to_utc() -> None:
    zurich = timezone(timedelta(hours=2))
    assert utc_text(datetime(2026, 7, 1, 1, 30, tzinfo=zurich)) == "2026-06-30T23:30:00.000Z"
    assert utc_text(datetime(2099, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)) == "2099-12-31T23:59:59.999Z"


@pytest.mark.parametrize("value", ["", "  ", None, 7])
def test_missing_text_is_named(value: object) -> None:
    with pytest.raises(RecordValueError, match="owner is missing"):
        required_text(owner=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("digest", ["", "AB" * 32, "ab" * 31, "ab" * 32 + "\n", None])
def test_a_manifest_with_something_else_than_sha256_names_the_file(digest: object) -> None:
    with pytest.raises(RecordValueError, match=r"model\.safetensors"):
        checked_manifest({"model.safetensors": digest})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("2026-01-31T12:00Z", "2026-01-31T12:00Z"),
        ("2026-01-31T00:00:00+00:00", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T00:30:00+01:00", "2026-01-30T23:30:00Z"),
        ("2026-01-31T12:00:00.123456-05:30", "2026-01-31T17:30:00.123456Z"),
    ],
)
def test_a_time_is_kept_in_utc(text: str, kept: str) -> None:
    assert checked_time("seen", text) == kept


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T12:00", "12:00Z", "now", "9999-12-31T23:59-12:00", 7, None])
def test_time_without_zone_or_missing_time_is_refused(text: object) -> None:
    with pytest.raises(RecordValueError, match="seen"):
        checked_time("seen", text)  # type: ignore[arg-type]
