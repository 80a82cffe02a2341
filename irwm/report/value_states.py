"""The state of each value of a document: derived, consistent or stated.

    derived      computed again from what the reader brought (models, keys, certificates, the audit log), and equal
    consistent   follows from other values of the same document
    stated       neither: only the signer states it

The claims of a kind of report assign the values that follow from others (`claims` in `consistency`, `rulings`,
`lab_claims`, `sweep_claims` and `stamps`); every other value is an input. `STATED` next to the claims puts the inputs
into groups, each with the reason why the report alone cannot show it and with what the reader must bring. `SHOWN` says
which check computes which values again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

DERIVED, CONSISTENT, STATED = "derived", "consistent", "stated"
# A value's place in a document, as names and numbers.
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Stated:
    """Values that the report alone cannot show.

    Attributes:
        name: the group in a few words, as the result prints it.
        why: why the report alone cannot show that they are true.
        fields: their places. "[]" is every element of a list, "*" every name of an object, and "name*" all values
            inside `name`.
        bring: what shows them, as names of `irwm.report.checks.NEEDED`; empty if they cannot be shown.
        only: the checks that show them, if not every check that computes them does; () for none.
        carries: the verdict, a name, a decoy, a control, the lineage or an item depends on them, so the report is not
            established while they are merely stated.
    """

    name: str
    why: str
    fields: tuple[str, ...]
    bring: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    carries: bool = False


# A value that no claim assigns and no group lists: the report says something that this program does not know.
UNKNOWN = "values that this program does not recognise"
# A report of a lab with hundreds of rows has about ten thousand values of a few hundred fields. The states of more than
# these values are not computed, and then the report is not established.
MOST_VALUES, MOST_FIELDS = 500_000, 2_000
MORE = Stated("more values than any report has", f"only the first {MOST_VALUES} are checked", (), carries=True)


@dataclass(frozen=True, slots=True)
class States:
    """The states of all values of a document.

    Attributes:
        fields: the fields by their state; a field with values of several states is listed under the weakest.
        left: the groups with a value that is merely stated, then values that belong to no group.
    """

    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left: tuple[Stated, ...] = ()

    def and_of(self, other: States) -> States:
        """These states, with the groups that are left in another report."""
        return replace(self, left=tuple(dict.fromkeys((*self.left, *other.left))))


def states(
    document: Mapping[str, object],
    assigned: Collection[str],
    groups: Sequence[Stated],
    shown: Mapping[str, Sequence[str]],
    held: Collection[str],
) -> States:
    """The state of each value of a document.

    Args:
        assigned: the places that the document's claims assign, such as "reading.positions[3].counts".
        groups: the inputs; a value belongs to the first group that matches it.
        shown: the fields that a check computes again, by the check's name.
        held: names of the checks that hold.
    """
    # The entries of a field match the same patterns, so each field is looked up once.
    looked_up: dict[str, tuple[bool, Stated | None]] = {}
    weakest: dict[str, str] = {}
    left: set[Stated] = set()
    unknown: dict[str, None] = {}
    order = (STATED, CONSISTENT, DERIVED)
    more: tuple[Stated, ...] = ()
    for number, (place, _) in enumerate(leaves(document)):
        name = field_of(place)
        if number == MOST_VALUES or len(looked_up) > MOST_FIELDS:
            more = (MORE,)
            break
        if name not in looked_up:
            group = next((each for each in groups if any(holds_field(field, place) for field in each.fields)), None)
            again = {check for check, fields in shown.items() if any(holds_field(field, place) for field in fields)}
            if group is not None and group.only is not None:
                again &= set(group.only)
            looked_up[name] = bool(again & set(held)), group
        derived, group = looked_up[name]
        state = DERIVED if derived else CONSISTENT if text_of(place) in assigned else STATED
        if state == STATED and group is None:
            unknown[name] = None
        elif state == STATED and group is not None:
            left.add(group)
        weakest[name] = min(state, weakest.get(name, state), key=order.index)
    rest = (Stated(UNKNOWN, "this program has no check for them", tuple(unknown), carries=True),) if unknown else ()
    by_state = {state: tuple(name for name, each in weakest.items() if each == state) for state in reversed(order)}
    return States(by_state, (*(group for group in groups if group in left), *rest, *more))


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is not an object or a list, and empty objects and lists."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from leaves(part, (*place, name))
    elif isinstance(value, list) and value:
        for i, part in enumerate(value):
            yield from leaves(part, (*place, i))
    else:
        yield place, value


def field_of(place: Place) -> str:
    """The place without the numbers of a list's entries."""
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")


def text_of(place: Place) -> str:
    """The place as written in claims."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")


def holds_field(pattern: str, place: Sequence[str | int]) -> bool:
    """Whether a field of `Stated` matches the value at this place."""
    steps = _steps(pattern)
    for number, step in enumerate(steps):
        if step.endswith("*") and step != "*":
            return len(place) > number and place[number] == step[:-1]
        if number >= len(place):
            return False
        here = place[number]
        if isinstance(here, int) != (step == "[]") or (step not in ("[]", "*") and here != step):
            return False
    return len(steps) == len(place)


@functools.cache
def _steps(field: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\[\]|[^.\[\]]+", field))
