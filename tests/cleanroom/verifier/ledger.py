"""A list of comparisons, printed as they are made."""

from __future__ import annotations

import math
from typing import Any


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's; non-finite ones as the report's null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Ledger:
    """Counts agreements and disagreements."""

    def __init__(self) -> None:
        self.failed = 0
        self.made = 0
        self.worst = 0.0
        self._least = 1e-300

    def _same(self, mine: Any, theirs: Any, tolerance: float) -> bool:
        if isinstance(mine, list) and isinstance(theirs, list):
            # Compares all pairs, so that the largest difference covers all of them.
            same = [self._same(a, b, tolerance) for a, b in zip(mine, theirs, strict=False)]
            return len(mine) == len(theirs) and all(same)
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (mine, theirs))
        if numbers and tolerance:
            difference = abs(mine - theirs) / max(abs(mine), abs(theirs), self._least) if mine != theirs else 0.0
            self.worst = max(self.worst, difference)
            return difference <= tolerance
        return (type(mine) is type(theirs) and mine == theirs) or (numbers and mine == theirs)

    def check(self, name: str, mine: Any, theirs: Any, tolerance: float = 0.0, least: float = 1e-300) -> bool:
        """One comparison: exact, or within a tolerance relative to the larger number, at least to `least`."""
        mine, theirs = _plain(mine), _plain(theirs)
        self.worst, self._least = 0.0, least
        same = self._same(mine, theirs, tolerance)
        self.made += 1
        self.failed += not same
        if same:
            print(f"agrees   {name}" + (f" (within {self.worst:.0e})" if self.worst else ""))
            return True
        text = f"mine {mine!r}, the report {theirs!r}"
        if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
            off = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if not self._same(a, b, tolerance)]
            text = (
                f"{len(off)} of {len(mine)} differ, the first is number {off[0]}: mine {mine[off[0]]!r}, "
                f"the report {theirs[off[0]]!r}; largest relative difference {self.worst:.2e}"
            )
        print(f"DIFFERS  {name}: {text}")
        return False

    def fields(self, name: str, said: dict[str, Any], tolerance: float = 0.0, **mine: Any) -> None:
        """One comparison for each of these fields of a part of the report."""
        for field, value in mine.items():
            self.check(f"{name}: {field}", value, said[field], tolerance)

    def holds(self, name: str, true: bool, said: str = "") -> bool:
        """One fact that is true or false."""
        self.made += 1
        self.failed += not true
        print(("agrees   " if true else "DIFFERS  ") + name + (f": {said}" if said and not true else ""))
        return true

    @staticmethod
    def note(text: str) -> None:
        """A statement that is printed and not judged."""
        print(f"note     {text}")
