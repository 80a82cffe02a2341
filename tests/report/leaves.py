"""Every value of a document, and what a forger might write in its place."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from irwm.checkpoint.recorded import SCALES
from irwm.evidence.detection import INVARIANTS
from irwm.evidence.finding import MAPS
from irwm.report.value_states import Place, Stated, field_of, holds_field, leaves
from irwm.scheme.parameters import FINGERPRINT_PLACES, NOISE_LEVELS
from irwm.scheme.statistic import STATISTICS

_HEX = re.compile("[0-9a-f]{32,}")
# Words that a forger could exchange.
_VOCABULARIES: tuple[tuple[str, ...], ...] = (
    ("found", "not found", "inconclusive"),
    ("derived", "not derived", "cannot tell"),
    ("committed before", "committed too late", "suspect not dated", "not committed"),
    NOISE_LEVELS,
    STATISTICS,
    INVARIANTS,
    MAPS,
    FINGERPRINT_PLACES,
    SCALES,
)
# Counts divided by a count: the nearest other value is one more.
_SHARES: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "error_rates.decoys.mean_count": lambda value, d: value + 1 / d["error_rates"]["decoys"]["number"],
}


def forgeries(place: Place, value: Any, document: Mapping[str, Any]) -> list[Any]:
    """Other values of the same kind, including small changes."""
    return [forged for forged in _written_instead(place, value, document) if forged != value]


def _written_instead(place: Place, value: Any, document: Mapping[str, Any]) -> list[Any]:
    if field_of(place) in _SHARES:
        return [_SHARES[field_of(place)](value, document)]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value + 3]
    if isinstance(value, float):
        step = max(1e-5 * abs(value), 1e-8)  # ten times the allowed rounding
        return [value + step, value - step, -3.0 * value - 1.5]
    if isinstance(value, str) and _HEX.fullmatch(value):
        return [value[:-1] + ("0" if value[-1] != "0" else "1"), ("0" if value[0] != "0" else "1") + value[1:]]
    if isinstance(value, str):
        words = next((words for words in _VOCABULARIES if value in words), ())
        return [f"{value}x", "forged", *(word for word in words if word != value)]
    return [0.25, "x"] if value is None else [["x"]] if value == [] else [{"x": 1}]


def put(document: dict[str, Any], place: Place, value: Any) -> None:
    part: Any = document
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value


def changed(document: Mapping[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """A copy of the document with another value at this place."""
    made: dict[str, Any] = copy.deepcopy(dict(document))
    put(made, place, value)
    return made


def unnoticed(
    document: dict[str, Any], notices: Callable[[dict[str, Any]], bool], chosen: Sequence[tuple[Place, Any]]
) -> set[str]:
    """The fields with an unnoticed forgery; the document is unchanged afterwards."""
    found = set()
    for place, value in chosen:
        for forged in forgeries(place, value, document):
            put(document, place, forged)
            if not notices(document):
                found.add(field_of(place))
        put(document, place, value)
    return found


def few_of_each(document: Mapping[str, Any], most: int = 1) -> list[tuple[Place, Any]]:
    """At most this many values of each field, evenly spread, including the first and the last."""
    by_field: dict[str, list[tuple[Place, Any]]] = {}
    for place, value in leaves(document):
        by_field.setdefault(field_of(place), []).append((place, value))
    return [each for values in by_field.values() for each in _spread(values, most)]


def _spread(values: list[tuple[Place, Any]], most: int) -> list[tuple[Place, Any]]:
    last = len(values) - 1
    return [values[at] for at in sorted({round(i * last / max(most - 1, 1)) for i in range(most)})]


def named(unchecked: Sequence[Stated], field: str) -> list[str]:
    """The fields of the list that match this one."""
    place: Place = tuple(0 if step == "[]" else step for step in re.findall(r"\[\]|[^.\[\]]+", field))
    return [pattern for group in unchecked for pattern in group.fields if holds_field(pattern, place)]
