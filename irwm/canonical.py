"""Canonical JSON, so that hashed, signed or sealed bytes can be built again later, and a strict reader for untrusted
JSON."""

from __future__ import annotations

import json
from typing import Any

# A report on 10 000 positions, the maximum, has 20 MB and 400 000 values.
MOST_JSON_BYTES, MOST_VALUES = 32 << 20, 500_000
# Its longest text is a sentence or a figure's numbers; its largest object has a name for each file that was signed.
MOST_TEXT, MOST_NAMES = 1 << 20, 10_000
# Shared: `json.dumps` would make a new one for each of the hundreds of thousands of records of a large vault.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """Canonical JSON: keys sorted, no spaces, ASCII only, and no NaN or infinity, which are not JSON.

    Raises:
        TypeError, ValueError, RecursionError: the value is not plain JSON.
    """
    _only_text_keys(value)
    return _ENCODER.encode(value).encode("ascii")


def _only_text_keys(value: Any) -> None:
    # json.dumps would turn the key 1 into "1" and let it collide with a real "1", silently losing one of them.
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not text")
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for inner in value:
        if isinstance(inner, (dict, list, tuple)):
            _only_text_keys(inner)


def strict_json(data: bytes) -> Any:
    """The value of these bytes, if they can be read in only one way.

    Sizes are checked before contents: an empty list takes three bytes here and sixty in memory.

    Raises:
        ValueError: not JSON; NaN or infinity, which JSON does not have; a name twice in one object, where some readers
            take the first and others the last; or larger than any report.
        RecursionError: nested too deeply.
    """
    if len(data) > MOST_JSON_BYTES:
        raise ValueError(f"it is {len(data):,} bytes long, but a report is at most {MOST_JSON_BYTES:,}")
    if (values := sum(map(data.count, (b",", b"[", b"{")))) > MOST_VALUES:
        raise ValueError(f"about {values:,} values, but a report has at most {MOST_VALUES:,}")
    value = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_each_once)
    if len(data) > MOST_TEXT and (longest := _longest_text(value)) > MOST_TEXT:
        raise ValueError(f"a string of {longest:,} characters, but a string in a report has at most {MOST_TEXT:,}")
    return value


def _longest_text(value: Any) -> int:
    longest, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            longest = max(longest, len(each))
        elif isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list):
            left += each
    return longest


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(pairs) > MOST_NAMES:
        raise ValueError(f"an object with {len(pairs):,} names, but an object in a report has at most {MOST_NAMES:,}")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object contains a duplicate name")
    return found
