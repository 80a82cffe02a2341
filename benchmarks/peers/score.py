"""What a peer says of a pair of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Says = Literal["derived", "not derived", "cannot run"]

# Level below which a p-value counts as "derived": the one the authors of MATCH use to call two blocks related
# (model-tracing, tracing/statistics/match.py, statistic_all). The other papers with a p-value name none.
LEVEL = 1e-6


@dataclass(frozen=True, slots=True)
class Score:
    """One method's answer for one pair.

    Attributes:
        value: the method's own similarity, higher for more related; 1 or its maximum on a copy; NaN if it cannot run.
        p: the method's p-value where it has one; 0.0 stands for less than a double can hold.
        says: what the method's threshold makes of it.
        reason: one sentence for a person.
    """

    value: float
    p: float | None
    says: Says
    reason: str


class CannotRun(Exception):
    """The method has no answer for this pair; the message says why."""


def above(value: float, threshold: float, what: str) -> Score:
    """The score of a method that compares a similarity with a threshold."""
    derived = value > threshold
    reason = f"{what} {value:.4f} is {'above' if derived else 'not above'} {threshold:g}"
    return Score(value, None, "derived" if derived else "not derived", reason)


def significant(value: float, p: float, what: str) -> Score:
    """The score of a method that gives a p-value."""
    derived = p < LEVEL
    reason = f"{what} {value:.4f}, p = {p:.3g}, {'below' if derived else 'not below'} {LEVEL:g}"
    return Score(value, p, "derived" if derived else "not derived", reason)


def cannot(reason: str) -> Score:
    """The score of a method that has no answer."""
    return Score(float("nan"), None, "cannot run", reason)
