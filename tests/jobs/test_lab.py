"""The Lab's task: rehearsals, releases from the vault, failures, Stop during an attack, and resuming."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.attacks.catalogue import ATTACKS
from irwm.inference.reference import OutputStore
from irwm.report.document import ReportError, to_json
from irwm.report.lab import LAB_HTML, LAB_JSON, from_json
from irwm.report.lab_rows import HELD, UNMEASURED
from irwm.report.signature_file import ENDING
from irwm.report.verify import verify_report
from irwm.scheme.parameters import many_recipients
from storage import Jobs, Vault
from storage.jobs import SCRATCH_NAME
from tests.jobs.recipients import PARAMETERS, given_out, make_keys, put_in_vault, run_here, succeeded
from tools.small_models import DEMO, write_llama
from tools.waiting import until
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for
from ui.services.lab_resume import companions, comparable, known_rows
from ui.services.stored_results import lab_of

ROBUST = irwm.Parameters().to_dict()
FILES = {LAB_JSON, LAB_HTML, f"lab{ENDING}"}
PRUNED = {"attack": "prune", "value": 0.3}
IMPOSSIBLE = {"attack": "shift-tables", "value": 1}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The request for a model that is attacked quickly; it has no tokenizer, so it cannot be run."""
    original = write_llama(tmp_path_factory.mktemp("lab") / "original", vocab_size=2000)
    settings = irwm.Parameters(constraints=5, scale="auto", permutations=200)
    return {"original": str(original), "parameters": {"single": settings.to_dict()}}


def asked(*trials: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "original": str(DEMO),
        "release": "",
        "key": "",
        "parameters": {"single": ROBUST},
        "trials": list(trials),
        "text": "",
        "tokens": 256,
        "seed": 0,
        "device": "cpu",
        "case_id": "",
        "case_title": "Before the release",
        "note": "",
        "resume": "",
    } | changes


def rows_of(document: dict[str, Any], mark: int = 0) -> dict[str, Any]:
    return {row["attack"]: row for row in document["marks"][mark]["rows"]}


def full(*_: Any) -> Any:
    """A system call on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.slow
def test_rehearsal_is_signed_and_filed_and_leaves_no_marked_copy(vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    both = {"single": ROBUST, "many": many_recipients(256).to_dict()}
    job = succeeded(run_here("lab", asked(PRUNED, IMPOSSIBLE, parameters=both), vault, jobs))
    folder = given_out(jobs, job.id, tmp_path / "given")
    document = from_json((folder / LAB_JSON).read_bytes())
    assert document["complete"]
    assert document["rehearsal"]
    assert [mark["mode"] for mark in document["marks"]] == ["single", "many"]
    for mark in document["marks"]:
        rows = {row["attack"]: row for row in mark["rows"]}
        assert list(rows) == ["none", "original", "prune", "shift-tables"]
        assert [rows[name]["verdict"] for name in rows] == ["found", "not found", "found", None]
        assert "LayerNorm" in rows["shift-tables"]["reason"]
        assert rows["none"]["utility"]["change"] == 0
        assert 0 < rows["prune"]["utility"]["change"] < 0.25
        ways = rows["prune"]["ways"]
        assert {(way["statistic"], way["invariant"]) for way in ways} == {
            (statistic, invariant) for statistic in ("joint", "sum") for invariant in ("original", "suspect")
        }
        assert all(way["share"] == way["count"] / way["present"] for way in ways)
        traced = [rows[name]["traced"] for name in rows]
        if mark["mode"] == "single":
            assert traced == [None] * 4
        else:
            assert [each and each["named"] for each in traced] == [True, False, True, None]
    assert job.result["outcome"] == HELD
    assert len(vault.keys()) == 0
    assert files_under(folder) == FILES
    assert files_under(jobs.folder(job.id)) == {f"{name}.sealed" for name in FILES} | {"log.txt"}
    (case,) = vault.cases()
    (run,) = vault.case_runs(case.id)
    assert (case.title, run.verdict, set(run.files)) == ("Before the release", HELD, FILES)
    assert [item.note for item in vault.case_items(case.id)] == ["Original"]
    checked = verify_report(folder / LAB_JSON)
    answers = {check.name: check.ok for check in checked.checks}
    assert checked.ok, checked.checks
    assert checked.exit_code == 2  # no expected signer was given
    assert [answers[name] for name in ("signature", "files", "page", "numbers")] == [True] * 4


def test_any_strength_is_run_and_its_report_verified(
    vault: Vault, jobs: Jobs, small: dict[str, Any], tmp_path: Path
) -> None:
    values = [("prune", 0.25), ("round", 5), ("layers", 7)]
    trials = [{"attack": name, "value": value} for name, value in values]
    job = succeeded(run_here("lab", asked(*trials, **small), vault, jobs))
    folder = given_out(jobs, job.id, tmp_path / "out")
    rows = rows_of(json.loads((folder / LAB_JSON).read_bytes()))
    assert [rows[name]["strength"] for name, _ in values] == ["25%", "5 bits", "7 layers"]
    assert [rows[name]["verdict"] for name, _ in values] == ["found", "found", None]
    assert rows["layers"]["reason"] == "The model has only one layer."
    checked = verify_report(folder / LAB_JSON)
    assert checked.ok, checked.checks


def test_edited_lab_values_are_named(vault: Vault, jobs: Jobs, small: dict[str, Any], tmp_path: Path) -> None:
    job = run_here("lab", asked(IMPOSSIBLE, **small), vault, jobs)
    path = given_out(jobs, job.id, tmp_path / "given") / LAB_JSON
    path.write_bytes(path.read_bytes().replace(b'"not found"', b'"found"'))
    wrong = {check.name for check in verify_report(path).checks if check.ok is False}
    assert wrong >= {"files", "page"}


def test_release_from_the_vault_is_read_even_if_it_cannot_run(vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    original = write_llama(tmp_path / "original", vocab_size=2000)  # without a tokenizer, so it cannot be run
    (key,) = make_keys(irwm.open_checkpoint(original), ["Ada"])
    release = Path(irwm.insert(irwm.open_checkpoint(original), key, tmp_path / "release").path)
    (id,) = put_in_vault(vault, [key])
    before = files_under(release)
    asking = asked(PRUNED, original=str(original), release=str(release), key=id, parameters={})
    job = succeeded(run_here("lab", asking, vault, jobs))
    document = lab_of(jobs.files(job.id))
    assert not document["rehearsal"]
    (mark,) = document["marks"]
    assert (mark["mode"], mark["key"]["recipient"]) == ("many", "Ada")
    assert mark["parameters"]["noise_coordinates"] == PARAMETERS.noise_coordinates
    assert "tokenizer" in mark["unmeasured"]
    assert rows_of(document)["prune"]["verdict"] == "found"
    assert rows_of(document)["prune"]["utility"] is None
    assert job.result["outcome"] == UNMEASURED
    assert files_under(release) == before
    (case,) = vault.cases()
    assert sorted(item.note for item in vault.case_items(case.id)) == ["Original", "Release"]
    assert str(jobs.home) not in jobs.files(job.id).read(LAB_JSON).decode("utf-8")

    other = run_here("lab", asking | {"original": str(DEMO)}, vault, jobs)
    assert other.state == "failed"
    assert other.error["type"] == "KeyMismatchError"


def test_failing_library_or_full_disk_loses_one_row(
    vault: Vault, jobs: Jobs, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives_up(*_: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setitem(ATTACKS, "noise", dataclasses.replace(ATTACKS["noise"], carry_out=full))
    monkeypatch.setitem(ATTACKS, "round", dataclasses.replace(ATTACKS["round"], carry_out=gives_up))
    trials = {"attack": "noise", "value": 0.1}, {"attack": "round", "value": 8}, PRUNED
    job = succeeded(run_here("lab", asked(*trials, **small), vault, jobs))
    rows = rows_of(lab_of(jobs.files(job.id)))
    assert os.strerror(errno.ENOSPC) in rows["noise"]["reason"]
    assert "shapes do not fit" in rows["round"]["reason"]
    assert rows["prune"]["verdict"] == "found"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"trials": [{"attack": "magic", "value": 1}]}, "LabError"),
        ({"parameters": {}}, "LabError"),
        ({"original": "/nowhere"}, "NotACheckpointError"),
        *(({"text": text}, "LabError") for text in ("/nowhere/text.txt", b"short", b"\xff\xfe\x00" * 200)),
    ],
)
def test_invalid_request_is_refused_before_writing(
    vault: Vault, jobs: Jobs, tmp_path: Path, changes: dict[str, Any], kind: str
) -> None:
    if isinstance(changes.get("text"), bytes):
        text = tmp_path / "text.txt"
        text.write_bytes(changes["text"])
        changes = {"text": str(text)}
    job = run_here("lab", asked(PRUNED, **changes), vault, jobs)
    assert (job.state, job.error["type"]) == ("failed", kind)
    assert job.error["file"] in (None, *changes.values())
    assert files_under(jobs.folder(job.id)) <= {"log.txt"}


@pytest.mark.parametrize(("free", "tokens"), [(10**6, 256), (200_000_000, 65_536)], ids=["copies", "outputs"])
def test_full_disk_is_reported_before_the_first_attack(
    vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, free: int, tokens: int
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, free))
    job = run_here("lab", asked(PRUNED, tokens=tokens), vault, jobs)
    assert (job.state, job.error["type"]) == ("failed", "DiskSpaceError")
    assert (job.error["file"] == tempfile.gettempdir()) == (tokens > 256)
    # Of few tokens, the outputs stay in memory.
    assert free < 10**8 or run_here("lab", asked(tokens=64), vault, jobs).state == "done"


@pytest.mark.slow
def test_stop_during_an_attack_keeps_rows_for_the_next_lab(vault: Vault, jobs: Jobs) -> None:
    long = {"attack": "finetune", "value": 100}
    job = runner.start("lab", "Lab", asked(PRUNED, long), secrets_for(vault), jobs)
    folder = jobs.folder(job.id)
    until(
        lambda: (folder / SCRATCH_NAME / "trial").exists() and "Fine-tun" in jobs.log_tail(job.id),
        "the fine-tuning to begin",
        lambda: jobs.log_tail(job.id),
    )
    assert runner.stop(job.id, jobs).state == "stopped"
    assert files_under(folder) == {f"{LAB_JSON}.sealed", "log.txt"}
    kept = lab_of(jobs.files(job.id))
    assert not kept["complete"]
    assert list(rows_of(kept)) == ["none", "original", "prune"]
    assert vault.cases() == []
    assert len(vault.keys()) == 0

    # Other attacks may follow; results with the same copy, text and settings remain valid.
    resumed = succeeded(run_here("lab", asked(PRUNED, IMPOSSIBLE, resume=job.id), vault, jobs))
    found = rows_of(lab_of(jobs.files(resumed.id)))
    assert {name: found[name] for name in rows_of(kept)} == rows_of(kept)
    assert list(found) == ["none", "original", "prune", "shift-tables"]


@pytest.mark.slow
def test_rows_of_other_settings_are_not_used(vault: Vault, jobs: Jobs, small: dict[str, Any], tmp_path: Path) -> None:
    first = run_here("lab", asked(PRUNED, **small), vault, jobs)
    files, document = jobs.files(first.id), lab_of(jobs.files(first.id))
    for row in document["marks"][0]["rows"]:
        row["seconds"] = 12345.0
    files.write(LAB_JSON, to_json(document))
    for changes, again in (({}, False), ({"seed": 1}, True)):
        job = succeeded(run_here("lab", asked(PRUNED, **small | changes, resume=first.id), vault, jobs))
        assert (rows_of(lab_of(jobs.files(job.id)))["prune"]["seconds"] != 12345.0) is again, changes

    # The other settings that count, without another lab for each.
    copy = shutil.copytree(small["original"], tmp_path / "copy")
    digest = companions(Path(small["original"]), None)
    assert document["settings"]["companions_sha256"] == digest == companions(copy, None)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))  # also decides the model's outputs
    assert comparable(first.id, jobs, document)[0] == document["marks"]
    for part, name, value in (
        ("settings", "tokens", 300),
        ("settings", "companions_sha256", companions(copy, None)),
        ("versions", "transformers", "0.0"),
        ("extra", "Device", "cuda"),
    ):
        assert value != document[part][name]
        marks, why = comparable(first.id, jobs, document | {part: document[part] | {name: value}})
        assert not marks, name
        assert why, name
    (mark,) = document["marks"]
    assert ("prune", PRUNED["value"]) in known_rows([mark], mark)
    assert not known_rows([mark], mark | {"parameters": mark["parameters"] | {"positions": 49}})


@pytest.mark.slow
def test_damaged_earlier_lab_is_reported_and_not_reused(vault: Vault, jobs: Jobs, small: dict[str, Any]) -> None:
    first = run_here("lab", asked(PRUNED, **small), vault, jobs)
    files, path = jobs.files(first.id), jobs.folder(first.id) / f"{LAB_JSON}.sealed"
    begun, text, sealed = lab_of(files), files.read(LAB_JSON).decode("utf-8"), path.read_bytes()
    reasons = set()
    for changed in (
        text[: len(text) // 2],
        "{}",
        text.replace('"versions": {', '"versions": [], "were": {'),
        text.replace('"ways": [', '"ways": [{}, '),
    ):
        assert changed != text
        files.write(LAB_JSON, changed.encode("utf-8"))
        marks, why = comparable(first.id, jobs, begun)
        assert not marks
        reasons.add(why)
    path.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    reasons.add(comparable(first.id, jobs, begun)[1])
    path.unlink()
    job = succeeded(run_here("lab", asked(**small, resume=first.id), vault, jobs))
    document = lab_of(jobs.files(job.id))
    assert list(rows_of(document)) == ["none", "original"]
    said = document["extra"]["Rows of the earlier lab"]
    assert said.startswith("none reused: ")
    assert said in jobs.log_tail(job.id)
    assert len({*reasons, said}) == 5, "not a lab, two wrong parts, sealed with another key, and missing"
    assert "" not in reasons


def test_rows_survive_several_stops_and_are_counted(vault: Vault, jobs: Jobs, small: dict[str, Any]) -> None:
    """A resumed lab that stops before its first row must keep the earlier lab's rows."""
    first = run_here("lab", asked(PRUNED, **small), vault, jobs)
    kept = rows_of(lab_of(jobs.files(first.id)))
    second = jobs.create("lab", "Lab", asked(PRUNED, **small, resume=first.id))
    empty = lab_of(jobs.files(first.id)) | {"marks": [], "complete": False}
    jobs.files(second.id).write(LAB_JSON, to_json(empty))
    jobs.finish(second.id, "stopped")
    third = run_here("lab", asked(PRUNED, **small, resume=second.id), vault, jobs)
    document = lab_of(jobs.files(third.id))
    assert rows_of(document) == kept
    assert document["extra"]["Rows of the earlier lab"] == "3 reused"


@pytest.mark.slow
def test_full_temporary_folder_loses_the_measurement(vault: Vault, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OutputStore, "add", full)
    job = succeeded(run_here("lab", asked(PRUNED), vault, jobs))
    document = lab_of(jobs.files(job.id))
    assert os.strerror(errno.ENOSPC) in document["marks"][0]["unmeasured"]
    assert rows_of(document)["prune"]["verdict"] == "found"


def test_lab_folder_without_results_is_reported(jobs: Jobs) -> None:
    with pytest.raises(ReportError):
        lab_of(jobs.files(jobs.create("lab", "Lab", {}).id))
