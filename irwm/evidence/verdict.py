"""From a reading to found, not found or inconclusive.

One number bounds the risk of a false "found" for every setting: after corrections for the two ways of combining ranks,
for every key tried and for every tensor read, less than one model in a million without the mark gives this reading.
The paper's rule (count >= rho) is `Reading.passes`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from irwm.alignment import Alignment
from irwm.evidence.finding import COMBINATIONS, FOUND, INCONCLUSIVE, NOT_FOUND, Finding, Reading
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED, with_mark
from irwm.scheme.parameters import EMBEDDING, FEWEST_PERMUTATIONS, HEAD, NEURONS, Parameters, chance_of_counting
from irwm.scheme.probabilities import fisher_floor_log10
from irwm.scheme.stated_odds import LEAST_LOG10

# Found at or below the first log10 risk; between the two the evidence is too strong to dismiss and too weak to accuse.
FOUND_LOG10_RISK = -6.0
DISMISSED_LOG10_RISK = -3.0
# The descent of two places: the first of these that either place has.
KINSHIP = (DERIVED, CANNOT_TELL, NOT_DERIVED)
NAMES = {EMBEDDING: "embedding", HEAD: "output head", NEURONS: "MLP layers"}


def log10_risk(reading: Reading, comparisons: int = 1) -> float:
    """log10 of the odds that a model without the mark gives this reading in any of the ways used.

    Args:
        comparisons: `Finding.comparisons` (Bonferroni).
    """
    return min(0.0, reading.log10_either + math.log10(comparisons))


def judge(
    reading: Reading,
    params: Parameters,
    alignment: Alignment,
    faults: tuple[str, ...],
    comparisons: int = 1,
    place: str = EMBEDDING,
) -> tuple[str, str]:
    """The verdict and its one-sentence reason.

    Args:
        reading: the reading that the verdict rests on.
        params: the key's parameters.
        alignment: the suspect's alignment. A mark is found for any score of it: ranks are uniform under any map that
            was chosen without the key's orders. Without a mark a failed alignment is inconclusive.
        faults: why no key can be judged on the suspect, such as an adapter that uses the original's embedding.
        comparisons: `Finding.comparisons`, for the correction.
        place: where the rows were read.
    """
    where, inside = ("", "") if place == EMBEDDING else (" in its output head", "in its output head, ")
    l, beta = params.positions, params.rank_threshold
    seen = (
        f"{reading.count} of {reading.present} positions rank below {beta:g}, "
        f"compared with {beta * reading.present:.0f} expected by chance alone"
    )
    if faults:
        aside = f" Apart from that, {seen}." if reading.present else ""
        return INCONCLUSIVE, f"The suspect cannot be judged: {'; '.join(faults)}.{aside}"
    if params.permutations < FEWEST_PERMUTATIONS:
        return INCONCLUSIVE, (
            f"Too few permutations: with {params.permutations}, no rank can be below "
            f"{1 / (1 + params.permutations):.3g}. Use at least {FEWEST_PERMUTATIONS}."
        )
    risk = log10_risk(reading, comparisons)
    if risk <= FOUND_LOG10_RISK:
        return FOUND, f"The suspect carries this key's mark{where}: {seen}; {odds(risk)}."
    if not alignment.aligned:
        whose = "The suspect" if place == EMBEDDING else f"The suspect's {NAMES[place]}"
        return INCONCLUSIVE, f"{whose} {alignment.reason}."
    if reading.present == 0 and reading.statistic == "difference":
        return INCONCLUSIVE, "The statistic is undefined: every marked row of the suspect equals the original's."
    chance = chance_of_counting(params)  # 0 if beta is below the smallest rank: then no position can count
    fewest = reading.present * math.log10(chance) if chance > 0 else 0.0
    floor = min(fisher_floor_log10(reading.present, params.permutations), fewest)
    if floor + math.log10(COMBINATIONS * comparisons) > FOUND_LOG10_RISK:
        return INCONCLUSIVE, f"Too few marked rows are left for a verdict: {reading.present} of {l}."
    if risk <= DISMISSED_LOG10_RISK:
        return INCONCLUSIVE, f"The evidence is too weak to accuse and too strong to dismiss: {seen}; {odds(risk)}."
    if reading.passes:
        return INCONCLUSIVE, (
            f"The counting rule is met, but with these values of beta and rho, it is met too often by chance alone: "
            f"{seen}; {odds(risk)}."
        )
    return NOT_FOUND, f"This key's mark was not found in the suspect: {inside}{seen}; {odds(risk)}."


def several_tensors(place: str, tensors: int) -> tuple[str, ...]:
    """The warning that more than one tensor was read as the matrix in `place`; empty if only one was."""
    if tensors == 1:
        return ()
    return (
        f"{tensors} tensors could be the {NAMES[place]}; each was read, and the one most likely to be marked is shown",
    )


def of_both_places(one: Finding, other: Finding) -> Finding:
    """The finding of two places that were searched for a key's mark: the one that decides, with the other as evidence.

    A mark in either place is found. "Not found" requires that both were read and neither shows it. The suspect descends
    from the original if either place shows it, and is unrelated only if both show that. If both places give the same
    verdict, the result shows the first one, or the clearer one if both show the mark. If it always showed the stronger
    one, its ranks and p-value would not be uniform without a mark.
    """

    def weight(finding: Finding) -> tuple[int, float]:
        shown = finding.reading.log10_either if finding.verdict == FOUND else 0.0
        return (FOUND, INCONCLUSIVE, NOT_FOUND).index(finding.verdict), shown

    first, second = sorted((one, other), key=weight)
    lineage = min((first.lineage, second.lineage), key=lambda each: KINSHIP.index(each.status))
    warnings = first.warnings + several_tensors(second.place, second.tensors_read)
    if (first.verdict, second.verdict) == (INCONCLUSIVE, NOT_FOUND):
        warnings += (f"the suspect's {NAMES[second.place]} alone does not show this key's mark",)
    return replace(
        first,
        elsewhere=second.reading,
        tensors_read_elsewhere=second.tensors_read,
        lineage=lineage,
        warnings=warnings,
    )


def judge_both(finding: Finding) -> Finding:
    """The finding with a verdict that also uses the fingerprint, if one was read: found by either form, and not
    dismissed while either is between the limits. Faults of the suspect override both."""
    read = finding.fingerprint
    if read is None or finding.faults:
        return finding
    risk = finding.log10_risk_of(read)
    where = {EMBEDDING: "", HEAD: " of its output head", NEURONS: " of its MLP layers"}[read.place]
    seen = f"over {read.rows} rows{where}, its signs add up to {read.z:.1f} standard deviations"
    if risk <= FOUND_LOG10_RISK:
        said = f"The suspect carries this key's fingerprint: {seen}; {odds(risk)}."
        if finding.verdict != FOUND:
            said += f" Based on the mark alone, the verdict would be: {finding.verdict}."
            return replace(finding, verdict=FOUND, reason=said, lineage=with_mark(finding.lineage))
        return replace(finding, reason=f"{finding.reason} {said}")
    if finding.verdict == NOT_FOUND and risk <= DISMISSED_LOG10_RISK:
        said = f"The fingerprint is too weak to accuse and too strong to dismiss: {seen}; {odds(risk)}."
        return replace(finding, verdict=INCONCLUSIVE, reason=said)
    return finding


def odds(log10: float) -> str:
    """A chance of 10**log10 among models without the mark, as part of a sentence."""
    if log10 >= -1.0:
        return "chance alone can explain this: more than one in ten models without the mark would look the same"
    if log10 > -6.0:
        return f"one in {round(10**-log10):,} models without the mark would look the same".replace(",", " ")
    raised = str(math.floor(-max(log10, LEAST_LOG10))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"fewer than one in 10{raised} models without the mark would look the same"
