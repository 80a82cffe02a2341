"""Lineage: whether the suspect descends from the original at all, with or without a mark.

"Derived from ours" and "carries this key's mark" are two findings and are never merged. There are four kinds of
evidence: the aligned rows compared with wrong rows aligned the same way, the agreement of layer 0's attention in the
two models (`attention`), and, if the rows do not show descent, the agreement of their MLP neurons (`neurons`), and of
their attention layers (`circuits`) before a suspect is called "not derived".
After a rotation the first two are computed in the minor components, where unrelated models share least. Some similarity
there is not sufficient: benchmarks/lineage.py measures unrelated models, and the thresholds are above their values. In
addition to the word, the result states how many of these models agree as closely (`unrelated`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from irwm.alignment import Alignment
from irwm.alignment.result import ALIGNED_COSINE, MINOR_COSINE
from irwm.evidence.attention import Attention
from irwm.evidence.circuits import Circuits, are_alike
from irwm.evidence.neurons import NeuronMatch
from irwm.evidence.unrelated import (
    CLEAR_SIMILARITY,
    MOST_WHOLE,
    Agreement,
    AmongUnrelated,
    Kept,
    kept_models,
)
from irwm.scheme.parameters import EMBEDDING

DERIVED, NOT_DERIVED, CANNOT_TELL = "derived", "not derived", "cannot tell"
# The median cosine must be this many standard errors above that of wrong rows. With thousands of rows any similarity
# is; a handful of rows must not decide anything.
FEWEST_DEVIATIONS = 10.0
# Unrelated models are below this share of the similarity that "aligned" needs.
UNRELATED_SHARE = 0.6
# If a smaller share of the smaller model's rows has a counterpart, most of it is not ours.
LEAST_MATCHED = 0.5
# If more of the rows nearly equal ours, some of our rows were pasted into the model, and it is not called unrelated.
MOST_NEARLY_EQUAL = 0.02
# The similarity that "aligned" needs, by whether it is taken in the minor components.
NEEDED = {False: ALIGNED_COSINE, True: MINOR_COSINE}
# The first part of the reason, for a status that the numbers of a report determine.
SAID = {
    DERIVED: "the suspect is derived from the original, the original from the suspect, or both from a common ancestor",
    NOT_DERIVED: "neither the tokens' rows, under any rotation of their coordinates, nor the layers show a resemblance",
}
# The same for descent that the neurons show.
BY_NEURONS = (
    "the neurons of the MLP layers show that the suspect is derived from the original, the original from the suspect, "
    "or both from a common ancestor, although the tokens' rows do not"
)
UNLIKE = "the tokens' rows show no resemblance"
ONLY_THE_MARK = "a mark was found, but the tokens' rows show no resemblance under any rotation of their coordinates"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whether the suspect descends from the original.

    Attributes:
        status: "derived", "not derived" or "cannot tell".
        similarity: median cosine of the aligned rows with the original's; NaN if no rows could be compared. After a
            rotation, in the original's minor components.
        decoy_similarity: the same with wrong rows.
        reason: one sentence for the user.
        attention: agreement of layer 0's attention scores in their minor components, in [-1, 1]; NaN if the suspect's
            q and k cannot be read.
        attention_decoy: the largest of 99 values with wrong tokens; NaN if `attention` is.
        fitted: the cosine with the original's that a quarter of the rows reach under an affine map fitted to other
            rows; NaN if neither status nor p depends on it, or no map could be fitted.
        among: the suspect's place among unrelated models, and its p; None if no rows could be compared, and for an
            output head, for which the package has no unrelated models.
        place: the compared rows, those of the "embedding" or of the "head".
        circuits: agreement of the layers' OV circuits, in [-1, 1]; NaN if the status does not depend on it, or if it
            cannot be computed.
        circuits_decoy: the largest of 99 values with singular vectors in random orders; NaN if `circuits` is.
        neurons: the match of the MLP neurons; None if the rows show descent, or if it cannot be computed.
    """

    status: str
    similarity: float
    decoy_similarity: float
    reason: str
    attention: float = math.nan
    attention_decoy: float = math.nan
    fitted: float = math.nan
    among: AmongUnrelated | None = None
    place: str = EMBEDDING
    circuits: float = math.nan
    circuits_decoy: float = math.nan
    neurons: NeuronMatch | None = None

    @property
    def p(self) -> float:
        """The chance that an unrelated model agrees as closely; NaN if no rows could be compared."""
        return math.nan if self.among is None else self.among.p


def lineage(
    alignment: Alignment,
    attention: Attention | None = None,
    fitted: Callable[[], float] | None = None,
    kept: Kept | None = None,
    layers: Callable[[], Circuits | None] | None = None,
    neurons: Callable[[], NeuronMatch | None] | None = None,
) -> Lineage:
    """The lineage supported by an alignment, by the agreement of attention, and otherwise by that of MLP neurons.

    Args:
        fitted: gives `LeastSquares.agreement`, from samples that an attacker cannot know, NaN if there is none. It
            is slow, so it is called only if all other evidence gives "not derived", which requires it, or if some
            unrelated model agrees as closely without it.
        kept: the models to rank it among; by default those of the package.
        layers: gives the agreement of the OV circuits, None if they cannot be compared. It is called only if the rows
            give "not derived", which requires it.
        neurons: gives the match of the MLP neurons, None if they cannot be compared. It is called only if the rows and
            attention do not give "derived".

    "Derived" includes a common ancestor and the other direction: two fine-tunes of one base are as similar as a parent
    and its child, and similarity does not show which of the two came first.
    "Not derived" requires that the tokenizers name the rows, no row resembles the row of its name, some unrelated model
    agrees as closely, and layers and neurons agree no more closely than those of an unrelated model; if only content
    could have paired the rows, or the neurons could not be compared, a failure shows nothing. A model that was
    distilled from ours into another one gives the same
    result.
    """
    found = _of_rows(alignment, attention, fitted, kept or kept_models(), layers)
    if neurons is None or found.status == DERIVED:
        return found
    match = neurons()
    found = replace(found, neurons=match)
    end = alignment.reason if math.isnan(found.similarity) else found.reason.rpartition(": ")[2]
    if match is None:
        if found.status != NOT_DERIVED:
            return found
        said = "the MLP neurons could not be compared to confirm this"
        return replace(found, status=CANNOT_TELL, reason=f"{UNLIKE}, but {said}: {end}")
    if match.derived:
        return replace(found, status=DERIVED, reason=f"{BY_NEURONS}: {end}")
    if found.status == NOT_DERIVED and match.alike:
        said = "the MLP neurons agree more closely than those of an unrelated model would"
        return replace(found, status=CANNOT_TELL, reason=f"{UNLIKE}, but {said}: {end}")
    return found


def _of_rows(
    alignment: Alignment,
    attention: Attention | None,
    fitted: Callable[[], float] | None,
    kept: Kept,
    layers: Callable[[], Circuits | None] | None,
) -> Lineage:
    """The lineage without neurons."""
    agreement = math.nan if attention is None else attention.agreement
    wrong = math.nan if attention is None else attention.largest_decoy
    if not alignment.cosines.size:
        fit = math.nan if fitted is None else fitted()  # the affine map needs no equal number of coordinates
        among = None if math.isnan(fit) else kept.place(Agreement(math.nan, math.nan, fitted=fit).value)
        return Lineage(CANNOT_TELL, math.nan, math.nan, alignment.reason, agreement, wrong, fit, among)
    decoy = float(np.median(alignment.decoy_cosines))
    deviation = float(np.std(alignment.decoy_cosines)) / np.sqrt(alignment.decoy_cosines.size)
    similarity, needed = alignment.similarity, alignment.needed_similarity
    seen = Agreement(similarity, needed, agreement, wrong, alignment.whole)
    among, fit = kept.place(seen.value), math.nan
    found: Circuits | None = None
    unlike = not alignment.aligned and alignment.exhausted and similarity < UNRELATED_SHARE * needed
    if fitted is not None and (among.as_alike or unlike):
        fit = fitted()
        among = kept.place(replace(seen, fitted=fit).value)
    above = (similarity - decoy) / max(deviation, 1e-12)
    if alignment.aligned and alignment.matched < LEAST_MATCHED:
        status = CANNOT_TELL
        said = f"only {100 * alignment.matched:.0f}% of the rows have a counterpart, but those rows are similar"
    elif alignment.aligned and above >= FEWEST_DEVIATIONS:
        if similarity >= CLEAR_SIMILARITY or seen.supported >= 1:  # false for NaN
            status = DERIVED
            said = SAID[DERIVED]
        else:
            status = CANNOT_TELL
            said = "the rows are somewhat similar, but layer 0's attention does not support this"
    elif not alignment.aligned and alignment.nearly_equal > MOST_NEARLY_EQUAL:
        status = CANNOT_TELL
        said = (
            f"{100 * alignment.nearly_equal:.0f}% of the rows are nearly equal to the original's, but the others are "
            "not"
        )
    elif not alignment.aligned and alignment.whole > MOST_WHOLE:
        status = CANNOT_TELL
        said = (
            f"over all components, the suspect's rows match the original's more closely ({alignment.whole:.2f}) than "
            "an unrelated model's would; over the minor components alone, they do not"
        )
    elif unlike:
        status, said, found = _unlike(fit, among, layers)
    else:
        status, said = CANNOT_TELL, "too little resemblance to tell"
    said = f"{said}: {compared(similarity, decoy, minor=alignment.rotation is not None)}"
    of_layers = (found.agreement, found.largest_decoy) if found is not None else (math.nan, math.nan)
    return Lineage(status, similarity, decoy, said, agreement, wrong, fit, among, EMBEDDING, *of_layers)


def _unlike(
    fit: float, among: AmongUnrelated, layers: Callable[[], Circuits | None] | None
) -> tuple[str, str, Circuits | None]:
    """Status and reason for a suspect whose rows are unlike the original's, and the agreement of the layers if the
    status depends on it."""
    if fit > MOST_WHOLE:
        said = (
            f"under the best affine map, a quarter of the suspect's rows match the original's more closely ({fit:.2f}) "
            "than an unrelated model's would"
        )
        return CANNOT_TELL, said, None
    if math.isnan(fit):
        return CANNOT_TELL, f"{UNLIKE}, but no affine map could be fitted to confirm this", None
    if not among.as_alike:
        return CANNOT_TELL, "the tokens' rows show no clear resemblance, but no unrelated model agrees as closely", None
    found = layers() if layers is not None else None
    if found is None:
        return CANNOT_TELL, f"{UNLIKE}, but the layers could not be compared to confirm this", None
    if not found.alike:
        return NOT_DERIVED, SAID[NOT_DERIVED], found
    agree = f"the layers' OV circuits agree more closely ({found.agreement:.2f}) than those of an unrelated model would"
    return CANNOT_TELL, f"{UNLIKE}, but {agree}", found


def with_mark(lineage: Lineage) -> Lineage:
    """The lineage of a suspect in which a mark or a fingerprint was found: that shows descent, so it is not denied."""
    if lineage.status != NOT_DERIVED:
        return lineage
    _, _, end = lineage.reason.partition(": ")
    return replace(lineage, status=CANNOT_TELL, reason=f"{ONLY_THE_MARK}: {end}")


def compared(similarity: float, decoy: float, *, minor: bool) -> str:
    """The second part of every reason: the compared values; after a rotation, only the minor components."""
    where = " in the minor components" if minor else ""
    return (
        f"the median row has a cosine of {similarity:.3f} with the original's{where}, and {decoy:.3f} with a "
        "non-matching row"
    )


def possible(
    status: str,
    seen: Agreement,
    layers: tuple[float, float],
    neurons: NeuronMatch | None,
    *,
    aligned: bool,
    exhausted: bool,
    as_alike: int,
) -> bool:
    """Whether these numbers allow a status, which also depends on numbers of the rows themselves.

    Args:
        status: as in `Lineage`.
        seen: the agreement of the suspect.
        layers: the agreement of its OV circuits, and the largest decoy; NaN if they were not compared.
        neurons: the match of its MLP neurons.
        aligned, exhausted: as in the alignment.
        as_alike: how many unrelated models agree at least as closely.
    """
    if neurons is not None and neurons.derived:
        return status == DERIVED
    if status == DERIVED:
        return aligned and (seen.similarity >= CLEAR_SIMILARITY or seen.supported >= 1)  # false for NaN
    if status == NOT_DERIVED and neurons is not None and not neurons.alike:
        far = exhausted and not aligned and seen.similarity < UNRELATED_SHARE * seen.needed
        unlike = seen.whole <= MOST_WHOLE and seen.fitted <= MOST_WHOLE  # false for NaN
        return far and as_alike > 0 and unlike and not math.isnan(layers[0]) and not are_alike(*layers)
    return status == CANNOT_TELL
