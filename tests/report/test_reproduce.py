from __future__ import annotations

import copy

import pytest

from irwm.report import from_json, reproduce, to_json, tracing
from irwm.report.reproduction import differences
from irwm.report.value_states import text_of
from tests.report.conftest import examine
from tests.report.leaves import changed


@pytest.mark.sweep
def test_a_report_is_reproduced(any_case):
    document = from_json(to_json(any_case.document))
    assert reproduce(document, any_case.suspect, any_case.model, any_case.key) == []


def test_a_report_that_withholds_rows_is_reproduced(world):
    e = examine(world, "copy", disclose_rows=False)
    assert reproduce(e.document, e.suspect, e.model, e.key) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict", "word"), "not found"),
        (("verdict", "count"), 49),
        (("evaluation", "log10_risk"), None),
        (("reading", "positions", 4, "rank"), 0.000999001 * 2),
        (("reading", "positions", 4, "token"), 3),
        (("paper", "positions", 9, "null_quantiles", 3), 1.0),
        (("alignment", "median_cosine"), 0.5),
        (("lineage", "attention"), 0.5),
        (("parameters", "rank_threshold"), 0.25),
        (("odds", "log10_wrong_user"), -2.0),
    ],
)
def test_an_edited_number_is_named(found, path, value):
    differences = reproduce(changed(found.document, path, value), found.suspect, found.model, found.key)
    assert [(d.where, d.recorded) for d in differences] == [(text_of(path), value)]


def test_an_edited_step_is_named(disguised):
    document = changed(disguised.document, ("alignment", "steps", 0, "confidence"), 0.5)
    differences = reproduce(document, disguised.suspect, disguised.model, disguised.key)
    assert [d.where for d in differences] == ["alignment.steps[0].confidence"]


def test_a_field_left_out_or_added_is_named(found):
    document = copy.deepcopy(found.document)
    del document["reading"]["count"]
    document["verdict"]["more"] = 1
    found_there = {d.where for d in reproduce(document, found.suspect, found.model, found.key)}
    assert found_there == {"reading.count", "verdict.more"}


@pytest.mark.parametrize("name", ["tracing", "supporting"])
def test_forged_additional_section_is_named(found, name):
    document = copy.deepcopy(found.document)
    assert not document[name]
    assert reproduce(document, found.suspect, found.model, found.key) == []
    reading = found.document["reading"]
    forged = {"statistic": "sum", "invariant": reading["invariant"], "seed": 3, "count": 50, "log10_risk": -80.0}
    row = {"recipient": "Southwind", "owner": "", "commitment": "ff" * 32, "named": True, "share": 1.0, "rows": 1}
    row |= {"z": 40.0, "log10_risk": -298.0}
    traced = {"ranked": [row], "recipients": 1, "tensors_read": 1, "maps": 2, "by": "aligned", "looks": 1, "risk": 1e-6}
    traced |= {"keys_tried": 1, "forms": 2, "rows": 1, "aligned": True, "decoys": [], "places": 1, "place": "embedding"}
    traced |= {"tries": 1, "tries_made": 1, "tries_ended": "all made", "growth": []}
    document[name] = [forged] if name == "supporting" else traced | tracing.summary(traced)
    differences = reproduce(document, found.suspect, found.model, found.key)
    assert differences
    assert all(d.where.startswith((name, "verdict")) for d in differences)


def test_different_seed_does_not_reproduce(found):
    document = copy.deepcopy(found.document) | {"seed": 8}
    assert reproduce(document, found.suspect, found.model, found.key)


def test_different_items_and_keys_are_named_first(found, world):
    differences = reproduce(found.document, world["trimmed"], found.model, found.key)
    assert [d.where for d in differences] == ["items.suspect.fingerprint"]
    differences = reproduce(found.document, found.suspect, found.model, world["other"])
    assert [d.where for d in differences] == ["key.commitment"]


def test_pairs_of_neurons_may_depend_on_the_processor_and_their_agreement_not():
    one = {"agreement": 0.95, "decoy": 0.01, "pairs": 768, "ours": 1.0, "theirs": 1.0, "layers": [[0, 0]]}
    again = one | {"agreement": 0.94, "pairs": 760, "layers": [[0, 1]]}
    assert not list(differences("lineage", {"neurons": one}, {"neurons": again}))
    (other,) = differences("lineage", {"neurons": one}, {"neurons": one | {"agreement": 0.5}})
    assert other.where == "lineage.neurons.agreement"
    assert list(differences("lineage", {"neurons": one}, {"neurons": None}))
