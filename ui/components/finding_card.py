"""The verdict card of a report's document: the sentence, three figures, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from irwm.evidence.finding import FOUND
from irwm.report import recognition_words, schema, tracing_words, wording
from irwm.report.answer import answer, is_original, keys_tried, log10_risk, named, strongest, whose
from irwm.report.numbers import decimal, number, power_html, why_capped
from irwm.report.plots.growth import tokens_enough
from irwm.report.recognition_words import chance, clause, origin
from irwm.report.tracing import TRACING
from ui.components.verdict_card import Figure, VerdictCard

_LINEAGE = {
    "derived": "The suspect and the original have a common origin, whether or not the suspect carries a mark. This "
    "does not show which of them came first",
    "not derived": "Neither the suspect’s embedding nor its layers resemble the original’s. A heavily damaged "
    "descendant can also look like this",
}


def finding_card(document: schema.Report) -> VerdictCard:
    """The card for a document of `irwm.report`."""
    found, items = document["tracing"], document["items"]
    by_tracing = found is not None and found["named"] and document["verdict"]["rests_on"] == TRACING
    heard = items["suspect"]["answers"]
    if found is not None and by_tracing:
        figures = _figures_of_tracing(found)
    elif found is not None and heard and wording.is_generated(heard):
        figures = _figures_of_text(found, heard)
    else:
        figures = _figures_of_mark(document)
    said, names = answer(document), (items["suspect"]["name"], items["original"]["name"])
    why = _why(document, told=bool(said.fault))
    ranked = () if found is None else (power_html(row["log10_risk"]) for row in found["ranked"])
    small = why_capped(said.sentence, *(figure.value for figure in figures), *why, *ranked)
    return VerdictCard(
        verdict=said.kind,
        sentence=said.sentence,
        figures=(*figures, Figure(origin(document["lineage"]["status"]), "Origin (lineage)", _lineage(document))),
        why=[*why, small] if small else why,
        about=f"{' against '.join(names)} · keys tried: {keys_tried(document)}",
        fault=named(said.fault, document),
        caution=said.caution,
    )


def _figures_of_tracing(found: schema.Tracing) -> tuple[Figure, Figure]:
    copies = found["copies_estimated"]
    names = tracing_words.listed([row["recipient"] or row["owner"] for row in found["ranked"] if row["named"]])
    one = found["named"] == 1 and copies is not None and tracing_words.is_one_copy(copies)
    about = f". {tracing_words.made_from(found)}" if copies is not None and not one else ""
    several = ", whose copies were used, possibly with others"
    used = ", whose copy alone was used" if one else ", whose copy was used, possibly with others"
    used = several if found["named"] > 1 else used
    return (
        Figure(
            number(found["named"]),
            "Recipient named" if found["named"] == 1 else "Recipients named",
            f"{names}{used}{about}. Keys tried: {number(found['keys_tried'])}",
        ),
        Figure(
            power_html(found["log10_risk"] or 0.0),
            "Probability of a false accusation",
            "Probability of naming any recipient whose copy was not used, corrected for all keys tried",
        ),
    )


def _figures_of_text(found: schema.Tracing, heard: schema.Answers) -> tuple[Figure, Figure]:
    """Of generated text that names nobody."""
    largest = found["ranked"][0]["z"]
    return (
        Figure(
            "–" if largest is None else decimal(largest, 2),
            "Largest z of any recipient",
            f"A recipient is named if z is at least {decimal(found['z_needed'], 2)}. Keys tried: "
            f"{number(found['keys_tried'])}",
        ),
        Figure(
            number(heard["tokens"]),
            "Generated tokens",
            "z grows with the number of tokens, and it grows faster if log-probabilities are available. With too few "
            "tokens, no one is ruled out",
        ),
    )


def _figures_of_mark(document: schema.Report) -> tuple[Figure, Figure]:
    verdict = document["verdict"]
    who = whose(document["key"]) if verdict["word"] == FOUND else ""  # otherwise the card names nobody
    key, mark = (f"Key of “{who}”. ", f" of “{who}”") if who else ("", "")
    beta = document["parameters"]["rank_threshold"]
    present = verdict["present"]
    return (
        Figure(
            f"{verdict['count']} of {present}",
            "Positions with a low rank",
            f"{key}Chance alone would give about {verdict['expected_by_chance']:.0f}. The published rule "
            f"requires {verdict['required']} positions (ρ) with a rank below {beta:g} (β)",
        ),
        Figure(
            power_html(log10_risk(document)) if present else "–",
            "Probability by chance",
            f"Share of models without the mark{mark} that would look the same, corrected for {_keys(document)}",
        ),
    )


def _lineage(document: schema.Report) -> str:
    """The meaning of the finding on lineage, or the reason why it is undecided."""
    lineage = document["lineage"]
    if is_original(document):
        return "The suspect and the original contain the same weights, byte for byte"
    said = _LINEAGE.get(lineage["status"])
    if said is None:
        said = f"There is not enough evidence for an answer: {clause(lineage['reason'])}"
    return f"{said}. {chance(lineage)}".removesuffix(". ")


def _keys(document: schema.Report) -> str:
    tried, tensors = document["evaluation"]["keys_tried"], strongest(document)["tensors_read"]
    factor = [f"{tried} keys tried"] if tried > 1 else []
    factor += [f"{tensors} tensors read"] if tensors > 1 else []
    return " and ".join(factor) or "two ways of combining the ranks"


def _why(document: schema.Report, *, told: bool) -> list[str]:
    """Paragraphs below the figures.

    Args:
        told: whether a failed control is already shown above the figures.
    """
    verdict = document["verdict"]
    lines: list[str] = [] if told else [verdict["reason"]]
    lines += [f"Note: {warning}." for warning in verdict["warnings"]]
    heard = document["items"]["suspect"]["answers"]
    if heard:
        lines.append(wording.BY_TEXT if wording.is_generated(heard) else wording.BY_ANSWERS)
        lines += _more_tokens(document, heard)
    undone = len(recognition_words.undone(document))
    if undone:
        changes = "one change" if undone == 1 else f"{undone} changes"
        listed = "it is listed below" if undone == 1 else "they are listed below"
        lines.append(f"Before the mark was read, {changes} had to be undone; {listed}.")
    found = document.get("tracing")
    if found is not None and found["recipients"] > 1:
        lines.append(tracing_words.read_by_rule(found))
    paper, keys = document["paper"], document["odds"]["keys"]
    if paper is not None:
        rule = "is met" if paper["rule_met"] else "is not met"
        odds = f" Among {number(keys)} keys, the probability" if keys > 1 else " The probability"
        lines.append(
            Markup(
                "With the published method alone (sum, the suspect’s A), {} of {} positions count, and its rule {}.{} "
                "of a false accusation is {} (equation 3)."
            ).format(paper["count"], paper["present"], rule, odds, power_html(document["odds"]["log10_wrong_user"]))
        )
    lines += [_supporting(each) for each in document.get("supporting", [])]
    lines += _weight(document)
    tests = document["self_tests"]
    if tests and not told:
        lines.append(_controls(tests))
    return [line if isinstance(line, Markup) else named(line, document) for line in lines]


def _more_tokens(document: schema.Report, heard: schema.Answers) -> list[str]:
    """How many tokens might be enough where generated text names nobody."""
    found = document["tracing"]
    if found is None or found["named"] or not wording.is_generated(heard):
        return []
    z, least, enough = found["ranked"][0]["z"] or 0.0, found["z_needed"], tokens_enough(found)
    if enough is None:
        return [
            f"The largest z is {decimal(z, 1)}, and {least:.1f} is needed. It does not differ from chance, so the "
            "number of tokens that would be enough cannot be estimated. Record several times as many, with "
            "log-probabilities if the server returns them."
        ]
    return [
        f"The largest z is {z:.1f} from {number(heard['tokens'])} tokens, and {least:.1f} is needed. If it is not due "
        f"to chance, it grows with the square root of the number of tokens, and about {number(enough)} would be enough."
    ]


def _controls(tests: Sequence[schema.SelfTest]) -> str:
    """States that no control failed; weak evidence is not a failure."""
    weak = sum(test["verdict"] != test["expected"] for test in tests)
    run = f"{number(len(tests))} controls were run" if len(tests) > 1 else "One control was run"
    if weak:
        return (
            f"{run} in the same way, without failure; {number(weak)} gave weak evidence, as happens by chance in one "
            "control in 1000."
        )
    missed = all(test["verdict"] == "not found" for test in tests if "decoy" in test["name"])
    what = "no decoy key was found" if missed else "no key, real or decoy, can be assessed on this suspect"
    return f"{run} in the same way, without failure: {what}."


def _weight(document: schema.Report) -> list[str]:
    """Likelihood ratio, decoys and standing."""
    evaluation, rates, standing = document["evaluation"], document["error_rates"], document["standing"]
    lines: list[str] = []
    ratio, step = evaluation["log10_lr_per_comparison"], evaluation["verbal"]
    if ratio is not None and step is not None:
        lines.append(f"{wording.likelihood(ratio)} ENFSI scale: {wording.verbal(step)}.")
    if rates and rates["decoys"]:
        found = rates["decoys"]
        lines.append(
            Markup(
                "{} wrong keys were tried on the same suspect. The lowest probability among them is {}; that of the "
                "key of “{}” is {}."
            ).format(
                number(found["number"]),
                power_html(found["smallest_log10_risk"]),
                whose(document["key"]),
                power_html(found["suspect_log10_risk"]),
            )
        )
    if document["verdict"]["word"] == "found":
        lines.append(standing["sentence"])
    return lines


def _supporting(reading: schema.Supporting) -> str:
    return Markup(
        "In a supporting reading ({}, the {}’s A, seed {}), {} of {} positions count ({:.0f} expected by chance); the "
        "probability is {}. This reading is not enough for an accusation."
    ).format(
        *(reading[name] for name in ("statistic", "invariant", "seed", "count", "present", "expected_by_chance")),
        power_html(reading["log10_risk"]),
    )
