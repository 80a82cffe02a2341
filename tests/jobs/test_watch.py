"""Many suspects on a hub and in folders: each is screened once, relatives are found, and no result is lost."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks import equivalence, quantize
from irwm.checkpoint.mlps import MLPs
from irwm.errors import CancelledError, IrwmError, ParameterError
from irwm.evidence.likeness import Reference
from storage import Jobs, Vault
from storage.job_files import ENDING
from storage.job_table import Job
from tests.jobs.conftest import quiet
from tests.jobs.recipients import protect_request, run_here, succeeded
from tools.hub import Hub
from tools.small_models import write_llama
from tools.waiting import until
from ui.jobs import requests, runner
from ui.jobs.reporter import JobReporter
from ui.jobs.results import outcome_of, result_of
from ui.jobs.vault_access import secrets_for
from ui.services import screening, watch
from ui.services.originals import candidates
from ui.services.request import WatchRequest
from ui.services.results import WatchRow
from ui.services.screening import NEURONS_NOT_AFFORDED, OutOfTimeError, OverBudgetError, Screen, deadline
from ui.services.stored_results import WATCH_ROWS, watch_rows, watches
from ui.services.watch import Listed, Log

MODEL: dict[str, Any] = {"vocab_size": 1200, "hidden_size": 64}
# Suspects of a watch that is killed again and again, and the number of results after which it is.
MANY, KILLED_AFTER = 200, 18


@pytest.fixture
def original(tmp_path: Path, vault: Vault, jobs: Jobs) -> Path:
    """An original with one release for "Ada" in tmp_path / "release"."""
    path = write_llama(tmp_path / "original", **MODEL)
    succeeded(run_here("protect", protect_request(path, tmp_path / "release", "Ada"), vault, jobs))
    return path


@pytest.fixture
def suspects(original: Path, tmp_path: Path) -> Path:
    """A folder with three relatives, an unrelated model, and a file that is not a model."""
    folder = tmp_path / "suspects"
    folder.mkdir()
    release = tmp_path / "release"
    shutil.copytree(release, folder / "copy")
    equivalence.disguise(release, folder / "disguised", ["rotate", "reorder_tokens"])
    quantize(release, folder / "quantised", 4)
    write_llama(folder / "unrelated", seed=9, vocab_size=1500, hidden_size=96)
    (folder / "broken.gguf").write_bytes(b"GGUF" + bytes(30))
    return folder


def watched(sources: list[str], vault: Vault, jobs: Jobs, **settings: Any) -> Job:
    asked = requests.watch(vault, sources, device="cpu", **settings)
    return succeeded(run_here("watch", asked.request.to_json(), vault, jobs))


def by_name(job: Job, jobs: Jobs) -> dict[str, WatchRow]:
    return {row["name"]: row for row in watch_rows(jobs.files(job.id))}


def word(row: WatchRow) -> str:
    return row["result"]["word"] if row["result"] else "failed"


@pytest.mark.slow
def test_relatives_are_found_and_an_unrelated_model_is_not_accused(suspects: Path, vault: Vault, jobs: Jobs) -> None:
    job = watched([str(suspects)], vault, jobs)
    rows = by_name(job, jobs)
    assert {name: word(row) for name, row in rows.items()} == {
        "copy": "found", "disguised": "found", "quantised": "found", "unrelated": "no match", "broken.gguf": "failed",
    }  # fmt: skip
    for name in ("copy", "disguised", "quantised"):
        result = rows[name]["result"]
        assert result is not None
        assert (result["whose"], result["lineage"], Path(result["original"]).name) == (["Ada"], "derived", "original")
        assert result["log10_risk"] is not None
        assert result["log10_risk"] < -10
    assert rows["broken.gguf"]["error"] is not None
    assert "broken.gguf" in str(rows["broken.gguf"]["error"]["file"])
    assert Counter(job.result["counts"]) == {"found": 3, "no match": 1, "failed": 1}
    assert {row["name"] for row in job.result["rows"]} == {"copy", "disguised", "quantised"}
    assert (outcome_of(job), job.result["known"], job.result["failed"]) == ("found", 5, 1)
    answer = result_of(job)
    assert answer is not None
    assert answer["verdict"] == "found"
    assert not vault.cases()


@pytest.mark.slow
def test_nothing_is_screened_twice_and_changes_are(suspects: Path, tmp_path: Path, vault: Vault, jobs: Jobs) -> None:
    first = watched([str(suspects)], vault, jobs)
    second = watched([str(suspects)], vault, jobs)
    assert (second.result["counts"], second.result["known"]) == ({}, 5)
    assert by_name(first, jobs) == by_name(second, jobs)

    write_llama(suspects / "unrelated", seed=10, vocab_size=1500, hidden_size=96)
    write_llama(suspects / "new", seed=11, vocab_size=1500, hidden_size=96)
    third = watched([str(suspects)], vault, jobs, most=1)
    assert (third.result["counts"], third.result["sources"][0]["left"]) == ({"no match": 1}, 1)
    assert outcome_of(third) == "found"
    fourth = watched([str(suspects)], vault, jobs)
    assert (fourth.result["counts"], fourth.result["known"]) == ({"no match": 1}, 6)

    # Another key: those that resemble an original are looked at again. Another original: all of them.
    asked = protect_request(tmp_path / "original", tmp_path / "for-ben", "Ben")
    succeeded(run_here("protect", asked, vault, jobs))
    assert watched([str(suspects)], vault, jobs).result["counts"] == {"found": 3}
    other = write_llama(tmp_path / "other", seed=7, vocab_size=1500, hidden_size=96)
    succeeded(run_here("protect", protect_request(other, tmp_path / "for-cid", "Cid"), vault, jobs))
    assert watched([str(suspects)], vault, jobs).result["counts"] == {"found": 3, "no match": 2}


@pytest.mark.slow
def test_organisation_of_the_hub(
    hub: Hub, suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    for number, name in enumerate(("copy", "disguised", "unrelated")):
        hub.models[f"acme/{name}"] = f"{number:040x}", suspects / name
    job = watched(["hf://acme"], vault, jobs)
    rows = by_name(job, jobs)
    assert {name: word(row) for name, row in rows.items()} == {
        "acme/copy": "found", "acme/disguised": "found", "acme/unrelated": "no match"
    }  # fmt: skip
    assert rows["acme/copy"]["address"] == f"hf://acme/copy@{0:040x}"
    assert rows["acme/copy"]["result"] is not None
    assert rows["acme/copy"]["result"]["bytes"] > 0
    before = len(hub.requests)
    assert watched(["hf://acme"], vault, jobs).result["counts"] == {}
    assert len(hub.requests) == before + 1, "only the list is asked for"

    # A search that lists the same versions reads none of them again.
    searched = watched(["hf://?search=acme"], vault, jobs)
    assert (searched.result["counts"], searched.result["known"], len(hub.requests)) == ({}, 3, before + 2)
    assert by_name(searched, jobs)["acme/copy"]["result"] == rows["acme/copy"]["result"]

    hub.models["acme/unrelated"] = "f" * 40, suspects / "quantised"
    assert watched(["hf://acme"], vault, jobs).result["counts"] == {"found": 1}
    mirrors = suspects.parent / "cache" / "irwm" / "mirrors"
    kept = [result["kept"] for row in watch_rows(jobs.files(searched.id)) if (result := row["result"])]
    assert {bool(each) for each in kept[:2]} == {True}, "the bytes of a finding are evidence"
    assert all(Path(each).is_dir() for each in filter(None, kept))
    assert len(list(mirrors.glob("*/listing.json"))) == len(list(mirrors.glob("*/reads.jsonl"))) == 3, (
        "no other is kept"
    )


@pytest.mark.slow
def test_unrelated_suspect_costs_a_sample_of_its_embedding(
    hub: Hub, tmp_path: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    original = write_llama(tmp_path / "original", vocab_size=30_000, hidden_size=64)
    succeeded(run_here("protect", protect_request(original, tmp_path / "release", "Ada"), vault, jobs))
    large = write_llama(tmp_path / "large", seed=4, vocab_size=60_000, hidden_size=128)
    hub.models["acme/large"] = "a" * 40, large
    job = watched(["hf://acme"], vault, jobs)
    assert job.result["counts"] == {"no match": 1}
    row = by_name(job, jobs)["acme/large"]["result"]
    assert row is not None
    # 4 096 of 60 000 rows of 512 bytes, in 16 ranges. Their ends are widened to 64 KiB, and small gaps are read too.
    assert row["bytes"] <= hub.bytes_sent < (large / "model.safetensors").stat().st_size / 6
    assert len(hub.requests) < 40


@pytest.mark.slow
def test_suspects_of_an_unavailable_server_are_left_for_the_next_pass(
    hub: Hub, suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    for number in range(20):
        hub.models[f"acme/m{number:02}"] = f"{number:040x}", suspects / "unrelated"

    def refuse(handler: Any, file: Path, start: int, stop: int) -> bool:
        handler.send_json({"error": "x"}, 429, {"Retry-After": "86400"})
        return True

    hub.fault = refuse
    (suspects / "broken.gguf").unlink()
    job = watched([str(suspects), "hf://acme"], vault, jobs)
    here, there = job.result["sources"]
    assert (here["left"], job.result["counts"]["found"]) == (0, 3), "the other source is screened"
    failed = job.result["counts"]["failed"]
    assert failed + there["left"] == 20
    assert 3 <= failed <= 3 + 2 * (os.cpu_count() or 1), "those that were begun before"
    hub.fault = None
    again = watched(["hf://acme"], vault, jobs)
    assert again.result["counts"] == {"no match": there["left"]}


@pytest.mark.slow
def test_one_suspect_that_its_server_does_not_deliver_hides_no_others(
    hub: Hub, suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    for number, name in enumerate(("unrelated", "copy", "disguised")):
        hub.models[f"acme/{name}"] = f"{number:040x}", suspects / name

    def refuse(handler: Any, file: Path, start: int, stop: int) -> bool:
        if file.parent.name == "unrelated":
            handler.send_json({"error": "x"}, 429, {"Retry-After": "86400"})
        return file.parent.name == "unrelated"

    hub.fault = refuse
    result = watched(["hf://acme"], vault, jobs).result
    assert (result["counts"], result["sources"][0]["left"]) == ({"found": 2, "failed": 1}, 0)


def test_the_latest_result_of_another_source_is_taken(jobs: Jobs) -> None:
    files = jobs.files(jobs.create("watch", "Watch", {}).id)
    suspect, compared = Listed("s", "n", "a", "v"), watch._Compared("a", "b", frozenset())
    common = {"name": "x", "address": "a", "version": "v", "compared": "a", "keys": "b", "tries": 1, "error": None}
    newer: Any = {**common, "source": "t", "utc": "2026-02-01T00:00:00+00:00", "result": FOUND}
    older: Any = {**common, "source": "u", "utc": "2026-01-01T00:00:00+00:00", "result": RESULT}
    log = Log.begun(files, [], [newer, older], compared)
    log.take(suspect)
    assert log.rows() == list(watch_rows(files)) == [{**newer, "source": "s", "name": "n"}]
    assert not log.is_due(suspect)
    for changed in ({"keys": "c"}, {"compared": "c"}, {"error": ERROR}):
        log = Log.begun(jobs.files(jobs.create("watch", "Watch", {}).id), [], [{**newer, **changed}], compared)
        log.take(suspect)
        assert log.is_due(suspect), "it was made with other keys or originals, or is incomplete"


@pytest.mark.slow
def test_source_that_fails_is_reported_and_the_others_are_read(
    hub: Hub, suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "")
    (suspects / "broken.gguf").unlink()
    for name in ("copy", "disguised", "quantised"):
        shutil.rmtree(suspects / name)
    job = watched(["hf://acme", str(suspects)], vault, jobs)
    assert [row["error"] and row["error"]["type"] for row in job.result["sources"]] == ["RemoteError", None]
    assert (job.result["counts"], outcome_of(job)) == ({"no match": 1}, "inconclusive")
    assert not hub.requests, "the server is not allowed"


def test_requests_that_cannot_be_a_watch_are_refused(original: Path, vault: Vault, jobs: Jobs) -> None:
    for sources, settings in (([], {}), (["/tmp"], {"most": 0}), (["/tmp"], {"matching": "nobody"})):
        with pytest.raises(IrwmError):
            requests.watch(vault, sources, **settings)
    with pytest.raises(ParameterError):
        requests.watch(vault, ["hf://?sort=downloads"])


@pytest.mark.slow
def test_results_are_kept_for_each_source(suspects: Path, tmp_path: Path, vault: Vault, jobs: Jobs) -> None:
    """Also if watches of other sources were in between."""
    other = tmp_path / "other"
    write_llama(other / "model", seed=3, vocab_size=1500, hidden_size=96)
    assert watched([str(suspects)], vault, jobs).result["known"] == 5
    assert watched([str(other)], vault, jobs).result["known"] == 1
    both = watched([str(other), str(suspects)], vault, jobs)
    assert (both.result["counts"], both.result["known"]) == ({}, 6)
    assert watched([str(other)], vault, jobs).result["known"] == 1, "rows of other sources are not shown"
    failed = runner.start("watch", "Watch", asked_for(tmp_path / "nowhere", vault), secrets_for(vault), jobs)
    until(lambda: jobs.get(failed.id).is_over, "the end of a watch without a source")
    assert watched([str(suspects)], vault, jobs).result["counts"] == {}


@pytest.mark.slow
def test_incomplete_and_empty_sources_are_not_cleared(original: Path, tmp_path: Path, vault: Vault, jobs: Jobs) -> None:
    folder, empty = tmp_path / "linked", tmp_path / "empty"
    write_llama(folder / "model", seed=3, vocab_size=1500, hidden_size=96)
    (folder / "link").symlink_to(tmp_path / "release")
    empty.mkdir()
    job = watched([str(folder), str(empty)], vault, jobs)
    assert job.result["counts"] == {"no match": 1}, "what was listed is screened"
    linked, nothing = (row["error"] for row in job.result["sources"])
    assert "link" in linked["found"]
    assert "no models" in nothing["problem"]
    assert outcome_of(job) == "inconclusive"


@pytest.mark.slow
def test_original_that_could_not_be_compared_or_examined_leaves_it_open(
    suspects: Path, tmp_path: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_llama(tmp_path / "other", seed=7, **MODEL)
    succeeded(run_here("protect", protect_request(other, tmp_path / "for-cid", "Cid"), vault, jobs))
    request = WatchRequest.from_json(asked_for(suspects, vault))
    with pytest.raises(CancelledError):  # a job that does not run
        candidates(request, vault, JobReporter(jobs, jobs.create("watch", "Watch", {}).id))
    job = jobs.create("watch", "Watch", {})
    jobs.start(job.id, os.getpid())
    found, _ = candidates(request, vault, JobReporter(jobs, job.id))
    screen = Screen(found, request, "cpu", tmp_path, b"draw")
    unmarked, unrelated = tmp_path / "original", suspects / "unrelated"
    assert (screen.screened(unmarked)[0]["word"], screen.screened(unrelated)[0]["word"]) == ("not found", "no match")

    monkeypatch.setattr(screening, "LEAST_LIKENESS", -1.0)
    monkeypatch.setattr(screening, "SHARE_OF_BEST", -1e9)
    real = Screen._read

    def fails_for_other(self: Screen, suspect: irwm.Checkpoint, work: Any, candidate: Any) -> Any:
        if candidate.original.path.name == "other":
            raise OverBudgetError("this suspect takes longer")
        return real(self, suspect, work, candidate)

    monkeypatch.setattr(Screen, "_read", fails_for_other)
    one_failed, _ = screen.screened(unmarked)
    assert one_failed["word"] == "inconclusive"
    assert "other" in one_failed["reason"]
    monkeypatch.setattr(Reference, "likeness", lambda self, suspect: math.nan)
    monkeypatch.setattr(screening, "difference", lambda one, other: math.inf)
    unpaired, _ = screen.screened(unrelated)
    assert unpaired["word"] == "inconclusive"
    assert "original, other" in unpaired["reason"] or "other, original" in unpaired["reason"]


@pytest.mark.slow
def test_killed_watch_loses_nothing_and_screens_nothing_twice(
    original: Path, tmp_path: Path, vault: Vault, jobs: Jobs
) -> None:
    folder = tmp_path / "many"
    for number in range(MANY):
        write_llama(folder / f"m{number:03}", seed=100 + number, vocab_size=300, hidden_size=32)
    screened: list[tuple[str, str]] = []
    over, before, kills = False, 0, -1
    while not over:
        kills += 1
        job = runner.start("watch", "Watch", asked_for(folder, vault), secrets_for(vault), jobs)
        over = killed_after(job.id, before + KILLED_AFTER, jobs)
        rows = list(watch_rows(jobs.files(job.id)))
        before = len(rows)
        screened += [(row["name"], row["utc"]) for row in rows]
    assert len({name for name, _ in screened}) == len(rows) == MANY
    assert len(set(screened)) == MANY, "each was screened once"
    assert kills >= 10


@pytest.mark.slow
def test_repeated_watch_goes_on_until_it_is_stopped(suspects: Path, tmp_path: Path, vault: Vault, jobs: Jobs) -> None:
    """Also after a pass with an error; another original and another watch of the same folder meanwhile count too."""
    request = asked_for(suspects, vault, every=0.0003)
    id = runner.start("watch", "Watch", request, secrets_for(vault), jobs).id
    until(lambda: jobs.get(id).state == "resting", "the end of the first pass")
    resting = jobs.get(id)
    assert (resting.result["known"], resting.what[:12]) == (5, "Next pass on")

    (tmp_path / "original").rename(tmp_path / "moved")
    until(lambda: jobs.get(id).error is not None, "a pass without an original")
    assert (jobs.get(id).result["known"], jobs.get(id).is_over) == (5, False)
    (tmp_path / "moved").rename(tmp_path / "original")
    until(lambda: jobs.get(id).error is None, "another pass")

    write_llama(suspects / "new", seed=11, vocab_size=1500, hidden_size=96)
    once = runner.start("watch", "Watch", asked_for(suspects, vault), secrets_for(vault), jobs).id
    until(lambda: jobs.get(once).is_over, "the end of another watch")
    until(lambda: jobs.get(id).result["known"] == 6, "its result in a pass")
    other = write_llama(tmp_path / "other", seed=7, vocab_size=1500, hidden_size=96)
    succeeded(run_here("protect", protect_request(other, tmp_path / "for-cid", "Cid"), vault, jobs))
    until(lambda: jobs.get(id).result["originals"] == 2, "a pass with two originals")
    with pytest.raises(runner.JobRunningError):
        runner.start("watch", "Watch", request, secrets_for(vault), jobs)

    stopped = runner.stop(id, jobs)
    assert (stopped.state, outcome_of(jobs.get(id))) == ("stopped", "stopped")
    rows = [(row["name"], row["utc"]) for row in watch_rows(jobs.files(id))]
    assert {name for name, _ in rows} == {*by_name(jobs.get(once), jobs)}
    assert len(set(rows)) == len(rows), "no result is kept twice"


@pytest.mark.slow
def test_cluster_gives_the_same_results(suspects: Path, vault: Vault, jobs: Jobs, cluster: Any) -> None:
    with quiet():
        there = by_name(watched([str(suspects)], vault, jobs, scheduler=cluster.scheduler_address), jobs)
        assert set(cluster_screens(cluster)) == {False}, "keys stay in no worker"
    shutil.rmtree(jobs.folder(next(watches(jobs)).id))
    here = by_name(watched([str(suspects)], vault, jobs), jobs)
    assert {name: word(row) for name, row in there.items()} == {name: word(row) for name, row in here.items()}
    for name, row in here.items():
        if row["result"]:
            assert there[name]["result"] == row["result"] | {
                each: there[name]["result"][each] for each in ("seconds", "likeness")
            }, "other rows are sampled in each pass"


def cluster_screens(cluster: Any) -> list[bool]:
    """Whether each worker still has originals and keys."""
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        return list(client.run(_has_screen).values())


def _has_screen() -> bool:
    return watch._Here.screen is not None


@pytest.mark.slow
def test_worker_of_a_cluster_that_ends_costs_its_suspect_only(
    suspects: Path, vault: Vault, jobs: Jobs, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_screened", _screened_or_end)
    with quiet():
        rows = by_name(watched([str(suspects)], vault, jobs, scheduler=cluster.scheduler_address), jobs)
    assert {name: word(row) for name, row in rows.items()} == {
        "copy": "found", "disguised": "found", "quantised": "failed", "unrelated": "no match", "broken.gguf": "failed",
    }  # fmt: skip


def asked_for(folder: Path, vault: Vault, **settings: Any) -> dict[str, object]:
    return requests.watch(vault, [str(folder)], device="cpu", **settings).request.to_json()


def killed_after(id: str, rows: int, jobs: Jobs) -> bool:
    """Kills a watch once it has so many rows; whether it was over before."""
    until(lambda: jobs.get(id).is_over or len(list(watch_rows(jobs.files(id)))) >= rows, "rows")
    job = jobs.get(id)
    if job.is_over:
        return True
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: jobs.get(id).is_over, "the end of a killed job")
    return False


def log_of(
    jobs: Jobs, id: str, now: datetime, originals: str = "a", keys: str = "b", paths: tuple[str, ...] = ("/m/base",)
) -> Log:
    log = Log(jobs.files(id), watch._Compared(originals, keys, frozenset(paths)), now)
    for row in watch_rows(jobs.files(id)):
        log._keep(row)
    return log


RESULT: Any = {
    "part": "", "word": "no match", "whose": [], "reason": "", "original": "", "likeness": None, "lineage": "",
    "log10_risk": None, "bytes": 0, "seconds": 0.0,
}  # fmt: skip
ERROR = {"type": "RemoteError", "problem": "x"}


def test_failed_suspects_are_tried_again_later_and_later(jobs: Jobs) -> None:
    id = jobs.create("watch", "Watch", {}).id
    suspect, now = Listed("s", "n", "a", "v"), datetime(2026, 1, 1, tzinfo=UTC)
    for hours in (1, 2, 4, 8):
        log = log_of(jobs, id, now)
        assert log.is_due(suspect)
        log.add(suspect, (None, ERROR))
        assert not log_of(jobs, id, now + timedelta(hours=hours, seconds=-1)).is_due(suspect)
        now += timedelta(hours=hours)
    assert log_of(jobs, id, now).rows()[0]["tries"] == 4
    log_of(jobs, id, now).add(suspect, (RESULT, None))
    assert not log_of(jobs, id, now + timedelta(days=99)).is_due(suspect)
    assert log_of(jobs, id, now, originals="c").is_due(suspect)
    assert not log_of(jobs, id, now, keys="c").is_due(suspect), "it resembles no original"
    log_of(jobs, id, now).add(suspect, (RESULT | {"word": "found"}, None))
    assert log_of(jobs, id, now, keys="c").is_due(suspect)
    assert log_of(jobs, id, now).is_due(Listed("s", "n", "a", "")), "the server states no version"


FOUND: Any = RESULT | {
    "word": "found", "whose": ["Ada"], "original": "/m/base", "lineage": "derived", "log10_risk": -30.0,
}  # fmt: skip


def test_error_and_narrower_comparison_replace_no_finding(jobs: Jobs) -> None:
    """The attacker may close the repository, and an original may be on a disk that is not connected."""
    id, now = jobs.create("watch", "Watch", {}).id, datetime(2026, 1, 1, tzinfo=UTC)
    suspect = Listed("s", "n", "a", "v")
    log_of(jobs, id, now).add(suspect, (FOUND, None))
    refused = log_of(jobs, id, now, keys="c").add(suspect, (None, ERROR))
    assert (refused["result"], refused["error"]) == (FOUND, ERROR)
    later = now + timedelta(hours=2)
    assert log_of(jobs, id, later, keys="c").is_due(suspect), "it was not compared with these keys yet"
    for paths, looked in ((("/m/other",), (RESULT, None)), (("/m/base",), (RESULT, ERROR)), (
        ("/m/base",), (RESULT | {"word": "inconclusive"}, None))):  # fmt: skip
        assert log_of(jobs, id, later, "d", "d", paths).add(suspect, looked)["result"] == FOUND
    assert log_of(jobs, id, later).rows()[0]["result"] == FOUND, "it is on the disk"
    assert log_of(jobs, id, later).add(suspect, (RESULT, None))["result"] == FOUND, "no key was tried on these rows"
    other = RESULT | {"word": "not found", "original": "/m/other"}
    assert log_of(jobs, id, later).add(suspect, (other, None))["result"] == FOUND, "its keys were not tried again"
    weaker = RESULT | {"word": "not found", "original": "/m/base"}
    assert log_of(jobs, id, later).add(suspect, (weaker, None))["result"] == weaker, "a complete comparison counts"
    assert log_of(jobs, id, later, paths=()).add(suspect, (FOUND, None))["result"] == FOUND


@pytest.mark.slow
def test_damaged_file_beside_a_marked_copy_hides_nothing(
    hub: Hub, suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    repository = suspects.parent / "repository"
    shutil.copytree(suspects / "copy", repository / "copy")
    shutil.copyfile(suspects / "broken.gguf", repository / "z.gguf")
    hub.models["acme/mixed"] = "a" * 40, repository
    job = watched(["hf://acme", "hf://?search=mixed"], vault, jobs)
    (row,) = watch_rows(jobs.files(job.id))
    result = row["result"]
    assert result is not None
    assert (result["word"], result["part"]) == ("found", "copy")
    assert row["error"] is not None
    assert "z.gguf" in str(row["error"]["file"])
    assert (outcome_of(job), job.result["failed"]) == ("found", 1)
    assert [source["listed"] for source in job.result["sources"]] == [1, 1], "screened once, although listed twice"
    mirrors = suspects.parent / "cache" / "irwm" / "mirrors"
    assert mirrors.is_dir()
    assert [result["kept"]] == [str(path.parent) for path in mirrors.glob("*/model/*/copy")], "the rest is removed"


@pytest.mark.slow
def test_relative_beyond_the_budget_is_inconclusive(
    hub: Hub, suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    for number, name in enumerate(("copy", "unrelated")):
        hub.models[f"acme/{name}"] = f"{number:040x}", suspects / name
    job = watched(["hf://acme"], vault, jobs, most_bytes=1000)
    rows = by_name(job, jobs)
    assert {name: word(row) for name, row in rows.items()} == {
        "acme/copy": "inconclusive", "acme/unrelated": "no match",
    }  # fmt: skip
    result, error = rows["acme/copy"]["result"], rows["acme/copy"]["error"]
    assert result is not None
    assert error is not None
    assert "original" in result["reason"]
    assert error["type"] == "OverBudgetError"
    assert outcome_of(job) == "inconclusive"


@pytest.mark.slow
def test_relative_with_neurons_beyond_the_budget_is_inconclusive(
    hub: Hub, tmp_path: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mark in its embedding and head. With a larger budget it is not found."""
    monkeypatch.setenv("IRWM_SERVERS", "127.0.0.1")
    original = write_llama(tmp_path / "original", **MODEL, intermediate_size=8192)
    noisy = irwm.Parameters(constraints=5, noise_coordinates=4).to_dict()
    asked = protect_request(original, tmp_path / "noisy", "Bea", parameters=noisy)
    succeeded(run_here("protect", asked, vault, jobs))
    assert MLPs(irwm.open_checkpoint(original)).bytes_of_gates > 1_500_000
    results = []
    for number, most in enumerate((1 << 30, 1_500_000)):
        name = f"acme/relative{number}"
        relative = shutil.copytree(original, tmp_path / name)
        tensors = load_file(relative / "model.safetensors")
        tensors["model.embed_tokens.weight"][number : number + 100] *= 1.01
        save_file(tensors, relative / "model.safetensors", metadata={"format": "pt"})
        hub.models = {name: (str(number) * 40, relative)}
        job = watched(["hf://acme"], vault, jobs, most_bytes=most)
        results.append(by_name(job, jobs)[name]["result"])
    assert [(each["word"], each["lineage"]) for each in results if each] == [
        ("not found", "derived"), ("inconclusive", "derived"),
    ]  # fmt: skip
    assert NEURONS_NOT_AFFORDED in results[1]["reason"]  # type: ignore[index]


def test_waiting_for_a_server_ends_with_the_time_of_a_suspect() -> None:
    began = time.monotonic()
    with pytest.raises(OutOfTimeError), deadline(began + 0.2):
        time.sleep(30)
    assert time.monotonic() - began < 10
    with deadline(time.monotonic() + 0.2):
        pass
    time.sleep(0.4)
    with pytest.raises(OutOfTimeError), deadline(began):
        time.sleep(30)


def test_part_beyond_the_budget_hides_no_other_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write_llama(tmp_path / "model" / name)
    tried: list[str] = []

    class Refusing:
        seconds = 60.0

        def screened(self, path: Path) -> Any:
            tried.append(path.name)
            if path.name == "a":
                raise OverBudgetError("its embedding is larger than the budget of this watch")
            return FOUND, None

    monkeypatch.setattr(watch._Here, "screen", Refusing())
    result, error = watch._screened(str(tmp_path / "model"))
    assert tried == ["a", "b"]
    assert result is not None
    assert error is not None
    assert (result["word"], result["part"], error["type"]) == ("found", "b", "OverBudgetError")


def test_any_error_of_one_suspect_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_llama(tmp_path / "model")

    class Failing:
        seconds = 60.0

        def screened(self, path: Path) -> Any:
            raise MemoryError("large")

    monkeypatch.setattr(watch._Here, "screen", Failing())
    result, error = watch._screened(str(model))
    assert result is None
    assert error is not None
    assert (error["found"], error["file"]) == ("MemoryError", str(model))
    assert error["advice"]


def test_row_that_was_cut_short_costs_itself_only(jobs: Jobs) -> None:
    id = jobs.create("watch", "Watch", {}).id
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for name in "abc":
        log_of(jobs, id, now).add(Listed("s", name, name, "v"), (RESULT, None))
    path = jobs.folder(id) / f"{WATCH_ROWS}{ENDING}"
    path.write_bytes(path.read_bytes()[:-9])
    assert [row["name"] for row in watch_rows(jobs.files(id))] == ["a", "b"]
    log_of(jobs, id, now).add(Listed("s", "d", "d", "v"), (RESULT, None))
    assert [row["name"] for row in watch_rows(jobs.files(id))] == ["a", "b", "d"], "the next row follows the cut one"
    path.write_bytes(path.read_bytes() + b"\n" + b"not sealed: " + json.dumps({"name": "x"}).encode() + b"\n")
    assert [row["name"] for row in watch_rows(jobs.files(id))] == ["a", "b", "d"]


@pytest.mark.slow
def test_suspect_that_ends_its_process_is_an_error_and_the_others_are_read(
    suspects: Path, vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system ends a process whose memory is too large: with SIGKILL."""
    monkeypatch.setattr(watch, "_screened", _screened_or_end)
    rows = by_name(watched([str(suspects)], vault, jobs), jobs)
    assert {name: word(row) for name, row in rows.items()} == {
        "copy": "found", "disguised": "found", "quantised": "failed", "unrelated": "no match", "broken.gguf": "failed",
    }  # fmt: skip
    assert "ended without a result" in str(rows["quantised"]["error"])

    for name in "abc":
        shutil.copytree(suspects / "unrelated", suspects / f"0{name}-quantised")
    shutil.copytree(suspects / "copy", suspects / "another")
    again = watched([str(suspects)], vault, jobs)
    assert again.result["counts"] == {"failed": 3, "found": 1}, "three in a row do not end the watch"


_REAL = watch._screened


def _screened_or_end(address: str) -> Any:
    """Runs in another process, like `_screened`."""
    if address.endswith("quantised"):
        os.kill(os.getpid(), signal.SIGKILL)
    return _REAL(address)


def test_names_of_suspects_are_sealed(jobs: Jobs) -> None:
    id = jobs.create("watch", "Watch", {}).id
    log_of(jobs, id, datetime(2026, 1, 1, tzinfo=UTC)).add(Listed("s", "Quuxholm", "a", "v"), (RESULT, None))
    assert b"Quuxholm" not in (jobs.folder(id) / f"{WATCH_ROWS}{ENDING}").read_bytes()
