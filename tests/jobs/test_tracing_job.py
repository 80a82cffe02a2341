"""Investigate with recipients whose copies carry noise: tracing first, then the rank rule, in a real child process."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import ParameterError
from irwm.report import from_json, render_html, reproduce
from irwm.report.answer import MADE, answer
from irwm.report.figures import document_figures
from irwm.report.items import after_controls
from irwm.report.sweep import outcome, summary
from irwm.report.tracing_words import accuses
from storage import Jobs, Vault
from storage.job_table import Job
from tests.jobs.recipients import (
    averaged,
    jobs_of,
    make_keys,
    new_vault,
    put_in_vault,
    request,
    run_here,
    run_job,
    succeeded,
)
from tools.small_models import write_llama
from ui.components.finding_card import finding_card
from ui.components.finding_view import read_others
from ui.components.ranking import ranking_html
from ui.jobs import requests

NAMES = ["Ada", "Ben", "Cleo", "Dora", "Emil", "Finn"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model of 3 000 × 64, six recipients' keys, four copies, and the mean of three of them."""
    root = tmp_path_factory.mktemp("tracing")
    path = write_llama(root / "original", vocab_size=3000)
    model = irwm.open_checkpoint(path)
    keys = make_keys(model, NAMES)
    copies = [irwm.insert(model, key, root / key.recipient).path for key in keys[:4]]
    return {
        "path": path,
        "model": model,
        "keys": keys,
        "copies": [Path(copy) for copy in copies],
        "mean": averaged([Path(copy) for copy in copies[:3]], root / "mean-of-3"),
        "unrelated": write_llama(root / "unrelated", vocab_size=1000, seed=5, hidden_size=32),
    }


class Traced(NamedTuple):
    """A finished investigation: its job, its document, and where both were filed."""

    job: Job
    document: dict[str, Any]
    vault: Vault
    jobs: Jobs


def investigate(world: dict[str, Any], vault: Vault, jobs: Jobs, suspect: Path, run=run_here, **changes: Any) -> Traced:
    if not vault.keys():
        put_in_vault(vault, world["keys"])
    job = succeeded(run("investigate", request(world["path"], None, suspect=str(suspect), **changes), vault, jobs))
    return Traced(job, from_json(jobs.files(job.id).read(job.result["json"])), vault, jobs)


@pytest.fixture(scope="module")
def of_mean(world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """The mean of three copies, investigated in a real child process."""
    vault = new_vault(tmp_path_factory.mktemp("mean") / "home")
    return investigate(world, vault, jobs_of(vault), world["mean"], run_job)


@pytest.fixture(scope="module")
def of_copy(world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """One recipient's copy. Its document is shared: copy it before any change."""
    vault = new_vault(tmp_path_factory.mktemp("copy") / "home")
    return investigate(world, vault, jobs_of(vault), world["copies"][3])


@pytest.mark.slow
def test_a_mean_of_three_copies_names_exactly_those_three_and_passes_its_self_tests(of_mean: Traced) -> None:
    job, document, *_ = of_mean
    verdict, tracing = document["verdict"], document["tracing"]
    assert (verdict["word"], verdict["rests_on"]) == ("found", "tracing")
    assert {row["recipient"] for row in job.result["rows"] if row["named"]} == {"Ada", "Ben", "Cleo"}
    assert job.result["keys_tried"] == document["evaluation"]["keys_tried"] == 6
    assert tracing["named"] == 3
    assert 2.5 < tracing["copies_estimated"] < 3.5
    assert tracing["log10_risk"] <= -6
    for row in job.result["rows"][:3]:
        assert row["trace_log10_risk"] <= -6
        assert 0.25 < row["share"] < 0.45
        assert row["rows"] == 3000
    sentence = finding_card(document).sentence
    assert sentence.startswith("The suspect was made from at least the copies of ")
    assert (
        "(about 3 copies in all). The chance of naming anyone whose copy was not used is less than 1 in 10" in sentence
    )
    assert all(f"“{name}”" in sentence for name in NAMES[:3])
    assert not [name for name in NAMES[3:] if name in sentence]
    assert of_mean.vault.case_runs(job.result["case_id"])[0].verdict == "found"

    assert [test["verdict"] for test in document["self_tests"]] == [test["expected"] for test in document["self_tests"]]
    decoys = document["self_tests"][-1]
    assert (decoys["count"], decoys["present"]) == (0, 200)
    page = of_mean.jobs.files(job.id).read(job.result["html"]).decode("utf-8")
    for words in ("3. Recipients", "not named", "whose copy was it made from?", "equation 3", "dated before"):
        assert words in page
    if document["verdict"]["mark"] != "found":
        assert "on its own, the likeliest recipient’s mark" in " ".join(document["verdict"]["warnings"])


@pytest.mark.slow
@pytest.mark.parametrize("ask", [requests.investigate, requests.trace])
def test_keys_created_after_the_request_are_tried(world, vault, jobs, ask) -> None:
    """Copies protected while the request is in the queue must not be "not found"."""
    put_in_vault(vault, world["keys"][:1])
    asked = ask(vault, jobs, world["copies"][2], world["path"], world["model"].fingerprint)
    put_in_vault(vault, world["keys"][1:])
    job = succeeded(run_here(asked.kind, asked.request.to_json(), vault, jobs))
    assert (job.result["keys_tried"], job.result["keys_held"]) == (6, 6)
    assert (job.result["verdict"], job.result["rows"][0]["recipient"]) == ("found", "Cleo")


@pytest.mark.slow
@pytest.mark.parametrize("since", ["2025-05-03T00:00:00+00:00", None])
def test_suspect_that_is_said_to_be_older_than_its_key_is_contradicted(world, vault, jobs, since: str | None) -> None:
    """None stands for today: a key that was made on that day contradicts nothing."""
    seen = datetime.now(UTC).isoformat() if since is None else since
    document = investigate(world, vault, jobs, world["copies"][3], seen_utc=seen).document
    assert document["case"][MADE] == datetime.now(UTC).date().isoformat()
    assert bool(answer(document).caution) == bool(since)


@pytest.mark.slow
def test_single_copy_names_one_recipient_and_its_mark_is_found(world, of_copy: Traced) -> None:
    job, document, _, jobs = of_copy
    assert not answer(document).caution, "no date of the suspect was stated"
    assert document["verdict"]["mark"] == document["verdict"]["word"] == "found"
    assert finding_card(document).sentence.startswith("The suspect was made from the copy of “Dora”. The chance")
    assert [row["mark"]["verdict"] for row in document["tracing"]["ranked"]] == ["found"] + ["not found"] * 5
    assert document["keys"] == {"tried": 6, "held": 6}
    others = read_others(jobs.files(job.id), job.result["others"])
    assert [each["key"]["recipient"] for each in others] == [r["recipient"] for r in document["tracing"]["ranked"][1:]]
    assert {each["key"]["commitment"] for each in others} | {document["key"]["commitment"]} == {
        key.commitment for key in world["keys"]
    }


@pytest.mark.slow
@pytest.mark.parametrize("which", ["path", "unrelated"])
def test_model_that_was_not_leaked_names_no_recipient(world, vault, jobs, which: str) -> None:
    job, document, *_ = investigate(world, vault, jobs, world[which])
    assert document["verdict"]["word"] != "found"
    assert not [row for row in job.result["rows"] if row["named"]]
    sentence = finding_card(document).sentence
    assert "made from" not in sentence
    if which == "path":
        assert document["tracing"]["ranked"][0]["z"] is None
        assert "equals the original" in " ".join(document["verdict"]["warnings"])


@pytest.mark.slow
def test_every_number_is_reproduced_with_all_keys_and_with_some(world, vault, jobs) -> None:
    document = investigate(world, vault, jobs, world["mean"], statistic="sum", invariant="suspect", seed=4).document
    suspect = irwm.open_checkpoint(world["mean"])
    key = next(key for key in world["keys"] if key.commitment == document["key"]["commitment"])

    def differing(edit: Callable[[dict[str, Any]], None], *keys: irwm.Key) -> set[str]:
        edited = copy.deepcopy(document)
        edit(edited["tracing"])
        return {d.where for d in reproduce(edited, suspect, world["model"], key, keys=keys)}

    def several(tracing: dict[str, Any]) -> None:
        tracing.update(by="least squares", looks=2, maps=1, forms=1)
        tracing["ranked"][4]["named"] = True

    assert differing(lambda _: None) == differing(lambda _: None, *world["keys"]) == set()
    assert differing(lambda tracing: tracing["ranked"][0].update(z=tracing["ranked"][0]["z"] + 1)) == {
        "tracing.ranked[0].z"
    }
    names = {f"tracing.{name}" for name in ("by", "looks", "maps", "forms", "ranked[4].named")}
    assert names <= differing(several, *world["keys"])
    # The number of keys is taken from the report, so the odds that follow from it differ.
    assert "tracing.log10_risk" in differing(lambda tracing: tracing.update(keys_tried=7), *world["keys"])


@pytest.mark.slow
def test_additional_reading_does_not_affect_the_verdict(world, vault, jobs, of_mean: Traced) -> None:
    plain = of_mean.document
    compared = investigate(world, vault, jobs, world["mean"], statistic="difference", seed=9).document
    assert compared["verdict"] == plain["verdict"]
    assert (compared["reading"]["statistic"], compared["seed"]) == ("joint", 0)
    (reading,) = compared["supporting"]
    assert (reading["statistic"], reading["seed"]) == ("difference", 9)
    assert "verdict" not in reading
    assert any("not enough for an accusation" in line for line in finding_card(compared).why)


@pytest.mark.slow
def test_non_finite_rows_do_not_hide_the_recipient(world, vault, jobs, tmp_path) -> None:
    suspect = shutil.copytree(world["copies"][3], tmp_path / "faulty", ignore=shutil.ignore_patterns("SHA256SUMS"))
    tensors = load_file(suspect / "model.safetensors")
    tensors["model.embed_tokens.weight"][40:42] = math.nan
    save_file(tensors, suspect / "model.safetensors", metadata={"format": "pt"})
    document = investigate(world, vault, jobs, suspect).document
    first = document["tracing"]["ranked"][0]
    assert (first["recipient"], first["named"]) == ("Dora", True)
    assert document["verdict"]["word"] == "found"
    assert accuses(document)


@pytest.mark.slow
def test_failed_control_makes_tracing_inconclusive(of_copy: Traced) -> None:
    named = of_copy.document
    assert accuses(named)
    assert "</svg>named" in ranking_html(named)
    assert "indicated" not in ranking_html(named) + render_html(named)

    document = copy.deepcopy(named)
    document["self_tests"][0]["verdict"] = "found"
    document["verdict"] = after_controls(document["verdict"], document["self_tests"])
    assert document["tracing"]["ranked"][0]["named"]
    assert document["verdict"]["word"] == "inconclusive"
    assert not accuses(document)
    for shown in (ranking_html(document), render_html(document)):
        assert "indicated" in shown
        assert "an inconclusive examination accuses no one" in shown
        for accusation in (">named<", "</svg>named", "is-named", "was made from", "recipients named"):
            assert accusation not in shown
    figure = document_figures(document)["figure-recipients"]
    assert "1 recipient indicated; 6 keys tried" in figure.to_json()
    assert "Dora" not in str(figure.layout)
    card = finding_card(document)
    # It names the mark that was searched for, and says that this examination cannot tell.
    assert card.sentence.startswith("This examination cannot")
    assert not any("named" in each.label for each in card.figures)
    assert outcome({"error": None} | summary(document)) == "inconclusive"


@pytest.mark.slow
def test_keys_without_noise_are_read_too_and_each_key_counts_once(world, vault, jobs) -> None:
    plain = irwm.generate_key(world["model"], secret=bytes(32), owner="Example Labs")
    ids = put_in_vault(vault, [*world["keys"], plain])
    asked = request(world["path"], [*ids, ids[0], *ids[::-1]], suspect=str(world["mean"]))
    job = succeeded(run_here("investigate", asked, vault, jobs))
    document = from_json(jobs.files(job.id).read(job.result["json"]))
    assert document["tracing"]["recipients"] == 6
    assert job.result["keys_tried"] == document["evaluation"]["keys_tried"] == 7
    assert [row["verdict"] for row in job.result["rows"] if "z" not in row] == ["not found"]
    assert [row["key_id"] for row in job.result["rows"] if row["named"]]
    assert len({row["key_id"] for row in job.result["rows"]}) == len(job.result["rows"]) == 7


@pytest.mark.slow
def test_hostile_names_are_inert_in_ranking_and_report(world, of_mean: Traced) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    with pytest.raises(ParameterError):
        make_keys(world["model"], [f"{nasty}\u202e"])
    (key,) = make_keys(world["model"], [nasty])
    assert key.recipient == nasty
    document = json.loads(json.dumps(of_mean.document).replace('"Ada"', json.dumps(nasty)))
    for page in (ranking_html(document), render_html(document)):
        assert "<img" not in page
        assert "&lt;img src=x" in page
