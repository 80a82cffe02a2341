"""Which of several originals a suspect descends from, by lineage alone, before any key is tried.

No key is used, so that the choice of an original does not change the p of a key that is tried afterwards. The p of a
lineage is corrected for the number of originals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint import Checkpoint
from irwm.checkpoint.suspects import open_suspect
from irwm.errors import CancelledError, IrwmError
from irwm.evidence.examination import Examination
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED, Lineage

# How likely each status is the right original's.
_ORDER = {DERIVED: 0, CANNOT_TELL: 1, NOT_DERIVED: 2}
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A suspect compared with one of several originals.

    Attributes:
        original: the original.
        lineage: whether the suspect descends from it; None if they cannot be compared.
        p: the chance that an unrelated model agrees as closely with any of the originals; NaN if not known.
        problem: why they cannot be compared.
    """

    original: Checkpoint
    lineage: Lineage | None
    p: float = math.nan
    problem: IrwmError | None = None

    @property
    def derived(self) -> bool:
        """Whether the suspect descends from this original."""
        return self.lineage is not None and self.lineage.status == DERIVED

    @property
    def excluded(self) -> bool:
        """Whether neither its embedding nor its output head has anything in common with this original."""
        return self.lineage is not None and self.lineage.status == NOT_DERIVED


def compare_originals(
    suspect: str | Path, originals: Sequence[Checkpoint], device: str = "cpu", progress: Progress | None = None
) -> tuple[Comparison, ...]:
    """Compare a suspect with each of several originals.

    Args:
        suspect: path, as `irwm.open_suspect` takes it.
        progress: called with originals done, their number and a description of the step; its exceptions are
            propagated.

    Returns:
        One comparison for each original, the likeliest first: derived, then undecided, then not derived, then those
        that cannot be compared; among equals by the agreement of rows.
    """
    found = []
    for number, original in enumerate(originals):
        if progress is not None:
            progress(number, len(originals), f"Comparing with {original.path.name}")
        try:
            lineage = _lineage(Examination(open_suspect(suspect, original), original, device))
        except CancelledError:
            raise
        except IrwmError as problem:
            found.append(Comparison(original, None, problem=problem))
        else:
            found.append(Comparison(original, lineage, min(lineage.p * len(originals), 1.0)))
    return tuple(sorted(found, key=_likelihood))


def _lineage(examination: Examination) -> Lineage:
    """The lineage of the embedding or the output head that supports a common origin most. Each tensor that may be one
    of them is read."""
    found = [each.lineage() for place in examination.places for each in examination.at(place).aligned]
    return min(found, key=lambda each: _ORDER[each.status])


def _likelihood(comparison: Comparison) -> tuple[int, float]:
    if comparison.lineage is None:
        return len(_ORDER), 0.0
    similarity = comparison.lineage.similarity
    return _ORDER[comparison.lineage.status], math.inf if math.isnan(similarity) else -similarity
