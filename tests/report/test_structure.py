"""A received document has exactly the parts and types of its kind, and docs/report-schema.json says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from irwm.report import ReportError, from_json, schema, to_json
from irwm.report.structure import fault, json_schema
from irwm.report.value_states import Place, leaves
from tests.report.conftest import Examined
from tests.report.leaves import changed, put

WRITTEN = Path(__file__).parents[2] / "docs" / "report-schema.json"


def test_written_schema_is_up_to_date() -> None:
    assert WRITTEN.read_bytes() == json_schema(), "run python -m irwm.report.structure > docs/report-schema.json"


@pytest.mark.fault(77)
@pytest.mark.parametrize(
    ("place", "value", "expected", "written"),
    [
        (("reading", "positions", 3, "rank"), True, "a number", "bool True"),
        (("reading", "positions", 3, "rank"), "0.1", "a number", "str '0.1'"),
        (("reading", "positions", 3, "more"), None, "no field with this name", "NoneType None"),
        (("evaluation", "keys_tried"), 3.0, "a whole number", "float 3.0"),
        (("evaluation", "keys_tried"), True, "a whole number", "bool True"),
        (("evaluation", "log10_p"), 10**400, "a number", "int 1000"),
        (("parameters", "scale"), "automatic", "a number", "str 'automatic'"),
        (("items", "suspect", "files", 0), [], "an object", "list of length 0"),
        (("verdict", "word"), "guilty", "'found', 'not found' or 'inconclusive'", "str 'guilty'"),
        (("standing",), None, "an object", "NoneType None"),
    ],
)
def test_document_of_wrong_structure_names_the_place(
    found: Examined, place: Place, value: Any, expected: str, written: str
) -> None:
    with pytest.raises(ReportError) as error:
        from_json(to_json(changed(found.document, place, value)))
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
    assert error.value.problem.startswith(f"{where} does not have the required form")
    assert error.value.expected == expected
    assert error.value.found.startswith(written)


@pytest.mark.parametrize("version", [22.0, 21, "22", True])
def test_another_version_is_refused(found: Examined, version: Any) -> None:
    with pytest.raises(ReportError) as error:
        from_json(to_json(changed(found.document, ("schema", "version"), version)))
    assert error.value.found == f"irwm-report, version {version}"


def test_deeply_nested_value_is_refused(found: Examined) -> None:
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    with pytest.raises(ReportError, match=r"extra\.Device"):
        from_json(to_json(changed(found.document, ("extra", "Device"), deep)))


def test_number_beyond_float64_is_refused(found: Examined) -> None:
    data = to_json(changed(found.document, ("evaluation", "log10_p"), -0.123456789))
    with pytest.raises(ReportError, match=r"evaluation\.log10_p"):
        from_json(data.replace(b"-0.123456789", b"-1e999"))


def test_no_part_can_be_missing_or_have_another_type(found: Examined) -> None:
    document = json.loads(to_json(found.document))
    for place, value in list(leaves(document)):
        if place[0] in ("case", "versions", "extra"):
            continue
        put(document, place, {"another": "type"})
        assert fault(document, schema.Report) is not None, place
        put(document, place, value)
        if isinstance(place[-1], str):
            parent = document
            for step in place[:-1]:
                parent = parent[step]
            del parent[place[-1]]
            assert fault(document, schema.Report) is not None or place[-1] in ("spread", "noise_level"), place
            parent[place[-1]] = value
    assert fault(document, schema.Report) is None
