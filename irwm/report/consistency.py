"""Checks whether a document's numbers follow from one another, without models, key or signature.

Every chance in a report is computed from the ranks of the positions, the parameters and the number of keys tried, and
every sentence from those. The document holds all of them, so a change of one without the others is found here. All
other values follow from the inputs, which `STATED` lists; `tests/report/test_every_leaf.py` alters every value of real
reports and compares the two.

    reading_claims, tracing_claims, examined_claims, verify_sentences the claims, part by part
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from irwm import Parameters
from irwm.evidence.finding import COMBINATIONS, MAPS
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.ownership.key_search import standing
from irwm.report import examined_claims, reading_claims, schema, tracing_claims, verify_sentences
from irwm.report.checks import (
    CHOICES,
    CONTROLS,
    EXAMINATION,
    KEY,
    ORIGINAL,
    RECIPIENTS,
    ROOT,
    SEEN,
    SUSPECT,
    TIME_STAMP,
)
from irwm.report.claims import (
    CASE,
    CUSTODY,
    PARTICULARS,
    SHOWN_OF_SIGNATURE,
    SIGNER,
    VERSIONS,
    Claim,
    at_least,
    contradicted,
    each,
    equal,
    item_fields,
    must,
    source_fields,
    within,
)
from irwm.report.document import SCHEMA, VERSION, comparisons_of
from irwm.report.likelihood import claimed_log10_risk, likelihood
from irwm.report.recorded import finding_of
from irwm.report.reproduction import ABSOLUTE, Difference
from irwm.report.value_states import Stated
from irwm.scheme.parameters import chance_of_counting
from irwm.scheme.probabilities import LN10, binomial_tail_log, fisher_floor_log10

_MODELS = (SUSPECT, ORIGINAL, KEY)
_MEASURED = "the measurements can be checked only with the models themselves"
# These matter only if the key has a date.
_DATED = (
    Stated(
        "the timestamp of the key’s commitment",
        "only the root certificate of an authority that you trust can show this",
        ("time_stamp*",),
        (ROOT,),
        carries=True,
    ),
    Stated(
        "the date from which the suspect is known to have existed",
        "there is only the examiner’s word for this",
        ("standing.suspect_seen_utc",),
        (SEEN,),
        carries=True,
    ),
)
# The inputs of a report; all other values follow from them.
STATED = (
    CASE,
    PARTICULARS,
    VERSIONS,
    SIGNER,
    CUSTODY,
    Stated(
        "the items’ names",
        "there is only the examiner’s word for this",
        ("items.suspect.name", "items.original.name"),
        only=(),
    ),
    Stated(
        "the number of keys tried, the seed, and the reading settings",
        "a signer who tried other values might not say so",
        (
            "evaluation.keys_tried", "seed", "reading.statistic", "reading.invariant", "tracing.risk",
            "error_rates.decoys.seed",
        ),
        (KEY,),
        (CHOICES,),
        carries=True,
    ),
    Stated("the number of keys available to try", "only the owner of the keys can show this", ("keys.held",)),
    Stated(
        "the key’s owner and recipient, its scale, and the settings of its mark",
        "only the opened key can show this",
        ("key*", "parameters*"),
        (KEY,),
        carries=True,
    ),
    Stated(
        "which server the items were read from, and when",
        "only the server can show this",
        source_fields("items.suspect", "items.original"),
        only=(),
    ),
    Stated(
        "the suspect’s files and structure and, if it only answers prompts, its server and the times of its answers",
        "only the files can show this",
        item_fields("items.suspect"),
        (SUSPECT,),
        carries=True,
    ),
    Stated(
        "the original’s files and structure",
        "only the files can show this",
        item_fields("items.original"),
        (ORIGINAL,),
        carries=True,
    ),
    Stated(
        "the tokens of the marked rows",
        "only the tokenizer can show this",
        ("reading.positions[].text",),
        only=(),
    ),
    Stated(
        "the digest of all values in the null distribution",
        "the last bits of these values depend on the processor, so the digest is not compared",
        ("reading.null.sha256", "paper.null.sha256", "elsewhere.null.sha256"),
        only=(),
    ),
    Stated(
        "the marked rows, and the values read from them",
        _MEASURED,
        (
            "reading*", "elsewhere*", "paper*", "place", "evidence*", "supporting*",
            "evaluation.places", "evaluation.tensors_read",
        ),
        _MODELS,
        carries=True,
    ),
    Stated(
        "the alignment of rows and columns, the lineage, and the warnings",
        _MEASURED,
        ("alignment*", "lineage*", "verdict.warnings*"),
        _MODELS,
        carries=True,
    ),
    Stated(
        "the number of recipients to which the rank rule was applied",
        "no report contains the marks of recipients who are not listed",
        ("tracing.read_by_rank_rule",),
        only=(),
    ),
    Stated(
        "which recipients were traced, and the results",
        "only the models and the keys of all recipients can show this",
        ("tracing*",),
        _MODELS,
        (RECIPIENTS,),
        carries=True,
    ),
    Stated(
        "the readings of the decoys, which are wrong keys",
        _MEASURED,
        ("error_rates.decoys*",),
        _MODELS,
        (CONTROLS,),
        carries=True,
    ),
    Stated(
        "the controls, and the readings of neutral models",
        "only rerunning the same controls can show this",
        ("self_tests*", "error_rates*"),
        _MODELS,
        (CONTROLS,),
        carries=True,
    ),
    *_DATED,
)  # fmt: skip
# Which check computes which values again.
SHOWN: Mapping[str, tuple[str, ...]] = {
    **SHOWN_OF_SIGNATURE,
    SUSPECT: item_fields("items.suspect"),
    ORIGINAL: item_fields("items.original"),
    KEY: ("key*", "parameters*"),
    CHOICES: ("evaluation.keys_tried", "keys.tried", "seed", "reading.statistic", "reading.invariant", "tracing.risk",
              "error_rates.decoys.seed"),
    EXAMINATION: (
        "verdict*", "evaluation*", "place", "reading*", "elsewhere*", "evidence*", "paper*", "supporting*", "odds*",
        "alignment*", "lineage*", "parameters*", "rows_disclosed",
    ),
    RECIPIENTS: ("tracing*",),
    CONTROLS: ("self_tests*", "error_rates*"),
    TIME_STAMP: ("time_stamp*", "standing.committed_utc", "standing.authority", "key.commitment"),
    SEEN: ("standing.suspect_seen_utc",),
}  # fmt: skip


def inputs(document: schema.Report) -> tuple[Stated, ...]:
    """`STATED` for this report."""
    if document["time_stamp"] is not None:
        return STATED
    return tuple(replace(each, carries=False) if each in _DATED else each for each in STATED)


def contradictions(document: schema.Report, assigned: set[str] | None = None) -> list[Difference]:
    """The values that do not follow from the rest of the document: their place, the value, and what it should be.

    Raises:
        ReportError: a value cannot be computed from the document's.
    """
    return contradicted(claims(document), "the report's numbers cannot be computed", assigned)


def claims(document: schema.Report) -> Iterator[Claim]:
    """The places of a report whose values follow from the rest of it, with the recorded and the expected value."""
    yield from each("schema", document["schema"], {"name": SCHEMA, "version": VERSION})
    yield from verify_sentences.status(document)
    p = Parameters.from_dict(document["parameters"])
    reading, evaluation = document["reading"], document["evaluation"]
    for name, each_reading in (
        ("reading", reading),
        ("elsewhere", document["elsewhere"]),
        ("paper", document["paper"]),
    ):
        if each_reading is not None:
            yield from reading_claims.reading(name, each_reading, p)
    yield from reading_claims.rows(document)
    yield from at_least(1, "evaluation", evaluation, "keys_tried", "tensors_read", "maps", "forms", "places")
    comparisons = comparisons_of(evaluation)
    best = min(reading["log10_p"], reading["log10_p_count"])
    yield from _evaluation(document, p, best, comparisons)
    yield from reading_claims.places(document, p, best, comparisons)
    yield from reading_claims.evidence(document)
    yield from reading_claims.odds(document, p)
    yield from reading_claims.supporting(document, p)
    yield from examined_claims.items(document)
    yield from examined_claims.alignment(document)
    yield from examined_claims.lineage(document)
    if document["tracing"] is not None:
        yield from tracing_claims.claims(document, document["tracing"])
    yield from examined_claims.controls(document)
    yield from verify_sentences.verdict(document)
    yield from _likelihood(document)
    yield from _standing(document)
    yield from examined_claims.error_rates(document, p, best)
    yield from verify_sentences.others(document)
    yield from _keys(document)


def _evaluation(document: schema.Report, p: Parameters, best: float, comparisons: int) -> Iterator[Claim]:
    reading, verdict, evaluation = document["reading"], document["verdict"], document["evaluation"]
    chance, present = chance_of_counting(p), reading["present"]
    yield from equal("verdict", verdict, reading, "count", "present", "rule_met")
    yield "verdict.positions", verdict["positions"], p.positions
    yield "verdict.required", verdict["required"], p.required_positions
    yield "verdict.expected_by_chance", verdict["expected_by_chance"], chance * present
    yield from equal("evaluation", evaluation, reading, "log10_p", "log10_p_count")
    yield "evaluation.smallest_rank", evaluation["smallest_rank"], 1 / (1 + p.permutations)
    yield "evaluation.combinations", evaluation["combinations"], COMBINATIONS
    yield "evaluation.maps", evaluation["maps"], len(MAPS)
    floor = fisher_floor_log10(present, p.permutations)
    yield "evaluation.log10_p_floor", evaluation["log10_p_floor"], floor
    counted = binomial_tail_log(present, present, chance) / LN10 if chance else 0.0
    yield "evaluation.log10_p_count_floor", evaluation["log10_p_count_floor"], counted
    if reading["log10_p"] < floor - ABSOLUTE:
        yield "reading.log10_p", reading["log10_p"], f"at least {floor}, the smallest value that its ranks allow"
    risk = min(0.0, best + math.log10(COMBINATIONS * comparisons))
    yield "evaluation.log10_risk", evaluation["log10_risk"], risk
    yield "evaluation.found_at_log10_risk", evaluation["found_at_log10_risk"], FOUND_LOG10_RISK
    yield "evaluation.dismissed_above_log10_risk", evaluation["dismissed_above_log10_risk"], DISMISSED_LOG10_RISK


def _likelihood(document: schema.Report) -> Iterator[Claim]:
    """The likelihood ratio and the bits of evidence; the ratio is null only if the suspect could not be judged."""
    yield from equal("evaluation", document["evaluation"], likelihood(finding_of(document)))


def _standing(document: schema.Report) -> Iterator[Claim]:
    """From the claimed odds and the two dates, one of which comes from the timestamp."""
    recorded = document["standing"]
    found = standing(claimed_log10_risk(document), recorded["committed_utc"], recorded["suspect_seen_utc"])
    # `irwm.report.stamps` checks what the timestamp proves.
    stamp = document["time_stamp"]
    yield "standing.committed_utc", recorded["committed_utc"], None if stamp is None else stamp["time_utc"]
    yield "standing.authority", recorded["authority"], "" if stamp is None else stamp["authority"]
    expected = {**asdict(found), "margin_bits": found.margin_bits}
    yield from equal("standing", recorded, expected, "status", "evidence_bits", "search_bits", "margin_bits")


def _keys(document: schema.Report) -> Iterator[Claim]:
    """No more keys can have been tried than there are, and all traced keys were tried."""
    keys, found, tried = document["keys"], document["tracing"], document["evaluation"]["keys_tried"]
    yield "keys.tried", keys["tried"], tried
    if keys["held"] is not None:
        yield from within("keys.held", keys["held"], tried)
    if found is not None:
        yield from must(found["recipients"] <= tried, "tracing.recipients", found["recipients"], f"at most {tried}")
