"""Values that do not follow from the rest of a document are found from the document alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irwm
from irwm.errors import ParameterError
from irwm.evidence.decoys import decoys
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.evidence.verdict import COMBINATIONS
from irwm.report import from_json, to_json
from irwm.report.consistency import contradictions
from irwm.report.error_rates import ErrorRates
from irwm.report.reading_claims import fisher_bounds
from irwm.report.tracing import Traced
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
    risk = found.document["evaluation"]["log10_risk"]
    return examine(world, "copy", error_rates=ErrorRates(ranked), **dated(authority, found.key, risk)).document


@pytest.fixture
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


@pytest.mark.parametrize("rank", [1e-6, 1e-12, 1.0000001 / 1001])
def test_a_rank_that_the_permutations_cannot_give_is_named(found, rank):
    assert "reading.positions[0].rank" in where(with_ranks(found.document, rank))


@pytest.mark.fault(77)
def test_a_p_below_the_floor_of_its_ranks_is_named(found):
    wrong = contradictions(with_ranks(found.document, 1e-6))
    assert any(d.where == "reading.log10_p" and "floor" in str(d.found) for d in wrong)


def test_present_row_must_have_a_rank(found):
    document = copy.deepcopy(found.document)
    document["reading"]["positions"][2] |= {"rank": None, "state": "gone", "counts": False}
    assert "reading.positions[2].observed" in where(document)


@pytest.mark.fault(77)
@pytest.mark.parametrize("name", ["keys_tried", "tensors_read", "maps"])
@pytest.mark.parametrize("value", [1e-60, 3.0, -1, True])
def test_numbers_of_comparisons_are_positive_integers(found, name, value):
    assert f"evaluation.{name}" in where(changed(found.document, ("evaluation", name), value))


def test_likelihood_ratio_fields_are_null_only_if_not_judgeable(found, inconclusive):
    names = ("log10_lr", "log10_lr_per_comparison", "verbal")
    assert contradictions(inconclusive.document) == []
    assert all(inconclusive.document["evaluation"][name] is None for name in names)
    for left_out in (names, names[:1], names[1:], names[2:]):
        document = copy.deepcopy(found.document)
        document["evaluation"] |= dict.fromkeys(left_out)
        assert where(document) == {f"evaluation.{name}" for name in left_out}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"word": "found", "rests_on": "tracing"}, {"verdict.word", "verdict.rests_on"}),
        ({"word": "found"}, {"verdict.word", "standing.sentence"}),
        ({"rests_on": "faith"}, {"verdict.rests_on"}),
        ({"mark": "guilty", "word": "guilty"}, {"verdict.mark", "verdict.word", "reproduce.python[11]"}),
    ],
)
def test_a_verdict_without_support_is_named(not_found, change, named):
    document = copy.deepcopy(not_found.document)
    document["verdict"] |= change
    assert where(document) == named


def test_noise_that_names_a_recipient_gives_the_verdict(traced):
    assert contradictions(traced) == []
    traced["verdict"] |= {"word": "not found", "rests_on": "mark"}
    assert {"verdict.word", "verdict.rests_on"} <= where(traced)


def test_traced_keys_mark_as_many_places_as_the_reports_key_if_it_is_one_of_them(traced) -> None:
    """Another key of the report may have no noise and mark more places than the keys that were traced."""
    traced["tracing"]["places"] = 1
    assert "tracing.places" in where(traced)
    traced["key"]["commitment"] = "ab" * 32
    assert "tracing.places" not in where(traced)


@pytest.mark.fault(77)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"z": 1.0}, {"log10_p", "log10_risk", "named"}),
        ({"z": None}, {"log10_p", "log10_risk", "named"}),
        ({"log10_p": -300.0}, {"log10_p"}),
        ({"named": False}, {"named"}),
        ({"place": 2}, {"place"}),
    ],
)
def test_the_odds_of_a_recipient_follow_from_z(traced, change, named):
    traced["tracing"]["ranked"][0] |= change
    assert {f"tracing.ranked[0].{name}" for name in named} <= where(traced)


def test_all_recipients_of_the_correction_are_in_the_document(traced):
    traced["tracing"]["recipients"] = 1
    assert "tracing.recipients" in where(traced)


@pytest.mark.fault(77)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "not committed"),
        ("evidence_bits", 9999.0),
        ("search_bits", 3.0),
        ("margin_bits", 9999.0),
        ("committed_utc", "2026-03-01T00:00:00Z"),
        ("suspect_seen_utc", None),
    ],
)
def test_standing_follows_from_odds_and_dates(measured, name, value):
    assert contradictions(measured) == []
    wrong = where(changed(measured, ("standing", name), value))
    assert {each.split(".")[0] for each in wrong} == {"standing"}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["histogram"]["counts"].__setitem__(0, d["histogram"]["counts"][0] + 1),
        lambda d: d.update(number=10**6),
        lambda d: d["shares"][0].update(share=0.0123),
        lambda d: d["shares"][0].update(count=-1),
        lambda d: d["shares"][5].update(high=1e-9),
    ],
)
def test_decoy_counts_are_consistent(measured, change: Callable[[dict[str, Any]], None]):
    document = copy.deepcopy(measured)
    change(document["error_rates"]["decoys"])
    wrong = where(document)
    assert wrong
    assert all(each.startswith("error_rates.decoys") for each in wrong)


@pytest.mark.parametrize(
    ("section", "name"), [("", "standing"), ("", "error_rates"), ("evaluation", "log10_lr"), ("verdict", "rests_on")]
)
def test_required_sections_cannot_be_left_out(found, section, name):
    document = copy.deepcopy(found.document)
    del (document[section] if section else document)[name]
    assert f"{section}.{name}".lstrip(".") in where(document)


@pytest.mark.parametrize(
    ("name", "value"),
    [("p", 1e-6), ("as_alike", 50), ("unrelated", 10_000), ("agreement", 9.0), ("table", "0" * 64), ("as_unlike", -1)],
)
def test_place_among_unrelated_models_is_recomputed(found: Examined, name: str, value: Any) -> None:
    assert where(changed(found.document, ("lineage", "among", name), value)) == {f"lineage.among.{name}"}


def test_a_lineage_that_its_numbers_do_not_allow_is_named(found: Examined) -> None:
    assert where(changed(found.document, ("lineage", "status"), "not derived")) == {"lineage.status"}
    mark_only = changed(found.document, ("lineage", "status"), "cannot tell")
    assert "lineage.status" in where(mark_only), "its reason says derived"
    assert where(changed(found.document, ("lineage", "among"), None)) == {"lineage.among", "lineage.status"}
    unlike = found.document["lineage"] | {"similarity": 0.1, "attention": 0.0}
    assert "lineage.among.p" in where(found.document | {"lineage": unlike})


@pytest.mark.parametrize("name", ["present", "count"])
def test_an_absurd_number_is_named_without_allocating_memory(not_found, name):
    """A billion positions took 15 GB and half a minute; a float64 for each is 8 GB, more than a test may use."""
    document = copy.deepcopy(not_found.document)
    for part in (document["reading"], document["verdict"]):
        part[name] = 10**9
    assert f"reading.{name}" in where(document)
    parameters = Parameters.from_dict(document["parameters"])
    for summed in (
        lambda: binomial_tail_log(1, 10**9, 0.2),
        lambda: fisher_floor_log10(10**9, 1000),
        lambda: fisher_bounds(1, 10**9, parameters),
        lambda: fisher_bounds(10**9, 1, parameters),
    ):
        with pytest.raises(ParameterError):
            summed()
