"""A folder of suspects as one investigation: which files count, and what is kept if it ends early."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.checkpoint.candidates import DEEPEST, SweepFolderError, find_checkpoints
from irwm.report import from_json
from irwm.report.document import ReportError
from irwm.report.sweep import OVERVIEW_HTML, OVERVIEW_JSON, overview_html
from irwm.report.verify import verify_report
from storage import Jobs, Vault
from storage.job_files import JobFiles
from tests.jobs.recipients import averaged, given_out, make_keys, new_vault, put_in_vault, request, run_here, succeeded
from tools.small_models import write_llama
from tools.waiting import until
from ui.components.sweep_view import table_row
from ui.jobs import runner
from ui.jobs.requests import to_resume
from ui.jobs.results import files_of, outcome_of
from ui.jobs.vault_access import secrets_for
from ui.services import examining, sweep
from ui.services.request import SweepRequest
from ui.services.stored_results import overview_of


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("sweep")
    # Tied, so that a file without a config needs no search for a head of the embedding's size.
    path = write_llama(root / "original", vocab_size=1200, tie_word_embeddings=True)
    model = irwm.open_checkpoint(path)
    keys = make_keys(model, ["Ada", "Ben", "Cleo"])
    copies = [Path(irwm.insert(model, key, root / key.recipient).path) for key in keys[:2]]
    folder = root / "suspects"
    (folder / "deeper").mkdir(parents=True)
    averaged(copies, folder / "deeper" / "mean")
    (folder / "alone.safetensors").write_bytes((copies[0] / "model.safetensors").read_bytes())
    (folder / "broken.gguf").write_bytes(b"GGUF" + bytes(30))
    write_llama(folder / "other", vocab_size=1200, tie_word_embeddings=True)  # equal to the original
    return {"path": path, "keys": keys, "folder": folder, "copies": copies}


@pytest.fixture
def vault(world: dict[str, Any], tmp_path: Path) -> Vault:
    made = new_vault(tmp_path / "home")
    put_in_vault(made, world["keys"])
    return made


def asked(world: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return request(world["path"], None, folder=str(world["folder"]), resume="") | changes


def by_path(found: dict[str, Any]) -> dict[str, Any]:
    return {row["path"]: row for row in found["rows"]}


@pytest.mark.fault(81)
@pytest.mark.slow
def test_suspect_name_cannot_forge_a_log_line(world, vault, jobs, tmp_path: Path) -> None:
    name = "a\n12:00:00 Acme is found\x1b[2J\u202egnp\u2028x.gguf"
    folder = tmp_path / "received\n12:00:01 found"
    folder.mkdir()
    (folder / name).write_bytes(b"GGUF" + bytes(30))
    job = run_here("sweep", asked(world, folder=str(folder)), vault, jobs)
    log = jobs.log_tail(job.id)
    assert "Acme is found" in log
    assert all(line.isprintable() for line in log.split("\n"))
    assert not [line for line in log.split("\n") if line.startswith("12:00:0")]


@pytest.mark.slow
def test_each_suspect_is_a_run_in_one_case_and_a_broken_one_has_its_error(world, vault, jobs, tmp_path) -> None:
    job = succeeded(run_here("sweep", asked(world), vault, jobs))
    found = overview_of(jobs.files(job.id))
    rows = by_path(found)
    assert found["complete"]
    assert rows.keys() == {"alone.safetensors", "broken.gguf", "deeper/mean", "other"}
    assert (rows["alone.safetensors"]["verdict"], rows["alone.safetensors"]["whose"]) == ("found", ["Ada"])
    assert (rows["deeper/mean"]["verdict"], sorted(rows["deeper/mean"]["whose"])) == ("found", ["Ada", "Ben"])
    assert rows["other"]["verdict"] != "found"
    assert rows["broken.gguf"]["error"]["problem"]
    assert rows["broken.gguf"]["error"]["file"].endswith("broken.gguf")
    (case,) = vault.cases()
    runs = vault.case_runs(case.id)
    assert sorted(Path(run.suspect).name for run in runs) == ["alone.safetensors", "mean", "other"]
    assert {"sweep.html", "sweep.json", "sweep.signature.json"} <= files_of(job, jobs).keys()
    folder = given_out(jobs, job.id, tmp_path / "given")
    for row in found["rows"]:
        if row["error"] is None:
            document = from_json(jobs.files(job.id).read(row["json"]))
            assert document["verdict"]["word"] == row["verdict"]
            assert document in [run.finding for run in runs]
            name = row["json"].removesuffix(".json")
            (run,) = [run for run in runs if run.finding == document]
            assert sorted(run.files) == [f"{name}.json", f"{name}.pdf", f"{name}.signature.json"]
            checked = verify_report(folder / row["json"])
            assert checked.ok, [check for check in checked.checks if check.ok is False]
    page = jobs.files(job.id).read(OVERVIEW_HTML).decode("utf-8")
    assert "Found in 2 of 4 suspects" in page.replace('<span class="n">', "").replace("</span>", "")
    assert "1 could not be examined" in page.replace('<span class="n">', "").replace("</span>", "")


def rows_of(files: JobFiles) -> list[Any]:
    """The finished suspects of a sweep; none before there is an overview."""
    try:
        return list(overview_of(files)["rows"])
    except ReportError:
        return []


@pytest.mark.slow
def test_stopped_sweep_is_resumed_by_the_next(world, vault, jobs) -> None:
    id = runner.start("sweep", "Sweep", asked(world), secrets_for(vault), jobs).id
    until(lambda: rows_of(jobs.files(id)), "the sweep's first suspect", lambda: jobs.log_tail(id))
    assert runner.stop(id, jobs).state == "stopped"
    kept = overview_of(jobs.files(id))
    assert 1 <= len(kept["rows"]) < 4
    assert not kept["complete"]
    (case,) = vault.cases()
    before = len(vault.case_runs(case.id))

    assert to_resume(jobs, SweepRequest.from_json(jobs.get(id).request)) == id
    resumed = succeeded(run_here("sweep", asked(world, resume=id), vault, jobs))
    found = overview_of(jobs.files(resumed.id))
    assert found["complete"]
    assert len(found["rows"]) == 4
    assert found["rows"][: len(kept["rows"])] == kept["rows"]
    assert [case.id for case in vault.cases()] == [found["case_id"]]
    assert before <= len(vault.case_runs(case.id)) <= 4
    for row in found["rows"]:
        assert row["error"] is not None or row["json"] in jobs.files(resumed.id)
    assert to_resume(jobs, SweepRequest.from_json(resumed.request)) == ""


@pytest.mark.slow
def test_sweep_of_another_suspect_or_with_other_settings_is_not_resumed(world, vault, jobs, tmp_path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    suspect = folder / "a.safetensors"
    shutil.copy(world["copies"][0] / "model.safetensors", suspect)
    asking = asked(world, folder=str(folder))
    first = succeeded(run_here("sweep", asking, vault, jobs))
    assert first.result["settings"] == {"statistic": "joint", "invariant": "original", "seed": 0}
    assert [row["whose"] for row in first.result["rows"]] == [["Ada"]]
    case_id, other = first.result["case_id"], vault.add_case("Another case").id

    job = succeeded(run_here("sweep", asking | {"resume": first.id, "case_id": case_id}, vault, jobs))
    assert len(vault.case_runs(case_id)) == 1, "an equal request examines no suspect again"
    shutil.copy(world["copies"][1] / "model.safetensors", suspect)
    job = succeeded(run_here("sweep", asking | {"resume": first.id, "case_id": case_id}, vault, jobs))
    assert [row["whose"] for row in job.result["rows"]] == [["Ben"]]
    assert len(vault.case_runs(case_id)) == 2, "another suspect with the same name is examined"
    changes = {"resume": job.id, "seed": 9, "case_id": other, "matching": "cleo"}
    job = succeeded(run_here("sweep", asking | changes, vault, jobs))
    assert ([row["verdict"] for row in job.result["rows"]], job.result["keys"]) == (["not found"], 1)
    assert (job.result["settings"]["seed"], job.result["case_id"]) == (9, other)
    assert (len(vault.case_runs(other)), len(vault.case_runs(case_id))) == (1, 2)

    original, tried = first.result["original"], first.result["keys_sha256"]
    same = SweepRequest.from_json(asking | {"resume": first.id})
    files = sweep._resumed(same, vault)
    assert sweep._earlier(same, files, original, tried)
    each = {"statistic": "sum", "invariant": "suspect", "seed": 9, "case_id": other, "folder": str(tmp_path)}
    for name, value in each.items():
        assert sweep._earlier(replace(same, **{name: value}), files, original, tried) is None, name
    assert sweep._earlier(same, files, "0" * 64, tried) is None
    assert sweep._earlier(same, files, original, "0" * 64) is None


@pytest.mark.slow
def test_suspect_deleted_during_its_examination_is_an_error_row(world, vault, jobs, tmp_path, monkeypatch) -> None:
    """Deleted after it was read and before it is hashed for the report: a system error that does not end the sweep."""
    folder = tmp_path / "two"
    folder.mkdir()
    gone, stays = folder / "a.safetensors", folder / "b.safetensors"
    for place in (gone, stays):
        shutil.copy(world["folder"] / "alone.safetensors", place)
    hash_items = examining.hashes

    def delete_first(checkpoint: irwm.Checkpoint, *rest: Any) -> dict[str, str]:
        if checkpoint.path == gone:
            gone.unlink()
        return hash_items(checkpoint, *rest)

    monkeypatch.setattr(examining, "hashes", delete_first)
    job = succeeded(run_here("sweep", asked(world, folder=str(folder)), vault, jobs))
    rows = by_path(overview_of(jobs.files(job.id)))
    error = rows["a.safetensors"]["error"]
    assert (error["type"], error["file"]) == ("NotACheckpointError", str(gone))
    assert error["found"] == os.strerror(errno.ENOENT)
    assert rows["b.safetensors"]["verdict"] == "found"
    assert table_row(rows["a.safetensors"])[1:3] == ["failed", f"could not be examined: {error['problem']}"]
    assert error["problem"] in overview_html(overview_of(jobs.files(job.id)))
    (case,) = vault.cases()
    assert [Path(run.suspect) for run in vault.case_runs(case.id)] == [stays]


@pytest.mark.slow
def test_a_file_added_before_the_others_does_not_shift_their_documents(world, vault, jobs, tmp_path) -> None:
    folder = tmp_path / "suspects"
    folder.mkdir()
    shutil.copytree(world["copies"][0], folder / "leaked")
    first = succeeded(run_here("sweep", asked(world, folder=str(folder)), vault, jobs))
    shutil.copy(world["folder"] / "other" / "model.safetensors", folder / "added.safetensors")
    again = succeeded(run_here("sweep", asked(world, folder=str(folder), resume=first.id), vault, jobs))
    rows = by_path(overview_of(jobs.files(again.id)))
    assert {name: row["verdict"] for name, row in rows.items()} == {"added.safetensors": "not found", "leaked": "found"}
    for row in rows.values():
        document = from_json(jobs.files(again.id).read(row["json"]))
        assert document["verdict"]["word"] == row["verdict"]
        assert document["items"]["suspect"]["fingerprint"] == row["fingerprint"]


def test_a_folder_without_checkpoints_is_refused(world, vault, jobs, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    job = run_here("sweep", asked(world, folder=str(tmp_path / "empty")), vault, jobs)
    assert job.state == "failed"
    assert job.error["type"] == "SweepFolderError"
    assert not vault.cases()


def test_candidates_are_known_by_name_and_outside_links_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "model", root / "sharded", root / "two-files", root / ".hidden", outside, root / "pickles"):
        folder.mkdir(parents=True)
    for name in (
        "model/config.json", "model/model.safetensors", "model/q4.gguf", "sharded/model-00001-of-00002.safetensors",
        "sharded/model-00002-of-00002.safetensors", "two-files/a.safetensors", "two-files/b.safetensors",
        ".hidden/x.gguf", "pickles/one.bin", "pickles/optimizer.pt", "notes.txt",
    ):  # fmt: skip
        (root / name).write_bytes(b"not opened")
    (outside / "w.gguf").write_bytes(b"x")
    (root / "link.gguf").symlink_to(outside / "w.gguf")
    (root / "linked").symlink_to(outside)
    (root / "again").symlink_to(root / "model")
    (root / "loop").symlink_to(root)
    (root / "dangling.gguf").symlink_to(root / "nowhere")
    os.mkfifo(root / "pipe.gguf")
    found = find_checkpoints(root)
    assert [found.name_of(path) for path in found.paths] == [
        ".hidden/x.gguf", "dangling.gguf", "model/model.safetensors", "model/q4.gguf", "pickles/one.bin", "pipe.gguf",
        "sharded", "two-files/a.safetensors", "two-files/b.safetensors",
    ]  # fmt: skip
    assert sorted(found.refused) == ["link.gguf", "linked"]
    assert not find_checkpoints(root / "model").is_one, "a GGUF file is a separate model"
    assert find_checkpoints(root / "sharded").is_one
    assert find_checkpoints(root / "pickles").is_one, "one weights file without a config is the model"
    assert not find_checkpoints(root / "two-files").is_one
    assert not found.is_one


def test_too_deep_folders_are_named_and_not_searched(tmp_path: Path) -> None:
    deep = tmp_path
    for level in range(DEEPEST + 1):
        deep = deep / f"level{level}"
    deep.mkdir(parents=True)
    (deep / "w.gguf").write_bytes(b"x")
    found = find_checkpoints(tmp_path)
    assert found.paths == ()
    assert found.too_deep == ("/".join(f"level{level}" for level in range(DEEPEST + 1)),)


def test_unreadable_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SweepFolderError):
        find_checkpoints(tmp_path / "nowhere")


@pytest.mark.slow
def test_hidden_copies_are_found_and_unreadable_files_listed(world, vault, jobs, tmp_path) -> None:
    folder = tmp_path / "suspects"
    shutil.copytree(world["folder"] / "other", folder / "one")
    shutil.copytree(world["copies"][0], folder / ".cache")
    (folder / "pipe.gguf").symlink_to(folder / "nowhere.gguf")
    job = run_here("sweep", asked(world, folder=str(folder)), vault, jobs)
    rows = by_path(overview_of(jobs.files(job.id)))
    assert rows[".cache"]["verdict"] == outcome_of(job) == "found"
    assert rows["pipe.gguf"]["error"]["problem"]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"schema": 1}', b'{"schema": {"name": "irwm-sweep", "version": 9}}']
)
def test_missing_or_damaged_overview_is_reported(jobs: Jobs, data: bytes) -> None:
    job = jobs.create("sweep", "Sweep", {})
    files, path = jobs.files(job.id), jobs.folder(job.id) / f"{OVERVIEW_JSON}.sealed"
    for damage in (lambda: None, lambda: files.write(OVERVIEW_JSON, data), lambda: path.write_bytes(data)):
        damage()
        with pytest.raises(ReportError):
            overview_of(files)


def test_hostile_names_are_inert_in_the_overview() -> None:
    nasty = "<script>alert(1)</script>\u202e"
    row = {"path": nasty, "stamp": "", "json": "x", "error": None, "verdict": "found", "word": "found",
           "rests_on": "mark", "whose": [nasty], "log10_risk": -9.0, "copies_estimated": None,
           "lineage": "derived"}  # fmt: skip
    found = {"schema": {}, "folder": nasty, "original": "0", "keys": 1, "keys_sha256": "0", "suspects": 1,
             "refused": [nasty], "too_deep": [], "cut": False, "complete": True, "rows": [row]}  # fmt: skip
    page = overview_html(found)
    assert "<script" not in page
    assert "\u202e" not in page
    assert json.dumps(table_row(row))
