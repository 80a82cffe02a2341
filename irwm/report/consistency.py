"""Do a document's numbers follow from one another? Checked from its ranks alone, without models, key or signature.

Every chance in a report is computed from the ranks of the positions, the parameters and the number of keys tried, all
of which the document holds. Whoever changes one of them without the others is found out here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from irwm import Parameters
from irwm.errors import IrwmError
from irwm.evidence.examination import MAPS
from irwm.evidence.finding import COMBINATIONS, FINGERPRINT, FOUND, INCONCLUSIVE, MARK, NOT_FOUND
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.ownership.key_search import evidence_bits, standing
from irwm.report import tracing
from irwm.report.document import ALWAYS_THERE, ReportError, paid_for, plain
from irwm.report.error_rates import clopper_pearson
from irwm.report.items import failed
from irwm.report.likelihood import claimed_log10_risk
from irwm.report.reproduction import ABSOLUTE, Difference, same
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import (
    LN10,
    binomial_tail_log,
    fisher_floor_log10,
    fisher_log10,
    log10_random_user,
    log10_wrong_user,
    rademacher_tail_log10,
)

# A rank is a whole number of steps 1 / (N + 1), to the rounding of one division.
_RANK_RELATIVE = 1e-9
_WORDS = (FOUND, NOT_FOUND, INCONCLUSIVE)


def contradictions(document: Mapping[str, Any]) -> list[Difference]:
    """What does not follow from the rest of the document: where it stands, what stands there, what should.

    Raises:
        ReportError: the document lacks what this needs, or holds something else in its place.
    """
    found: list[Difference] = []
    try:
        for where, recorded, expected in _claims(document):
            if not same(recorded, plain(expected)):
                found.append(Difference(where, recorded, expected))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, IrwmError) as error:
        if found:  # what is wrong is named already; the rest cannot be worked out because of it
            return found
        raise ReportError(
            "the report's numbers cannot be worked out",
            found=f"{type(error).__name__}: {error}".rstrip("."),
            advice="Ask its maker for the report as it was signed",
        ) from error
    return found


def _claims(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield from _sections(document)
    p = Parameters.from_dict(document["parameters"])
    for name in ("reading", "paper"):
        if document[name] is not None:
            yield from _reading(name, document[name], p)
    reading, verdict, evaluation = document["reading"], document["verdict"], document["evaluation"]
    for name in ("count", "present", "rule_met"):
        yield f"verdict.{name}", verdict[name], reading[name]
    yield "verdict.positions", verdict["positions"], p.positions
    yield "verdict.required", verdict["required"], p.required_positions
    yield "verdict.expected_by_chance", verdict["expected_by_chance"], chance_of_counting(p) * reading["present"]
    for name in ("log10_p", "log10_p_count"):
        yield f"evaluation.{name}", evaluation[name], reading[name]
    yield "evaluation.smallest_rank", evaluation["smallest_rank"], 1 / (1 + p.permutations)
    yield "evaluation.combinations", evaluation["combinations"], COMBINATIONS
    floor = fisher_floor_log10(reading["present"], p.permutations)
    yield "evaluation.log10_p_floor", evaluation["log10_p_floor"], floor
    if reading["log10_p"] < floor - ABSOLUTE:
        yield "reading.log10_p", reading["log10_p"], f"not below {floor}, the floor of its ranks"
    for name in ("keys_tried", "tensors_read", "maps", "forms"):
        yield from _whole(f"evaluation.{name}", evaluation[name])
    comparisons = paid_for(evaluation)
    best = min(reading["log10_p"], reading["log10_p_count"])
    risk = min(0.0, best + math.log10(COMBINATIONS * comparisons))
    yield "evaluation.log10_risk", evaluation["log10_risk"], risk
    yield "evaluation.found_at_log10_risk", evaluation["found_at_log10_risk"], FOUND_LOG10_RISK
    yield "evaluation.dismissed_above_log10_risk", evaluation["dismissed_above_log10_risk"], DISMISSED_LOG10_RISK
    yield from _likelihood(evaluation, reading, verdict["mark"])
    yield "evaluation.evidence_bits", evaluation["evidence_bits"], evidence_bits(risk)
    yield "odds.keys", document["odds"]["keys"], evaluation["keys_tried"] * evaluation["tensors_read"]
    odds, l, rho, beta = document["odds"], p.positions, p.required_positions, p.rank_threshold
    yield "odds.log10_random_user", odds["log10_random_user"], log10_random_user(l, rho, beta)
    yield "odds.log10_wrong_user", odds["log10_wrong_user"], log10_wrong_user(l, rho, beta, odds["keys"])
    yield from _evidence(document["evidence"], best, comparisons)
    yield from _word(verdict, min(each["log10_risk"] for each in document["evidence"]))
    if document["tracing"] is not None:
        yield from _tracing(document["tracing"])
    yield from _rests_on(verdict, document["tracing"], document["self_tests"])
    yield from _standing(document)
    if document["error_rates"] is not None and document["error_rates"]["decoys"] is not None:
        yield from _decoys(document["error_rates"]["decoys"])


def _sections(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for section, names in ALWAYS_THERE.items():
        part = document[section] if section else document
        for name in names:
            if name not in part:
                yield f"{section}.{name}".lstrip("."), "missing", "part of every report"


def _whole(where: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """A number of things, of which there is at least one."""
    if type(value) is not int or value < 1:
        yield where, value, "a whole number from 1 on"


def _reading(where: str, reading: Mapping[str, Any], p: Parameters) -> Iterator[tuple[str, Any, Any]]:
    ranks, counted = [], 0
    yield f"{where}.positions", len(reading["positions"]), p.positions
    for i, position in enumerate(reading["positions"]):
        rank = position["rank"]
        yield f"{where}.positions[{i}].state", position["state"], "gone" if rank is None else "ranked"
        counts = rank is not None and rank < p.rank_threshold
        counted += counts
        yield f"{where}.positions[{i}].counts", position["counts"], counts
        if rank is None:  # only a row without a statistic has no rank
            yield f"{where}.positions[{i}].observed", position["observed"], None
            continue
        ranks.append(rank)
        # A rank is a number of permutations, over all of them; and it counts just where the observed value is small.
        steps = 1 + p.permutations
        step = round(rank * steps)
        if not 1 <= step <= steps or not math.isclose(rank, step / steps, rel_tol=_RANK_RELATIVE):
            yield f"{where}.positions[{i}].rank", rank, f"a whole number from 1 to {steps}, over {steps}"
        if position["threshold"] is not None:
            below = position["observed"] < position["threshold"]
            yield (
                f"{where}.positions[{i}].observed",
                position["observed"],
                position["observed"] if below == counts else None,
            )
    chance = chance_of_counting(p)
    yield f"{where}.count", reading["count"], counted
    yield f"{where}.present", reading["present"], len(ranks)
    yield f"{where}.gone", reading["gone"], p.positions - len(ranks)
    yield f"{where}.rule_met", reading["rule_met"], counted >= p.required_positions
    yield f"{where}.chance_of_counting", reading["chance_of_counting"], chance
    yield f"{where}.log10_p", reading["log10_p"], fisher_log10(ranks)
    yield f"{where}.log10_p_count", reading["log10_p_count"], binomial_tail_log(counted, len(ranks), chance) / LN10


def _likelihood(evaluation: Mapping[str, Any], reading: Mapping[str, Any], mark: Any) -> Iterator[tuple[str, Any, Any]]:
    """All three are left out together, and only where the suspect could not be judged."""
    names = ("log10_lr", "log10_lr_per_comparison", "verbal")
    if mark == INCONCLUSIVE and all(evaluation[name] is None for name in names):
        return
    ratio = likelihood_ratio_log10([q["rank"] for q in reading["positions"] if q["rank"] is not None])
    each = per_comparison_log10(ratio, paid_for(evaluation))
    for name, value in zip(names, (ratio, each, verbal_step(each)), strict=True):
        yield f"evaluation.{name}", evaluation[name], value


def _evidence(forms: Sequence[Mapping[str, Any]], best: float, comparisons: int) -> Iterator[tuple[str, Any, Any]]:
    """The mark's p is that of its ranks; a fingerprint's follows from its z."""
    yield "evidence", len(forms), max(1, min(2, len(forms)))
    for i, each in enumerate(forms):
        where, marked = f"evidence[{i}]", i == 0
        yield f"{where}.form", each["form"], MARK if marked else FINGERPRINT
        bound = best + math.log10(COMBINATIONS) if marked else float(rademacher_tail_log10(each["z"]))
        yield f"{where}.log10_p", each["log10_p"], min(0.0, bound)
        yield f"{where}.log10_risk", each["log10_risk"], min(0.0, min(0.0, bound) + math.log10(comparisons))


def _word(verdict: Mapping[str, Any], risk: float) -> Iterator[tuple[str, Any, Any]]:
    """A word that the corrected chance does not allow; "inconclusive" may have other reasons."""
    mark, where = verdict["mark"], "verdict.mark"
    if mark not in _WORDS:
        yield where, mark, INCONCLUSIVE
    if mark == FOUND and risk > FOUND_LOG10_RISK:
        yield where, mark, NOT_FOUND if risk > DISMISSED_LOG10_RISK else "inconclusive"
    if mark == NOT_FOUND and risk <= DISMISSED_LOG10_RISK:
        yield where, mark, FOUND if risk <= FOUND_LOG10_RISK else "inconclusive"


def _rests_on(
    verdict: Mapping[str, Any], found: Mapping[str, Any] | None, controls: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Any, Any]]:
    """The word, and whether mark or noise gave it, as `tracing.verdict` decides it, and no verdict where a control
    failed."""
    mark = verdict["mark"]
    word, rests_on = mark, tracing.MARK
    if found is not None:
        named = any(each["named"] for each in found["ranked"])
        strongest = min((each["log10_risk"] for each in found["ranked"]), default=0.0)
        # Faults of the suspect outweigh any name; they are inconclusive by the mark, and rest on it.
        faulty = mark == INCONCLUSIVE and verdict["rests_on"] == tracing.MARK
        if named and not faulty:
            word, rests_on = FOUND, tracing.TRACING
        elif not named and mark == NOT_FOUND and strongest <= DISMISSED_LOG10_RISK:
            word, rests_on = INCONCLUSIVE, tracing.TRACING
    if any(map(failed, controls)):
        word, rests_on = INCONCLUSIVE, tracing.MARK
    yield "verdict.rests_on", verdict["rests_on"], rests_on
    yield "verdict.word", verdict["word"], word


def _tracing(found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Every recipient's odds follow from z and from how many were compared; the summary follows from the rows."""
    for name in ("recipients", "tensors_read", "maps", "looks"):
        yield from _whole(f"tracing.{name}", found[name])
    if not 0.0 < found["risk"] < 1.0:
        yield "tracing.risk", found["risk"], "between 0 and 1"
    paid = math.log10(tracing.comparisons(found))
    yield "tracing.recipients", found["recipients"], len(found["ranked"]) + found["others"]["count"]
    if found["by"] not in MAPS or found["maps"] != len(MAPS):
        yield "tracing.by", found["by"], f"one of {', '.join(MAPS)}, all of them paid for"
    for i, row in enumerate(found["ranked"]):
        where = f"tracing.ranked[{i}]"
        log10_p = float(rademacher_tail_log10(math.nan if row["z"] is None else row["z"]))
        risk = min(0.0, log10_p + paid)
        yield f"{where}.place", row["place"], i + 1
        yield f"{where}.log10_p", row["log10_p"], log10_p
        yield f"{where}.log10_risk", row["log10_risk"], risk
        yield f"{where}.named", row["named"], risk <= math.log10(found["risk"])
    for name, value in tracing.summary(found).items():
        yield f"tracing.{name}", found[name], value


def _standing(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """From the odds claimed and the two dates. Whether the dates are true is another question."""
    recorded = document["standing"]
    found = standing(claimed_log10_risk(document), recorded["committed_utc"], recorded["suspect_seen_utc"])
    for name in ("status", "evidence_bits", "search_bits", "margin_bits"):
        yield f"standing.{name}", recorded[name], getattr(found, name)


def _decoys(decoys: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Wrong keys, counted; what each of them read can only be found by ranking them again."""
    number, where = decoys["number"], "error_rates.decoys"
    yield from _whole(f"{where}.number", number)
    counts = decoys["histogram"]["counts"]
    yield f"{where}.number", number, sum(counts)
    yield f"{where}.histogram.edges", len(decoys["histogram"]["edges"]), len(counts) + 1
    for i, count in enumerate(counts):
        yield from _count(f"{where}.histogram.counts[{i}]", count, number)
    for i, share in enumerate(decoys["shares"]):
        yield from _count(f"{where}.shares[{i}].count", share["count"], number)
        low, high = clopper_pearson(share["count"], number)
        for name, value in (("share", share["count"] / number), ("low", low), ("high", high)):
            yield f"{where}.shares[{i}].{name}", share[name], value


def _count(where: str, value: Any, most: int) -> Iterator[tuple[str, Any, Any]]:
    if type(value) is not int or not 0 <= value <= most:
        yield where, value, f"a whole number from 0 to {most}"
