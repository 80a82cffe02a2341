"""Parameters are validated once, on creation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from irwm.errors import ParameterError
from irwm.scheme.parameters import Parameters, chance_of_counting


def test_paper_setting_is_exact_and_the_default_is_hidden() -> None:
    p = Parameters.paper()
    assert (p.positions, p.constraints, p.scale, p.rank_threshold, p.required_positions) == (50, 10, 1000.0, 0.2, 30)
    assert (p.hidden, p.noise_coordinates, p.spread) == (False, 0, 0.0)
    assert Parameters.paper(positions=80, required_positions=50).positions == 80
    usual = Parameters()
    assert (usual.hidden, usual.scale) == (True, "auto")


@pytest.mark.fault(86)
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
        {"scale": 10**400},
        {"condition_limit": 0.5},
        {"rank_threshold": 0.0},
        {"rank_threshold": 1.0},
        {"rank_threshold": float("nan")},
        {"required_positions": 51},
        {"permutations": -1},
        {"permutations": 10.5},
        {"noise_coordinates": -1},
        {"hidden": 1},
        {"hidden": None},
        {"noise_coordinates": 4, "hidden": False},  # noise coordinates require secret coordinates
        *({"spread": value, "noise_coordinates": 4} for value in (-0.1, 1.5, math.nan, True, None, "large")),
    ],
)
def test_values_outside_their_range_are_refused_by_name(bad: dict) -> None:
    with pytest.raises(ParameterError) as caught:
        Parameters(**bad)
    assert next(iter(bad)).split("_")[0] in str(caught.value) or "required_positions" in str(caught.value)


def test_a_number_written_without_a_point_is_the_same_setting() -> None:
    """A key is derived from the written form: 1000 and 1000.0 must not lead to two marks (or to either, by a cache)."""
    whole = Parameters.paper(scale=1000, condition_limit=30)
    assert json.dumps(whole.to_dict()) == json.dumps(Parameters.paper().to_dict())
    assert isinstance(Parameters(scale=np.float64(20.0)).scale, float)


@pytest.mark.parametrize(
    ("beta", "permutations"),
    [(0.2, 1000), (0.2, 199), (0.01, 99), (0.001, 999), (0.001, 100), (math.nextafter(2 / 103, 1), 102), (0.3, 99)],
)
def test_counting_probability_equals_the_rank_comparison(beta: float, permutations: int) -> None:
    params = Parameters(rank_threshold=beta, permutations=permutations)
    ranks = np.arange(1, permutations + 2) / (permutations + 1)
    assert chance_of_counting(params) == (ranks < beta).mean()


def test_a_round_trip_keeps_every_value() -> None:
    p = Parameters(positions=80, scale="auto", required_positions=44)
    assert Parameters.from_dict(p.to_dict()) == p
    with pytest.raises(AttributeError):
        p.positions = 3  # type: ignore[misc]
    with pytest.raises(ParameterError):
        Parameters.from_dict({"rho": 3})
