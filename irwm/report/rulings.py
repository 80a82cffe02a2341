"""Checks whether the rulings of a dispute follow from its tests and dates: they are made again by the same rules.

Only the models and both keys can show whether the tests themselves read as recorded (`irwm.report.verify_dispute`).
`STATED` lists the inputs; all other values follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from irwm import Finding, Parameters, Reading
from irwm.errors import printable
from irwm.evidence.detection import WAYS
from irwm.evidence.finding import FINGERPRINT, FORMS, FOUND, INCONCLUSIVE, MAPS, NOT_FOUND, Evidence, other_place
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED, Lineage
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.ownership.dispute import EXHIBIT, ORIGINAL, RELEASE, remarks
from irwm.ownership.key_search import Standing, standing
from irwm.ownership.rules import rule, winner_of
from irwm.report import schema, verify_sentences
from irwm.report.checks import CHOICES, CLAIMANTS, EXAMINATION, KEY, MODELS, ROOT, TIME_STAMP
from irwm.report.claims import (
    CASE,
    CUSTODY,
    SHOWN_OF_SIGNATURE,
    SIGNER,
    VERSIONS,
    Claim,
    at_least,
    contradicted,
    digest,
    each,
    equal,
    item,
    item_fields,
    must,
    one_of,
    source_fields,
    within,
)
from irwm.report.dispute import LIMITATIONS, SCHEMA, VERSION, stamp_in_words
from irwm.report.reading_claims import counted
from irwm.report.recorded import ALIGNED_SOMEHOW
from irwm.report.reproduction import Difference
from irwm.report.value_states import Stated
from irwm.scheme.parameters import NEURONS, PLACES
from irwm.scheme.probabilities import rademacher_tail_log10

REFUSED: Final = "refused"
_NONE: NDArray[np.float64] = np.empty(0)
_NO_ROWS: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_OF_A_FINDING = (
    "count", "present", "log10_p", "log10_p_count", "place", "elsewhere", "fingerprint", "tensors_read", "forms",
    "places", "lineage",
)  # fmt: skip
_ITEMS = ("claims[].original", "claims[].release", "exhibits[].item")
_DATED = Stated(
    "the timestamps, and which of them are relied on",
    "only the root certificate of an authority that you trust can show this",
    ("claims[].time_stamp*", "claims[].committed_utc"),
    (ROOT,),
    carries=True,
)
# The inputs of a dispute's report; all other values follow from them.
STATED = (
    CASE,
    VERSIONS,
    SIGNER,
    CUSTODY,
    Stated("which of the claims is the signer’s own", "there is only the signer’s word for this", ("claims[].ours",)),
    Stated(
        "the models’ names",
        "there is only the signer’s word for this",
        ("exhibits[].name", *(f"{place}.name" for place in _ITEMS)),
        only=(),
    ),
    Stated(
        "who the claimants are",
        "only keys that name the claimants as owners can show this",
        ("claims[].claimant",),
        (KEY,),
        carries=True,
    ),
    Stated(
        "the seed",
        "a signer who tried other seeds might not say so",
        ("seed",),
        only=(CHOICES,),
        carries=True,
    ),
    _DATED,
    Stated(
        "the keys and the settings of their marks",
        "only the opened keys can show this",
        ("claims[].commitment", "claims[].owner", "claims[].recipient", "claims[].parameters*"),
        (KEY,),
        carries=True,
    ),
    Stated(
        "which servers the models were read from, and when",
        "only the servers can show this",
        source_fields(*_ITEMS),
        only=(),
    ),
    Stated(
        "the models’ files and structure",
        "only the files can show this",
        (*item_fields(*_ITEMS), "claims[].release", "exhibits"),
        (MODELS,),
        carries=True,
    ),
    Stated(
        "each test’s readings",
        "only the models and both keys can show this",
        ("outcome.tests*",),
        (MODELS, KEY),
        carries=True,
    ),
)
# Which check computes which values again.
SHOWN: Mapping[str, tuple[str, ...]] = {
    **SHOWN_OF_SIGNATURE,
    MODELS: (*item_fields(*_ITEMS), "claims[].release", "exhibits"),
    KEY: ("claims[].commitment", "claims[].owner", "claims[].recipient", "claims[].parameters*"),
    CLAIMANTS: ("claims[].claimant",),
    CHOICES: ("seed",),
    TIME_STAMP: ("claims[].time_stamp*", "claims[].committed_utc"),
    EXAMINATION: ("outcome*",),
}


def inputs(document: schema.Dispute) -> tuple[Stated, ...]:
    """`STATED` for this dispute: dates matter only if a claim has one."""
    if any(claim["time_stamp"] for claim in document["claims"]):
        return STATED
    return tuple(replace(each, carries=False) if each is _DATED else each for each in STATED)


@dataclass(frozen=True, slots=True)
class RecordedTest:
    """A test in the document: the values that the rules use."""

    claimant: str
    model: str
    kind: str
    brought_by: str
    verdict: str
    reason: str
    log10_risk: float
    lineage: str | None

    @classmethod
    def of(cls, recorded: schema.Test) -> RecordedTest:
        return cls(
            recorded["claimant"], recorded["model"], recorded["kind"], recorded["brought_by"],
            recorded["verdict"], recorded["reason"], recorded["log10_risk"], recorded["lineage"],
        )  # fmt: skip

    @property
    def refused(self) -> str:
        return self.reason or REFUSED if self.verdict == REFUSED else ""

    @property
    def found(self) -> bool:
        return self.verdict == FOUND

    @property
    def absent(self) -> bool:
        return self.verdict == NOT_FOUND

    @property
    def related(self) -> bool:
        return self.lineage == DERIVED

    @property
    def unrelated(self) -> bool:
        return self.lineage == NOT_DERIVED

    def standing(self, committed_utc: str | None, seen_utc: str | None) -> Standing:
        return standing(self.log10_risk, committed_utc, seen_utc)


def contradictions(document: schema.Dispute, assigned: set[str] | None = None) -> list[Difference]:
    """The values that do not follow from the document's tests and dates.

    Raises:
        ReportError: a value cannot be computed from the document's.
    """
    return contradicted(claims(document), "the tests in the dispute are incomplete", assigned)


def claims(document: schema.Dispute) -> Iterator[Claim]:
    """The values of a dispute's document that follow from its tests and dates, recorded and expected."""
    yield from verify_sentences.frame(document, SCHEMA, VERSION, LIMITATIONS)
    by_claimant = {claim["claimant"]: claim for claim in document["claims"]}
    yield "claims", len(by_claimant), len(document["claims"])
    for i, claim in enumerate(document["claims"]):
        yield from _claim(f"claims[{i}]", claim)
    for i, exhibit in enumerate(document["exhibits"]):
        yield from item(f"exhibits[{i}].item", exhibit["item"])
    outcome, models = document["outcome"], _models(document)
    tests = [RecordedTest.of(test) for test in outcome["tests"]]
    yield "outcome.comparisons", outcome["comparisons"], len(tests)
    due = _due(document, models)
    yield from each("the set of tests", [[t.claimant, t.model] for t in tests], [list(test) for test in due])
    yield from must(
        [(t.claimant, t.model) for t in tests] == due,
        "the set of tests",
        "a different one",
        "every key on every model",
    )
    for i, (test, recorded) in enumerate(zip(tests, outcome["tests"], strict=True)):
        where = f"outcome.tests[{i}]"
        kind, brought_by = models[test.model]
        yield from equal(where, recorded, {"kind": kind, "brought_by": brought_by})
        yield from _test(where, recorded, by_claimant[test.claimant]["parameters"], len(tests))
    yield from _refused(outcome["tests"])
    dates = sorted((claim["claimant"], claim["committed_utc"]) for claim in document["claims"])
    names = [name for name, _ in dates]
    rulings = [rule(one, other, tests) for i, one in enumerate(dates) for other in dates[i + 1 :]]
    yield from each("outcome.rulings", outcome["rulings"], [made.to_dict() for made in rulings])
    yield "outcome.winner", outcome["winner"], winner_of(names, rulings)
    yield "outcome.sentence", outcome["sentence"], " ".join(made.sentence for made in rulings)
    yield from each("outcome.remarks", outcome["remarks"], list(remarks(names, tests)))


def _claim(where: str, claim: schema.Claim) -> Iterator[Claim]:
    """The values of a claim are possible."""
    Parameters.from_dict(claim["parameters"])
    stamp, date = claim["time_stamp"], claim["committed_utc"]
    yield f"{where}.stamp", claim["stamp"], stamp_in_words(stamp, relied_on=date is not None)
    if date is not None:
        yield f"{where}.committed_utc", date, None if stamp is None else stamp["time_utc"]
    yield from digest(f"{where}.commitment", claim["commitment"])
    yield from item(f"{where}.original", claim["original"])
    if claim["release"] is not None:
        yield from item(f"{where}.release", claim["release"])


def _models(document: schema.Dispute) -> dict[str, tuple[str, str]]:
    """Every model's name in the tests, in their order, with its kind and the claimant who brings it.

    An exhibit that a claimant also brings is recognised by its embedding.
    """
    models: dict[str, tuple[str, str]] = {}
    brought: dict[str, str] = {}
    for claim in sorted(document["claims"], key=lambda claim: claim["claimant"]):
        who = claim["claimant"]
        models[f"original of {printable(who)}"] = ORIGINAL, who
        brought.setdefault(claim["original"]["fingerprint"], who)
        if claim["release"] is not None:
            models[f"release of {printable(who)}"] = RELEASE, who
            brought.setdefault(claim["release"]["fingerprint"], who)
    for exhibit in document["exhibits"]:
        models[exhibit["name"]] = EXHIBIT, brought.get(exhibit["item"]["fingerprint"], "")
    return models


def _due(document: schema.Dispute, models: Mapping[str, tuple[str, str]]) -> list[tuple[str, str]]:
    """Every claimant's key on every model, on the claimant's own original first."""
    found = []
    for who in sorted(claim["claimant"] for claim in document["claims"]):
        own_first = sorted(models, key=lambda name: (models[name][1], models[name][0]) != (who, ORIGINAL))
        found += [(who, name) for name in own_first]
    return found


def _test(where: str, test: schema.Test, parameters: schema.Parameters, comparisons: int) -> Iterator[Claim]:
    """A test's odds follow from its p and z, and its verdict and reason from the odds if they decide them."""
    p = Parameters.from_dict(parameters)
    if test["verdict"] == REFUSED:
        yield from equal(where, test, dict.fromkeys(_OF_A_FINDING))
        yield f"{where}.log10_risk", test["log10_risk"], 0.0
        return
    word = test["verdict"]
    yield from at_least(1, where, test, "tensors_read")
    yield from one_of(f"{where}.place", test["place"], tuple(place for place in p.places if place in PLACES))
    least = 1 if test["elsewhere"] is None else 2
    yield from within(f"{where}.places", test["places"], least, len(p.places))
    yield f"{where}.forms", test["forms"], FORMS if p.noise_coordinates else 1
    yield from counted(where, test, p)
    tensors: dict[str, int] = {test["place"]: test["tensors_read"]}
    if test["elsewhere"] is not None:
        yield from counted(f"{where}.elsewhere", test["elsewhere"], p)
        yield from at_least(1, f"{where}.elsewhere", test["elsewhere"], "tensors_read")
        tensors[other_place(test["place"])] = test["elsewhere"]["tensors_read"]
    read = test["fingerprint"]
    if read is not None:
        # A fingerprint is looked for only after the mark was read in every place, on the same tensors.
        if NEURONS in p.places:
            tensors[NEURONS] = 1
        yield from one_of(f"{where}.fingerprint.place", read["place"], tuple(tensors))
        yield f"{where}.fingerprint.tensors_read", read["tensors_read"], tensors[read["place"]]
        yield from at_least(1, f"{where}.fingerprint", read, "rows")
    finding = _finding(test, p, comparisons)
    yield f"{where}.log10_risk", test["log10_risk"], finding.log10_risk
    yield f"{where}.verdict", word, _allowed(word, test["log10_risk"])
    # A derived model was aligned, a model that is not derived was not; "cannot tell" allows both.
    if test["lineage"] == NOT_DERIVED:
        yield f"{where}.verdict", word, INCONCLUSIVE
    if test["lineage"] == DERIVED or word == FOUND or (test["lineage"] == CANNOT_TELL and word == NOT_FOUND):
        made = verify_sentences.judged(finding, test["reason"])
        yield f"{where}.verdict", word, made.verdict
        yield f"{where}.reason", test["reason"], made.reason


def _finding(test: schema.Read, p: Parameters, comparisons: int) -> Finding:
    """The finding of a test, as far as it is in the document, for a suspect that could be aligned."""
    read, elsewhere = test["fingerprint"], test["elsewhere"]
    return Finding(
        verdict=test["verdict"],
        reason=test["reason"],
        reading=_reading(test, p),
        paper=None,
        alignment=ALIGNED_SOMEHOW,
        lineage=Lineage(test["lineage"], math.nan, math.nan, ""),
        parameters=p,
        commitment="",
        marked_rows=_NO_ROWS,
        seed=0,
        keys_tried=comparisons,
        tensors_read=test["tensors_read"],
        maps=len(MAPS),
        forms=test["forms"],
        places=test["places"],
        place=test["place"],
        elsewhere=None if elsewhere is None else _reading(elsewhere, p),
        tensors_read_elsewhere=1 if elsewhere is None else elsewhere["tensors_read"],
        fingerprint=None if read is None else _fingerprint(read),
    )


def _fingerprint(read: schema.Fingerprint) -> Evidence:
    log10_p = float(rademacher_tail_log10(read["z"]))
    return Evidence(FINGERPRINT, read["place"], log10_p, MAPS[0], read["tensors_read"], read["z"], read["rows"])


def _reading(read: schema.Counted, p: Parameters) -> Reading:
    """A reading, as far as it is in a test."""
    return Reading(
        statistic=WAYS[0][0],
        invariant=WAYS[0][1],
        observed=_NONE,
        null=_NONE,
        ranks=_NONE,
        count=read["count"],
        present=read["present"],
        passes=read["count"] >= p.required_positions,
        log10_p_count=read["log10_p_count"],
        log10_p=read["log10_p"],
    )


def _refused(tests: Sequence[schema.Test]) -> Iterator[Claim]:
    """A key that is refused on its claimant's own original is refused everywhere, for the same reason."""
    first: dict[str, schema.Test] = {}
    for i, test in enumerate(tests):
        before = first.setdefault(test["claimant"], test)
        if REFUSED in (test["verdict"], before["verdict"]):
            yield f"outcome.tests[{i}].verdict", test["verdict"], before["verdict"]
            yield f"outcome.tests[{i}].reason", test["reason"], before["reason"]


def _allowed(word: str, risk: float) -> str:
    """The recorded word if the odds allow it, else the word that the odds require."""
    if word == FOUND and risk > FOUND_LOG10_RISK:
        return INCONCLUSIVE
    if word == NOT_FOUND and risk <= DISMISSED_LOG10_RISK:
        return FOUND if risk <= FOUND_LOG10_RISK else INCONCLUSIVE
    return word
