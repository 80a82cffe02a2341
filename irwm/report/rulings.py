"""Do the rulings of a dispute follow from its tests and dates? They are made again by the same rules.

Whether the tests themselves read as recorded, only the models and both keys can tell
(`irwm.ownership.dispute.resolve`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from irwm.errors import IrwmError, printable
from irwm.evidence.finding import FOUND, INCONCLUSIVE, NOT_FOUND
from irwm.evidence.lineage import DERIVED, NOT_DERIVED
from irwm.evidence.verdict import DISMISSED_LOG10_RISK, FOUND_LOG10_RISK
from irwm.ownership.dispute import EXHIBIT, ORIGINAL, RELEASE
from irwm.ownership.key_search import Standing, standing
from irwm.ownership.rules import rule, winner_of
from irwm.report.document import ReportError, plain
from irwm.report.reproduction import Difference, same

REFUSED = "refused"
_WORDS = (FOUND, NOT_FOUND, INCONCLUSIVE, REFUSED)


@dataclass(frozen=True, slots=True)
class RecordedTest:
    """A test as the document has it: what the rules read of one."""

    claimant: str
    model: str
    kind: str
    brought_by: str
    verdict: str
    reason: str
    log10_risk: float
    lineage: str | None

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> RecordedTest:
        names = ("claimant", "model", "kind", "brought_by", "verdict", "reason", "log10_risk", "lineage")
        return cls(*(recorded[name] for name in names))

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


def contradictions(document: Mapping[str, Any]) -> list[Difference]:
    """What does not follow from the document's tests and dates.

    Raises:
        ReportError: the document lacks what this needs, or holds something else in its place.
    """
    try:
        return [Difference(*claim) for claim in _claims(document) if not same(plain(claim[1]), plain(claim[2]))]
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration, IrwmError) as error:
        raise ReportError("the dispute’s tests are incomplete", found=f"{type(error).__name__}: {error}") from error


def _claims(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    outcome = document["outcome"]
    tests = [RecordedTest.of(test) for test in outcome["tests"]]
    yield "outcome.comparisons", outcome["comparisons"], len(tests)
    yield "the tests", sorted((t.claimant, t.model) for t in tests), sorted(_due(document))
    for i, test in enumerate(tests):
        where = f"outcome.tests[{i}]"
        yield f"{where}.verdict", test.verdict, _allowed(test)
        yield f"{where}.brought_by", (test.kind, test.brought_by), _brought(document, test)
    dates = sorted((claim["claimant"], claim["committed_utc"]) for claim in document["claims"])
    rulings = [rule(one, other, tests) for i, one in enumerate(dates) for other in dates[i + 1 :]]
    yield "outcome.rulings", outcome["rulings"], [each.to_dict() for each in rulings]
    yield "outcome.winner", outcome["winner"], winner_of([name for name, _ in dates], rulings)
    yield "outcome.sentence", outcome["sentence"], " ".join(each.sentence for each in rulings)


def _models(document: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Every model's name in the tests, with its kind and who brings it; of an exhibit that is for its files to say."""
    models = {}
    for claim in document["claims"]:
        who = claim["claimant"]
        models[f"original of {printable(who)}"] = ORIGINAL, who
        if claim["release"] is not None:
            models[f"release of {printable(who)}"] = RELEASE, who
    return models | {exhibit["name"]: (EXHIBIT, "") for exhibit in document["exhibits"]}


def _due(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every claimant's key on every model."""
    return [(claim["claimant"], model) for claim in document["claims"] for model in _models(document)]


def _brought(document: Mapping[str, Any], test: RecordedTest) -> tuple[str, str]:
    kind, who = _models(document)[test.model]
    # An exhibit that a claimant brings himself is known by its embedding, which the document does not hold.
    return (kind, test.brought_by) if kind == EXHIBIT else (kind, who)


def _allowed(test: RecordedTest) -> str:
    """The word as recorded, where the odds allow it; else the one that they ask for."""
    if test.verdict not in _WORDS:
        return INCONCLUSIVE
    if test.verdict == FOUND and test.log10_risk > FOUND_LOG10_RISK:
        return INCONCLUSIVE
    if test.verdict == NOT_FOUND and test.log10_risk <= DISMISSED_LOG10_RISK:
        return FOUND if test.log10_risk <= FOUND_LOG10_RISK else INCONCLUSIVE
    return test.verdict
