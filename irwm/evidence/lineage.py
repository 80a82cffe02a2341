"""Lineage: whether the suspect descends from the original at all, mark or no mark.

"Derived from ours" and "carries this key's mark" are two findings and are never merged into one. There are two kinds of
evidence: the aligned rows against wrong rows aligned the same way, and the agreement of layer 0's attention in the two
models (`attention`). After a rotation both are computed in the minor components, where models trained apart share
least. Some similarity there is not enough: benchmarks/lineage.py measures the values of strangers, and the thresholds
are above them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from irwm.alignment import Alignment
from irwm.evidence.attention import Attention

DERIVED, NOT_DERIVED, CANNOT_TELL = "derived", "not derived", "cannot tell"
# The median cosine must be this many standard errors above that of wrong rows. With thousands of rows any similarity
# is; a handful of rows must not decide anything.
FEWEST_DEVIATIONS = 10.0
# From this similarity on the rows alone are enough. Below it, models from one random start, or models trained apart for
# long enough, may be as similar, but not in their attention.
CLEAR_SIMILARITY = 0.6
# Agreement of attention that supports less similar rows, and how many times the largest decoy it must be: models from
# one random start reach 0.05, strangers 0.13, descendants under noise of 0.3 deviations 0.3.
SUPPORTING_ATTENTION, ABOVE_DECOYS = 0.2, 2.0
# Models that have nothing in common are below this share of the similarity that "aligned" needs.
UNRELATED_SHARE = 0.6
# If a smaller share of the smaller model's rows has a counterpart, most of it is not ours.
LEAST_MATCHED = 0.5
# If more of the rows nearly equal ours, some of our rows were pasted into the model, and it is not called unrelated.
MOST_NEARLY_EQUAL = 0.02
# Rows that agree better than this in all components, once turned, are no stranger's, whatever was done to the minor
# ones. Models trained apart reach 0.58 (benchmarks/lineage.py).
MOST_WHOLE = 0.65


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whether the suspect descends from the original.

    Attributes:
        status: "derived", "not derived" or "cannot tell".
        similarity: median cosine of the aligned rows with the original's; NaN when nothing could be compared. After
            a rotation, in the original's minor components.
        decoy_similarity: the same with wrong rows.
        reason: one sentence for a person.
        attention: agreement of layer 0's attention scores in their minor components, in [-1, 1]; NaN where the
            suspect's q and k cannot be read.
        attention_decoy: the largest of 99 such values with wrong tokens; NaN likewise.
        fitted: the cosine with the original's that a quarter of the rows reach under an affine map that was fitted to
            other rows; NaN where the status did not depend on it, or none could be fitted.
    """

    status: str
    similarity: float
    decoy_similarity: float
    reason: str
    attention: float = math.nan
    attention_decoy: float = math.nan
    fitted: float = math.nan


def lineage(
    alignment: Alignment, attention: Attention | None = None, fitted: Callable[[], float] | None = None
) -> Lineage:
    """The lineage that an alignment, and the agreement of attention where it can be computed, support.

    Args:
        fitted: gives `LeastSquares.agreement`, from samples that a thief cannot know, NaN where there is none. It takes
            time, so it is asked for only where all else says "not derived", which is not said without it.

    "Derived" includes a common ancestor and the other direction: two fine-tunes of one base are as similar as a parent
    and its child, and similarity does not say which of the two came first.
    "Not derived" is said only if the tokenizers name the rows and no row resembles the one of its name; where only
    content could have paired them, a failure shows nothing. It is about the embedding: a model whose embedding was
    replaced, or which was distilled from ours, gives the same result.
    """
    agreement = math.nan if attention is None else attention.agreement
    wrong = math.nan if attention is None else attention.largest_decoy
    if not alignment.cosines.size:
        return Lineage(CANNOT_TELL, math.nan, math.nan, alignment.reason, agreement, wrong)
    decoy = float(np.median(alignment.decoy_cosines))
    deviation = float(np.std(alignment.decoy_cosines)) / np.sqrt(alignment.decoy_cosines.size)
    similarity, needed, fit = alignment.similarity, alignment.needed_similarity, math.nan
    above = (similarity - decoy) / max(deviation, 1e-12)
    where = "" if alignment.rotation is None else " in the minor components"
    compared = f"the median row has cosine {similarity:.3f} with the original's{where}, {decoy:.3f} with a wrong row"
    if alignment.aligned and alignment.matched < LEAST_MATCHED:
        status = CANNOT_TELL
        said = f"only {100 * alignment.matched:.0f} % of the rows have a counterpart, and those are alike"
    elif alignment.aligned and above >= FEWEST_DEVIATIONS:
        supported = agreement >= max(SUPPORTING_ATTENTION, ABOVE_DECOYS * wrong)  # false for NaN
        if similarity >= CLEAR_SIMILARITY or supported:
            status = DERIVED
            said = "derived from the original, or both from a common ancestor, or the original from the suspect"
        else:
            status = CANNOT_TELL
            said = "the rows are somewhat alike, but layer 0's attention does not support it"
    elif not alignment.aligned and alignment.nearly_equal > MOST_NEARLY_EQUAL:
        status = CANNOT_TELL
        said = f"{100 * alignment.nearly_equal:.0f} % of the rows nearly equal the original's, the others do not"
    elif not alignment.aligned and alignment.whole > MOST_WHOLE:
        status = CANNOT_TELL
        said = (
            f"in all components the rows agree ({alignment.whole:.2f}) better than a stranger's, in the minor ones not"
        )
    elif not alignment.aligned and alignment.exhausted and similarity < UNRELATED_SHARE * needed:
        fit = math.nan if fitted is None else fitted()
        if fit > MOST_WHOLE:
            status = CANNOT_TELL
            said = f"under the best affine map a quarter of the rows agree ({fit:.2f}) better than a stranger's"
        elif math.isnan(fit):
            status = CANNOT_TELL
            said = "the tokens' rows show no resemblance, but no affine map could be fitted that would bear this out"
        else:
            status = NOT_DERIVED
            said = "the tokens' rows show no resemblance, however their coordinates are turned"
    else:
        status, said = CANNOT_TELL, "too little resemblance to tell"
    return Lineage(status, similarity, decoy, f"{said}: {compared}", agreement, wrong, fit)
