"""Values that do not follow from the rest of a document are found from the document alone."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

import irwm
from irwm.errors import ParameterError
from irwm.evidence.decoys import decoys
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.evidence.verdict import COMBINATIONS
from irwm.report import ReportError, SelfTest, finding_document, from_json, reproduce, to_json
from irwm.report.consistency import contradictions
from irwm.report.error_rates import ErrorRates
from irwm.report.reading_claims import fisher_bounds
from irwm.report.tracing import Traced
from irwm.report.value_states import Place, text_of
from irwm.scheme.parameters import Parameters
from irwm.scheme.probabilities import binomial_tail_log, fisher_floor_log10, fisher_log10, rademacher_tail_log10
from irwm.tracing import Trace, Tracing
from tests.ownership.authority import Authority
from tests.report.conftest import Examined, dated, examine
from tests.report.leaves import changed


@pytest.fixture(scope="module")
def measured(world: dict[str, Any], found: Examined, authority: Authority) -> dict[str, Any]:
    """A document with decoys and a dated commitment."""
    ranked = decoys(irwm.Examination(found.suspect, found.model), found.key, found.finding, 100)
    return examine(world, "copy", error_rates=ErrorRates(ranked), **dated(authority, found.key)).document


@pytest.fixture(scope="module")
def traced(world: dict[str, Any]) -> dict[str, Any]:
    """A mark that is not found, and noise that names one recipient of two; of three keys tried, one has no noise."""
    tracing = Tracing(
        traces=(recipient("Northwind", 12.0), recipient("", 0.5)), decoys=np.array([0.5, -0.25]), keys_tried=3,
        risk=1e-6, alignment=irwm.align(world["copy"], world["model"]), tensors_read=1, maps=2, by="aligned", looks=1,
        rows=500, first_pass_rows=500, places=2, reason="The suspect was made from at least one recipient's copy.",
    )  # fmt: skip
    keys = [world["key"], world["other"]]
    document = examine(world, "copy", "other", traced=Traced(tracing, keys, {})).document
    return from_json(to_json(document))


def recipient(name: str, z: float) -> Trace:
    log10_p = float(rademacher_tail_log10(z))
    risk = min(0.0, log10_p + math.log10(3 * 2 * 2 * 2))
    return Trace(name, "Acme Labs", z, log10_p, risk, risk <= -6, 1.0, 500)


def where(document: dict[str, Any]) -> set[str]:
    return {each.where for each in contradictions(document)}


def with_ranks(document: dict[str, Any], rank: float) -> dict[str, Any]:
    """The document with these ranks, and all values that follow from them computed again."""
    document = copy.deepcopy(document)
    reading, e = document["reading"], document["evaluation"]
    for position in reading["positions"]:
        position["rank"] = rank
    ranks = [rank] * len(reading["positions"])
    reading["log10_p"] = e["log10_p"] = fisher_log10(ranks)
    comparisons = e["keys_tried"] * e["tensors_read"] * e["maps"]
    e["log10_risk"] = e["log10_p"] + math.log10(COMBINATIONS * comparisons)
    e["log10_lr"] = likelihood_ratio_log10(ranks)
    e["log10_lr_per_comparison"] = per_comparison_log10(e["log10_lr"], comparisons)
    e["verbal"] = verbal_step(e["log10_lr_per_comparison"])
    return document


def test_the_numbers_of_an_honest_report_agree(any_case: Examined) -> None:
    assert contradictions(from_json(to_json(any_case.document))) == []


RECIPIENT = ("tracing", "ranked", 0)
DECOYS = ("error_rates", "decoys")
# A few values of each kind; `test_every_leaf` alters all of them.
# A report, one of its values, another value, and the names of the contradictions if the value's own is not among them.
ALTERED: list[tuple[str, Place, Any, set[str]]] = [
    ("found", ("reading", "positions", 3, "rank"), 0.0015, set()),
    ("found", ("reading", "positions", 3, "counts"), False, set()),
    ("found", ("reading", "positions", 3, "observed"), 1e9, set()),
    ("found", ("evaluation", "keys_tried"), 1, {"evaluation.log10_risk"}),
    ("found", ("evaluation", "keys_tried"), 1e-60, set()),
    ("found", ("evaluation", "tensors_read"), 3.0, set()),
    ("found", ("evaluation", "maps"), -1, set()),
    ("found", ("odds", "log10_wrong_user"), -50.0, set()),
    ("found", ("lineage", "among", "p"), 1e-6, set()),
    ("found", ("lineage", "among", "table"), "0" * 64, set()),
    ("found", ("lineage", "among"), None, set()),
    ("found", ("lineage", "status"), "not derived", set()),
    ("found", ("lineage", "status"), "cannot tell", set()),  # its reason says derived
    ("not_found", ("verdict", "word"), "found", {"verdict.word", "standing.sentence"}),
    ("not_found", ("verdict", "rests_on"), "faith", set()),
    ("not_found", ("verdict", "mark"), "guilty", {"verdict.mark", "reproduce.python[11]"}),
    ("traced", ("verdict", "word"), "not found", set()),
    ("traced", ("verdict", "rests_on"), "mark", set()),
    ("traced", ("tracing", "recipients"), 1, set()),
    ("traced", (*RECIPIENT, "z"), 1.0, {f"tracing.ranked[0].{name}" for name in ("log10_p", "log10_risk", "named")}),
    ("traced", (*RECIPIENT, "z"), None, {f"tracing.ranked[0].{name}" for name in ("log10_p", "log10_risk", "named")}),
    ("traced", (*RECIPIENT, "named"), False, set()),
    ("traced", (*RECIPIENT, "place"), 2, set()),
    ("measured", ("standing", "status"), "not committed", set()),
    ("measured", ("standing", "margin_bits"), 9999.0, set()),
    ("measured", ("standing", "committed_utc"), "2026-03-01T00:00:00Z", {"standing.sentence"}),
    ("measured", ("standing", "suspect_seen_utc"), None, {"standing.status"}),
    ("measured", (*DECOYS, "histogram", "counts", 0), 10**5, {"error_rates.decoys.number"}),
    ("measured", (*DECOYS, "shares", 0, "share"), 0.0123, set()),
    ("measured", (*DECOYS, "shares", 5, "high"), 1e-9, set()),
]


@pytest.mark.fault(77)
@pytest.mark.parametrize(("case", "path", "value", "named"), ALTERED)
def test_an_altered_value_is_named(request: pytest.FixtureRequest, case: str, path: Place, value: Any, named: set[str]):
    given = request.getfixturevalue(case)
    document = given.document if isinstance(given, Examined) else given
    assert where(document) == set()
    assert (named or {text_of(path)}) <= where(changed(document, path, value))


@pytest.mark.parametrize("rank", [1e-6, 1e-12, 1.0000001 / 1001])
def test_a_rank_that_the_permutations_cannot_give_is_named(found: Examined, rank: float) -> None:
    assert "reading.positions[0].rank" in where(with_ranks(found.document, rank))


@pytest.mark.fault(77)
def test_a_p_below_the_floor_of_its_ranks_is_named(found: Examined) -> None:
    wrong = contradictions(with_ranks(found.document, 1e-6))
    assert any(
        d.where == "reading.log10_p" and "the smallest value that its ranks allow" in str(d.found) for d in wrong
    )


def test_present_row_must_have_a_rank(found: Examined) -> None:
    document = copy.deepcopy(found.document)
    document["reading"]["positions"][2] |= {"rank": None, "state": "gone", "counts": False}
    assert "reading.positions[2].observed" in where(document)


def test_likelihood_ratio_fields_are_null_only_if_not_judgeable(found: Examined, inconclusive: Examined) -> None:
    names = ("log10_lr", "log10_lr_per_comparison", "verbal")
    assert all(inconclusive.document["evaluation"][name] is None for name in names)
    for left_out in (names, names[:1], names[1:], names[2:]):
        document = copy.deepcopy(found.document)
        document["evaluation"] |= dict.fromkeys(left_out)
        assert where(document) == {f"evaluation.{name}" for name in left_out}


def test_a_verdict_on_tracing_needs_a_named_recipient(not_found: Examined) -> None:
    document = copy.deepcopy(not_found.document)
    document["verdict"] |= {"word": "found", "rests_on": "tracing"}
    assert where(document) == {"verdict.word", "verdict.rests_on", "standing.sentence"}


def test_traced_keys_mark_as_many_places_as_the_reports_key_if_it_is_one_of_them(traced: dict[str, Any]) -> None:
    """Another key of the report may have no noise and mark more places than the keys that were traced."""
    fewer = changed(traced, ("tracing", "places"), 1)
    assert "tracing.places" in where(fewer)
    assert "tracing.places" not in where(changed(fewer, ("key", "commitment"), "ab" * 32))


@pytest.mark.parametrize(
    ("section", "name"), [("", "standing"), ("", "error_rates"), ("evaluation", "log10_lr"), ("verdict", "rests_on")]
)
def test_required_sections_cannot_be_left_out(found: Examined, section: str, name: str) -> None:
    document = copy.deepcopy(found.document)
    del (document[section] if section else document)[name]
    with pytest.raises(ReportError, match=f"{section}.{name}".lstrip(".")):
        from_json(to_json(document))


def test_place_among_unrelated_models_follows_from_the_agreement(found: Examined) -> None:
    unlike = found.document["lineage"] | {"similarity": 0.1, "attention": 0.0}
    assert "lineage.among.p" in where(found.document | {"lineage": unlike})


@pytest.mark.parametrize("name", ["present", "count"])
def test_an_absurd_number_is_named_without_allocating_memory(not_found: Examined, name: str) -> None:
    """A billion positions took 15 GB and half a minute; a float64 for each is 8 GB, more than a test may use."""
    document = copy.deepcopy(not_found.document)
    for part in (document["reading"], document["verdict"]):
        part[name] = 10**9
    assert f"reading.{name}" in where(document)


def test_sums_over_an_absurd_number_of_positions_are_refused() -> None:
    for summed in (
        lambda: binomial_tail_log(1, 10**9, 0.2),
        lambda: fisher_floor_log10(10**9, 1000),
        lambda: fisher_bounds(1, 10**9, Parameters()),
        lambda: fisher_bounds(10**9, 1, Parameters()),
    ):
        with pytest.raises(ParameterError):
            summed()


def test_a_report_with_forbidden_parameters_is_refused(found: Examined) -> None:
    with pytest.raises(ReportError):
        contradictions(changed(found.document, ("parameters", "rank_threshold"), 0.9))


# A failed control makes the verdict inconclusive in the document, in its check and when it is run again.


def control(expected: str, verdict: str) -> SelfTest:
    return SelfTest("a key that was never inserted", expected, verdict, 40, 50, -8.0)


def test_a_failed_control_makes_the_verdict_inconclusive(world: dict[str, Any]) -> None:
    doubtful = examine(world, "copy", self_tests=[control("not found", "found")])
    document = from_json(to_json(doubtful.document))
    assert (document["verdict"]["word"], document["verdict"]["mark"]) == ("inconclusive", "found")
    assert where(document) == set()
    for place, word in ((("verdict", "word"), "found"), (("self_tests", 0, "verdict"), "not found")):
        assert "verdict.word" in where(changed(document, place, word))
    assert reproduce(document, doubtful.suspect, doubtful.model, doubtful.key) == []


@pytest.mark.parametrize(
    ("expected", "came", "word"),
    [
        ("not found", "not found", "found"),
        ("not found", "inconclusive", "found"),  # weak evidence: one unmarked key in a thousand gives it
        ("inconclusive", "inconclusive", "found"),
        ("inconclusive", "not found", "inconclusive"),
        ("inconclusive", "found", "inconclusive"),
    ],
)
def test_which_control_results_are_failures(found: Examined, expected: str, came: str, word: str) -> None:
    document = finding_document(found.finding, **found.particulars | {"self_tests": [control(expected, came)]})
    assert document["verdict"]["word"] == word
