"""Numbers as reports and pages write them."""

from __future__ import annotations

import math

import pytest

from irwm.report import numbers


@pytest.mark.parametrize(
    ("log10", "said"),
    [
        (0.0, "1"),
        (-0.0, "1"),
        (math.log10(0.0123), "0.0123"),
        (-9.0, "1.00 × 10<sup>−9</sup>"),
        (math.log10(9.999) - 10, "1.00 × 10<sup>−9</sup>"),
        (-29.9, "1.26 × 10<sup>−30</sup>"),
        (-30.0, "1.00 × 10<sup>−30</sup>"),
        (-30.1, "less than 1 in 10<sup>30</sup>"),
        (-math.inf, "0"),
    ],
)
def test_probabilities_are_written_as_powers_of_ten(log10, said):
    assert numbers.power_of_ten(log10) == said


@pytest.mark.parametrize("log10", [0.0, -5.0, -29.9, -30.0, -math.inf])
def test_stated_chance_needs_no_logarithm_on_hover(log10):
    assert numbers.power_html(log10) == numbers.power_text(log10)
    assert numbers.power_hover(log10) == numbers.power_of_ten(log10)
    assert numbers.why_capped(numbers.power_text(log10)) == ""


def test_capped_chance_shows_its_logarithm_on_hover():
    assert numbers.power_text(-30.1) == "less than 1 in 10³⁰"
    assert numbers.power_html(-30.1) == '<span title="log10 = −30.1">less than 1 in 10³⁰</span>'
    assert numbers.power_html(-88.41234, numbers.power_of_ten) == (
        '<span title="log10 = −88.4123">less than 1 in 10<sup>30</sup></span>'
    )
    assert numbers.power_hover(-30.1) == "less than 1 in 10<sup>30</sup> (log10 = −30.1)"
    assert numbers.why_capped("48 of 50", numbers.power_html(-30.1)) == numbers.WHY_CAPPED
    assert numbers.why_capped(numbers.power_hover(-30.1)) == numbers.WHY_CAPPED


@pytest.mark.parametrize(("log10", "said"), [(-6.0, "10⁶"), (-29.9, "10²⁹"), (-30.1, "10³⁰"), (-88.4, "10³⁰")])
def test_inverse_of_a_chance_is_rounded_down_and_capped(log10, said):
    assert numbers.one_in(log10) == said


def test_nouns_agree_with_their_number():
    assert numbers.counted(1, "copy", "copies") == "1 copy"
    assert numbers.counted(0, "copy", "copies") == "0 copies"
    assert numbers.counted(1200, "key") == "1\u00a0200 keys"


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (1.0, "100%"), (1.5, "100%"), (0.99999, "99.9%"), (0.995, "99.5%"), (0.99, "99%"), (0.8799, "87%"),
        (0.29, "29%"), (0.004, "0.4%"), (1e-9, "0.1%"), (0.0, "0%"), (-0.2, "0%"),
    ],
)  # fmt: skip
def test_a_confidence_never_rounds_up_to_certainty(share, said):
    assert numbers.sure(share) == said


def test_decimals_have_a_real_minus_and_no_nan():
    assert numbers.decimal(-0.1234, 2) == "−0.12"
    assert numbers.decimal(math.nan, 2) == "unknown"


def test_long_lists_are_shortened_with_a_note():
    assert numbers.listed([7]) == "7"
    assert numbers.listed([3, 17, 40]) == "3, 17 and 40"
    assert numbers.listed(list(range(1, 21))) == "1, 2, 3, 4, 5, 6 and 14 more"
    assert [numbers.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (1 / 124, "0.0081"),
        (0.01, "0.010"),
        (1.0, "1.00"),
        (0.0999, "0.100"),
    ],
)
def test_probability_is_rounded_up(p, said):
    assert numbers.rounded_up(p) == said
    assert float(said) >= p
