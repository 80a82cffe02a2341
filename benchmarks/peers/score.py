"""A peer's answer for a pair of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Says = Literal["derived", "not derived", "cannot run"]

# Level below which a p-value counts as "derived": the authors of MATCH use it to call two blocks related
# (model-tracing, tracing/statistics/match.py, statistic_all). The other papers with a p-value give no level.
LEVEL = 1e-6


@dataclass(frozen=True, slots=True)
class Score:
    """One method's answer for one pair.

    Attributes:
        value: the method's own similarity, higher for more related; 1 or its maximum on a copy; NaN if it cannot run.
        p: the method's p-value, or None; 0.0 means a value too small for a double.
        says: decision by the method's threshold.
        reason: one sentence for the reader.
    """

    value: float
    p: float | None
    says: Says
    reason: str


class CannotRun(Exception):
    """The method has no answer for this pair. The message gives the reason."""


def above(value: float, threshold: float, what: str) -> Score:
    """Return the score of a method that compares a similarity with a threshold."""
    derived = value > threshold
    reason = f"{what} {value:.4f} is {'above' if derived else 'not above'} {threshold:g}"
    return Score(value, None, "derived" if derived else "not derived", reason)


def significant(value: float, p: float, what: str, level: float = LEVEL) -> Score:
    """Return the score of a method with a p-value."""
    derived = p < level
    reason = f"{what} {value:.4f}, p = {p:.3g}, {'below' if derived else 'not below'} {level:g}"
    return Score(value, p, "derived" if derived else "not derived", reason)


def cannot(reason: str) -> Score:
    """Return the score of a method without an answer."""
    return Score(float("nan"), None, "cannot run", reason)
