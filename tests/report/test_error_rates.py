"""Decoys and neutral models in a document and in its figures, and the values that depend on the clock."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import irwm
from irwm.evidence.decoys import Decoys, clopper_pearson, decoys
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.report import from_json, render_html, reproduce, to_json, wording
from irwm.report.document import without_times
from irwm.report.error_rates import ErrorRates, neutral_section, section
from irwm.report.figures import document_figures
from irwm.report.plots.decoys import decoy_risks
from irwm.report.plots.summaries import risk_counts
from irwm.report.plots.theme import DARK, LIGHT
from tests.ownership.authority import Authority
from tests.report.conftest import Examined, dated, examine
from tests.report.test_document import SCHEMA, names
from tests.report.test_html import Page, printed


@pytest.fixture(scope="module")
def ranked(found: Examined) -> Decoys:
    result = decoys(irwm.Examination(found.suspect, found.model), found.key, found.finding, 400)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def measured(
    world: dict[str, Any], found: Examined, ranked: Decoys, inconclusive: Examined, authority: Authority
) -> Examined:
    neutral = neutral_section("an unrelated model", 600, inconclusive.finding)
    return examine(
        world,
        "copy",
        error_rates=ErrorRates(ranked, (neutral,)),
        **dated(authority, found.key),
    )


def test_error_rate_section_holds_distribution_and_suspect(measured: Examined, ranked: Decoys) -> None:
    part = measured.document["error_rates"]["decoys"]
    assert part["number"] == sum(part["histogram"]["counts"]) == 400
    assert part["smallest_log10_risk"] == ranked.log10_risk.min()
    assert part["suspect_log10_risk"] < -60
    assert part["as_low_as_suspect"] == 0
    for share in part["shares"]:
        assert share["count"] == (ranked.log10_risk <= share["log10_risk"]).sum()
        assert share["low"] <= share["share"] <= share["high"]
    assert [share["log10_risk"] for share in part["shares"]] == [-1, -2, -3, -4, -5, -6]
    neutral = measured.document["error_rates"]["neutral"]
    assert (neutral[0]["verdict"], neutral[0]["aligned"]) == ("inconclusive", False)


def test_decoys_with_fewer_positions_than_the_key_are_reported(found: Examined, ranked: Decoys) -> None:
    assert section(ErrorRates(ranked), found.finding)["method"] == wording.MEASURED
    method = section(ErrorRates(replace(ranked, positions=40)), found.finding)["method"]
    assert method.removeprefix(wording.MEASURED).count("40") == 1


def test_likelihood_ratio_and_error_rates_are_printed(measured: Examined) -> None:
    page = Page(render_html(measured.document, "x.json"))
    text, d = page.text, measured.document
    assert d["evaluation"]["log10_lr"] > 30.0
    assert ("span", {"title": f"log10 = {printed(d['evaluation']['log10_lr'])}"}) in page.tags
    assert wording.verbal(d["evaluation"]["verbal"]) in text
    assert printed(d["error_rates"]["decoys"]["smallest_log10_risk"]) in text
    assert d["standing"]["sentence"] in text


@pytest.mark.slow
def test_missing_measurements_are_reported(world: dict[str, Any]) -> None:
    d = examine(world, "unrelated", error_rates=ErrorRates(None)).document
    assert d["error_rates"]["decoys"] is None
    assert "No decoy keys were read" in Page(render_html(d)).text
    assert "figure-decoys" not in document_figures(d)


def test_error_rates_are_reproduced_and_an_edited_one_is_named(measured: Examined) -> None:
    document = from_json(to_json(measured.document))
    assert reproduce(document, measured.suspect, measured.model, measured.key) == []
    edited = copy.deepcopy(document)
    edited["error_rates"]["decoys"]["histogram"]["counts"][-1] += 1
    edited["evaluation"]["log10_lr"] += 1
    where = [d.where for d in reproduce(edited, measured.suspect, measured.model, measured.key)]
    assert where[0] == "evaluation.log10_lr"
    assert where[1].startswith("error_rates.decoys.histogram.counts")
    again = reproduce(edited, measured.suspect, measured.model, measured.key, decoys=False)
    assert [d.where for d in again] == ["evaluation.log10_lr"]


def test_without_times_leaves_out_only_clock_values(measured: Examined) -> None:
    document = measured.document
    document = document | {"status": document["status"] | {"custody": {"audit_head": "1"}}}
    kept = without_times(document)
    assert set(document) - set(kept) == {"created_utc"}
    assert set(document["extra"]) - set(kept["extra"]) == {"Seconds"}
    assert set(document["status"]) - set(kept["status"]) == {"custody"}
    assert {n: v for n, v in kept.items() if n not in ("extra", "status")} == {
        n: v for n, v in document.items() if n not in ("created_utc", "extra", "status")
    }


@pytest.mark.parametrize("dark", [False, True])
def test_the_suspect_is_in_the_accent_colour_and_the_decoys_are_grey(measured: Examined, dark: bool) -> None:
    colours = DARK if dark else LIGHT
    figure = document_figures(measured.document, dark=dark)["figure-decoys"]
    bars, dot = figure.data
    assert bars.marker.color == colours.null
    assert dot.marker.color == colours.accent
    assert sum(bars.y) == 400
    assert "beyond" in figure.layout.annotations[-1].text


def test_a_suspect_among_the_decoys_is_drawn_at_its_chance() -> None:
    risks = np.array([-0.1, -0.5, -2.0, 0.0])
    edges, counts = risk_counts(risks)
    assert counts.sum() == 4
    assert edges[-1] == 0.0
    histogram = {"edges": edges.tolist(), "counts": counts.tolist()}
    decoys: Any = {"histogram": histogram, "smallest_log10_risk": risks.min(), "suspect_log10_risk": -0.4}
    figure = decoy_risks(decoys, FOUND_LOG10_RISK)
    assert figure.data[1].x == (-0.4,)
    assert "beyond" not in figure.layout.annotations[-1].text


@pytest.mark.parametrize("value", [-0.25, -0.5, -1.0, -2.75])
def test_histogram_bin_includes_its_upper_edge(value: float) -> None:
    edges, counts = risk_counts(np.array([value, -3.9]))
    (here,) = np.flatnonzero(counts[1:]) + 1
    assert edges[here + 1] == value


def test_the_interval_is_exact() -> None:
    assert clopper_pearson(0, 10) == (0.0, pytest.approx(0.30849710781876083))
    assert clopper_pearson(10, 10) == (pytest.approx(0.6915028921812392), 1.0)
    low, high = clopper_pearson(5, 100)
    assert (low, high) == (pytest.approx(0.0164315, abs=1e-6), pytest.approx(0.1128349, abs=1e-6))


def test_schema_names_every_field_of_error_rates(measured: Examined) -> None:
    for part in ("error_rates", "standing"):
        for field in names(measured.document[part]):
            assert f"`{field}`" in SCHEMA, field
