"""Protect's texts before and after: odds, noise, memory, lists and receipts, with exactly what was measured."""

from __future__ import annotations

import math
from typing import Any

import pytest

from irwm import Parameters, wrong_user_probability
from irwm.errors import ParameterError
from irwm.report.numbers import WHY_CAPPED, power_html, power_text
from irwm.scheme.parameters import many_recipients, one_owner
from ui.components.receipt import changed_text, reading_text, receipt_html, receipt_rows
from ui.components.recipients import preview_html
from ui.components.settings_form import (
    MANY,
    PAPER,
    STANDARD,
    SettingsForm,
    check_memory,
    consequences,
    memory_needed,
    odds_sentence,
)
from ui.presets import preset_parameters
from ui.services.recipients import Recipient, read_list

RECEIPT: dict[str, Any] = {
    "many": True,
    "owner": "Example Labs",
    "path": "/releases/copies",
    "vocab_size": 4096,
    "parameters": many_recipients(256).to_dict(),
    "recipients": 3,
    "written": 1,
    "skipped": 1,
    "failed": 1,
    "bytes": 10_000_000,
    "bytes_cloned": 4_000_000,
    "example": {
        "changed_rows": 4095,
        "changed_tensors": ["wte", "head"],
        "changed_values": None,
        "changed_share": 0.227,
        "left_out": [],
    },
    "rows": [
        {
            "recipient": "<b>Acme</b>",
            "state": "written",
            "why": "",
            "folder": "/releases/copies/Acme-0123",
            "positions": 50,
            "of": 50,
            "log10_p": -88.0,
            "log10_risk": -87.1,
            "key_fingerprint": "ab" * 32,
        },
        {
            "recipient": "Bolt",
            "state": "failed",
            "why": "no margin",
            "folder": None,
            "positions": None,
            "of": None,
            "log10_p": None,
            "key_fingerprint": None,
        },
    ],
    "marked_before": [],
    "damaged": 0,
}


def test_odds_are_attributed_to_the_paper_without_promise() -> None:
    said = odds_sentence(Parameters())
    assert "meets the paper's rule (at least 30 of 50 positions count) in 99.97 % of cases" in said
    assert "survives an attack with a probability of 80 %" in said
    assert "is found" not in said
    assert "keys" not in said


def test_equation_3_uses_the_planned_number_of_keys() -> None:
    said = odds_sentence(Parameters(), 312)
    assert "312 keys" in said
    assert power_text(math.log10(wrong_user_probability(50, 30, 0.2, 312))) in said


def test_very_small_odds_of_a_setting_are_capped_and_explained() -> None:
    said = odds_sentence(Parameters(positions=500, required_positions=400), 312)
    assert said.count("less than 1 in 10³⁰") == said.count('<span title="log10 = −') == 2
    assert said.count(WHY_CAPPED) == 1
    assert WHY_CAPPED not in odds_sentence(Parameters())


def test_receipt_states_the_corrected_odds_of_a_verdict() -> None:
    receipt = {"count": 48, "present": 50, "log10_p": -13.0, "log10_risk": -12.0}
    assert reading_text(receipt, "positions") == "48 of 50 positions, probability by chance 1.00 × 10⁻¹²"
    earlier = {"count": 48, "present": 50, "log10_p": -13.0}
    assert reading_text(earlier) == "48 of 50, probability by chance 1.00 × 10⁻¹³ before corrections"
    assert reading_text(receipt | {"log10_risk": -87.1}, write=power_html) == (
        '48 of 50, probability by chance <span title="log10 = −87.1">less than 1 in 10³⁰</span>'
    )
    assert receipt_rows(RECEIPT)[0][3] == "50 of 50, probability by chance less than 1 in 10³⁰"
    assert receipt_html(RECEIPT).count(WHY_CAPPED) == 1


def test_noise_text_states_cost_and_hiding() -> None:
    (note,) = consequences(many_recipients(256, hides_rows=True), 256, 5)
    assert f"{100 * math.sqrt(2 * 8 / 256):.0f} % of its length" in note
    assert "cannot distinguish them" in note
    few = Parameters(constraints=8, noise_coordinates=2, spread=0.0)
    assert "can be distinguished" in consequences(few, 256, 5)[0]
    fixed = Parameters(constraints=8, noise_coordinates=8, scale=1000.0, spread=0.0)
    assert "can be distinguished" in consequences(fixed, 256, 5)[0]


def test_fingerprint_text_states_size_and_limits() -> None:
    (note,) = consequences(many_recipients(256), 256, 5)
    in_embedding, in_head = 25 * math.sqrt(8 / 256), 12.5 * math.sqrt(8 / 256)
    assert (
        f"about {in_embedding:.1f} % of its length in the embedding, and by {in_head:.1f} % in an output head" in note
    )
    assert "see which rows are marked" in note
    (note,) = consequences(one_owner(256), 256, 1)
    assert f"{10 * math.sqrt(8 / 256):.1f} % of its length" in note
    assert "marked" not in note


def test_several_recipients_without_noise_get_a_warning() -> None:
    assert "see every mark" in consequences(Parameters(), 4096, 5)[0]
    assert consequences(Parameters(), 4096, 1) == []


def test_permutations_beyond_memory_are_refused_before_start() -> None:
    with pytest.raises(ParameterError, match="memory") as caught:
        check_memory(Parameters(permutations=1_000_000), 8192)
    assert "permutations" in (caught.value.expected or "")
    check_memory(Parameters(), 8192)
    few, many = (memory_needed(Parameters(positions=l, permutations=99), 8192) for l in (50, 10_000))
    assert many - few > 9950 * 8192 * 8  # each position has its own order


def test_a_preset_fills_in_the_models_own_numbers() -> None:
    for preset, expected in ((STANDARD, one_owner), (MANY, many_recipients)):
        _, constraints, scale, hidden, noise, choice, spread = SettingsForm.choose(preset, 64)
        p = expected(64)
        assert (constraints, noise, spread) == (p.constraints, p.noise_coordinates, p.spread)
        assert (scale, hidden, choice) == ("auto", True, "added")
    assert SettingsForm.choose(PAPER, 64)[2:5] == ("1000", False, 0)


@pytest.mark.parametrize("preset", [STANDARD, MANY, PAPER])
def test_a_presets_fields_are_its_parameters(preset: str) -> None:
    _, constraints, scale, hidden, noise, choice, spread = SettingsForm.choose(preset, 256)
    values = (50, float(constraints), 0.2, 30, scale, hidden, 30.0, 1000, float(noise), choice, spread)
    assert SettingsForm.parameters(preset, *values) == preset_parameters(preset, 256)


@pytest.mark.parametrize("choice", ["row", "global"])
def test_noise_over_numbers_has_no_fingerprint_size(choice: str) -> None:
    values = (50, 10, 0.2, 30, "auto", True, 30.0, 1000, 10, choice, 0.25)
    p = SettingsForm.parameters(STANDARD, *values)
    assert (p.noise_level, p.spread) == (choice, 0.0)


@pytest.mark.parametrize("scale", ["a lot", "", None, "nan", "-1"])
def test_invalid_scale_is_refused(scale: str | None) -> None:
    with pytest.raises(ParameterError, match="scale is out of range"):
        SettingsForm.parameters(STANDARD, 50, 10, 0.2, 30, scale, True, 30.0, 1000, 8, "added", 0.1)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (0, "positions"),
        (1, "constraints"),
        (3, "required_positions"),
        (7, "permutations"),
        (8, "noise_coordinates"),
    ],
)
def test_decimal_in_a_field_for_whole_numbers_is_refused(place: int, name: str) -> None:
    values: list[Any] = [50, 10, 0.2, 30, "auto", True, 30.0, 1000, 8, "added", 0.1]
    values[place] += 0.5
    with pytest.raises(ParameterError, match=f"^{name}"):
        SettingsForm.parameters(STANDARD, *values)


def test_list_text_states_skipped_recipients_and_damage() -> None:
    found = read_list("recipient\n" + "\n".join(f"<i>{n}</i>" for n in range(8)))
    said = preview_html(found, [Recipient("<i>0</i>")], 2)
    assert "8 recipients" in said
    assert "and 3 more" in said
    assert "1 recipient (" in said
    assert "7 copies will be made" in said
    assert "2 records of the vault cannot be read" in said
    assert "<i>" not in said


def test_faulty_lines_are_listed_and_the_rest_counted() -> None:
    said = preview_html(read_list("\n".join(["Acme", *["acme"] * 12])), [], 0)
    assert "12 lines of the list cannot be used" in said
    assert "line 2: acme is the same recipient as in line 1" in said
    assert "and 4 more" in said


def test_receipt_names_changed_tensors_with_measured_change() -> None:
    exact = {"changed_tensors": ["wte"], "changed_rows": 50, "changed_values": 500, "changed_share": 0.1}
    assert changed_text(exact | {"vocab_size": 4096}).startswith("500 numbers in 50 of 4\u00a0096 rows of wte;")
    noisy = changed_text(RECEIPT["example"] | {"vocab_size": 4096})
    assert "4\u00a0095 of 4\u00a0096 rows of wte and head, usually by about 23 %" in noisy
    assert "the same rows in each" in noisy


def test_receipt_for_many_counts_copies_and_disk_space() -> None:
    card = receipt_html(RECEIPT)
    for said in ("1 copy of 3 requested", "1 already existed", "1 could not be written", "6.0 MB", "4.0 MB are shared"):
        assert said in card
    assert "also in a mixture" in card
    without = RECEIPT | {"parameters": Parameters().to_dict()}
    assert "a mixture of several copies does not" in receipt_html(without)
    rows = receipt_rows(RECEIPT)
    assert rows[0][2] == "Acme-0123"
    assert rows[1][1:] == ["failed: no margin", "–", "–", "–"]


def test_new_model_refills_only_preset_values() -> None:
    for before in (None, 64, 256):
        for name in (STANDARD, MANY):
            preset = SettingsForm.choose(name, before)[1:]
            assert SettingsForm.refilled(before, 96, name, *preset)[1:] == SettingsForm.choose(name, 96)[1:]
            by_hand = (preset[0] + 1, *preset[1:])
            assert SettingsForm.refilled(before, 96, name, *by_hand) is None
            assert SettingsForm.refilled(before, None, name, *preset) is None
        assert SettingsForm.refilled(before, 96, STANDARD, *preset) is None  # the other preset's
        assert SettingsForm.refilled(before, 96, PAPER, *SettingsForm.choose(PAPER, before)[1:]) is None
