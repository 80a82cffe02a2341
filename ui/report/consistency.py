"""Do a document's numbers follow from one another? Checked from its ranks alone, without models, key or signature.

Every chance in a report is computed from the ranks of the positions, the parameters and the number of keys tried, all
of which the document holds. Whoever changes one of them without the others is found out here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from irwm import Parameters
from irwm.errors import IrwmError
from irwm.evaluation import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.finding import FOUND, NOT_FOUND
from irwm.parameters import chance_of_counting
from irwm.probability import (
    LN10,
    binomial_tail_log,
    fisher_floor_log10,
    fisher_log10,
    log10_random_user,
    log10_wrong_user,
)
from irwm.verdict import COMBINATIONS, DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from ui.report import tracing
from ui.report.document import ReportError, plain
from ui.report.reproduce import Difference, same


def contradictions(document: Mapping[str, Any]) -> list[Difference]:
    """What does not follow from the rest of the document: where it stands, what stands there, what should.

    Raises:
        ReportError: the document lacks what this needs, or holds something else in its place.
    """
    try:
        return [
            Difference(where, recorded, expected)
            for where, recorded, expected in _claims(document)
            if not same(recorded, plain(expected))
        ]
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError, IrwmError) as error:
        raise ReportError("the report's numbers are incomplete", found=f"{type(error).__name__}: {error}") from error


def _claims(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
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
    comparisons = evaluation["keys_tried"] * evaluation["tensors_read"]
    best = min(reading["log10_p"], reading["log10_p_count"])
    risk = min(0.0, best + math.log10(COMBINATIONS * comparisons))
    yield "evaluation.log10_risk", evaluation["log10_risk"], risk
    yield "evaluation.found_at_log10_risk", evaluation["found_at_log10_risk"], FOUND_LOG10_RISK
    yield "evaluation.dismissed_above_log10_risk", evaluation["dismissed_above_log10_risk"], DISMISSED_LOG10_RISK
    yield from _likelihood(evaluation, reading)
    odds, l, rho, beta = document["odds"], p.positions, p.required_positions, p.rank_threshold
    yield "odds.log10_random_user", odds["log10_random_user"], log10_random_user(l, rho, beta)
    yield "odds.log10_wrong_user", odds["log10_wrong_user"], log10_wrong_user(l, rho, beta, odds["keys"])
    yield from _word(verdict, risk)
    if document.get("tracing") is not None:
        for name, value in tracing.summary(document["tracing"]).items():
            yield f"tracing.{name}", document["tracing"].get(name), value


def _reading(where: str, reading: Mapping[str, Any], p: Parameters) -> Iterator[tuple[str, Any, Any]]:
    ranks, counted = [], 0
    yield f"{where}.positions", len(reading["positions"]), p.positions
    for i, position in enumerate(reading["positions"]):
        rank = position["rank"]
        yield f"{where}.positions[{i}].state", position["state"], "gone" if rank is None else "ranked"
        counts = rank is not None and rank < p.rank_threshold
        counted += counts
        yield f"{where}.positions[{i}].counts", position["counts"], counts
        if rank is None:
            continue
        ranks.append(rank)
        # A rank is a number of permutations, over all of them; and it counts just where the observed value is small.
        steps = 1 + p.permutations
        yield f"{where}.positions[{i}].rank", rank, round(rank * steps) / steps
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


def _likelihood(evaluation: Mapping[str, Any], reading: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """From version 4 on."""
    if evaluation.get("log10_lr") is None:
        return
    ratio = likelihood_ratio_log10([q["rank"] for q in reading["positions"] if q["rank"] is not None])
    yield "evaluation.log10_lr", evaluation["log10_lr"], ratio
    if evaluation.get("log10_lr_per_comparison") is not None:
        comparisons = evaluation["keys_tried"] * evaluation["tensors_read"]
        each = per_comparison_log10(ratio, comparisons)
        yield "evaluation.log10_lr_per_comparison", evaluation["log10_lr_per_comparison"], each
        if isinstance(evaluation.get("verbal"), str):
            yield "evaluation.verbal", evaluation["verbal"], verbal_step(each)


def _word(verdict: Mapping[str, Any], risk: float) -> Iterator[tuple[str, Any, Any]]:
    """A word that the corrected chance does not allow; "inconclusive" may have other reasons."""
    mark = verdict.get("mark", verdict["word"])
    where = "verdict.mark" if "mark" in verdict else "verdict.word"
    if mark == FOUND and risk > FOUND_LOG10_RISK:
        yield where, mark, NOT_FOUND if risk > DISMISSED_LOG10_RISK else "inconclusive"
    if mark == NOT_FOUND and risk <= DISMISSED_LOG10_RISK:
        yield where, mark, FOUND if risk <= FOUND_LOG10_RISK else "inconclusive"
    if "mark" in verdict and verdict.get("rests_on") != tracing.TRACING:
        yield "verdict.word", verdict["word"], mark
