"""`python app.py protect|investigate|trace`: same jobs, vault and results as the pages, and a correct exit status."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
from array import array
from pathlib import Path

import pytest

import irwm
from storage.vault import Vault
from tests.command.commands import PASSPHRASE, REPOSITORY, Answered, Desk
from tests.jobs.recipients import PARAMETERS, averaged, make_keys, put_in_vault
from tools.small_models import write_llama
from tools.waiting import PATIENCE, until, until_ended
from ui.command import output
from ui.command.parser import COMMANDS, DEVICES, PRESETS, UTILITIES
from ui.explore_settings import ExploreSettings
from ui.jobs import requests
from ui.preset_names import TYPED
from ui.presets import PRESETS as KNOWN_PRESETS
from ui.settings import DEVICES as KNOWN_DEVICES

RECIPIENTS = 300


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A vault, a small model, and an empty folder to work in."""
    desk = Desk.made(tmp_path_factory.mktemp("desk"))
    write_llama(desk.work / "model")
    for name in ("modeling_own.py", "customers.csv"):
        (desk.work / "model" / name).write_text("")
    return desk


@pytest.fixture(scope="module")
def released(desk: Desk) -> Answered:
    """A release of the model, written by a command in a separate process."""
    who = "--owner", "Example Labs", "--recipient", "Åsa", "--label", "1"
    process = desk.start("protect", "model", "release", *who, "--also", "modeling_own.py")
    out, said = until_ended(process, "the command protect")
    assert process.returncode == 0, said
    return Answered(process.returncode, json.loads(out), said)


def test_protect_writes_and_describes_the_release(desk: Desk, released: Answered) -> None:
    answer, result = released.answer, released.answer["result"]
    assert answer["schema"] == {"name": "irwm-command", "version": 1}
    assert (answer["command"], answer["outcome"], answer["exit_status"]) == ("protect", "written", 0)
    assert result["folder"] == str(desk.work / "release")
    assert (result["owner"], result["recipient"], result["reading"]["verdict"]) == ("Example Labs", "Åsa", "found")
    assert sorted(result["files"]) == sorted(
        path.name for path in (desk.work / "release").iterdir() if path.name != "SHA256SUMS"
    )
    assert "modeling_own.py" in result["files"]
    assert result["left_out"] == ["customers.csv"]
    (record,) = desk.vault().keys()
    assert (record.id, record.commitment, record.label) == (result["key_id"], result["key_fingerprint"], "1")
    assert desk.vault().releases()[0].path == result["folder"]
    job = desk.jobs.get(answer["job"]["id"])
    assert (job.kind, job.title, job.state) == ("protect", "Protect model as release", "done")
    # Quick steps begin and end between two polls of the job.
    steps = ("Opening the original", "Generating the key", "Verifying the written mark", "Measuring the cost")
    assert any(step in released.said for step in steps)
    assert released.said.splitlines()[-1].startswith("Written: ")
    assert "\r" not in released.said


@pytest.mark.slow
def test_receipts_are_copied_and_progress_has_no_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    desk = Desk.made(tmp_path)
    write_llama(desk.work / "model", vocab_size=3000)
    (desk.work / "names.txt").write_text("Quuxholm\nWyvern\n")
    words = ("protect", "model", "copies", "--owner", "Xylophonia", "--recipients", "names.txt", "--utility", "no")
    (desk.work / "settings.json").write_text(ExploreSettings(parameters=PARAMETERS, recipients=2).to_json())
    more = ("--parameters", "settings.json", "--report", "receipts")
    written = desk.here(capfd, *words, *more)
    assert written.status == 0, written.said
    (file,) = written.answer["files"]
    assert file == str(desk.work / "receipts" / "receipts.csv")
    rows = list(csv.DictReader(io.StringIO(Path(file).read_bytes().decode("utf-8-sig"))))
    assert [row["recipient"] for row in rows] == ["Quuxholm", "Wyvern"]
    assert {Path(row["folder"]).name for row in rows} == {path.name for path in (desk.work / "copies").iterdir()}
    assert not [name for name in ("Quuxholm", "Wyvern", "Xylophonia") if name in written.said]
    again = desk.here(capfd, *words, "--parameters", "settings.json")
    assert (again.status, again.answer["files"], again.answer["error"]["type"]) == (2, [], "RecipientListError")


@pytest.mark.slow
def test_the_unmarked_original_is_not_found(desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]) -> None:
    missed = desk.here(capfd, "investigate", "model", "--original", "model", "--quiet")
    assert (missed.status, missed.answer["outcome"]) == (1, "not found")
    assert missed.answer["result"]["whose"] == []
    assert missed.said == "Not found: 1 of 1 key tried, none of them fits.\n"


def test_garbage_is_an_error_in_parts(desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]) -> None:
    (desk.work / "garbage.safetensors").write_bytes(b"\xff" * 64)
    failed = desk.here(capfd, "investigate", "garbage.safetensors", "--original", "model")
    error = failed.answer["error"]
    assert (failed.status, failed.answer["outcome"], failed.answer["job"]["state"]) == (2, "error", "failed")
    assert set(error) == {"type", "problem", "file", "tensor", "expected", "found", "advice"}
    assert "garbage.safetensors" in error["file"]
    assert failed.said.splitlines()[-1].startswith("Error: ")
    assert error["problem"].rstrip(".") in failed.said


@pytest.mark.slow
def test_unreadable_suspects_are_not_cleared(desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("torn", "torn-too"):
        (desk.work / "suspects" / name).mkdir(parents=True)
        (desk.work / "suspects" / name / "model.safetensors").write_bytes(b"\xff" * 64)
    swept = desk.here(capfd, "investigate", "suspects", "--original", "model", "--report", "swept")
    assert (swept.status, swept.answer["outcome"], swept.answer["job"]["kind"]) == (3, "inconclusive", "sweep")
    rows = swept.answer["result"]["suspects"]
    assert [Path(row["suspect"]).parts[0] for row in rows] == ["torn", "torn-too"]
    assert all(row["error"]["problem"] for row in rows)
    assert {path.name for path in (desk.work / "swept").iterdir()} == {
        "sweep.html",
        "sweep.json",
        "sweep.signature.json",
    }
    assert swept.said.splitlines()[-1] == "Found in 0 of 2 suspects; 2 could not be examined."


@pytest.mark.slow
def test_trace_names_the_sources_of_a_mixture(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    original = write_llama(desk.work / "large", vocab_size=1500)
    model = irwm.open_checkpoint(original)
    keys = make_keys(model, ["Ada", "Ben", "Cleo"])
    put_in_vault(desk.vault(), [*keys, irwm.generate_key(model, owner="Example Labs", recipient="Without noise")])
    copies = [Path(irwm.insert(model, key, desk.work / f"copy-{key.recipient}").path) for key in keys[:2]]
    averaged(copies, desk.work / "mixture")
    traced = desk.here(capfd, "trace", "mixture", "--original", "large")
    assert (traced.status, traced.answer["outcome"]) == (0, "named")
    assert sorted(traced.answer["result"]["whose"]) == ["Ada", "Ben"]
    assert traced.answer["result"]["keys_tried"] == 3
    assert traced.said.splitlines()[-1].startswith("Named: ")


@pytest.mark.slow
def test_keys_without_noise_cannot_trace(desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]) -> None:
    plain = desk.here(capfd, "protect", "model", "plain", "--owner", "Plain Labs", "--preset", "paper")
    assert plain.status == 0
    refused = desk.here(capfd, "trace", "plain", "--original", "model", "--matching", "Plain Labs")
    assert (refused.status, refused.answer["error"]["type"], refused.answer["job"]) == (2, "NoNoiseError", None)


def test_a_wrong_passphrase_opens_nothing(desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]) -> None:
    before = desk.jobs.recent()
    wrong = "umbrella-quartz-lantern-tidf"
    refused = desk.here(capfd, "protect", "model", "other", "--owner", "Example Labs", passphrase=wrong)
    assert (refused.status, refused.answer["error"]["type"]) == (2, "WrongPassphraseError")
    assert desk.jobs.recent() == before
    assert not (desk.work / "other").exists()
    assert wrong not in refused.said + json.dumps(refused.answer)


def test_only_init_makes_a_vault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bare = Desk(tmp_path / "home", tmp_path)
    refused = bare.here(capfd, "protect", "model", "other", "--owner", "Example Labs")
    assert (refused.status, refused.answer["error"]["type"]) == (2, "VaultMissingError")
    assert "init" in refused.answer["error"]["advice"]
    short = bare.here(capfd, "init", passphrase="too short")
    assert (short.status, short.answer["error"]["type"]) == (2, "PassphraseRefusedError")
    assert not Vault.exists(bare.home)


def test_refusal_before_the_start_has_no_job(desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]) -> None:
    (desk.work / "names.csv").write_text("a,b\nc,d\n")
    (desk.work / "settings.json").write_text("{}")
    protect = ("protect", "model", "other", "--owner", "Example Labs")
    investigate = ("investigate", "release", "--original", "model")
    for arguments, kind in (
        (("protect", "nowhere", "other", "--owner", "x"), "IrwmError"),
        (("protect", "model", "release", "--owner", "x"), "OutputExistsError"),
        ((*protect, "--recipients", "names.csv"), "RecipientListError"),
        ((*protect, "--parameters", "settings.json"), "SettingsTextError"),
        ((*protect, "--label", "x" * 501), "IrwmError"),
        ((*protect, "--report", "receipts"), "IrwmError"),
        ((*protect, "--recipients", "names.csv", "--report", "release"), "OutputExistsError"),
        ((*investigate, "--report", "release"), "OutputExistsError"),
        ((*investigate, "--report", "names.csv"), "OutputExistsError"),
        ((*investigate, "--keys", "0123"), "IrwmError"),
        ((*investigate, "--seen", "May"), "IrwmError"),
    ):
        refused = desk.here(capfd, *arguments)
        assert (refused.status, refused.answer["error"]["type"], refused.answer["job"]) == (2, kind, None), arguments
        assert refused.said.startswith("Error: "), arguments
    assert not (desk.work / "other").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["protect"],
        ["protect", "model", "out", "--owner", "x", "--recipient", "y", "--recipients", "z"],
        ["investigate"],
        ["investigate", "a", "--original", "b", "--seed", "one"],
        ["nonsense"],
        ["protect", "a", "b", "--own", "x"],
    ],
)
def test_bad_usage_is_a_usual_error(desk: Desk, capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    refused = desk.here(capfd, *arguments)
    assert (refused.status, refused.answer["outcome"]) == (2, "error")
    assert refused.answer["error"]["problem"]
    assert "--help" in refused.answer["error"]["advice"]
    assert refused.said.startswith("usage: python app.py")


def test_crash_is_not_a_verdict(desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object, **__: object) -> None:
        raise RuntimeError(f"a text that quotes {PASSPHRASE}")

    monkeypatch.setattr("ui.command.run.requests.protect", burst)
    failed = desk.here(capfd, "protect", "model", "other", "--owner", "x")
    assert (failed.status, failed.answer["error"]["type"]) == (2, "RuntimeError")
    assert PASSPHRASE not in failed.said + json.dumps(failed.answer)
    assert "in burst" in failed.said


def test_key_is_opened_for_an_expert_and_logged(
    desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = desk.vault()
    (record,) = [each for each in vault.keys() if each.recipient == "Åsa"]
    folder = desk.work / "for the expert"
    folder.mkdir()
    done = desk.here(capfd, "open-key", record.commitment[:12], "for the expert")
    file = folder / f"key-model-Asa-{record.commitment[:16]}.irwm-key"
    assert (done.status, done.answer["outcome"], done.answer["files"]) == (0, "opened", [str(file)])
    assert irwm.Key.from_bytes(file.read_bytes()).commitment == record.commitment
    assert file.stat().st_mode & 0o777 == 0o600
    assert "key opened" in [entry.event for entry in desk.vault().audit_log()]
    again = desk.here(capfd, "open-key", record.id, "for the expert")
    assert (again.status, again.answer["error"]["type"]) == (2, "OutputExistsError")


@pytest.mark.parametrize(
    ("key", "folder"), [("0000000000", "."), ("Example Labs", "."), ("Åsa", "."), ("0000000000", "nowhere")]
)
def test_ambiguous_key_or_folder_opens_no_key(
    desk: Desk, released: Answered, capfd: pytest.CaptureFixture[str], key: str, folder: str
) -> None:
    put_in_vault(desk.vault(), make_keys(irwm.open_checkpoint(desk.work / "model"), ["Bo", "Cy"]))
    refused = desk.here(capfd, "open-key", key, folder)
    assert (refused.status, refused.answer["outcome"]) == (2, "error")
    assert refused.answer["error"]["advice"]
    assert not list(desk.work.glob("*.irwm-key"))


@pytest.mark.slow
def test_help_needs_no_library_and_commands_no_gradio() -> None:
    code = (
        "import sys, app\n"
        "try: app.main(['protect', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'gradio', 'irwm'} & set(sys.modules)\n"
        "import ui.command.run\n"
        "assert not {'gradio', 'plotly', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    for name in ("MODEL", "--recipients", "--passphrase-fd", "exit status"):
        assert name in done.stdout


def test_command_line_choices_match_known_names() -> None:
    assert DEVICES == KNOWN_DEVICES
    assert set(UTILITIES) == set(requests.UTILITIES)
    assert PRESETS == ("standard", "many", "paper")
    assert set(TYPED.values()) == set(KNOWN_PRESETS)
    assert COMMANDS == ("init", "protect", "investigate", "trace", "watch", "collect", "open-key", "attest")
    assert sorted(set(output.EXIT.values())) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_stopped_command_leaves_no_partial_output_and_shows_no_secret(desk: Desk) -> None:
    """SIGTERM during the copies for many recipients; meanwhile, the data that every process shows to others."""
    key = desk.vault().hand_over()
    (desk.work / "many.txt").write_text("\n".join(f"Recipient {n}" for n in range(RECIPIENTS)))
    process = desk.start("protect", "model", "copies", "--owner", "Example Labs", "--recipients", "many.txt")
    out = desk.work / "copies"
    until(
        lambda: process.poll() is not None or (out.is_dir() and len(finished(out)) >= 2),
        "the first copies in the folder",
    )
    assert process.poll() is None, process.communicate()
    job = next(job for job in desk.jobs.recent() if job.state == "running")
    for pid in (process.pid, job.pid):
        for file in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid}/{file}").read_bytes()
            assert shown
            assert not [x for x in (PASSPHRASE.encode(), key, key.hex().encode()) if x in shown], (pid, file)
    process.send_signal(signal.SIGTERM)
    answered, said = until_ended(process, "the stopped command")
    answer = json.loads(answered)
    assert (process.returncode, answer["outcome"], answer["job"]["state"]) == (4, "stopped", "stopped"), said
    assert not os.path.exists(f"/proc/{job.pid}/cmdline") or not Path(f"/proc/{job.pid}/cmdline").read_bytes()
    assert 2 <= len(finished(out)) < RECIPIENTS
    assert [path.name for path in out.iterdir() if path not in finished(out)] == []


@pytest.mark.slow
def test_a_signal_before_the_start_stops_the_command_too(desk: Desk) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"half a passphrase")
    typed = ["protect", "model", "never", "--owner", "x", "--passphrase-fd", str(reading)]
    process = subprocess.Popen(
        [sys.executable, REPOSITORY / "app.py", *typed],
        env=desk.environment(),
        cwd=desk.work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[reading],
    )
    until(lambda: not left(reading), "the command to read this and to wait for the rest of the line")
    process.send_signal(signal.SIGTERM)
    answered, said = process.communicate(timeout=PATIENCE)
    os.close(reading)
    os.close(writing)
    assert (process.returncode, json.loads(answered)["outcome"]) == (4, "stopped"), said
    assert not (desk.work / "never").exists()


def left(descriptor: int) -> int:
    """Bytes in a pipe."""
    count = array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def finished(out: Path) -> list[Path]:
    return [path for path in out.iterdir() if (path / "SHA256SUMS").exists() and not path.name.endswith(".partial")]
