"""Errors about settings: they use the fields' names, and no names or values of Python."""

from __future__ import annotations

import pytest

from irwm import Parameters
from irwm.errors import IrwmError, ParameterError
from ui.components import notices
from ui.components.setting_words import LABELS, in_words, setting_of


@pytest.mark.parametrize("name", sorted(set(LABELS) & set(Parameters.__dataclass_fields__)))
def test_every_parameter_out_of_range_is_named_by_its_label(name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        Parameters(**{"noise_coordinates": 4, "hidden": True, name: -5})
    assert setting_of(refused.value.problem) == name
    page = notices.error_html(refused.value)
    assert f"{LABELS[name]} is out of range" in page
    assert name not in page or "_" not in name


def test_every_number_of_the_scheme_has_a_label() -> None:
    assert set(Parameters.__dataclass_fields__) - set(LABELS) == {"hidden", "noise_level", "places"}


def test_error_values_appear_as_typed() -> None:
    assert in_words({"problem": "risk is out of range", "found": "'much'"})["found"] == "“much”"
    assert in_words({"problem": "positions is out of range", "found": "None"})["found"] == "nothing"


def test_no_values_of_python_are_shown_and_other_errors_stay() -> None:
    with pytest.raises(ParameterError) as refused:
        Parameters(noise_coordinates=4, hidden=False)
    for value in ("hidden=True", "hidden=False"):
        assert value not in notices.error_html(refused.value)
    error = IrwmError("the shard is out of range", found="None")
    assert notices.parts_of(error) == {"problem": "the shard is out of range", "found": "None"}
