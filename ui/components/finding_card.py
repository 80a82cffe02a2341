"""The verdict card of a report's document: the sentence, three figures, why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irwm.report import tracing_words, wording
from irwm.report.numbers import number, power_text
from irwm.report.tracing import TRACING
from irwm.report.two_findings import clause
from ui.components.verdict_card import Figure, VerdictCard

_LINEAGE = {
    "derived": "The suspect and the original have a common origin, mark or no mark; which came first is not seen",
    "not derived": "The suspect’s embedding and the original’s have no common origin",
}


def finding_card(document: Mapping[str, Any]) -> VerdictCard:
    """The card for a document of `irwm.report`."""
    found, verdict = document.get("tracing"), document["verdict"]
    by_tracing = found is not None and found["named"] and verdict.get("rests_on") == TRACING
    figures = _figures_of_tracing(document["tracing"]) if by_tracing else _figures_of_mark(document)
    lineage = document["lineage"]
    return VerdictCard(
        verdict=verdict["word"],
        sentence=wording.answer(document),
        figures=(*figures, Figure(lineage["status"], "Lineage", _lineage(lineage))),
        why=_why(document),
        about=f"{document['items']['suspect']['name']} against {document['items']['original']['name']}",
    )


def _figures_of_tracing(found: Mapping[str, Any]) -> tuple[Figure, Figure]:
    copies = found["copies_estimated"]
    about = f"; made from about {copies:.1f} copies, if they were averaged" if copies is not None else ""
    return (
        Figure(
            f"{found['named']} of {number(found['recipients'])}",
            "Recipients named",
            f"At least these had a part{about}",
        ),
        Figure(
            power_text(found["log10_risk"]),
            "Odds of a wrong name",
            "That anybody at all is named who had no part, after paying for every recipient",
        ),
    )


def _figures_of_mark(document: Mapping[str, Any]) -> tuple[Figure, Figure]:
    verdict, evaluation = document["verdict"], document["evaluation"]
    beta = document["parameters"]["rank_threshold"]
    present = verdict["present"]
    return (
        Figure(
            f"{verdict['count']} of {present}",
            "Positions that rank low",
            f"Chance alone gives about {verdict['expected_by_chance']:.0f}; the published rule asks for "
            f"{verdict['required']} (ρ) below {beta:g} (β)",
        ),
        Figure(
            power_text(evaluation["log10_risk"]) if present else "–",
            "Odds without the mark",
            f"Share of models without this mark that would look the same, after paying for {_keys(evaluation)}",
        ),
    )


def _lineage(lineage: Mapping[str, Any]) -> str:
    """What the finding on lineage means; where it settles nothing, why."""
    if lineage["status"] in _LINEAGE:
        return _LINEAGE[lineage["status"]]
    return f"What was seen settles nothing either way: {clause(lineage['reason'])}"


def _keys(evaluation: Mapping[str, Any]) -> str:
    tried, tensors = evaluation["keys_tried"], evaluation["tensors_read"]
    paid = [f"{tried} keys tried"] if tried > 1 else []
    paid += [f"{tensors} tensors read"] if tensors > 1 else []
    return " and ".join(paid) or "two ways of combining the ranks"


def _why(document: Mapping[str, Any]) -> list[str]:
    lines = [document["verdict"]["reason"], *(f"Note: {warning}." for warning in document["verdict"]["warnings"])]
    undone = len(document["alignment"]["steps"])
    if undone:
        changes = "one change" if undone == 1 else f"{undone} changes"
        listed = "it is listed below" if undone == 1 else "they are listed below"
        lines.append(f"Before the mark was read, {changes} had to be undone; {listed}.")
    found = document.get("tracing")
    if found is not None:
        lines.append(tracing_words.read_by_rule(found))
    paper, keys = document["paper"], document["odds"]["keys"]
    if paper is not None:
        rule = "is met" if paper["rule_met"] else "is not met"
        among = f" Among {number(keys)} keys it accuses somebody wrongly with odds of" if keys > 1 else " Its odds of a"
        what = "" if keys > 1 else " false accusation are"
        lines.append(
            f"The published method alone (sum, A of the suspect): {paper['count']} of {paper['present']} positions; "
            f"its rule {rule}.{among}{what} {power_text(document['odds']['log10_wrong_user'])} (equation 3)."
        )
    lines += [_supporting(each) for each in document.get("supporting", [])]
    lines += _weight(document)
    tests = document["self_tests"]
    differ = [test["name"] for test in tests if test["verdict"] != test["expected"]]
    if differ:
        lines.append("A self-test did not come out as expected: " + "; ".join(differ) + ".")
    elif tests:
        missed = all(test["verdict"] == "not found" for test in tests if "decoy" in test["name"])
        what = ": decoy keys are not found" if missed else ": where no key can be judged, a decoy key is not either"
        lines.append(f"{len(tests)} self-tests, run the same way, came out as they must{what}.")
    return lines


def _weight(document: Mapping[str, Any]) -> list[str]:
    """Likelihood ratio, decoys and standing."""
    evaluation, rates, standing = document["evaluation"], document["error_rates"], document["standing"]
    lines = []
    if evaluation["log10_lr"] is not None:
        ratio = evaluation["log10_lr_per_comparison"]
        lines.append(f"{wording.likelihood(ratio)} ENFSI’s word for this is: {evaluation['verbal']}.")
    if rates and rates["decoys"]:
        found = rates["decoys"]
        lines.append(
            f"{number(found['number'])} wrong keys were read on the same suspect: the lowest has odds of "
            f"{power_text(found['smallest_log10_risk'])}, this key {power_text(found['suspect_log10_risk'])}."
        )
    if document["verdict"]["word"] == "found":
        lines.append(standing["sentence"])
    return lines


def _supporting(reading: Mapping[str, Any]) -> str:
    return (
        f"Supporting reading, which accuses nobody by itself ({reading['statistic']}, A of the {reading['invariant']}, "
        f"seed {reading['seed']}): {reading['count']} of {reading['present']} positions where chance gives "
        f"{reading['expected_by_chance']:.0f}; odds {power_text(reading['log10_risk'])}."
    )
