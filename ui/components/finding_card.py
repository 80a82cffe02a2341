"""The verdict card of a report's document: the sentence, three figures, why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.components.verdict_card import Figure, VerdictCard
from ui.plot_theme import power_text
from ui.report import wording

_LINEAGE = {
    "derived": "The suspect descends from the original, mark or no mark",
    "not derived": "The suspect does not descend from the original",
    "cannot tell": "No resemblance was found, which is not the same as none",
}


def finding_card(document: Mapping[str, Any]) -> VerdictCard:
    """The card for a document of `ui.report`."""
    verdict, evaluation, lineage = document["verdict"], document["evaluation"], document["lineage"]
    beta = document["parameters"]["rank_threshold"]
    present = verdict["present"]
    figures = (
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
        Figure(lineage["status"], "Lineage", _LINEAGE.get(lineage["status"], "")),
    )
    return VerdictCard(
        verdict=verdict["word"],
        sentence=wording.headline(verdict["word"], document["key"]["recipient"]),
        figures=figures,
        why=_why(document),
        about=f"{document['items']['suspect']['name']} against {document['items']['original']['name']}",
    )


def _keys(evaluation: Mapping[str, Any]) -> str:
    tried = evaluation["keys_tried"]
    return f"{tried} keys tried" if tried > 1 else "two ways of combining the ranks"


def _why(document: Mapping[str, Any]) -> list[str]:
    lines = [document["verdict"]["reason"], *(f"Note: {warning}." for warning in document["verdict"]["warnings"])]
    undone = document["alignment"]["undone"]
    if undone:
        lines.append("Undone: " + "; ".join(undone) + ".")
    elif document["alignment"]["aligned"]:
        lines.append("Nothing had to be undone: rows and columns stand in place.")
    paper = document["paper"]
    if paper is not None:
        rule = "is met" if paper["rule_met"] else "is not met"
        lines.append(
            f"The published method alone (sum, A of the suspect): {paper['count']} of {paper['present']} positions; "
            f"its rule {rule}."
        )
    tests = document["self_tests"]
    failed = [test["name"] for test in tests if test["verdict"] != test["expected"]]
    if failed:
        lines.append("A self-test did not come out as it must: " + "; ".join(failed) + ". Do not rely on this verdict.")
    elif tests:
        lines.append(f"{len(tests)} self-tests, run the same way, came out as they must: decoy keys are not found.")
    return lines
