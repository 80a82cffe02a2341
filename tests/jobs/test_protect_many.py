"""One copy for each of many recipients: written and resumed; in real child processes killed, stopped, out of space.

Tests that start a child process, with `start`, cover what it adds; the others run the same task in this process, with
`here`, which is faster.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.release import verify_manifest
from irwm.scheme.parameters import Parameters, many_recipients
from storage import Jobs, Vault
from storage.job import Job
from storage.paths import JOBS_NAME
from tests.jobs.recipients import run_here
from tests.release.disks import reflink_disk
from tools.waiting import until, until_over
from ui.components.receipt import receipt_html, receipt_rows
from ui.jobs import runner
from ui.jobs.recipients import folder_name
from ui.jobs.releasing import changes, note_folder, seal
from ui.jobs.vault_access import secrets_for

__all__ = ["reflink_disk"]
NAMES = ("Acme, Inc.", "Bolt Ltd", "\u00c7elik", "=Dora", "Emil", "Fay")


Start = Callable[..., Job]


@pytest.fixture
def asked(demo_path: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The request for some names; keywords override its fields."""

    def asked(names: tuple[str, ...] = NAMES, **changed: Any) -> dict[str, Any]:
        return {
            "model": str(demo_path),
            "out_dir": str(tmp_path / "copies"),
            "parameters": many_recipients(256).to_dict(),
            "owner": "Example Labs",
            "recipients": [[name, f"note on {name}"] for name in names],
            "label": "",
            "device": "cpu",
        } | changed

    return asked


@pytest.fixture
def start(jobs: Jobs, vault: Vault, asked: Callable[..., dict[str, Any]]) -> Start:
    """Starts a job in its own process."""
    return lambda *names, **changed: runner.start("protect", "many", asked(*names, **changed), secrets_for(vault), jobs)


@pytest.fixture
def here(jobs: Jobs, vault: Vault, asked: Callable[..., dict[str, Any]]) -> Start:
    """The finished job, run in this process."""
    return lambda *names, **changed: run_here("protect", asked(*names, **changed), vault, jobs)


def finished(jobs: Jobs, job: Job) -> Job:
    return until_over(jobs, job.id)


def wait_for(condition: Callable[[], Any], jobs: Jobs, job: Job) -> None:
    """Waits for the condition while the job still runs."""
    until(lambda: jobs.get(job.id).is_over or condition(), "what the job should do", lambda: jobs.log_tail(job.id))
    assert condition(), jobs.log_tail(job.id)


def lines(jobs: Jobs, job: Job) -> list[dict[str, str]]:
    text = jobs.files(job.id).read("receipts.csv").decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def issued_keys(vault: Vault) -> dict[str, irwm.Key]:
    return {key.recipient: key for key in (irwm.Key.from_bytes(vault.key_bytes(r.id)) for r in vault.keys())}


def check_complete(vault: Vault, copies: Path, names: tuple[str, ...], demo_path: Path) -> None:
    """Each name has one key, one release and one valid folder, which names only that recipient."""
    keys = issued_keys(vault)
    assert sorted(keys) == sorted(names)
    assert len(vault.keys()) == len(vault.releases()) == len(names)
    assert len({key.secret for key in keys.values()}) == 1
    expected = {folder_name(keys[name].commitment) for name in names}
    assert {path.name for path in copies.iterdir()} == expected
    original = irwm.open_checkpoint(demo_path)
    order = [keys[name] for name in names]
    for at, name in enumerate(names):
        folder = copies / folder_name(keys[name].commitment)
        assert verify_manifest(folder).ok
        named = [match.named for match in irwm.trace(irwm.open_checkpoint(folder), original, order)]
        assert named == [other == at for other in range(len(names))]


@pytest.mark.fault(82)
@pytest.mark.slow
def test_each_recipient_gets_a_key_a_copy_a_manifest_and_a_receipt(
    start: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    names = NAMES[:4]
    job = finished(jobs, start(names))
    assert job.state == "done", job.error
    check_complete(vault, tmp_path / "copies", names, demo_path)
    rows = lines(jobs, job)
    assert [row["state"] for row in rows] == ["written"] * 4
    assert rows[3]["recipient"] == "'=Dora"  # a spreadsheet must not evaluate it
    for line in jobs.files(job.id).read("receipts.csv").decode("utf-8-sig").splitlines():
        assert line.startswith('"')
        assert line.count('"') >= 2 * len(rows[0])
    releases = {release.path: release for release in vault.releases()}
    for row in rows:
        receipt = releases[row["folder"]].receipt
        assert receipt["commitment"] == row["key_fingerprint"]
        assert receipt["verdict"] == row["verdict"] == "found"
        assert len(vault.marks_on(row["release_fingerprint"])) == 1
    assert vault.keys()[0].label == "note on Acme, Inc."
    card = receipt_html(job.result)
    assert "4 copies of 4 requested" in card
    assert "also in a mixture" in card
    assert [row[0] for row in receipt_rows(job.result)] == list(names)
    assert job.done == job.total > 4 * 10_000_000


@pytest.mark.slow
def test_additional_recipient_leaves_other_copies_unchanged(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    here(NAMES[:2])
    copies = tmp_path / "copies"
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ino, p.stat().st_ctime_ns) for p in copies.rglob("*")}
    keys = [(record.id, record.commitment) for record in vault.keys()]
    job = here((*NAMES[:2], "Late"))
    assert (job.result["written"], job.result["skipped"]) == (1, 2)
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_ino, p.stat().st_ctime_ns) for p in before}
    assert [(record.id, record.commitment) for record in vault.keys()][:2] == keys
    check_complete(vault, copies, (*NAMES[:2], "Late"), demo_path)


@pytest.mark.slow
@pytest.mark.fault(41)
def test_same_list_after_a_kill_writes_the_remaining_copies(
    start: Start, here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    job = start(NAMES[:4])
    # In the middle of a copy: one more key than releases, and a partial folder.
    wait_for(lambda: len(vault.releases()) >= 2 and list(copies.glob("*.partial")), jobs, job)
    os.kill(jobs.get(job.id).pid or 0, signal.SIGKILL)
    assert finished(jobs, job).state == "failed"
    done, keys = len(vault.releases()), len(vault.keys())
    assert 2 <= done < 4
    assert len(lines(jobs, job)) >= 2
    again = here(NAMES[:4])
    assert again.state == "done", again.error
    assert (again.result["skipped"], again.result["written"]) == (done, 4 - done)
    assert len(vault.keys()) == 4 >= keys
    check_complete(vault, copies, NAMES[:4], demo_path)


@pytest.mark.slow
def test_a_key_that_was_sealed_without_its_copy_is_used(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, many_recipients(256), owner="Example Labs", recipient="bolt LTD")
    seal(vault, model, key, "")
    job = here(NAMES[:2])
    assert job.state == "done", job.error
    check_complete(vault, tmp_path / "copies", ("Acme, Inc.", "bolt LTD"), demo_path)
    assert issued_keys(vault)["bolt LTD"].commitment == key.commitment


@pytest.mark.slow
def test_key_sealed_for_a_single_copy_is_left_to_its_own_run(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, many_recipients(256), owner="Example Labs", recipient="Bolt Ltd")
    note_folder(vault.home, key.commitment, tmp_path / "its own")
    waiting = seal(vault, model, key, "")
    job = here(("Bolt Ltd",))
    assert job.state == "done", job.error
    assert [release.key_id for release in vault.releases()] == [vault.keys()[1].id] != [waiting.id]


@pytest.mark.slow
def test_finished_copy_without_record_is_filed(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    model, copies = irwm.open_checkpoint(demo_path), tmp_path / "copies"
    key = irwm.generate_key(model, many_recipients(256), owner="Example Labs", recipient="Bolt Ltd")
    seal(vault, model, key, "")
    copies.mkdir()
    folder = irwm.insert(model, key, copies / folder_name(key.commitment)).path
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    job = here(NAMES[:2])
    assert job.state == "done", job.error
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    check_complete(vault, copies, NAMES[:2], demo_path)


@pytest.mark.slow
@pytest.mark.parametrize("corrupted", ["another's files", "a changed copy", "another key's copy"])
def test_damaged_folder_is_kept_and_other_copies_continue(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path, corrupted: str
) -> None:
    model, copies = irwm.open_checkpoint(demo_path), tmp_path / "copies"
    names = ("Bolt Ltd", "Late")
    key, other = (
        irwm.generate_key(model, many_recipients(256), owner="Example Labs", recipient=n) for n in ("Bolt Ltd", "X")
    )
    seal(vault, model, key, "")
    copies.mkdir()
    folder = copies / folder_name(key.commitment)
    if corrupted == "another's files":
        folder.mkdir()
        (folder / "theirs.txt").write_text("keep me")
    else:
        irwm.insert(model, key if corrupted == "a changed copy" else other, folder)
        if corrupted == "a changed copy":
            (folder / "config.json").write_text("{}")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    job = here(names)
    assert job.state == "done", job.error
    assert [job.result[name] for name in ("written", "skipped", "failed")] == [1, 0, 1]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    rows = lines(jobs, job)
    assert [row["state"] for row in rows] == ["failed", "written"]
    said = {"another's files": "no manifest", "a changed copy": "config.json", "another key's copy": "not found"}[
        corrupted
    ]
    for words in ("The folder for this copy contains something else", folder.name, said, "Move or delete it"):
        assert words in rows[0]["why"]
    assert "1 of 2 copies were written" in receipt_html(job.result)
    assert "1 of 2 copies could not be written" in jobs.log_tail(job.id)

    folder.rename(tmp_path / "moved away")
    again = here(names)
    assert [again.result[name] for name in ("written", "skipped", "failed")] == [1, 1, 0]
    check_complete(vault, copies, names, demo_path)


def test_a_run_that_could_write_nothing_fails_and_says_what_to_do(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    model, copies = irwm.open_checkpoint(demo_path), tmp_path / "copies"
    key = irwm.generate_key(model, many_recipients(256), owner="Example Labs", recipient="Bolt Ltd")
    seal(vault, model, key, "")
    (copies / folder_name(key.commitment)).mkdir(parents=True)
    job = here(("Bolt Ltd",))
    assert (job.state, (job.error or {})["type"]) == ("failed", "OutputExistsError")
    assert "start again with the same list" in (job.error or {})["advice"]
    assert [row["state"] for row in lines(jobs, job)] == ["failed"]


@pytest.mark.slow
def test_stop_during_a_copy_keeps_finished_copies(
    start: Start, here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    job = start(NAMES[:4])
    wait_for(lambda: len(vault.releases()) >= 1, jobs, job)
    assert runner.stop(job.id, jobs).state == "stopped"
    folders = [path for path in (tmp_path / "copies").iterdir() if not path.name.endswith(".partial")]
    assert all(verify_manifest(folder).ok for folder in folders)
    assert here(NAMES[:4]).state == "done"
    check_complete(vault, tmp_path / "copies", NAMES[:4], demo_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 80 MB: space for six copies of the demo model and a little more."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.fault(40)
def test_full_disk_keeps_finished_copies(
    start: Start, here: Start, jobs: Jobs, vault: Vault, small_disk: Path, demo_path: Path
) -> None:
    copies = small_disk / "copies"
    job = start(out_dir=str(copies))
    wait_for(lambda: len(vault.releases()) >= 2, jobs, job)
    filler = small_disk / "filler"
    with suppress(OSError):  # the task also writes, so this call may fill the disk
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096 * 4))
    failed = finished(jobs, job)
    assert failed.state == "failed"
    assert failed.error
    assert failed.error["type"] == "DiskSpaceError"
    assert not list(copies.glob("*.partial"))
    filler.unlink()
    assert here(out_dir=str(copies)).state == "done"
    check_complete(vault, copies, NAMES, demo_path)


def test_too_little_disk_space_is_reported_before_keys_are_made(
    here: Start, jobs: Jobs, vault: Vault, small_disk: Path
) -> None:
    names = tuple(f"Customer {n}" for n in range(20))
    job = here(names, out_dir=str(small_disk / "copies"))
    assert job.error
    assert job.error["type"] == "DiskSpaceError"
    assert "23" in job.error["expected"]  # 20 copies of 11.9 MB
    assert not vault.keys()
    assert not list(small_disk.iterdir())


@pytest.mark.slow
def test_identical_data_of_copies_is_written_once(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, reflink_disk: Path
) -> None:
    source = shutil.copytree(demo_path, reflink_disk / "demo")
    (source / "NOTICE.txt").write_bytes(os.urandom(1024) * 20 * 1024)
    job = here(NAMES[:3], model=str(source), out_dir=str(reflink_disk / "copies"))
    assert job.state == "done", job.error
    assert job.result["bytes_cloned"] > 2 * 20_000_000
    assert "are shared between the copies" in receipt_html(job.result)
    check_complete(vault, reflink_disk / "copies", NAMES[:3], source)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"recipients": []}, "no recipients"),
        ({"recipients": [["Acme", ""], ["ACME", ""]]}, "same recipient"),
        ({"recipients": [["x" * 201, ""]]}, "201 characters"),
        ({"out_dir": "/nonexistent/copies"}, "does not exist"),
        ({"parameters": {"positions": 10_000}}, "too few usable rows"),
    ],
)
def test_a_bad_request_makes_no_key_and_no_folder(
    here: Start, jobs: Jobs, vault: Vault, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    job = here(**changed)
    assert job.state == "failed"
    assert job.error
    assert said in job.error["problem"] + (job.error["found"] or "")
    assert not vault.keys()


def test_many_copies_into_a_release_folder_are_refused(here: Start, jobs: Jobs, vault: Vault, tmp_path: Path) -> None:
    here(NAMES[:1])
    (one,) = (tmp_path / "copies").iterdir()
    job = here(NAMES[1:3], out_dir=str(one))
    assert job.error
    assert job.error["type"] == "OutputExistsError"
    assert verify_manifest(one).ok
    assert len(vault.keys()) == 1


def hold(pid: int, vault: Vault) -> None:
    """Stops a process between its writes; during a write it would also hold the databases' locks."""

    def held() -> bool:
        os.killpg(pid, signal.SIGSTOP)
        if all(can_be_written(file) for file in (vault.path, vault.home / JOBS_NAME)):
            return True
        os.killpg(pid, signal.SIGCONT)
        return False

    until(held, "a moment between two of its writes")


def can_be_written(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as conn:
        try:
            conn.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        conn.execute("ROLLBACK")
    return True


@pytest.mark.slow
def test_two_runs_at_once_do_not_make_two_keys_for_one_name(
    start: Start, here: Start, jobs: Jobs, vault: Vault
) -> None:
    first = start(NAMES[:3])
    wait_for(lambda: vault.keys(), jobs, first)
    pid = jobs.get(first.id).pid
    assert pid
    hold(pid, vault)  # otherwise it may end before the second one begins
    try:
        second = here(NAMES[2::-1])  # outside the queue, like a job on another device
    finally:
        os.killpg(pid, signal.SIGCONT)
    assert second.error
    assert "already writing copies" in second.error["problem"]
    assert finished(jobs, first).state == "done"
    assert len(vault.keys()) == 3


@pytest.mark.slow
def test_single_noisy_copy_counts_among_many_recipients(
    here: Start, jobs: Jobs, vault: Vault, demo_path: Path, tmp_path: Path
) -> None:
    here(NAMES[:2])
    request = {
        "model": str(demo_path),
        "out_dir": str(tmp_path / "single"),
        "parameters": many_recipients(256).to_dict(),
        "owner": "Example Labs",
        "recipient": "Solo",
        "label": "",
        "device": "cpu",
    }
    job = run_here("protect", request, vault, jobs)
    assert job.state == "done", job.error
    assert len({key.secret for key in issued_keys(vault).values()}) == 1
    again = here((*NAMES[:2], "solo"))
    assert again.result["skipped"] == 3


def test_changes_name_every_tensor_that_holds_the_embedding(tied_with_head: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(tied_with_head)
    params = Parameters()
    release = irwm.insert(model, irwm.generate_key(model, params), tmp_path / "out")
    found = changes(model, irwm.open_checkpoint(release.path), release.changed_rows, release.head_rows, exact=True)
    assert found["changed_tensors"] == ["model.embed_tokens.weight", "lm_head.weight"]
    assert found["changed_values"] == 2 * params.positions * model.hidden_size


@pytest.fixture
def tied_with_head(tmp_path: Path) -> Path:
    """A tied Llama whose head is stored as well as the embedding."""
    from safetensors.torch import load_file, save_file

    from tools.small_models import write_llama

    folder = write_llama(tmp_path / "tied", tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
