"""Parameters are validated once, on creation."""

from __future__ import annotations

import pytest

from irwm.errors import ParameterError
from irwm.parameters import Parameters


def test_the_papers_values_are_the_defaults() -> None:
    p = Parameters()
    assert (p.positions, p.constraints, p.scale, p.rank_threshold, p.required_positions) == (50, 10, 1000.0, 0.2, 30)


@pytest.mark.parametrize(
    "bad",
    [
        {"positions": 0},
        {"positions": 20},  # rho = 30 of 20
        {"positions": True},
        {"constraints": 0},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"scale": "huge"},
        {"condition_limit": 0.5},
        {"rank_threshold": 0.0},
        {"rank_threshold": 1.0},
        {"rank_threshold": float("nan")},
        {"required_positions": 51},
        {"permutations": -1},
        {"permutations": 10.5},
        {"noise_coordinates": -1},
    ],
)
def test_values_outside_their_range_are_refused_by_name(bad: dict) -> None:
    with pytest.raises(ParameterError) as caught:
        Parameters(**bad)
    assert next(iter(bad)) in str(caught.value) or "required_positions" in str(caught.value)


def test_a_round_trip_keeps_every_value() -> None:
    p = Parameters(positions=80, scale="auto", required_positions=44)
    assert Parameters.from_dict(p.to_dict()) == p
    with pytest.raises(ParameterError, match="unknown"):
        Parameters.from_dict({"rho": 3})


def test_parameters_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Parameters().positions = 3  # type: ignore[misc]
