"""The strictest check: misses count as misses even if all other values are good, and come first on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.reproduce import survival
from benchmarks.reproduce.page import Page
from benchmarks.reproduce.trials import OURS, PAPER, without_files


def reading(verdict: str, count: int = 50) -> dict[str, Any]:
    found = {"verdict": verdict, "reason": f"It reads {verdict}.", "count": count, "present": 50, "positions": 50}
    return found | {"passes": count >= 30, "log10_risk": -88.0, "below": [1.0, 1.0, count / 50], "half": 1.0}


def trial(verdict: str = "found", **changes: Any) -> dict[str, Any]:
    good = verdict == "found"
    about = {"model": "demo", "mode": "single", "attack": "prune", "label": "Pruned", "group": "Damage", "value": 0.1}
    about |= {"strength": "10 %", "keeps_function": False, "reason": "", "seconds": 1.0, **change(0.1)}
    readings = {OURS: reading(verdict, 50 if good else 11), PAPER: reading(verdict, 50 if good else 9)}
    return about | {"readings": readings, "z": None, "named": None, "same": None} | changes


def change(value: float | str) -> dict[str, Any]:
    return {"utility": {"similarity": None, "change": value}}


def test_usable_means_perplexity_within_a_quarter_or_similar_encoder() -> None:
    for value, usable in ((0.25, True), (-0.4, True), (0.26, False), ("infinite", False)):
        assert survival.usable(trial(**change(value))) is usable
    for value, usable in ((0.95, True), (0.5, False)):
        assert survival.usable(trial(utility={"similarity": value, "change": None})) is usable
    assert survival.usable(trial(utility=None)) is None


def test_usable_copy_that_is_not_found_is_a_miss() -> None:
    missed = trial("not found", strength="missed")
    unsure = trial("inconclusive", strength="unsure")
    trials = [trial(), missed, unsure, trial("not found", **change(3.0)), trial(readings={}, reason="It cannot.")]
    assert survival.misses(trials) == [missed, unsure]


def test_unnamed_recipient_is_not_counted_as_a_miss() -> None:
    silent = trial(mode="multi", z=1.0, named=False)
    assert survival.unnamed([trial(mode="multi", z=40.0, named=True), silent, trial()]) == [silent]
    assert survival.misses([silent]) == []


def test_the_page_lists_misses_first_and_by_name(tmp_path: Path) -> None:
    trials = [
        trial(),
        trial("not found", strength="30 %"),
        trial("not found", strength="90 %", **change(30.0)),
        trial(mode="multi", z=44.0, named=True),
        trial(readings={}, utility=None, reason="The model has only one layer."),
        trial(same=False, keeps_function=True, strength="loud"),
        trial("inconclusive", attack="small-entries", label="Small entries redrawn", strength="20 %"),
    ]
    page = Page(tmp_path, "survival", "Survival")
    survival.write(page, {"trials": trials}, [{"name": "demo"}])
    text = page.write().read_text(encoding="utf-8")
    assert "missed in 2 (demo, single, Pruned 30 %; demo, single, Small entries redrawn 20 %)" in text
    assert "), and in 0 of these tracing by noise still names the recipient" in text
    first = text.split("## ")[1]
    assert first.startswith("Usable and not found")
    assert "| demo | single | Pruned | 30 % |" in first
    assert "| 90 % |" not in first
    assert "near zero and visible" in first
    assert "demo, single, Pruned 30 %: It reads not found." in first
    assert "loud" in text.split("## ")[3]
    assert "demo, Pruned: The model has only one layer." in text


def test_a_reason_names_no_file_of_the_machine() -> None:
    reason = (
        "these layers are missing. File: /tmp/some where/a.b/demo single. Expected: numbers from 0 to 1. Actual: 2."
    )
    assert without_files(reason) == "these layers are missing. Expected: numbers from 0 to 1. Actual: 2."
    assert without_files("it is broken. File: /tmp/x.y/z.") == "it is broken."
    assert without_files("The model is already a Llama model.") == "The model is already a Llama model."
