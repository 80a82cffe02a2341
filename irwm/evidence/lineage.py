"""Lineage: whether the suspect descends from the original at all, mark or no mark.

"Derived from ours" and "carries this key's mark" are two findings and are never merged into one. There are two kinds of
evidence: the aligned rows against wrong rows aligned the same way, and the agreement of layer 0's attention in the two
models (`attention`). After a rotation both are computed in the minor components, where models trained apart share
least. Some similarity there is not enough: benchmarks/lineage.py measures the values of strangers, and the thresholds
are above them. Beside the word stands how many of these strangers agree as well (`strangers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from irwm.alignment import Alignment
from irwm.alignment.result import ALIGNED_COSINE, MINOR_COSINE
from irwm.evidence.attention import Attention
from irwm.evidence.strangers import (
    CLEAR_SIMILARITY,
    MOST_WHOLE,
    Agreement,
    AmongStrangers,
    Kept,
    kept_models,
)
from irwm.scheme.parameters import EMBEDDING

DERIVED, NOT_DERIVED, CANNOT_TELL = "derived", "not derived", "cannot tell"
# The median cosine must be this many standard errors above that of wrong rows. With thousands of rows any similarity
# is; a handful of rows must not decide anything.
FEWEST_DEVIATIONS = 10.0
# Models that have nothing in common are below this share of the similarity that "aligned" needs.
UNRELATED_SHARE = 0.6
# If a smaller share of the smaller model's rows has a counterpart, most of it is not ours.
LEAST_MATCHED = 0.5
# If more of the rows nearly equal ours, some of our rows were pasted into the model, and it is not called unrelated.
MOST_NEARLY_EQUAL = 0.02
# The similarity that "aligned" needs, by whether it is taken in the minor components.
NEEDED = {False: ALIGNED_COSINE, True: MINOR_COSINE}
# What is said of a status that numbers of a report decide, before what was compared.
SAID = {
    DERIVED: "derived from the original, or both from a common ancestor, or the original from the suspect",
    NOT_DERIVED: "the tokens' rows show no resemblance, however their coordinates are turned",
}


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
            other rows; NaN where neither status nor p depends on it, or none could be fitted.
        among: the suspect's place among models trained apart, and its p; None where nothing could be compared, and in
            an output head, of which no model trained apart was kept.
        place: whose rows were compared, those of the "embedding" or of the "head".
    """

    status: str
    similarity: float
    decoy_similarity: float
    reason: str
    attention: float = math.nan
    attention_decoy: float = math.nan
    fitted: float = math.nan
    among: AmongStrangers | None = None
    place: str = EMBEDDING

    @property
    def p(self) -> float:
        """The chance that a model trained apart agrees as well; NaN where nothing could be compared."""
        return math.nan if self.among is None else self.among.p


def lineage(
    alignment: Alignment,
    attention: Attention | None = None,
    fitted: Callable[[], float] | None = None,
    kept: Kept | None = None,
) -> Lineage:
    """The lineage that an alignment, and the agreement of attention where it can be computed, support.

    Args:
        fitted: gives `LeastSquares.agreement`, from samples that a thief cannot know, NaN where there is none. It takes
            time, so it is asked for only where all else says "not derived", which is not said without it, or where
            some model trained apart agrees as well without it.
        kept: the models to rank it among; by default those of the package.

    "Derived" includes a common ancestor and the other direction: two fine-tunes of one base are as similar as a parent
    and its child, and similarity does not say which of the two came first.
    "Not derived" is said only if the tokenizers name the rows, no row resembles the one of its name, and some model
    trained apart agrees as well; where only content could have paired the rows, a failure shows nothing. It is about
    the embedding: a model whose embedding was replaced, or which was distilled from ours, gives the same result.
    """
    agreement = math.nan if attention is None else attention.agreement
    wrong = math.nan if attention is None else attention.largest_decoy
    kept = kept or kept_models()
    if not alignment.cosines.size:
        fit = math.nan if fitted is None else fitted()  # the affine map needs no equal number of coordinates
        among = None if math.isnan(fit) else kept.place(Agreement(math.nan, math.nan, fitted=fit).value)
        return Lineage(CANNOT_TELL, math.nan, math.nan, alignment.reason, agreement, wrong, fit, among)
    decoy = float(np.median(alignment.decoy_cosines))
    deviation = float(np.std(alignment.decoy_cosines)) / np.sqrt(alignment.decoy_cosines.size)
    similarity, needed = alignment.similarity, alignment.needed_similarity
    seen = Agreement(similarity, needed, agreement, wrong, alignment.whole)
    among, fit = kept.place(seen.value), math.nan
    unlike = not alignment.aligned and alignment.exhausted and similarity < UNRELATED_SHARE * needed
    if fitted is not None and (among.as_alike or unlike):
        fit = fitted()
        among = kept.place(replace(seen, fitted=fit).value)
    above = (similarity - decoy) / max(deviation, 1e-12)
    if alignment.aligned and alignment.matched < LEAST_MATCHED:
        status = CANNOT_TELL
        said = f"only {100 * alignment.matched:.0f} % of the rows have a counterpart, and those are alike"
    elif alignment.aligned and above >= FEWEST_DEVIATIONS:
        if similarity >= CLEAR_SIMILARITY or seen.supported >= 1:  # false for NaN
            status = DERIVED
            said = SAID[DERIVED]
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
    elif unlike:
        if fit > MOST_WHOLE:
            status = CANNOT_TELL
            said = f"under the best affine map a quarter of the rows agree ({fit:.2f}) better than a stranger's"
        elif math.isnan(fit):
            status = CANNOT_TELL
            said = "the tokens' rows show no resemblance, but no affine map could be fitted that would bear this out"
        elif not among.as_alike:
            status = CANNOT_TELL
            said = "the tokens' rows show no clear resemblance, but no model trained apart agrees as well"
        else:
            status = NOT_DERIVED
            said = SAID[NOT_DERIVED]
    else:
        status, said = CANNOT_TELL, "too little resemblance to tell"
    said = f"{said}: {compared(similarity, decoy, minor=alignment.rotation is not None)}"
    return Lineage(status, similarity, decoy, said, agreement, wrong, fit, among)


def compared(similarity: float, decoy: float, *, minor: bool) -> str:
    """The second part of every reason: what was compared, after a rotation in the minor components alone."""
    where = " in the minor components" if minor else ""
    return f"the median row has cosine {similarity:.3f} with the original's{where}, {decoy:.3f} with a wrong row"


def possible(status: str, seen: Agreement, *, aligned: bool, exhausted: bool, as_alike: int) -> bool:
    """Whether these numbers allow a status; the others that it rests on are those of the rows themselves.

    Args:
        status: as of a `Lineage`.
        seen: what was read of the suspect.
        aligned, exhausted: of the alignment.
        as_alike: how many models trained apart agree at least as well.
    """
    if status == DERIVED:
        return aligned and (seen.similarity >= CLEAR_SIMILARITY or seen.supported >= 1)  # false for NaN
    if status == NOT_DERIVED:
        far = exhausted and not aligned and seen.similarity < UNRELATED_SHARE * seen.needed
        return far and as_alike > 0 and seen.whole <= MOST_WHOLE and seen.fitted <= MOST_WHOLE  # false for NaN
    return status == CANNOT_TELL
