"""The endpoints for programs, called by a real gradio_client against the running app."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
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
from ui.jobs import runner
from ui.pages.api import NAMES

PARAMETERS = {
    "protect": ["model", "out", "owner", "recipient", "recipients", "preset", "parameters", "label", "utility", "also"],
    "investigate": ["suspect", "original", "keys", "matching", "case", "note", "seen", "examiner", "seed"],
    "unlock": ["passphrase"],
    "lock": [],
    "job": ["id"],
    "jobs": ["limit"],
    "stop": ["id"],
    "report": ["id"],
} | {"trace": ["suspect", "original", "keys", "matching", "case", "note", "seen", "examiner", "seed"]}


@pytest.fixture(scope="module")
def app(running_app: RunningApp) -> RunningApp:
    """The app with a vault, and a small model in a folder that it may read."""
    Vault.create(running_app.home, PASSPHRASE, cost=Cost(memory_kib=8, passes=1, lanes=1)).lock()
    write_llama(running_app.root / "model")
    return running_app


def client_of(app: RunningApp, folder: Path) -> Client:
    return Client(app.url, verbose=False, download_files=str(folder), httpx_kwargs={"trust_env": False, "timeout": 60})


@pytest.fixture(scope="module")
def client(app: RunningApp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A program that has entered the passphrase."""
    made = client_of(app, tmp_path_factory.mktemp("fetched"))
    assert made.predict(PASSPHRASE, api_name="/unlock") == {"unlocked": True}
    yield made
    made.close()


@pytest.fixture(scope="module")
def released(app: RunningApp, client: Client) -> dict[str, Any]:
    """The job that wrote a release of the model."""
    asked = client.predict(
        model=str(app.root / "model"),
        out=str(app.root / "release"),
        owner="Example Labs",
        recipient="Ada",
        api_name="/protect",
    )
    assert (asked["kind"], asked["title"], asked["outcome"]) == ("protect", "Protect model as release", None)
    return ended(client, asked)


def ended(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        now = client.predict(job["id"], api_name="/job")
        return None if now["outcome"] is None else now

    return until(look, f"the end of {job}")


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
    config = httpx.get(f"{app.url}/config", trust_env=False).json()
    public = [each["api_name"] for each in config["dependencies"] if each["api_visibility"] != "private"]
    assert public == list(NAMES)


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
    assert wrong.title == "WrongPassphraseError"
    assert PASSPHRASE not in wrong.message
    assert refused(locked, "/jobs").title == "SessionLockedError"
    locked.close()
    assert not (app.root / "other").exists()
    assert jobs.get(job).state == "queued"
    assert runner.stop(job, jobs).is_over, "it would hold up the next one"


@pytest.mark.slow
def test_a_release_is_written_found_and_its_report_fetched(
    app: RunningApp, client: Client, released: dict[str, Any]
) -> None:
    assert (released["state"], released["outcome"], released["error"]) == ("done", "written", None), released
    assert released["result"]["folder"] == str(app.root / "release")
    assert (app.root / "release" / "SHA256SUMS").exists()
    asked = client.predict(
        suspect=str(app.root / "release"),
        original=str(app.root / "model"),
        keys=[released["result"]["key_id"]],
        case="A leak",
        api_name="/investigate",
    )
    found = ended(client, asked)
    assert (found["outcome"], found["result"]["whose"]) == ("found", ["Ada"])
    files = client.predict(found["id"], api_name="/report")
    together = Path(files[0]).parent.parent / "together"
    together.mkdir()
    for file in files:
        shutil.copy(file, together)
    assert {path.suffix for path in together.iterdir()} == {".html", ".json", ".pdf", ".zip"}
    assert not [check for check in verify_report(together).checks if check.ok is False]
    listed = client.predict(limit=1, api_name="/jobs")
    assert [(job["id"], job["state"]) for job in listed] == [(found["id"], "done")]
    asked = client.predict(str(app.root / "release"), str(app.root / "model"), api_name="/trace")
    traced = ended(client, asked)
    assert (traced["outcome"], traced["result"]["whose"]) == ("found", ["Ada"])


@pytest.mark.slow
def test_api_answers_hold_no_secret_or_vault_path(app: RunningApp, client: Client, released: dict[str, Any]) -> None:
    vault = Vault.open(app.home)
    vault.unlock(PASSPHRASE)
    key = vault.hand_over().hex()
    broken = app.root / "garbage.safetensors"
    broken.write_bytes(b"\xff" * 64)
    failed = ended(client, client.predict(str(broken), str(app.root / "model"), api_name="/investigate"))
    assert (failed["outcome"], failed["result"]) == ("error", None)
    assert "garbage" in failed["error"]["file"]
    told = json.dumps([client.predict(job["id"], api_name="/job") for job in client.predict(api_name="/jobs")])
    assert not [each for each in (str(app.home), PASSPHRASE, key) if each in told]
    log = app.log.read_text()
    assert PASSPHRASE not in log
    assert "Traceback" not in log


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
    assert (missing.title, "no vault" in missing.message) == ("VaultMissingError", True)
    for error in (missing, unusable):
        assert str(app.home) not in error.message
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
        ("/protect", (model, f"{app.root}/way-out/new", "x")),
        ("/protect", (model, f"{app.root}/..", "x")),
        ("/protect", (model, str(app.home / "new"), "x")),
        ("/protect", ("model", out, "x")),
        ("/investigate", (str(app.home), model)),
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
        ("/protect", (model, out, "x", "", "Ada")),
        ("/protect", (model, out, "x", "", [["Ada", "note", "more"]])),
        ("/protect", (model, out, "x", "", [["Ada"], ["ada"]])),
        ("/protect", (model, out, "x", "", None, "loud")),
        ("/protect", (model, out, "x", "", None, "", ["positions"])),
        ("/protect", (model, out, "x", "", None, "standard", {})),
        ("/protect", (model, out, "x", "", None, "", None, "", "often")),
        ("/investigate", (model, model, "all")),
        ("/investigate", (model, model, [1])),
        ("/investigate", (model, model, None, "", "", "", "", "", 1.5)),
        ("/investigate", (model, model, None, "", "", "", "someday")),
        ("/investigate", (model, model, None, "", "x" * 300)),
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
def test_api_stop_of_many_copies_leaves_no_partial_files(app: RunningApp, client: Client) -> None:
    out = app.root / "copies"
    asked = client.predict(
        str(app.root / "model"),
        str(out),
        "Example Labs",
        "",
        [f"Recipient {n}" for n in range(400)],
        api_name="/protect",
    )
    until(
        # A receipt is written after its copy: once the second copy exists, the first receipt does too.
        lambda: out.is_dir() and len(list(out.glob("*/SHA256SUMS"))) >= 2,
        "the second copy",
        lambda: str(client.predict(asked["id"], api_name="/job")),
    )
    stopped = client.predict(asked["id"], api_name="/stop")
    assert (stopped["state"], stopped["outcome"], stopped["result"]) == ("stopped", "stopped", None)
    assert [path.name for path in out.iterdir() if not (path / "SHA256SUMS").exists()] == []
    assert not list(out.glob("*.partial"))
    (receipts,) = client.predict(asked["id"], api_name="/report")
    assert "Recipient 0" in Path(receipts).read_text("utf-8-sig")


def test_stream_of_an_ended_session_is_closed_and_leaves_no_traceback_in_the_log(app: RunningApp) -> None:
    before = app.log.read_text(encoding="utf-8").count("Traceback")
    with app.client() as client:
        said = client.get("/gradio_api/queue/data", params={"session_hash": "ended000000"})
    assert '"session_not_found":true' in said.text
    assert app.log.read_text(encoding="utf-8").count("Traceback") == before


@pytest.mark.slow
def test_lock_call_ends_the_session_of_this_program(app: RunningApp, client: Client, tmp_path: Path) -> None:
    other = client_of(app, tmp_path)
    other.predict(PASSPHRASE, api_name="/unlock")
    assert other.predict(api_name="/lock") == {"unlocked": False}
    assert refused(other, "/jobs").title == "SessionLockedError"
    other.close()
    assert isinstance(client.predict(api_name="/jobs"), list)
