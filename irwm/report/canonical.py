"""One way to turn values into bytes, so that what is hashed, signed or sealed can be built again later."""

from __future__ import annotations

import json
from typing import Any

# One for all: `json.dumps` would make a new one for each of the hundred thousands of records of a large vault.
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
