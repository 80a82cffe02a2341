from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from irwm.report.plots.ranking import ranking
from irwm.report.plots.theme import DARK, LIGHT
from irwm.report.tracing import LISTED, SHOWN, _others, z_needed
from tests.report.plots.test_detection import named


def a_tracing(recipients: int = 40, guilty: int = 3, z: float = 52.0, decoys: int = 200) -> dict[str, Any]:
    """A section "tracing" with this number of guilty recipients and all others at chance."""
    rng = np.random.default_rng(recipients)
    values = sorted([*(z - 0.1 * k for k in range(guilty)), *rng.standard_normal(recipients - guilty)], reverse=True)
    listed = len(values) if len(values) <= LISTED else max(SHOWN, guilty)
    rows = [
        {
            "place": i + 1, "recipient": f"Customer {i}", "owner": "Labs", "commitment": "ab" * 32, "z": v,
            "log10_p": -1.0, "log10_risk": -600.0 if i < guilty else 0.0, "named": i < guilty,
            "share": 0.3 if i < guilty else 0.0, "rows": 4096, "mark": None,
        }
        for i, v in enumerate(values[:listed])
    ]  # fmt: skip
    chance = sorted(rng.standard_normal(decoys).tolist(), reverse=True)
    return {
        "recipients": recipients, "ranked": rows, "named": guilty, "others": _others(values[listed:]),
        "decoys": chance, "z_needed": z_needed(1e-6, recipients), "reason": "said by the tracing",
    }  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("recipients", [3, 40, 3000])
def test_observed_is_accent_decoys_are_grey_and_everything_has_a_hover(dark: bool, recipients: int) -> None:
    colours, figure = (DARK if dark else LIGHT), ranking(a_tracing(recipients), dark=dark)
    assert figure.layout.title.text
    assert figure.layout.title.subtitle.text
    assert all(axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes()))
    for trace in figure.data:
        assert trace.marker.color == (colours.null if trace.name.startswith("decoys") else colours.accent)
        assert ("observed" in trace.name) != trace.name.startswith("decoys")
        assert len(trace.hovertext) == len(trace.x)
        assert all(any(c.isdigit() for c in text) for text in trace.hovertext)
    assert json.loads(figure.to_json())


def test_every_recipient_is_a_point_at_their_rank_and_the_threshold_separates_named_ones() -> None:
    found = a_tracing()
    figure = ranking(found)
    places = [*named(figure, "named (observed)").x, *named(figure, "not named").x]
    assert sorted(places) == list(range(1, 41))
    assert len(named(figure, "decoys").x) == 200
    assert "Customer 0" in named(figure, "named (observed)").hovertext[0]
    assert "52" in named(figure, "named (observed)").hovertext[0]
    (bar,) = [shape.y0 for shape in figure.layout.shapes]
    assert min(named(figure, "named (observed)").y) > bar > max(named(figure, "not named").y)
    assert f"named at z ≥ {z_needed(1e-6, 40):.2f}" in {note.text for note in figure.layout.annotations}


def test_very_many_recipients_are_the_first_fifty_and_a_histogram_of_the_rest() -> None:
    found = a_tracing(100_000)
    figure = ranking(found)
    assert sum(len(trace.x) for trace in figure.data if "(observed)" in trace.name and trace.type == "scatter") == SHOWN
    rest = named(figure, "the other 99\u00a0950")
    assert sum(rest.y) == pytest.approx(100)
    assert sum(found["others"]["counts"]) == found["others"]["count"] == 99_950
    assert len(figure.to_json()) < 120_000


def test_a_large_z_keeps_decoys_and_threshold_distinct() -> None:
    figure = ranking(a_tracing(z=900.0))
    high, low = max(named(figure, "named (observed)").y), named(figure, "decoys").y
    bar = figure.layout.shapes[0].y0
    assert high == pytest.approx(30.0)
    assert (bar - max(low)) / high > 0.01
    ticks = dict(zip(figure.layout.yaxis.ticktext, figure.layout.yaxis.tickvals, strict=True))
    assert all(
        abs(v) == pytest.approx(math.sqrt(abs(float(t.replace("\u2212", "-").replace("\u00a0", "")))))
        for t, v in ticks.items()
    )


def test_a_ranking_without_comparisons_says_why() -> None:
    found = a_tracing(5, 0)
    for row in found["ranked"]:
        row["z"] = None
    figure = ranking(found)
    assert "said by the tracing" in figure.layout.annotations[0].text
    assert not figure.data


def test_hostile_names_are_inert() -> None:
    found = a_tracing()
    found["ranked"][0]["recipient"] = "<script>x</script>\u202e"
    text = ranking(found).to_json()
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\\u202e" not in text.replace("\\\\u202e", "")
