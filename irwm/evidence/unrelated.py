"""How likely an unrelated model is to agree with the original as well as a suspect does.

The package contains measurements of unrelated models, which were trained independently of the originals that they were
compared with, and of damaged and disguised descendants (`data/unrelated.json`, written by `python -m benchmarks.lineage
--write`). A suspect's agreement is ranked among those of the unrelated models. If the suspect was trained independently
too, its p is at most any given value with just that chance, for any distribution of the agreement. p cannot be below
1 / (unrelated models + 1), and it is valid for models like those in the file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

# At this similarity or above, the rows alone are sufficient for "derived". Below it, models from one random start, or
# models that were trained separately for long enough, may be as similar, but not in their attention.
CLEAR_SIMILARITY = 0.6
# Agreement of attention that supports less similar rows, and how many times the largest decoy it must be: models from
# one random start reach 0.05, unrelated models 0.14, descendants under noise of 0.3 deviations 0.3.
SUPPORTING_ATTENTION, ABOVE_DECOYS = 0.2, 2.0
# Rows that agree more closely than this in all components, after a rotation or under an affine map, rule out "not
# derived" for any minor components. Unrelated models of the original's width reach 0.627 under the map, of half its
# width 0.649; one that is three times as wide reaches 0.653.
MOST_WHOLE = 0.65
UNRELATED, DESCENDANT = "unrelated", "descendant"


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a suspect with an original, under every map; NaN where it was not read.

    Attributes:
        similarity, needed: of the alignment, as in `Alignment`.
        attention, attention_decoy: as in `Lineage`.
        whole: as in `Alignment`, 0 where the suspect is aligned.
        fitted: `LeastSquares.agreement`.
    """

    similarity: float
    needed: float
    attention: float = math.nan
    attention_decoy: float = math.nan
    whole: float = math.nan
    fitted: float = math.nan

    @property
    def supported(self) -> float:
        """Agreement of attention as a share of the value that supports less similar rows; NaN if it was not read."""
        if math.isnan(self.attention):
            return math.nan
        return self.attention / max(SUPPORTING_ATTENTION, ABOVE_DECOYS * self.attention_decoy)

    @property
    def value(self) -> float:
        """The best agreement under any map, in units of the limit above which a model is not unrelated; NaN if no rows
        were read. Every "derived" model has 1 or more.
        """
        supported = math.nan if math.isnan(self.supported) else min(self.similarity / self.needed, self.supported)
        shares = (self.similarity / CLEAR_SIMILARITY, supported, self.whole / MOST_WHOLE, self.fitted / MOST_WHOLE)
        return max((share for share in shares if math.isfinite(share)), default=math.nan)


@dataclass(frozen=True, slots=True)
class AmongUnrelated:
    """A suspect's agreement among those of the kept models.

    Attributes:
        agreement: `Agreement.value` of the suspect. If an early map is above all unrelated models, later maps are not
            read, so that it is a lower bound.
        unrelated: the number of unrelated models in the file.
        as_alike: how many of these agree at least as closely.
        p: (1 + as_alike) / (1 + unrelated), the chance that an unrelated model agrees as closely.
        descendants: the number of damaged or disguised descendants in the file.
        as_unlike: how many of these agree no more closely.
        table: hex SHA-256 of the file of kept models.
    """

    agreement: float
    unrelated: int
    as_alike: int
    p: float
    descendants: int
    as_unlike: int
    table: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The models that the package keeps.

    Attributes:
        unrelated: the agreement of each unrelated model, with the compared original that it resembles most.
        descendants: the agreement of each with its own original.
        table: hex SHA-256 of the file.
    """

    unrelated: tuple[float, ...]
    descendants: tuple[float, ...]
    table: str

    def place(self, agreement: float) -> AmongUnrelated:
        """The place of an agreement among these, counted so that ties are against the accusation."""
        alike = sum(value >= agreement for value in self.unrelated)
        return AmongUnrelated(
            agreement=agreement,
            unrelated=len(self.unrelated),
            as_alike=alike,
            p=(1 + alike) / (1 + len(self.unrelated)),
            descendants=len(self.descendants),
            as_unlike=sum(value <= agreement for value in self.descendants),
            table=self.table,
        )


def kept_models() -> Kept:
    """The unrelated models and descendants of `data/unrelated.json`."""
    data = (resources.files("irwm.evidence") / "data" / "unrelated.json").read_bytes()
    best: dict[str, float] = {}
    descendants = []
    for each in json.loads(data)["compared"]:
        value = agreement_of(each).value
        if each["kind"] == UNRELATED:
            best[each["model"]] = max(value, best.get(each["model"], -math.inf))
        elif each["kind"] == DESCENDANT:
            descendants.append(value)
    return Kept(tuple(best.values()), tuple(descendants), hashlib.sha256(data).hexdigest())


def agreement_of(recorded: Mapping[str, Any]) -> Agreement:
    """The record of two models in the file, with null for values that were not read."""
    names = ("similarity", "needed", "attention", "attention_decoy", "whole", "fitted")
    return Agreement(*(math.nan if recorded[name] is None else float(recorded[name]) for name in names))
