"""The app without Python's POSIX half. This approximates Windows, because no Windows machine was available.

The scripts below run in processes that tests/without_posix/sitecustomize.py has changed: modules, flags, signals and
/proc are gone, and files, locks and processes behave as strictly as on Windows, as far as its documentation says. So
this shows that we use nothing that is missing there, that the workarounds work and fit together, and that no open file
is renamed or removed. It does not show that Windows behaves as its documentation says. Libraries here are those built
for POSIX, paths have no drive letters, and names are case-sensitive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ui.test_serving import call, is_open
from tools.running_app import FAKE_TASKS, PASSPHRASE, start_app
from tools.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[1]
WITHOUT = REPOSITORY / "tests" / "without_posix"
Run = Callable[..., str]


@pytest.fixture
def changes() -> dict[str, str]:
    """Additional environment variables of a process without POSIX."""
    path = os.pathsep.join((str(WITHOUT), str(REPOSITORY)))
    return {"PYTHONPATH": path, "USERNAME": "someone"}


@pytest.fixture
def run(tmp_path: Path, changes: dict[str, str]) -> Run:
    """Runs a script, with `folder` as an empty folder, and returns its output."""
    folder = tmp_path / "folder"
    folder.mkdir()

    def start(script: str, *arguments: object, code: int = 0, **more: str) -> str:
        opening = f"import os, sys\nfrom pathlib import Path\nfolder = Path({str(folder)!r})\n"
        ended = subprocess.run(
            [sys.executable, "-c", opening + script, *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **changes, **more},
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    return start


def test_the_approximation_is_strict(run: Run) -> None:
    run("""
def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error:
        return True
assert refused(ImportError, __import__, "fcntl") and not hasattr(os, "killpg") and not Path("/proc/self/stat").exists()
(folder / "a").mkdir()
with open(folder / "a" / "b", "wb"):
    assert refused(PermissionError, os.unlink, folder / "a" / "b")
    assert refused(PermissionError, os.rename, folder / "a", folder / "c")
(folder / "c").mkdir()
assert refused(FileExistsError, os.rename, folder / "a", folder / "c")
assert refused(PermissionError, os.open, folder, os.O_RDONLY | os.O_BINARY)
assert refused(AssertionError, os.open, folder / "a" / "b", os.O_RDONLY)
assert refused(AssertionError, (folder / "a" / "b").read_text)
""")


@pytest.mark.slow
def test_every_module_can_be_imported(run: Run) -> None:
    run("""
import importlib, pkgutil
for name in ("irwm", "storage", "ui"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if module.name != "ui.jobs.child":
            importlib.import_module(module.name)
import app, ui.frame, ui.jobs.child
from irwm.checkpoint import platform
from storage import paths, processes
assert platform.OPEN_FILES_STAY and not platform.FOLDERS_OPEN and platform.ALWAYS == os.O_BINARY
assert not paths.MODES_AND_OWNERS
assert processes.still_runs(os.getpid(), processes.process_mark(os.getpid()))
""")


def test_a_model_is_protected_and_its_mark_found(run: Run, tiny_path: Path) -> None:
    run(
        """
import irwm
from irwm.release import verify_manifest
original = irwm.open_checkpoint(sys.argv[1])
key = irwm.generate_key(original, owner="Example Labs", recipient="Early access")
release = irwm.insert(original, key, folder / "release")
assert irwm.detect(irwm.open_checkpoint(release.path), original, key).verdict == "found"
assert verify_manifest(release.path).ok
assert os.listdir(folder) == ["release"], os.listdir(folder)
assert not [name for name in os.listdir(release.path) if name.startswith(".")]
""",
        tiny_path,
    )


@pytest.mark.slow
def test_second_publisher_is_refused_and_a_dead_one_releases_its_lock(run: Run, tiny_path: Path) -> None:
    publish = """
from irwm.checkpoint import open_checkpoint
from irwm.release import publish, sweep_partials, verify_manifest
from irwm.errors import OutputExistsError
model, out = open_checkpoint(sys.argv[1]), folder / "out"
"""
    # Ended midway, with its name taken and its lock held.
    run(publish + "publish(model, out, {}, verify=lambda _: os.kill(os.getpid(), 15))", tiny_path, code=-9)
    run(publish + "publish(model, folder / 'other', {}, verify=lambda _: os.kill(os.getpid(), 15))", tiny_path, code=-9)
    run(
        publish
        + """
assert {"out.partial", "other.partial"} <= set(os.listdir(folder))
def meanwhile(partial):
    assert sweep_partials(folder) == [folder / "other.partial"]
    try:
        publish(model, out, {})
    except OutputExistsError as error:
        print(error)
publish(model, out, {}, verify=meanwhile)
assert verify_manifest(out).ok
assert os.listdir(folder) == ["out"], os.listdir(folder)
""",
        tiny_path,
    )


def test_vault_is_created_unlocked_backed_up_and_restored(run: Run) -> None:
    run("""
from storage import Cost, Vault, check_home
from storage.backup import restore
from storage.errors import WrongPassphraseError
home = folder / "home"
vault = Vault.create(home, "correct horse battery staple", Cost(memory_kib=8, passes=1, lanes=1))
case = vault.add_case("A case", "a note")
copy = vault.backup()
vault.lock()
other = Vault.open(home)
try:
    other.unlock("not the passphrase")
    raise SystemExit("opened")
except WrongPassphraseError:
    pass
other.unlock("correct horse battery staple")
assert [kept.title for kept in other.cases()] == ["A case"] and other.verify_audit().ok
other.lock()
assert restore(copy, home) is not None
again = Vault.open(home)
again.unlock("correct horse battery staple")
assert [kept.title for kept in again.cases()] == ["A case"]
assert check_home(home, folder / "elsewhere", folder / "temp") == ()
""")


@pytest.mark.slow
def test_a_task_runs_in_its_own_process(run: Run, tiny_path: Path) -> None:
    run(
        """
import irwm
from storage import Cost, Jobs, Vault
from tools.waiting import until_over
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for
home = folder / "home"
vault = Vault.create(home, "correct horse battery staple", Cost(memory_kib=8, passes=1, lanes=1))
jobs = Jobs(home).opened(vault.jobs_keys_to_seal())
request = {"model": sys.argv[1], "out": str(folder / "release"), "parameters": irwm.Parameters().to_dict(),
           "owner": "Example Labs", "recipients": [{"name": "Early access"}], "device": "cpu"}
job = runner.start("protect", "Protect", request, secrets_for(vault), jobs)
job = until_over(jobs, job.id)
assert job.state == "done", (job.error, jobs.log_tail(job.id))
assert vault.releases()[0].path == str(folder / "release")
assert jobs.interrupt_dead() == []
""",
        tiny_path,
    )


@pytest.mark.slow
def test_only_own_processes_are_stopped(run: Run) -> None:
    run(
        """
import sqlite3, subprocess
from contextlib import closing
from storage import Jobs
from storage.job_keys import JobsKeys
from storage.processes import still_runs
from tools.waiting import PATIENCE, until, until_over
from ui.jobs import runner
jobs = Jobs(folder / "home").opened(JobsKeys({"0" * 16: b"\\x07" * 32}, "0" * 16))
def start(do):
    job = runner.start("protect", do, {"do": do}, {"key": "feedfacecafebeef"}, jobs)
    def has_begun():
        now = jobs.get(job.id)
        assert not now.is_over, (now.error, jobs.log_tail(job.id))
        return now.what and now
    return until(has_begun, "the task to begin")
def gone(pid):
    until(lambda: not still_runs(pid, None), f"the end of process {pid}")
    return True

# One that listens removes what it had half written, for which it has time enough here.
usual, runner.GRACE_SECONDS = runner.GRACE_SECONDS, PATIENCE
job = start("work")
assert (jobs.folder(job.id) / "half").exists()
try:
    start("work")
    raise SystemExit("started twice")
except runner.JobRunningError:
    pass
assert runner.stop(job.id, jobs).state == "stopped"
assert not (jobs.folder(job.id) / "half").exists()
assert gone(job.pid)

# One that does not is ended with what it started.
runner.GRACE_SECONDS = usual
job = start("stubborn")
grandchild = int((jobs.folder(job.id) / "grandchild").read_text("utf-8"))
assert still_runs(job.pid, None) and still_runs(grandchild, None)
assert runner.stop(job.id, jobs).state == "stopped"
assert gone(job.pid) and gone(grandchild)

# One that was ended from outside is noticed, by its attendant or at the next start.
job = start("work")
os.kill(job.pid, 15)
until_over(jobs, job.id)
assert jobs.get(job.id).state == "failed"

# A process that has got the number of one that is gone is left alone.
other_process = subprocess.Popen(["sleep", "60"])
job = jobs.start(jobs.create("protect", "old", {"do": "x"}).id, other_process.pid)
assert jobs.is_alive(job.id)
with closing(sqlite3.connect(folder / "home" / "jobs.sqlite3")) as db, db:
    db.execute("UPDATE jobs SET process = '1' WHERE id = ?", [job.id])
assert not jobs.is_alive(job.id)
assert runner.stop(job.id, jobs).state == "stopped"
assert other_process.poll() is None
other_process.kill()
other_process.wait()
""",
        WITHOUT_POSIX_THEN=str(FAKE_TASKS / "sitecustomize.py"),
    )


@pytest.mark.slow
def test_the_app_starts_and_keeps_a_vault(tmp_path: Path, changes: dict[str, str]) -> None:
    with start_app(tmp_path, extra=changes) as app, app.client() as client:
        session = uuid.uuid4().hex
        client.get("/")
        call(client, "do_create", [PASSPHRASE, PASSPHRASE, 0], session)
        assert (app.home / "vault.sqlite3").exists()
        assert is_open(client, session)
        call(client, "do_lock", [0], session)
        assert not is_open(client, session)
        call(client, "do_unlock", [PASSPHRASE, 0], session)
        assert is_open(client, session)
    assert "Traceback" not in app.log.read_text("utf-8")
