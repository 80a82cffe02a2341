"""The endpoints for programs, called by a real gradio_client against the running app."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from irwm.report.verify import verify_report
from storage.encryption import Cost
from storage.jobs import Jobs
from storage.vault import Vault
from tools.running_app import PASSPHRASE, RunningApp
from tools.small_models import write_llama
from tools.waiting import until
from ui.pages.api import NAMES

EXAMINED = ["suspect", "original", "keys", "matching", "case", "note", "seen", "examiner", "seed", "fits"]
PARAMETERS = {
    "protect": ["model", "out", "owner", "recipient", "recipients", "preset", "parameters", "label", "utility", "also"],
    "investigate": EXAMINED,
    "trace": EXAMINED,
    "unlock": ["passphrase"],
    "lock": [],
    "job": ["id"],
    "jobs": ["limit"],
    "stop": ["id"],
    "report": ["id"],
}


@pytest.fixture(scope="module")
def app(running_app: RunningApp) -> RunningApp:
    """The app with a vault, and a small model in a folder that it may read."""
    Vault.create(running_app.home, PASSPHRASE, cost=Cost(memory_kib=8, passes=1, lanes=1)).lock()
    write_llama(running_app.root / "model")
    return running_app


def ended(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        now = client.predict(job["id"], api_name="/job")
        return None if now["outcome"] is None else now

    return until(look, f"the end of {job}")


def client_of(app: RunningApp, folder: Path) -> Client:
    return Client(app.url, verbose=False, download_files=str(folder), httpx_kwargs={"trust_env": False, "timeout": 60})


@pytest.fixture(scope="module")
def client(app: RunningApp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A program that has entered the passphrase."""
    made = client_of(app, tmp_path_factory.mktemp("fetched"))
    assert made.predict(PASSPHRASE, api_name="/unlock") == {"unlocked": True}
    yield made
    made.close()


def refused(client: Client, name: str, *values: Any, **named: Any) -> AppError:
    with pytest.raises(AppError) as error:
        client.predict(*values, api_name=name, **named)
    return error.value


def test_api_offers_only_documented_names_and_parameters(app: RunningApp, client: Client) -> None:
    offered = client.view_api(return_format="dict", print_info=False)
    assert sorted(offered["named_endpoints"]) == sorted(f"/{name}" for name in NAMES)
    assert offered["unnamed_endpoints"] == {}
    for name, parameters in PARAMETERS.items():
        described = offered["named_endpoints"][f"/{name}"]["parameters"]
        assert [each["parameter_name"] for each in described] == parameters, name
    with app.client() as other:
        handlers = other.get("/config").json()["dependencies"]
    assert [each["api_name"] for each in handlers if each["api_visibility"] != "private"] == list(NAMES)


def test_api_refuses_unauthenticated_programs(app: RunningApp, client: Client, tmp_path: Path) -> None:
    locked = client_of(app, tmp_path)  # while another program is unlocked
    model = str(app.root / "model")
    vault = Vault.open(app.home)
    vault.unlock(PASSPHRASE)
    jobs = Jobs(app.home).opened(vault.jobs_keys_to_seal())
    job = jobs.create("protect", "Protect model as release", {"model": model, "recipient": "Ada"}).id
    assert client.predict(job, api_name="/job")["title"] == "Protect model as release"
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("/lock", ()),
        ("/protect", (model, str(app.root / "other"), "Example Labs")),
        ("/investigate", (model, model)),
        ("/trace", (model, model)),
        ("/job", (job,)),
        ("/jobs", ()),
        ("/stop", (job,)),
        ("/report", (job,)),
    ]
    assert len(calls) == len(NAMES) - 1
    for name, values in calls:
        error = refused(locked, name, *values)
        assert error.title == "SessionLockedError", name
        assert "Ada" not in error.message
    wrong = refused(locked, "/unlock", PASSPHRASE + "!")
    assert (wrong.title, PASSPHRASE in wrong.message) == ("WrongPassphraseError", False)
    assert not (app.root / "other").exists()
    assert jobs.get(job).state == "queued"
    locked.predict(PASSPHRASE, api_name="/unlock")
    stopped = locked.predict(job, api_name="/stop")
    assert (stopped["state"], stopped["outcome"], stopped["result"]) == ("stopped", "stopped", None)
    assert locked.predict(api_name="/lock") == {"unlocked": False}
    assert refused(locked, "/jobs").title == "SessionLockedError"
    locked.close()
    assert isinstance(client.predict(api_name="/jobs"), list), "another program stays unlocked"


def test_unauthenticated_callers_learn_no_paths(app: RunningApp, tmp_path: Path) -> None:
    locked = client_of(app, tmp_path)
    vault, aside = app.home / "vault.sqlite3", app.home / "aside"
    vault.rename(aside)
    try:
        missing = refused(locked, "/unlock", PASSPHRASE)
        vault.mkdir()
        unusable = refused(locked, "/unlock", PASSPHRASE)
        vault.rmdir()
    finally:
        aside.rename(vault)
    assert missing.title == "VaultMissingError"
    for error in (missing, unusable):
        assert str(app.home.parent) not in error.message
        assert "IRWM_HOME" in error.message
    locked.close()


def test_api_refuses_paths_outside_roots_without_reading(app: RunningApp, client: Client) -> None:
    model, out = str(app.root / "model"), str(app.root / "new")
    (app.root / "way-out").symlink_to("/etc")
    before = len(client.predict(api_name="/jobs"))
    for name, values in (
        ("/protect", ("/etc", out, "x")),
        ("/protect", (model, "/tmp/new", "x")),
        ("/protect", (model, f"{app.root}/../new", "x")),
        ("/protect", (model, str(app.home / "new"), "x")),
        ("/investigate", ("/etc/passwd", model)),
        ("/trace", (model, str(app.root / "way-out"))),
    ):
        error = refused(client, name, *values)
        assert error.title == "PathRefusedError", (name, values)
    assert len(client.predict(api_name="/jobs")) == before


def test_api_refuses_values_of_wrong_types(app: RunningApp, client: Client) -> None:
    model, out = str(app.root / "model"), str(app.root / "new")
    for name, values in (
        ("/unlock", ([PASSPHRASE],)),
        ("/protect", (5, out, "x")),
        ("/protect", (model, out, None)),
        ("/protect", (model, out, "x", "", [["Ada", "note", "more"]])),
        ("/protect", (model, out, "x", "", None, "loud")),
        ("/protect", (model, out, "x", "", None, "", ["positions"])),
        ("/protect", (model, out, "x", "", None, "", None, "", "often")),
        ("/investigate", (model, model, "all")),
        ("/investigate", (model, model, None, "", "", "", "", "", 1.5)),
        ("/job", ("../../home",)),
        ("/job", ({"path": "/etc/passwd"},)),
        ("/jobs", (-1,)),
        ("/jobs", (True,)),
    ):
        error = refused(client, name, *values)
        assert error.title != "Error", (name, values, error.message)
        assert PASSPHRASE not in error.message
    assert not (app.root / "new").exists()


@pytest.mark.slow
def test_a_copy_is_written_found_and_its_report_fetched_without_a_secret(app: RunningApp, client: Client) -> None:
    """Two recipients get a copy; one copy and a broken file are examined."""
    model, out = str(app.root / "model"), app.root / "copies"
    asked = client.predict(model, str(out), "Example Labs", "", [["Ada", "a note"], ["Ben"]], api_name="/protect")
    assert (asked["kind"], asked["outcome"]) == ("protect", None)
    written = ended(client, asked)
    assert (written["state"], written["outcome"], written["error"]) == ("done", "written", None), written
    (receipts,) = client.predict(written["id"], api_name="/report")
    ada, _ = csv.DictReader(io.StringIO(Path(receipts).read_text("utf-8-sig")))
    asked = client.predict(suspect=ada["folder"], original=model, case="A leak", api_name="/investigate")
    found = ended(client, asked)
    assert (found["outcome"], found["result"]["whose"]) == ("found", ["Ada"])
    files = client.predict(found["id"], api_name="/report")
    together = Path(files[0]).parent.parent / "together"
    together.mkdir()
    for file in files:
        shutil.copy(file, together)
    assert {path.suffix for path in together.iterdir()} == {".html", ".json", ".pdf", ".zip"}
    assert not [check for check in verify_report(together).checks if check.ok is False]
    (app.root / "garbage.safetensors").write_bytes(b"\xff" * 64)
    failed = ended(client, client.predict(str(app.root / "garbage.safetensors"), model, api_name="/investigate"))
    assert (failed["outcome"], failed["result"]) == ("error", None)
    assert "garbage" in failed["error"]["file"]
    listed = client.predict(limit=1, api_name="/jobs")
    assert [(job["id"], job["state"]) for job in listed] == [(failed["id"], "failed")]
    vault = Vault.open(app.home)
    vault.unlock(PASSPHRASE)
    told = json.dumps([client.predict(job["id"], api_name="/job") for job in client.predict(api_name="/jobs")])
    assert not [each for each in (str(app.home), PASSPHRASE, vault.hand_over().hex()) if each in told]
    assert PASSPHRASE not in app.log.read_text()
    assert "Traceback" not in app.log.read_text()
