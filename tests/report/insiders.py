"""Reports that a person with the signing identity has altered.

An insider changes an input of a report (a name, a control, a reading), computes with this program all values that
follow from it, and signs. Only the models, the keys and the log can show the change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import irwm
from irwm.evidence.unrelated import agreement_of, kept_models
from irwm.report import SelfTest, finding_document
from irwm.report.error_rates import ErrorRates
from tests.report.conftest import Examined, hashed

World = dict[str, Any]


def rebuilt(honest: Examined, finding: irwm.Finding | None = None, **changes: Any) -> dict[str, Any]:
    """The document of a report with another finding or other details, and all values that follow from them."""
    return finding_document(finding or honest.finding, **honest.particulars | changes)


def _tests(honest: Examined, number: int, **changes: Any) -> tuple[SelfTest, ...]:
    tests = list(honest.particulars["self_tests"])
    tests[number] = replace(tests[number], **changes)
    return tuple(tests)


def _rates(honest: Examined, **changes: Any) -> ErrorRates:
    rates = honest.particulars["error_rates"]
    return ErrorRates(changes.get("decoys", rates.decoys), changes.get("neutral", rates.neutral))


def _weaker_decoys(honest: Examined, world: World) -> dict[str, Any]:
    decoys = honest.particulars["error_rates"].decoys
    weaker = replace(decoys, log10_p=decoys.log10_p / 2, log10_p_count=decoys.log10_p_count / 2)
    return rebuilt(honest, error_rates=_rates(honest, decoys=weaker))


def _other_neutral(honest: Examined, world: World) -> dict[str, Any]:
    """A neutral model that was found, reported as not found."""
    (model,) = honest.particulars["error_rates"].neutral
    other = model | {name: model[name] / 2 for name in ("similarity", "log10_risk")}
    tests = _tests(honest, -1, log10_risk=other["log10_risk"])
    return rebuilt(honest, error_rates=_rates(honest, neutral=(other,)), self_tests=tests)


def _other_lineage(honest: Examined, world: World) -> dict[str, Any]:
    """Attention that agrees less, and the corresponding place among unrelated models."""
    finding, alignment = honest.finding, honest.finding.alignment
    lineage = replace(finding.lineage, attention=finding.lineage.attention - 0.01)
    known = asdict(lineage) | {"needed": alignment.needed_similarity, "whole": alignment.whole}
    among = kept_models().place(agreement_of(known).value)
    return rebuilt(honest, replace(finding, lineage=replace(lineage, among=among)))


def _of_another_suspect(honest: Examined, world: World) -> dict[str, Any]:
    return rebuilt(honest, suspect=hashed(world["disguised"]))


def _with_another_key(honest: Examined, world: World) -> dict[str, Any]:
    """Read with the key that is in the suspect, and reported as another person's key."""
    other = world["other"]
    named = replace(honest.particulars["key_info"], owner=other.owner, recipient="Southwind")
    return rebuilt(honest, replace(honest.finding, commitment=other.commitment), key_info=named)


def _files(honest: Examined, world: World) -> dict[str, Any]:
    suspect = honest.particulars["suspect"]
    files = (replace(suspect.files[0], sha256="0" * 64), *suspect.files[1:])
    return rebuilt(honest, suspect=replace(suspect, files=files))


def _with_seed(honest: Examined, world: World) -> dict[str, Any]:
    """Read with the best of several seeds: a longer search gives a smaller chance."""
    return rebuilt(honest, irwm.detect(honest.suspect, honest.model, honest.key, seed=7))


# Alterations by an insider, and whether a verifier with all inputs calls them wrong (1) or not established (2).
BENDS: dict[str, tuple[Callable[[Examined, World], dict[str, Any]], int]] = {
    "another recipient": (
        lambda h, w: rebuilt(h, key_info=replace(h.particulars["key_info"], recipient="Southwind")),
        1,
    ),
    "another owner": (lambda h, w: rebuilt(h, key_info=replace(h.particulars["key_info"], owner="Copy Works")), 1),
    "another key": (_with_another_key, 1),
    "another scale": (lambda h, w: rebuilt(h, key_info=replace(h.particulars["key_info"], scale=0.5)), 1),
    "another suspect": (_of_another_suspect, 1),
    "another file": (_files, 1),
    "another family": (lambda h, w: rebuilt(h, suspect=replace(h.particulars["suspect"], family="gemma")), 1),
    "another size": (lambda h, w: rebuilt(h, original=replace(h.particulars["original"], heads=1)), 1),
    "another lineage": (_other_lineage, 1),
    "another seed": (_with_seed, 2),
    "more keys tried": (lambda h, w: rebuilt(h, irwm.detect(h.suspect, h.model, h.key, keys_tried=3), keys_held=3), 2),
    "no controls": (lambda h, w: rebuilt(h, self_tests=()), 2),
    "one control less": (lambda h, w: rebuilt(h, self_tests=h.particulars["self_tests"][1:]), 2),
    "a control of one’s own": (
        lambda h, w: rebuilt(h, self_tests=(*h.particulars["self_tests"], SelfTest("x", "found", "found", 1, 1, -9.0))),
        2,
    ),
    "a weaker control": (lambda h, w: rebuilt(h, self_tests=_tests(h, 1, count=0, log10_risk=0.0)), 1),
    "a control relabelled": (lambda h, w: rebuilt(h, self_tests=_tests(h, 1, expected="inconclusive")), 1),
    "no error rates": (lambda h, w: rebuilt(h, error_rates=None), 2),
    "no decoys": (lambda h, w: rebuilt(h, error_rates=_rates(h, decoys=None)), 2),
    "weaker decoys": (_weaker_decoys, 1),
    "no neutral model": (
        lambda h, w: rebuilt(h, error_rates=_rates(h, neutral=()), self_tests=h.particulars["self_tests"][:-1]),
        2,
    ),
    "another neutral model": (_other_neutral, 1),
}
