from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irwm.canonical import strict_json
from irwm.evidence import verdict
from irwm.report import ReportError, from_json, to_json
from irwm.report.document import plain, reading_summary
from irwm.report.plots.summaries import summarise
from irwm.scheme.probabilities import log10_wrong_user
from tests.report.conftest import examine

SCHEMA = Path(__file__).parents[2].joinpath("docs", "report-schema.md").read_text(encoding="utf-8")


@pytest.mark.sweep
def test_the_json_is_strict_ascii_and_survives_the_round_trip(any_case):
    data = to_json(any_case.document)
    assert data.isascii()
    assert strict_json(data) == any_case.document
    assert from_json(data) == any_case.document
    assert to_json(from_json(data)) == data


def test_document_has_every_number_of_the_finding(any_case):
    f, d = any_case.finding, any_case.document
    for reading, recorded in ((f.reading, d["reading"]), (f.paper, d["paper"])):
        if reading is None:
            assert recorded is None
            continue
        positions = recorded["positions"]
        np.testing.assert_array_equal(np.array([p["rank"] for p in positions], float), reading.ranks)
        np.testing.assert_array_equal(np.array([p["observed"] for p in positions], float), reading.observed)
        assert (recorded["count"], recorded["present"]) == (reading.count, reading.present)
        assert recorded["null"]["shape"] == list(reading.null.shape)
        assert (recorded["log10_p"], recorded["log10_p_count"]) == (reading.log10_p, reading.log10_p_count)
        assert recorded["count"] == sum(p["counts"] for p in positions)
    assert d["verdict"]["word"] == d["verdict"]["mark"] == f.verdict
    assert d["evaluation"]["keys_tried"] == 3
    assert d["evaluation"]["log10_risk"] == verdict.log10_risk(f.reading, 3 * f.tensors_read * f.maps * f.places)
    assert d["odds"]["log10_wrong_user"] == log10_wrong_user(50, 30, 0.2, 3 * f.tensors_read)
    assert d["parameters"] == f.parameters.to_dict()
    assert (d["seed"], d["key"]["commitment"]) == (7, any_case.key.commitment)
    assert [p["token"] for p in d["reading"]["positions"]] == f.marked_rows.tolist()
    assert sum(d["alignment"]["histogram"]["rows"]) == f.alignment.cosines.size
    assert d["lineage"] == plain(asdict(f.lineage))
    assert d["alignment"]["steps"] == [asdict(step) for step in f.alignment.steps]
    assert d["alignment"]["needed_median_cosine"] == f.alignment.needed_similarity
    assert d["alignment"]["minor_components"] == (f.alignment.rotation is not None)


def test_gone_positions_are_null_and_reported(gone):
    positions = gone.document["reading"]["positions"]
    missing = [p for p in positions if p["state"] == "gone"]
    assert len(missing) == gone.document["reading"]["gone"] == 50 - gone.finding.present > 0
    for p in missing:
        assert p["token"] >= 540
        assert p["rank"] is p["observed"] is p["threshold"] is None
        assert p["null_quantiles"] == [None] * 7
        assert p["counts"] is False


def test_figure_data_round_trip_through_the_document(any_case):
    recorded = from_json(to_json(any_case.document))["reading"]
    summary, again = summarise(any_case.finding.reading, any_case.finding.parameters), reading_summary(recorded)
    for name in ("observed", "ranks", "bands", "thresholds"):
        np.testing.assert_array_equal(getattr(summary, name), getattr(again, name))
    assert (again.count, again.present, again.permutations) == (summary.count, summary.present, summary.permutations)


def test_lost_rows_are_counted(gone, disguised):
    alignment = gone.document["alignment"]
    assert (alignment["rows_of_original_gone"], alignment["rows_of_original"]) == (60, 600)
    assert alignment["marked_rows_gone"] == 50 - gone.finding.present > 0
    assert disguised.document["alignment"]["rows_of_original_gone"] == 0
    assert disguised.document["alignment"]["marked_rows_gone"] == 0


def test_the_nulls_digest_is_the_one_the_schema_describes(gone):
    null = gone.finding.null.astype("<f8")
    canonical = b"".join(
        bytes.fromhex("000000000000f87f") if np.isnan(v) else np.float64(v).tobytes() for v in null.ravel()
    )
    assert gone.document["reading"]["null"]["sha256"] == hashlib.sha256(canonical).hexdigest()


def test_document_does_not_contain_the_secret(found):
    data = to_json(found.document).decode()
    assert found.key.secret.hex() not in data
    assert not re.search(r"/tmp/|/home/|pytest", data)  # no path of the examiner's machine


def names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from names(part)
    elif isinstance(value, list):
        for part in value:
            yield from names(part)


def test_the_schema_names_every_field(any_case):
    free = {"case", "versions", "extra", "parameters"}
    for name, part in any_case.document.items():
        for field in {name, *(() if name in free else names(part))}:
            assert f"`{field}`" in SCHEMA, field


def test_hostile_text_is_spelled_out(world):
    document = examine(world, "copy", case={"\u202eCase": "a\x1b[31m\0b"}, tokens={5: "\u2067x"}).document
    assert document["case"] == {"\\u202eCase": "a\\x1b[31m\\x00b"}


@pytest.mark.parametrize(
    "data",
    [
        b"[]", b'{"schema": 3}', b'{"schema": {"name": "irwm-report", "version": true}}',
        b'{"schema": {"name": "other", "version": 3}}', b'{"schema": {"name": "irwm-report", "version": NaN}}', b"\xff",
    ],
)  # fmt: skip
def test_non_report_document_is_refused(data):
    with pytest.raises(ReportError):
        from_json(data)
