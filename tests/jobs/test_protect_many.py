"""One copy for each of many recipients: written and resumed; in real child processes killed, stopped, out of space.

Tests that start a child process, with `Office.start`, cover what it adds, on a model that takes a while to copy; the
others run the same task on a small model in this process, with `Office.here` or `Office.done`, which is faster.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.release import verify_manifest
from irwm.scheme.parameters import Parameters, many_recipients
from storage import Jobs, Vault
from storage.job_table import Job
from storage.paths import JOBS_NAME
from tests.jobs.recipients import PARAMETERS, protect_request, run_here, succeeded
from tests.release.disks import reflink_disk
from tools.small_models import write_llama
from tools.waiting import until, until_over
from ui.components.receipt import receipt_html, receipt_rows
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for
from ui.services.recipients import folder_name
from ui.services.releasing import changes, note_folder, seal

__all__ = ["reflink_disk"]
NAMES = ("Acme, Inc.", "Bolt Ltd", "\u00c7elik", "=Dora", "Emil", "Fay")


@dataclass(frozen=True)
class Office:
    """A vault with its jobs, a model, and the folder for its copies."""

    vault: Vault
    jobs: Jobs
    model: Path
    copies: Path
    parameters: Parameters

    def asked(self, names: tuple[str, ...] = NAMES, **changed: Any) -> dict[str, Any]:
        """The request for some names; keywords override its fields."""
        several: dict[str, Any] = {
            "parameters": self.parameters.to_dict(),
            "recipients": [{"name": name, "note": f"note on {name}"} for name in names],
            "many": True,
        }
        return protect_request(self.model, self.copies) | several | changed

    def start(self, names: tuple[str, ...] = NAMES, **changed: Any) -> Job:
        """Starts a job in its own process."""
        return runner.start("protect", "many", self.asked(names, **changed), secrets_for(self.vault), self.jobs)

    def here(self, names: tuple[str, ...] = NAMES, **changed: Any) -> Job:
        """The finished job, run in this process."""
        return run_here("protect", self.asked(names, **changed), self.vault, self.jobs)

    def done(self, names: tuple[str, ...] = NAMES, **changed: Any) -> Job:
        """As `here`, of a job that must not fail."""
        return succeeded(self.here(names, **changed))

    def wait_for(self, condition: Callable[[], Any], job: Job) -> None:
        """Waits for the condition while the job still runs."""
        log = partial(self.jobs.log_tail, job.id)
        until(lambda: self.jobs.get(job.id).is_over or condition(), "what the job should do", log)
        assert condition(), log()

    def lines(self, job: Job) -> list[dict[str, str]]:
        text = self.jobs.files(job.id).read("receipts.csv").decode("utf-8-sig")
        return list(csv.DictReader(io.StringIO(text, newline="")))

    def sealed(self, recipient: str, alone_in: Path | None = None) -> tuple[irwm.Key, Path]:
        """A key in the vault as a killed run left it, without its copy, and the copy's folder.

        Args:
            alone_in: the folder of a single copy that it was sealed for.
        """
        model = irwm.open_checkpoint(self.model)
        key = irwm.generate_key(model, self.parameters, owner="Example Labs", recipient=recipient)
        if alone_in is not None:
            note_folder(self.vault.home, key.commitment, alone_in)
        seal(self.vault, model, key, "")
        return key, self.copies / folder_name(key.commitment)

    def keys(self) -> dict[str, irwm.Key]:
        vault = self.vault
        return {key.recipient: key for key in (irwm.Key.from_bytes(vault.key_bytes(r.id)) for r in vault.keys())}

    def check_complete(self, names: tuple[str, ...]) -> None:
        """Each name has one key, one release and one valid folder, which names only that recipient."""
        keys = self.keys()
        assert sorted(keys) == sorted(names)
        assert len(self.vault.keys()) == len(self.vault.releases()) == len(names)
        assert len({key.secret for key in keys.values()}) == 1
        expected = {folder_name(keys[name].commitment) for name in names}
        assert {path.name for path in self.copies.iterdir()} == expected
        original = irwm.open_checkpoint(self.model)
        order = [keys[name] for name in names]
        for at, name in enumerate(names):
            folder = self.copies / folder_name(keys[name].commitment)
            assert verify_manifest(folder).ok
            named = [match.named for match in irwm.trace(irwm.open_checkpoint(folder), original, order)]
            assert named == [other == at for other in range(len(names))]


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("many") / "model", vocab_size=3000)


@pytest.fixture
def office(vault: Vault, jobs: Jobs, small_model: Path, tmp_path: Path) -> Office:
    return Office(vault, jobs, small_model, tmp_path / "copies", PARAMETERS)


@pytest.fixture
def large(office: Office, demo_path: Path) -> Office:
    """With a model of 12 MB, so that a process can be stopped in the middle of a copy."""
    return replace(office, model=demo_path, parameters=many_recipients(256))


@pytest.mark.fault(82)
@pytest.mark.slow
def test_each_recipient_gets_a_key_a_copy_a_manifest_and_a_receipt(large: Office) -> None:
    names, jobs, vault = NAMES[:4], large.jobs, large.vault
    job = succeeded(until_over(jobs, large.start(names).id))
    large.check_complete(names)
    rows = large.lines(job)
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
    assert "even in a mixture" in card
    assert [row[0] for row in receipt_rows(job.result)] == list(names)
    assert job.done == job.total > 4 * 10_000_000


@pytest.mark.slow
def test_additional_recipient_leaves_other_copies_unchanged(office: Office) -> None:
    office.here(NAMES[:2])
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ino, p.stat().st_ctime_ns) for p in office.copies.rglob("*")}
    keys = [(record.id, record.commitment) for record in office.vault.keys()]
    job = office.here((*NAMES[:2], "Late"))
    assert (job.result["written"], job.result["skipped"]) == (1, 2)
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_ino, p.stat().st_ctime_ns) for p in before}
    assert [(record.id, record.commitment) for record in office.vault.keys()][:2] == keys
    office.check_complete((*NAMES[:2], "Late"))


@pytest.mark.slow
@pytest.mark.fault(41)
def test_same_request_after_a_kill_writes_the_remaining_copies(large: Office) -> None:
    jobs, vault = large.jobs, large.vault
    job = large.start(NAMES[:4])
    # In the middle of a copy: one more key than releases, and a partial folder.
    large.wait_for(lambda: len(vault.releases()) >= 2 and list(large.copies.glob("*.partial")), job)
    os.kill(jobs.get(job.id).pid or 0, signal.SIGKILL)
    assert until_over(jobs, job.id).state == "failed"
    assert not list(large.copies.glob("*.partial")), "removed without another run"
    done, keys = len(vault.releases()), len(vault.keys())
    assert 2 <= done < 4
    assert len(large.lines(job)) >= 2
    again = succeeded(until_over(jobs, runner.again(jobs.get(job.id), vault, jobs).id))
    assert (again.result["skipped"], again.result["written"]) == (done, 4 - done)
    assert len(vault.keys()) == 4 >= keys
    large.check_complete(NAMES[:4])


@pytest.mark.slow
@pytest.mark.parametrize("copied", [False, True], ids=["key only", "copy not filed"])
def test_key_that_was_sealed_before_a_kill_is_used(office: Office, copied: bool) -> None:
    key, folder = office.sealed("bolt LTD")
    before: dict[Path, int] = {}
    if copied:
        office.copies.mkdir()
        irwm.insert(irwm.open_checkpoint(office.model), key, folder)
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    office.done(NAMES[:2])
    assert before == {path: path.stat().st_mtime_ns for path in before}
    office.check_complete(("Acme, Inc.", "bolt LTD"))
    assert office.keys()["bolt LTD"].commitment == key.commitment


@pytest.mark.slow
def test_key_sealed_for_a_single_copy_is_left_to_its_own_run(office: Office, tmp_path: Path) -> None:
    office.sealed("Bolt Ltd", alone_in=tmp_path / "its own")
    office.done(("Bolt Ltd",))
    waiting, own = office.vault.keys()
    assert [release.key_id for release in office.vault.releases()] == [own.id] != [waiting.id]


@pytest.mark.slow
@pytest.mark.parametrize("corrupted", ["another's files", "another key's copy"])
def test_damaged_folder_is_kept_and_others_continue(office: Office, tmp_path: Path, corrupted: str) -> None:
    names = ("Bolt Ltd", "Late")
    model = irwm.open_checkpoint(office.model)
    _, folder = office.sealed("Bolt Ltd")
    office.copies.mkdir()
    if corrupted == "another's files":
        folder.mkdir()
        (folder / "theirs.txt").write_text("keep me")
    else:
        other = irwm.generate_key(model, office.parameters, owner="Example Labs", recipient="X")
        irwm.insert(model, other, folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    job = office.done(names)
    assert [job.result[name] for name in ("written", "skipped", "failed")] == [1, 0, 1]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    rows = office.lines(job)
    assert [row["state"] for row in rows] == ["failed", "written"]
    assert folder.name in rows[0]["why"]
    assert "1 of 2 copies were written" in receipt_html(job.result)

    folder.rename(tmp_path / "moved away")
    again = office.here(names)
    assert [again.result[name] for name in ("written", "skipped", "failed")] == [1, 1, 0]
    office.check_complete(names)


def test_a_run_that_could_write_nothing_fails_and_says_what_to_do(office: Office) -> None:
    _, folder = office.sealed("Bolt Ltd")
    folder.mkdir(parents=True)
    job = office.here(("Bolt Ltd",))
    assert (job.state, (job.error or {})["type"]) == ("failed", "OutputExistsError")
    assert "start again with the same list" in (job.error or {})["advice"]
    assert [row["state"] for row in office.lines(job)] == ["failed"]


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
def test_full_disk_keeps_finished_copies(large: Office, small_disk: Path) -> None:
    large = replace(large, copies=small_disk / "copies")
    job = large.start()
    large.wait_for(lambda: len(large.vault.releases()) >= 2, job)
    filler = small_disk / "filler"
    with suppress(OSError):  # the task also writes, so this call may fill the disk
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096 * 4))
    failed = until_over(large.jobs, job.id)
    assert (failed.state, (failed.error or {})["type"]) == ("failed", "DiskSpaceError")
    assert not list(large.copies.glob("*.partial"))
    filler.unlink()
    assert large.here().state == "done"
    large.check_complete(NAMES)


def test_too_little_disk_space_is_reported_before_keys_are_made(large: Office, small_disk: Path) -> None:
    names = tuple(f"Customer {n}" for n in range(20))
    job = large.here(names, out=str(small_disk / "copies"))
    assert job.error
    assert job.error["type"] == "DiskSpaceError"
    assert "23" in job.error["expected"]  # 20 copies of 11.9 MB
    assert not large.vault.keys()
    assert not list(small_disk.iterdir())


@pytest.mark.slow
def test_identical_data_of_copies_is_written_once(office: Office, reflink_disk: Path) -> None:
    source = Path(shutil.copytree(office.model, reflink_disk / "demo"))
    (source / "NOTICE.txt").write_bytes(os.urandom(1024) * 20 * 1024)
    office = replace(office, model=source, copies=reflink_disk / "copies")
    job = office.done(NAMES[:3])
    assert job.result["bytes_cloned"] > 2 * 20_000_000
    assert "the copies share another" in receipt_html(job.result)
    office.check_complete(NAMES[:3])


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"recipients": []}, "RecipientListError"),
        ({"recipients": [{"name": "Acme"}, {"name": "ACME"}]}, "RecipientListError"),
        ({"recipients": [{"name": "x" * 201}]}, "RecipientListError"),
        ({"out": "/nonexistent/copies"}, "PublishError"),
        ({"parameters": {"positions": 10_000}}, "ParameterError"),
    ],
)
def test_a_bad_request_makes_no_key_and_no_folder(office: Office, changed: dict[str, Any], kind: str) -> None:
    job = office.here(**changed)
    assert (job.state, (job.error or {})["type"]) == ("failed", kind)
    assert not office.vault.keys()
    assert not office.copies.exists()
    office.copies.mkdir()
    office.here(**changed)
    assert office.copies.is_dir(), "a folder that was there before stays"


def test_many_copies_into_a_release_folder_are_refused(office: Office) -> None:
    office.here(NAMES[:1])
    (one,) = office.copies.iterdir()
    job = office.here(NAMES[1:3], out=str(one))
    assert job.error
    assert job.error["type"] == "OutputExistsError"
    assert verify_manifest(one).ok
    assert len(office.vault.keys()) == 1


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
def test_two_runs_at_once_do_not_make_two_keys_for_one_name(large: Office) -> None:
    jobs, vault = large.jobs, large.vault
    first = large.start(NAMES[:3])
    large.wait_for(lambda: vault.keys(), first)
    pid = jobs.get(first.id).pid
    assert pid
    ended: list[Job] = []
    # Outside the queue, like a job on another device.
    thread = threading.Thread(target=lambda: ended.append(large.here(NAMES[2::-1])))
    hold(pid, vault)  # otherwise it may end before the second one begins
    try:
        thread.start()
        waiting = "Waiting for another run"
        until(lambda: any(job.what.startswith(waiting) for job in jobs.recent(1)), "the second run to wait")
    finally:
        os.killpg(pid, signal.SIGCONT)
    thread.join()
    assert (until_over(jobs, first.id).state, ended[0].state) == ("done", "done")
    assert ended[0].result["skipped"] == 3
    assert len(vault.keys()) == 3


@pytest.mark.slow
def test_single_noisy_copy_counts_among_many_recipients(office: Office, tmp_path: Path) -> None:
    office.here(NAMES[:2])
    parameters = office.parameters.to_dict()
    asked = protect_request(office.model, tmp_path / "single", recipient="Solo", parameters=parameters)
    succeeded(run_here("protect", asked, office.vault, office.jobs))
    assert len({key.secret for key in office.keys().values()}) == 1
    again = office.here((*NAMES[:2], "solo"))
    assert again.result["skipped"] == 3


def test_changes_name_every_tensor_that_holds_the_embedding(tmp_path: Path) -> None:
    """Of a tied Llama whose head is stored as well as the embedding."""
    folder = write_llama(tmp_path / "tied", tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model, params = irwm.open_checkpoint(folder), Parameters()
    release = irwm.insert(model, irwm.generate_key(model, params), tmp_path / "out")
    found = changes(model, irwm.open_checkpoint(release.path), release.changed_rows, release.head_rows, exact=True)
    assert found["changed_tensors"] == ["model.embed_tokens.weight", "lm_head.weight"]
    assert found["changed_values"] == 2 * params.positions * model.hidden_size
