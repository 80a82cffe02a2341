"""Do a document's numbers follow from one another? Checked from the document alone, without models, key or signature.

Every chance in a report is computed from the ranks of the positions, the parameters and the number of keys tried, and
every sentence from those, all of which the document holds. Whoever changes one of them without the others is found out
here. What nothing else in a document determines stands in `UNCHECKED`; `tests/report/test_every_leaf.py` alters every
value of real reports and holds the two together.

    reading_claims, tracing_claims, examined_claims, sentences    the claims, part by part
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from irwm import Parameters
from irwm.evidence.examination import MAPS
from irwm.evidence.finding import COMBINATIONS
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.ownership.key_search import evidence_bits, standing
from irwm.report import examined_claims, reading_claims, sentences, tracing_claims
from irwm.report.checks import EXAMINATION, KEY, ORIGINAL, RECIPIENTS, SUSPECT, TIME_STAMP, Unchecked
from irwm.report.claims import (
    CASE,
    PARTICULARS,
    VERSIONS,
    Claim,
    contradicted,
    each,
    item_fields,
    must,
    whole,
)
from irwm.report.document import ALWAYS_THERE, PAID_FOR, SCHEMA, VERSION, paid_for
from irwm.report.likelihood import claimed_log10_risk
from irwm.report.recorded import finding_of
from irwm.report.reproduction import ABSOLUTE, Difference
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import LN10, binomial_tail_log, fisher_floor_log10

# What the models show, with the original's key; `shown_by` says which check they are needed for.
_MEASURED = "only the models show what was measured on them"
UNCHECKED = (
    CASE,
    PARTICULARS,
    VERSIONS,
    Unchecked(
        "the key, and the settings of its mark that no chance depends on",
        "only the opened key shows them",
        (
            "key.commitment", "key.owner", "parameters.hidden", "parameters.constraints",
            "parameters.condition_limit", "parameters.noise_coordinates",
            "parameters.noise_level", "parameters.spread",
        ),
        (KEY, TIME_STAMP),
    ),
    Unchecked("the scale of its mark", "only the opened key shows it", ("key.scale",), (KEY,)),
    Unchecked(
        "the suspect: its form, its files and its fingerprint",
        "only its files show them",
        item_fields("items.suspect", "vocab_size", "hidden_size", "fingerprint"),
        (SUSPECT,),
    ),
    Unchecked(
        "the suspect’s answers: who was asked, when, and how they vary",
        "only the recorded file shows it, and its recorder says so",
        (
            "items.suspect.answers.given", "items.suspect.answers.used", "items.suspect.answers.directions",
            "items.suspect.answers.recording.*",
        ),
        (SUSPECT,),
    ),
    Unchecked(
        "the original: its form and its files, apart from its sizes and its fingerprint",
        "only its files show them",
        item_fields("items.original"),
        (ORIGINAL,),
    ),
    Unchecked("how many keys there were to try", "only whoever holds them shows it", ("keys.held",)),
    Unchecked("what tokens the marked rows stand for", "only the tokenizer shows them", ("reading.positions[].text",)),
    Unchecked(
        "which rows are marked, and what was read there, apart from its rank among the null",
        _MEASURED,
        (
            "reading.positions[].token", "reading.positions[].observed", "reading.positions[].threshold",
            "reading.positions[].null_quantiles[]", "paper.positions[].observed", "paper.positions[].threshold",
            "paper.positions[].null_quantiles[]", "elsewhere.positions[].observed", "elsewhere.positions[].threshold",
            "elsewhere.positions[].null_quantiles[]",
        ),
        (EXAMINATION,),
    ),
    Unchecked(
        "the digest of all values of the null",
        "its last bits depend on the processor, so nothing is compared with it",
        ("reading.null.sha256", "paper.null.sha256", "elsewhere.null.sha256"),
    ),
    Unchecked(
        "place and rows behind a fingerprint, the readings beside, and the map and place of a tracing",
        _MEASURED,
        ("evidence[].rows", "evidence[].by", "supporting[].seed", "supporting[].count", "supporting[].log10_risk",
         "supporting[].statistic", "supporting[].invariant", "tracing.by", "tracing.place", "evidence[].place"),
        (EXAMINATION,),
    ),
    Unchecked(
        "how rows and columns were put back, lineage apart from its similarities, and warnings",
        _MEASURED,
        (
            "alignment.reason", "alignment.exhausted", "alignment.steps*", "alignment.embedding_tensor",
            "alignment.rows_of_original_gone", "alignment.marked_rows_gone", "alignment.row_scale",
            "alignment.columns_moved", "alignment.columns_mutual_share", "alignment.broken_rows",
            "alignment.first_broken_rows*", "alignment.rows_compared", "alignment.whole", "lineage.attention",
            "lineage.attention_decoy", "lineage.fitted", "verdict.warnings*",
        ),
        (EXAMINATION,),
    ),
    Unchecked(
        "recipients who are not named: their z below 0, and the weights, rows and marks of all",
        "only the models and every recipient's key show them",
        (
            "tracing.ranked[].z", "tracing.ranked[].recipient", "tracing.ranked[].owner", "tracing.ranked[].commitment",
            "tracing.ranked[].share", "tracing.ranked[].rows", "tracing.ranked[].mark*", "tracing.first_pass_rows",
            "tracing.others*", "tracing.decoys[]", "tracing.read_by_rank_rule",
        ),
        (RECIPIENTS,),
    ),
    Unchecked(
        "what wrong keys read, apart from their counts at each level",
        _MEASURED,
        tuple(f"error_rates.decoys.{name}" for name in
              ("seed", "bank_rows", "smallest_log10_risk", "mean_count", "largest_count", "as_low_as_suspect")),
        (EXAMINATION,),
    ),
    Unchecked(
        "what controls and neutral models read",
        "only an examination of such models and keys shows it",
        (
            "self_tests[].name", "self_tests[].count", "self_tests[].present", "self_tests[].log10_risk",
            "self_tests[].verdict", "self_tests[].expected", "error_rates.neutral[].name", "error_rates.neutral[].rows",
            "error_rates.neutral[].reason", "error_rates.neutral[].similarity", "error_rates.neutral[].aligned",
            "error_rates.neutral[].log10_risk",
            "error_rates.neutral[].verdict",
        ),
    ),
)  # fmt: skip


def contradictions(document: Mapping[str, Any]) -> list[Difference]:
    """What does not follow from the rest of the document: where it stands, what stands there, what should.

    Raises:
        ReportError: the document lacks what this needs, or holds something else in its place.
    """
    return contradicted(claims(document), "the report's numbers cannot be worked out")


def claims(document: Mapping[str, Any]) -> Iterator[Claim]:
    """Where a report says something that follows from the rest of it, what it says, and what follows."""
    yield from _sections(document)
    yield from each("schema", document["schema"], {"name": SCHEMA, "version": VERSION})
    yield from sentences.status(document)
    p = Parameters.from_dict(document["parameters"])
    reading, evaluation = document["reading"], document["evaluation"]
    for name in ("reading", "elsewhere", "paper"):
        if document[name] is not None:
            yield from reading_claims.reading(name, document[name], p)
    yield from reading_claims.rows(document)
    for name in PAID_FOR:
        yield from whole(f"evaluation.{name}", evaluation[name], 1)
    comparisons = paid_for(evaluation)
    best = min(reading["log10_p"], reading["log10_p_count"])
    yield from _evaluation(document, p, best, comparisons)
    yield from reading_claims.places(document, p, best, comparisons)
    yield from reading_claims.evidence(document, comparisons)
    yield from reading_claims.odds(document, p)
    yield from reading_claims.supporting(document, p)
    yield from examined_claims.items(document)
    yield from examined_claims.alignment(document)
    yield from examined_claims.lineage(document)
    if document["tracing"] is not None:
        yield from tracing_claims.claims(document)
    yield from examined_claims.controls(document)
    yield from sentences.verdict(document)
    yield from _likelihood(document)
    yield from _standing(document)
    yield from examined_claims.error_rates(document, p, best)
    yield from sentences.others(document)
    yield from _keys(document)


def _sections(document: Mapping[str, Any]) -> Iterator[Claim]:
    for section, names in ALWAYS_THERE.items():
        part = document[section] if section else document
        for name in names:
            if name not in part:
                yield f"{section}.{name}".lstrip("."), "missing", "part of every report"


def _evaluation(document: Mapping[str, Any], p: Parameters, best: float, comparisons: int) -> Iterator[Claim]:
    reading, verdict, evaluation = document["reading"], document["verdict"], document["evaluation"]
    chance, present = chance_of_counting(p), reading["present"]
    for name in ("count", "present", "rule_met"):
        yield f"verdict.{name}", verdict[name], reading[name]
    yield "verdict.positions", verdict["positions"], p.positions
    yield "verdict.required", verdict["required"], p.required_positions
    yield "verdict.expected_by_chance", verdict["expected_by_chance"], chance * present
    for name in ("log10_p", "log10_p_count"):
        yield f"evaluation.{name}", evaluation[name], reading[name]
    yield "evaluation.smallest_rank", evaluation["smallest_rank"], 1 / (1 + p.permutations)
    yield "evaluation.combinations", evaluation["combinations"], COMBINATIONS
    yield "evaluation.maps", evaluation["maps"], len(MAPS)
    floor = fisher_floor_log10(present, p.permutations)
    yield "evaluation.log10_p_floor", evaluation["log10_p_floor"], floor
    counted = binomial_tail_log(present, present, chance) / LN10 if chance else 0.0
    yield "evaluation.log10_p_count_floor", evaluation["log10_p_count_floor"], counted
    if reading["log10_p"] < floor - ABSOLUTE:
        yield "reading.log10_p", reading["log10_p"], f"not below {floor}, the floor of its ranks"
    risk = min(0.0, best + math.log10(COMBINATIONS * comparisons))
    yield "evaluation.log10_risk", evaluation["log10_risk"], risk
    yield "evaluation.found_at_log10_risk", evaluation["found_at_log10_risk"], FOUND_LOG10_RISK
    yield "evaluation.dismissed_above_log10_risk", evaluation["dismissed_above_log10_risk"], DISMISSED_LOG10_RISK
    yield "evaluation.evidence_bits", evaluation["evidence_bits"], evidence_bits(risk)


def _likelihood(document: Mapping[str, Any]) -> Iterator[Claim]:
    """All three are left out together, and only where the suspect could not be judged."""
    evaluation, finding = document["evaluation"], finding_of(document)
    values: tuple[Any, ...] = (None, None, None)
    if finding.judgeable:
        ranks = [q["rank"] for q in document["reading"]["positions"] if q["rank"] is not None]
        ratio = likelihood_ratio_log10(ranks)
        one = per_comparison_log10(ratio, paid_for(evaluation))
        values = ratio, one, verbal_step(one)
    for name, value in zip(("log10_lr", "log10_lr_per_comparison", "verbal"), values, strict=True):
        yield f"evaluation.{name}", evaluation[name], value


def _standing(document: Mapping[str, Any]) -> Iterator[Claim]:
    """From the odds claimed and the two dates, of which one is the time-stamp's."""
    recorded = document["standing"]
    found = standing(claimed_log10_risk(document), recorded["committed_utc"], recorded["suspect_seen_utc"])
    # What the time-stamp itself proves is for `irwm.report.stamps`.
    stamp = document["time_stamp"] or {"time_utc": None, "authority": ""}
    yield "standing.committed_utc", recorded["committed_utc"], stamp["time_utc"]
    yield "standing.authority", recorded["authority"], stamp["authority"]
    for name in ("status", "evidence_bits", "search_bits", "margin_bits"):
        yield f"standing.{name}", recorded[name], getattr(found, name)


def _keys(document: Mapping[str, Any]) -> Iterator[Claim]:
    """Of the keys that there are, no more can have been tried; all that were traced were."""
    keys, found, tried = document["keys"], document["tracing"], document["evaluation"]["keys_tried"]
    yield "keys.tried", keys["tried"], tried
    if keys["held"] is not None:
        yield from whole("keys.held", keys["held"], tried)
    if found is not None:
        yield from must(found["recipients"] <= tried, "tracing.recipients", found["recipients"], f"at most {tried}")
