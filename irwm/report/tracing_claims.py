"""Claims about the section "tracing": odds that follow from z and the number of comparisons, and their summaries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from irwm.answers import Fits
from irwm.answers.fits import LEAST_ANSWERS, POINTS
from irwm.answers.suspect import TRIES
from irwm.evidence.finding import FORMS, FOUND, MAPS, MARK, NOT_FOUND
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.report import schema, tracing
from irwm.report.claims import Claim, at_least, digest, each, equal, must, one_of, present_and_count, within
from irwm.report.tracing_words import is_of_text
from irwm.report.wording import is_generated
from irwm.scheme.parameters import FINGERPRINT_PLACES, NEURONS
from irwm.scheme.probabilities import rademacher_tail_log10
from irwm.tracing.recipients import DECOYS, NOBODY, recognised
from irwm.tracing.result import ALL_MADE, NAMED, NO_MEMORY, NOT_REQUESTED, TOO_FEW, UNSUPPORTED


def claims(document: schema.Report, found: schema.Tracing) -> Iterator[Claim]:
    """All claims about a document's tracing."""
    yield "tracing.keys_tried", found["keys_tried"], document["evaluation"]["keys_tried"]
    yield "tracing.forms", found["forms"], FORMS
    yield from at_least(1, "tracing", found, "recipients", "tensors_read")
    # The noise is read in the same tensors as the mark; a place where the mark was clear enough may be the only one.
    for mark in document["evidence"]:
        if (mark["form"], mark["place"]) == (MARK, found["place"]):
            yield "tracing.tensors_read", found["tensors_read"], mark["tensors_read"]
    yield from within("tracing.keys_tried", found["keys_tried"], found["recipients"])
    yield from within("tracing.looks", found["looks"], 1, 2)
    # The report's key may have no noise. Then it is not traced, and the traced keys may mark fewer places.
    traced = document["key"]["commitment"] in {row["commitment"] for row in found["ranked"]}
    least = document["evaluation"]["places"] if traced else 1
    yield from within("tracing.places", found["places"], least, len(FINGERPRINT_PLACES))
    only = found["places"] == document["evaluation"]["places"] == 1
    known = (document["place"],) if only else FINGERPRINT_PLACES
    yield from one_of("tracing.place", found["place"], known)
    yield from must(0.0 < found["risk"] < 1.0, "tracing.risk", found["risk"], "between 0 and 1")
    yield "tracing.recipients", found["recipients"], len(found["ranked"]) + found["others"]["count"]
    yield "tracing.maps", found["maps"], len(MAPS)
    heard = document["items"]["suspect"]["answers"]
    yield from _tries(found, heard["used"] if heard is not None else 0)
    factor = math.log10(tracing.comparisons(found))
    for i, row in enumerate(found["ranked"]):
        yield from _row(f"tracing.ranked[{i}]", row, i, found, factor)
    yield from equal("tracing", found, tracing.summary(found))
    yield from _order(found)
    # The number of neurons is not in the report.
    in_matrix = found["place"] != NEURONS
    yield from _rows(found, document["items"]["original"]["vocab_size"] if in_matrix else math.inf)
    yield from _others(found)
    yield from _marks(document, found)
    of_text = is_generated(heard)
    yield from _growth(found, heard["tokens"] if heard is not None else 0)
    known_by = "a map of rows or, for generated text, a weighting of tokens"
    yield from must(is_of_text(found) == of_text, "tracing.by", found["by"], known_by)
    alone = found["tensors_read"] == document["evaluation"]["tensors_read"] == 1 and found["place"] == document["place"]
    alone = alone and not of_text
    if alone:  # then both use the only alignment
        yield "tracing.aligned", found["aligned"], document["alignment"]["aligned"]
    reasons = recognised(
        found["named"],
        aligned=found["aligned"],
        why=document["alignment"]["reason"],
        nothing=all(row["z"] is None for row in found["ranked"]),
        text=of_text,
    )
    # With several tensors or places, another one may not have been aligned, for its own reason.
    fits = found["reason"] in reasons or (not alone and not found["aligned"] and found["reason"].startswith(NOBODY))
    yield from must(fits, "tracing.reason", found["reason"], reasons[0])


def _tries(found: schema.Tracing, answers: int) -> Iterator[Claim]:
    """Only text is read under fits, and fits end with the first that names someone.

    Args:
        answers: how many answers were used; a fit needs `LEAST_ANSWERS`.
    """
    yield "tracing.tries", found["tries"], TRIES if is_of_text(found) else 1
    yield from within("tracing.tries_made", found["tries_made"], 1, found["tries"])
    fits = ("", *Fits().kinds)[: found["tries_made"]]
    ended, made = found["tries_ended"], found["tries_made"]
    if found["named"] and is_of_text(found):
        yield "tracing.tries_ended", ended, NAMED
    elif made == found["tries"]:
        yield "tracing.tries_ended", ended, ALL_MADE
    elif answers < LEAST_ANSWERS:
        yield "tracing.tries_ended", ended, TOO_FEW
    else:
        known = (UNSUPPORTED, NO_MEMORY) if made > 1 else (NOT_REQUESTED, UNSUPPORTED, NO_MEMORY)
        yield from one_of("tracing.tries_ended", ended, known)
    by = found["by"].partition(", ")[2] if is_of_text(found) else ""
    yield from must(by in fits, "tracing.by", found["by"], f"a fit that was made, the first {found['tries_made']}")


def _growth(found: schema.Tracing, tokens: int) -> Iterator[Claim]:
    """The last point is that of the likeliest recipient, from all tokens."""
    if not is_of_text(found):
        yield "tracing.growth", found["growth"], []
        return
    counts = [point["tokens"] for point in found["growth"]]
    yield from must(1 <= len(counts) <= len(POINTS), "tracing.growth", len(counts), f"1 to {len(POINTS)} points")
    for i, (one, other) in enumerate(pairwise(counts), 1):
        yield from must(0 < one < other, f"tracing.growth[{i}].tokens", other, f"more than {one}")
    yield "tracing.growth[-1]", found["growth"][-1:], [{"tokens": tokens, "z": found["ranked"][0]["z"]}]


def _row(where: str, row: schema.Recipient, i: int, found: schema.Tracing, factor: float) -> Iterator[Claim]:
    log10_p = float(rademacher_tail_log10(math.nan if row["z"] is None else row["z"]))
    risk = min(0.0, log10_p + factor)
    yield f"{where}.place", row["place"], i + 1
    yield f"{where}.log10_p", row["log10_p"], log10_p
    yield f"{where}.log10_risk", row["log10_risk"], risk
    yield f"{where}.named", row["named"], risk <= math.log10(found["risk"])
    yield from digest(f"{where}.commitment", row["commitment"])
    if is_of_text(found):
        yield f"{where}.share", row["share"], None
    else:
        yield from must(row["share"] is not None or not row["named"], f"{where}.share", None, "the copy’s weight")


def _order(found: schema.Tracing) -> Iterator[Claim]:
    """The strongest first, recipients without a z last; every key once."""
    strength = [math.inf if row["z"] is None else -row["z"] for row in found["ranked"]]
    for i, (one, other) in enumerate(pairwise(strength), 1):
        yield from must(
            one <= other, f"tracing.ranked[{i}].z", found["ranked"][i]["z"], "no larger than the previous value"
        )
    keys = [row["commitment"] for row in found["ranked"]]
    yield from must(len(set(keys)) == len(keys), "tracing.ranked", keys, "a list with no duplicate keys")
    most = 10 * DECOYS  # bounded, because each is traced again
    yield from must(len(found["decoys"]) <= most, "tracing.decoys", len(found["decoys"]), f"at most {most}")
    decoys = [z for z in found["decoys"] if z is not None]
    for i, (one, other) in enumerate(pairwise(decoys), 1):
        yield from must(one >= other, f"tracing.decoys[{i}]", other, "no larger than the previous value")


def _rows(found: schema.Tracing, most: float) -> Iterator[Claim]:
    """The number of rows compared: all rows for the likeliest recipients, the rows of the first pass for the others."""
    listed = [row["rows"] for row in found["ranked"]]
    for i, count in enumerate(listed):
        yield from within(f"tracing.ranked[{i}].rows", count, 0, most)
    yield "tracing.rows", found["rows"], max(listed)
    if found["looks"] == 1:
        yield "tracing.first_pass_rows", found["first_pass_rows"], found["rows"]
    else:
        yield from within("tracing.first_pass_rows", found["first_pass_rows"], 1, found["rows"])


def _others(found: schema.Tracing) -> Iterator[Claim]:
    others = found["others"]
    counts, edges = others["counts"], others["edges"]
    yield from within("tracing.others.count", others["count"])
    for i, count in enumerate(counts):
        yield from within(f"tracing.others.counts[{i}]", count, 0, others["count"])
    yield from must(sum(counts) <= others["count"], "tracing.others.counts", sum(counts), f"at most {others['count']}")
    yield "tracing.others.edges", len(edges), len(counts) + 1 if counts else 0
    for i, (one, other) in enumerate(pairwise(edges), 1):
        yield f"tracing.others.edges[{i}]", other, one + tracing.BIN_WIDTH


def _marks(document: schema.Report, found: schema.Tracing) -> Iterator[Claim]:
    """The rank rule's results for recipients; for the recipient of the report's key they equal the report's."""
    key, verdict = document["key"], document["verdict"]
    read = [row for row in found["ranked"] if row["mark"] is not None]
    least = len(read)
    most = least if not found["others"]["count"] else found["recipients"]
    yield from within("tracing.read_by_rank_rule", found["read_by_rank_rule"], least, most)
    for i, row in enumerate(found["ranked"]):
        where, mark = f"tracing.ranked[{i}]", row["mark"]
        if row["commitment"] == key["commitment"]:
            yield from equal(where, row, key, "recipient", "owner")
            paper = document["paper"]
            own = {
                "verdict": verdict["mark"],
                "count": verdict["count"],
                "present": verdict["present"],
                "rule_met": verdict["rule_met"],
                "paper_count": None if paper is None else paper["count"],
                "paper_present": None if paper is None else paper["present"],
                "log10_risk": document["evaluation"]["log10_risk"],
            }
            if mark is not None:
                yield from each(f"{where}.mark", mark, own)
        if mark is not None:
            yield from _mark(f"{where}.mark", mark)


def _mark(where: str, mark: schema.Mark) -> Iterator[Claim]:
    """A recipient's mark; its ranks are not in the document."""
    yield from present_and_count(where, mark["present"], mark["count"])
    if mark["paper_count"] is None or mark["paper_present"] is None:
        yield f"{where}.paper_count", mark["paper_count"], mark["paper_present"]
    else:
        yield from within(f"{where}.paper_present", mark["paper_present"])
        yield from within(f"{where}.paper_count", mark["paper_count"], 0, mark["paper_present"])
    yield from allowed(where, mark["verdict"], mark["log10_risk"])


def allowed(where: str, word: schema.Word, risk: float) -> Iterator[Claim]:
    """A verdict by the rank rule, and the odds that it requires; "inconclusive" has other reasons too."""
    yield from must(risk <= 0.0, f"{where}.log10_risk", risk, "at most 0")
    if word == FOUND:
        yield from must(
            risk <= FOUND_LOG10_RISK, f"{where}.verdict", word, f"other than “found” at a probability of 10^{risk:.1f}"
        )
    if word == NOT_FOUND:
        yield from must(
            risk > FOUND_LOG10_RISK,
            f"{where}.verdict",
            word,
            f"other than “not found” at a probability of 10^{risk:.1f}",
        )
