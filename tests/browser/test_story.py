"""An officer's work on two trained models in a real browser: protect, then examine an attacker's copies."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from transformers import AutoModel

import irwm
from irwm.report import reproduce
from storage import Vault
from tools.officer import investigate, place, protect
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser

ATTACKS = {
    "pruned": lambda release, out: irwm.attacks.prune(release, out, 0.3),
    "int8": lambda release, out: irwm.attacks.quantize(release, out, 8),
    "int4": lambda release, out: irwm.attacks.quantize(release, out, 4),
}


@pytest.fixture(scope="module", params=["demo", "minilm"])
def released(request, demo_path: Path, minilm_path: Path, running_app: RunningApp, page: Page) -> tuple[Path, Path]:
    """A trained model and its release for "First", next to a second release for "Second"."""
    model = place(demo_path if request.param == "demo" else minilm_path, running_app.root, request.param)
    release = running_app.root / f"{request.param}-first"
    protect(page, model, release, recipient="First")
    protect(page, model, running_app.root / f"{request.param}-second", recipient="Second")
    return model, release


def test_the_release_loads_in_transformers_and_the_manifest_verifies(released) -> None:
    _, release = released
    AutoModel.from_pretrained(release)
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=release, check=True)


@pytest.fixture(scope="module")
def report(released, page: Page) -> dict[str, Any]:
    """The report's JSON on the release, examined with all keys; the page then shows it."""
    model, release = released
    return investigate(page, release, model)


def test_the_release_is_found(report: dict[str, Any], page: Page) -> None:
    document = report
    assert document["verdict"]["word"] == "found"
    assert document["verdict"]["count"] >= 49
    assert document["evaluation"]["log10_p"] < -40
    assert document["key"]["recipient"] == "First"
    sentence = page.locator("#verdict .verdict-sentence")
    expect(sentence).to_contain_text("The suspect was made from the copy of “First”. The odds of naming")
    expect(page.locator("#recipients")).to_contain_text("Second")


@pytest.mark.sampled(2)
def test_the_original_is_not_found(released, page: Page) -> None:
    model, _ = released
    document = investigate(page, model, model)
    assert document["verdict"]["word"] == "not found"
    expect(page.locator("#verdict .verdict-word")).to_have_text("Not found")


@pytest.mark.sampled(2)
def test_a_release_of_another_key_is_not_found(released, page: Page) -> None:
    model, release = released
    document = investigate(page, release, model, only_key="Second")
    assert document["key"]["recipient"] == "Second"
    assert document["verdict"]["word"] == "not found"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_copy_is_found(released, page: Page, attack: str) -> None:
    model, release = released
    suspect = ATTACKS[attack](release, release.with_name(f"{release.name}-{attack}"))
    document = investigate(page, suspect, model, only_key="First")
    assert document["verdict"]["word"] == "found"
    assert document["evaluation"]["log10_p"] < -40


def test_the_json_reproduces_the_report(released, report: dict[str, Any], running_app: RunningApp) -> None:
    model, release = released
    document = copy.deepcopy(report)
    assert [test["verdict"] for test in document["self_tests"]] == ["not found"] * 4 + ["inconclusive", "not found"]
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    record = next(record for record in vault.keys() if record.commitment == document["key"]["commitment"])
    key = irwm.Key.from_bytes(vault.key_bytes(record.id))
    suspect, original = irwm.open_checkpoint(release), irwm.open_checkpoint(model)
    assert reproduce(document, suspect, original, key) == []
    document["evaluation"]["log10_p"] -= 1
    assert [difference.where for difference in reproduce(document, suspect, original, key)] == ["evaluation.log10_p"]
