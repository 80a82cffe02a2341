"""Lineage: whether the suspect descends from the original at all, mark or no mark.

"Derived from ours" and "carries this key's mark" are two findings and are never merged into one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irwm.alignment import ALIGNED_COSINE, Alignment

DERIVED, NOT_DERIVED, CANNOT_TELL = "derived", "not derived", "cannot tell"
# A related model's rows stand this many decoy deviations above chance; far beyond what unrelated rows reach.
FEWEST_DEVIATIONS = 10.0


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whether the suspect descends from the original.

    Attributes:
        status: "derived", "not derived" or "cannot tell".
        similarity: median cosine of the aligned rows with the original's; NaN when nothing could be compared.
        decoy_similarity: the same with wrong rows.
        reason: one sentence for a person.
    """

    status: str
    similarity: float
    decoy_similarity: float
    reason: str


def lineage(alignment: Alignment) -> Lineage:
    """The lineage that an alignment supports.

    A failed alignment is "cannot tell", not "not derived": this version puts back the order of columns only, and a
    rotated copy would look the same as a stranger.
    """
    if not alignment.cosines.size:
        return Lineage(CANNOT_TELL, float("nan"), float("nan"), alignment.reason)
    decoy = float(np.median(alignment.decoy_cosines))
    deviation = float(np.std(alignment.decoy_cosines)) / np.sqrt(alignment.decoy_cosines.size)
    similarity = alignment.similarity
    above = (similarity - decoy) / max(deviation, 1e-12)
    compared = f"the median row has cosine {similarity:.3f} with the original's, {decoy:.3f} with a wrong row"
    if alignment.aligned and similarity >= ALIGNED_COSINE and above >= FEWEST_DEVIATIONS:
        return Lineage(DERIVED, similarity, decoy, f"derived from the original: {compared}")
    return Lineage(CANNOT_TELL, similarity, decoy, f"no resemblance found in these coordinates: {compared}")
