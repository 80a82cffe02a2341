from __future__ import annotations

import json

import numpy as np
import pytest

from irwm.alignment.result import ALIGNED_COSINE, MINOR_COSINE
from irwm.report.plots.similarities import similarities
from irwm.report.plots.theme import LIGHT
from tests.report.plots.test_detection import a_section, an_alignment, named


def said(figure) -> dict[str, object]:
    """The labels of the two lines by their first word."""
    return {a.text.split()[0]: a for a in figure.layout.annotations}


def test_the_histogram_counts_every_row():
    section = a_section()
    assert sum(section["histogram"]["rows"]) == sum(section["histogram"]["decoys"]) == 500
    bars = named(similarities(section), "matched row")
    assert sum(bars.y) == pytest.approx(100)
    assert sum(int(text.split("<br>")[2].split(" of ")[0]) for text in bars.hovertext) == 500


def test_the_median_and_its_threshold_are_drawn_and_labelled():
    alignment = an_alignment()
    figure = similarities(a_section())
    labels = said(figure)
    assert labels["the"].text == f"the median must reach {ALIGNED_COSINE:g}"
    assert labels["the"].x == ALIGNED_COSINE
    assert labels["median"].text == f"median {alignment.similarity:.3f}"
    assert f"{alignment.similarity:.6g}" in labels["median"].hovertext
    assert f"{np.median(alignment.decoy_cosines):.6g}" in labels["median"].hovertext
    needed, median = figure.layout.shapes
    assert (needed.x0, needed.line.dash, needed.line.color) == (ALIGNED_COSINE, "dash", LIGHT.ink)
    assert (median.x0, median.line.color) == (alignment.similarity, LIGHT.accent)


def test_after_a_rotation_axis_and_threshold_are_for_minor_components():
    plain, rotated = similarities(a_section()), similarities(a_section(rotated=True))
    assert "minor components" in rotated.layout.xaxis.title.text
    assert "minor components" not in plain.layout.xaxis.title.text
    assert said(rotated)["the"].text == f"the median must reach {MINOR_COSINE:g}"


@pytest.mark.parametrize("mean", [-0.2, 0.0, 0.24, 0.26, 0.5, 0.69, 0.71, 0.99])
def test_the_two_labels_never_cover_each_other_or_leave_the_figure(mean):
    """At 12 px a character is about 7 px wide, and the narrowest axis is about 700 px long."""
    places = []
    for label in said(similarities(a_section(mean=mean, rotated=True))).values():
        width = 7 / 700 * 2.04 * len(label.text)
        begins = {"left": label.x, "right": label.x - width}[label.xanchor]
        places.append((begins, begins + width))
    (_, first), (second, end) = sorted(places)
    assert first <= second
    assert end <= 1.02


def test_an_alignment_without_rows_says_why():
    figure = similarities(a_section(0))
    assert "said by the alignment" in figure.layout.annotations[0].text
    assert not figure.data
    assert json.loads(figure.to_json())


def test_unknown_median_is_not_drawn():
    assert set(said(similarities({**a_section(), "median_cosine": None}))) == {"the"}
