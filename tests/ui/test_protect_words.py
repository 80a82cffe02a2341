"""Protect's texts before and after: odds, noise, memory, lists and receipts, with exactly what was measured."""

from __future__ import annotations

import math
from typing import Any

import pytest

from irwm import Parameters, wrong_user_probability
from irwm.errors import ParameterError
from irwm.report.numbers import WHY_CAPPED, power_text
from irwm.scheme.parameters import many_recipients, one_owner
from ui.components.receipt import changed_text, reading_text, receipt_html, receipt_rows
from ui.components.recipients import preview_html
from ui.components.settings_form import (
    MANY,
    PAPER,
    STANDARD,
    SettingsForm,
    cautions,
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
    "example": {"changed_rows": 4095, "changed_tensors": ["wte", "head"], "changed_values": None,
                "changed_share": 0.227, "left_out": []},
    "rows": [
        {"recipient": "<b>Acme</b>", "state": "written", "why": "", "folder": "/releases/copies/Acme-0123",
         "positions": 50, "of": 50, "log10_p": -88.0, "log10_risk": -87.1, "key_fingerprint": "ab" * 32},
        {"recipient": "Bolt", "state": "failed", "why": "no margin", "folder": None, "positions": None, "of": None,
         "log10_p": None, "key_fingerprint": None},
    ],
    "marked_before": [],
    "damaged": 0,
}  # fmt: skip


def test_receipt_says_that_the_originals_signature_does_not_hold() -> None:
    plain, example = receipt_html(RECEIPT), RECEIPT["example"]  # type: ignore[arg-type]
    assert "model.sig" not in plain
    stale = receipt_html(RECEIPT | {"example": example | {"left_out": ["model.sig"]}})  # type: ignore[arg-type]
    assert "model.sig of the original was not copied, because it is not valid for the release" in stale
    signed = receipt_html(RECEIPT | {"example": example | {"signature": "ab" * 32}})  # type: ignore[arg-type]
    assert "model.sig covers all files" in signed


def test_odds_follow_from_the_setting_and_the_planned_number_of_keys() -> None:
    said = odds_sentence(Parameters())
    assert "meets the paper's rule (at least 30 of 50 positions count) in 99.97% of cases" in said
    assert "is found" not in said, "it is no promise"
    assert WHY_CAPPED not in said
    said = odds_sentence(Parameters(), 312)
    assert "312 keys" in said
    assert power_text(math.log10(wrong_user_probability(50, 30, 0.2, 312))) in said
    said = odds_sentence(Parameters(positions=500, required_positions=400), 312)
    assert said.count('<span title="log10 = −') == 2, "very small odds are capped"
    assert said.count(WHY_CAPPED) == 1


def share(parameters: Parameters, of_a_row: float, d: int = 256) -> str:
    return f"{of_a_row * math.sqrt(parameters.noise_coordinates / d):.1f}%"


@pytest.mark.parametrize(
    ("parameters", "copies", "said"),
    [
        (many_recipients(256), 5, (share(many_recipients(256), 25), share(many_recipients(256), 12.5), "are marked")),
        (one_owner(256), 1, (share(one_owner(256), 10),)),
        (many_recipients(256, hides_rows=True), 5, ("25% of its length", "cannot tell them apart")),
        (Parameters(constraints=8, noise_coordinates=2, spread=0.0), 5, ("can be distinguished",)),
        (Parameters(constraints=8, noise_coordinates=8, scale=1000.0, spread=0.0), 5, ("can be distinguished",)),
    ],
)
def test_note_on_a_setting_states_its_cost_and_its_limits(
    parameters: Parameters, copies: int, said: tuple[str, ...]
) -> None:
    (note,) = consequences(parameters, 256, copies)
    for words in said:
        assert words in note
    assert consequences(Parameters(), 4096, 1) == []


def test_preset_without_noise_cautions_only_if_there_are_many_recipients() -> None:
    (note,) = cautions(Parameters(), 256, 5)
    assert "see every mark" in note
    for parameters, copies in ((Parameters(), 1), (many_recipients(256), 5), (one_owner(256), 1)):
        assert cautions(parameters, 256, copies) == []


def test_receipt_states_the_corrected_odds_of_a_verdict() -> None:
    receipt = {"count": 48, "present": 50, "log10_p": -13.0, "log10_risk": -12.0}
    assert reading_text(receipt, "positions") == "48 of 50 positions, probability by chance: 1.00 × 10⁻¹²"
    del receipt["log10_risk"]
    assert reading_text(receipt) == "48 of 50, probability by chance: 1.00 × 10⁻¹³ before corrections"
    assert receipt_rows(RECEIPT)[0][3] == "50 of 50, probability by chance: less than 1 in 10³⁰"
    assert receipt_html(RECEIPT).count(WHY_CAPPED) == 1


def test_permutations_beyond_memory_are_refused_before_start() -> None:
    with pytest.raises(ParameterError) as caught:
        check_memory(Parameters(permutations=1_000_000), 8192)
    assert "permutations" in (caught.value.expected or "")
    check_memory(Parameters(), 8192)
    few, many = (memory_needed(Parameters(positions=l, permutations=99), 8192) for l in (50, 10_000))
    assert many - few > 9950 * 8192 * 8  # each position has its own order


@pytest.mark.parametrize("preset", [STANDARD, MANY, PAPER])
def test_a_presets_fields_are_its_parameters(preset: str) -> None:
    """The first ones depend on the width of the model."""
    _, constraints, scale, hidden, noise, choice, spread = SettingsForm.choose(preset, 256)
    values = (50, float(constraints), 0.2, 30, scale, hidden, 30.0, 1000, float(noise), choice, spread)
    assert SettingsForm.parameters(preset, *values) == preset_parameters(preset, 256)
    usual = {STANDARD: one_owner(64), MANY: many_recipients(64), PAPER: Parameters()}[preset]
    assert SettingsForm.choose(preset, 64)[1] == usual.constraints


FIELDS: tuple[Any, ...] = (50, 10, 0.2, 30, "auto", True, 30.0, 1000, 8, "added", 0.1)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [*((4, scale) for scale in ("a lot", "", None, "nan", "-1")), *((n, FIELDS[n] + 0.5) for n in (0, 1, 3, 7, 8))],
)
def test_invalid_scale_or_a_decimal_for_a_whole_number_is_refused(place: int, wrong: Any) -> None:
    with pytest.raises(ParameterError):
        SettingsForm.parameters(STANDARD, *FIELDS[:place], wrong, *FIELDS[place + 1 :])
    of_numbers = SettingsForm.parameters(STANDARD, *FIELDS[:9], "row", 0.25)
    assert (of_numbers.noise_level, of_numbers.spread) == ("row", 0.0), "noise over numbers has no fingerprint"


def test_preview_counts_recipients_and_lists_faulty_lines() -> None:
    found = read_list("recipient\n" + "\n".join(f"<i>{n}</i>" for n in range(8)))
    said = preview_html(found, [Recipient("<i>0</i>")], 2)
    for words in ("8 recipients", "and 3 more", "1 recipient (", "7 copies will be created", "2 records in the vault"):
        assert words in said
    assert "<i>" not in said
    said = preview_html(read_list("\n".join(["Acme", *["acme"] * 12])), [], 0)
    for words in ("12 lines in the list", "line 2: acme is the same recipient as on line 1", "and 4 more"):
        assert words in said


def test_receipt_for_many_counts_copies_disk_space_and_changes() -> None:
    card = receipt_html(RECEIPT)
    for said in (
        "1 copy of 3 requested", "1 already existed", "1 could not be written", "6.0 MB", "share another 4.0 MB",
        "even in a mixture",
    ):  # fmt: skip
        assert said in card
    without = RECEIPT | {"parameters": Parameters().to_dict()}
    assert "a mixture of several copies does not" in receipt_html(without)
    noisy = changed_text(RECEIPT["example"], 4096)
    assert "4\u00a0095 of 4\u00a0096 rows of wte and head, usually by about 23%" in noisy
    exact = {"changed_tensors": ["wte"], "changed_rows": 50, "changed_values": 500, "changed_share": 0.1}
    assert changed_text(exact, 4096).startswith("500 numbers in 50 of 4\u00a0096 rows of wte;")
    assert "%" not in changed_text(RECEIPT["example"] | {"changed_share": None}, 4096)
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
