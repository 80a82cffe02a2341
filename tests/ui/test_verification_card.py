"""The checks of a report as a list: each with a sign, a word and its sentence."""

from __future__ import annotations

from irwm.report.checks import BY_WHOM, HOLDS, NEEDED, NOT_ESTABLISHED, Check, Verification
from irwm.report.value_states import Stated, States
from ui.components.verification_card import checks_html

SIGNED = tuple(Check(name, True, "it fits") for name in ("files", "document", "signature", "certificates"))
KNOWN, UNKNOWN = (
    Check("identity", True, "as expected"),
    Check("identity", None, "the owner of this key is not known here"),
)
FOLLOWS, BAD = Check("numbers", True, "they follow"), Check("numbers", False, "report.json was changed")
LEFT = States(left=(Stated("the controls", "only a run shows it", ("self_tests*",), ("suspect", "key"), carries=True),))


def title(*checks: Check, states: States | None = None) -> str:
    return checks_html(Verification(checks, states or States())).split("<h2>")[1].split("</h2>")[0]


def test_page_outcome_equals_the_command_outcome() -> None:
    assert title(*SIGNED, KNOWN, FOLLOWS) == HOLDS
    assert title(*SIGNED, UNKNOWN, FOLLOWS) == f"{NOT_ESTABLISHED}: no expected signer was given. {BY_WHOM}"
    assert title(*SIGNED, KNOWN, BAD) == "Verification failed: report.json was changed."
    unshown = f"{NOT_ESTABLISHED}: the verdict depends on values for which there is only the signer’s word."
    assert title(*SIGNED, KNOWN, FOLLOWS, states=LEFT) == unshown
    assert title(Check("files", None, "there is no file", asked=True)) == "The report could not be checked"


def test_missing_inputs_are_listed_for_unverified_statements() -> None:
    html = checks_html(Verification((*SIGNED, KNOWN, FOLLOWS), LEFT))
    for need in ("suspect", "key"):
        assert NEEDED[need][1:] in html
    assert "The controls: only a run shows it" in html
    assert "needed" not in checks_html(Verification((*SIGNED, KNOWN, BAD), LEFT)), "it fails with any input"


def test_every_check_has_a_word_and_not_only_a_colour() -> None:
    html = checks_html(Verification((SIGNED[0], BAD, UNKNOWN)))
    assert [html.count(f"</svg>{word}<") for word in ("Passed", "Failed", "Not checked")] == [1, 1, 1]
    assert html.count("<svg") == 3
