"""`irwm verify`, `inspect` and `detect`, run as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import irwm
from irwm.__main__ import _OPTIONS, main
from irwm.report import sandbox
from irwm.report.checks import HOLDS, NEEDED
from irwm.report.reader_inputs import Brought
from irwm.report.write import write_document
from tests.report.conftest import Examined
from tests.report.signers import Signatory, log_of
from tools.waiting import PATIENCE


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "irwm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def signed(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    write_document(folder, whole.document, signer=Signatory().signer())
    (folder / "opened.key").write_bytes(whole.key.to_bytes())
    (folder / "audit-log.jsonl").write_bytes(log_of())
    return folder


def test_everything_that_a_report_can_need_has_its_option():
    assert set(_OPTIONS) == set(NEEDED)


@pytest.mark.slow
def test_valid_report_exits_0_and_lists_checks(signed, whole):
    said = run(
        "verify", signed / "report.json", "--identity", Signatory().first, "--suspect", whole.suspect.path,
        "--original", whole.model.path, "--key", signed / "opened.key", "--audit-log", signed / "audit-log.jsonl",
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    lines = said.stdout.splitlines()
    checks = lines[: lines.index("Stated by the signer and not confirmed by the given files:")]
    assert {line.split()[0] for line in checks} == {"holds"}
    assert len(checks) == 17
    assert lines[-1] == HOLDS
    assert said.stderr == ""


@pytest.mark.slow
def test_without_other_files_the_options_that_give_them_are_listed(signed, capsys):
    assert main(["verify", str(signed)]) == 2
    lines = capsys.readouterr().out.splitlines()
    needed = lines[lines.index("To check these as well, give:") + 1 : -1]
    assert [line.split()[0] for line in needed] == ["--identity", "--suspect", "--original", "--key", "--audit-log"]


@pytest.mark.slow
def test_changed_report_exits_1_with_inert_text(signed, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "\u202egnp\x1b[31m")
    page = folder / "report.html"
    page.write_text(page.read_text(encoding="utf-8").replace("Northwind", "\x1b[2J\u202e", 1), encoding="utf-8")
    said = run("verify", folder)
    assert said.returncode == 1
    assert [line.split()[1] for line in said.stdout.splitlines() if line.startswith("FAILS")] == ["files:", "page:"]
    assert not {"\x1b", "\u202e"} & set(said.stdout + said.stderr)


def test_uncheckable_report_exits_2(tmp_path, capsys):
    report = str(tmp_path / "none.json")
    assert main(["verify", report, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["exit_code"], answer["checks"][0]["ok"]) == (False, 2, None)
    (tmp_path / "no.key").write_text("not a key")
    assert main(["verify", report, "--key", str(tmp_path / "no.key")]) == 2
    assert "key" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["verify"])
    assert ended.value.code == 2


def test_help_needs_no_libraries_of_a_check():
    code = """
import sys
from pathlib import Path
from irwm.__main__ import _OPTIONS, main
try:
    main(["verify", "--help"])
except SystemExit:
    print({"torch", "plotly", "jinja2", "irwm.report.verify"} & set(sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert said.stdout.splitlines()[-1] == "set()"
    assert "Exit code" in said.stdout


def test_inspect_describes_a_checkpoint(found, capsys):
    assert main(["inspect", str(found.model.path), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["family"], about["fingerprint"]) == ("llama", found.model.fingerprint)
    assert main(["inspect", str(found.model.path)]) == 0
    assert f"fingerprint:  {found.model.fingerprint}" in capsys.readouterr().out.splitlines()


def test_inspect_of_another_file_ends_with_2(tmp_path, capsys):
    assert main(["inspect", str(tmp_path / "\u202enone")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "\u202e" not in said.err
    assert said.err.count("\n") == 1


def test_map_shows_which_model_was_made_from_which(found, tmp_path, capsys):
    original, release = str(found.model.path), str(found.suspect.path)
    assert main(["map", release, "--original", original, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(each["first"], each["second"], each["direction"]) for each in answer["branches"]] == [(0, 1, "original")]
    assert main(["map", release, original]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "direction unknown" in lines[1]
    assert main(["map", str(tmp_path / "none")]) == 2


def test_detect_prints_the_verdict_corrected_for_every_key(found, not_found, tmp_path, capsys):
    for name, case in (("ours", found), ("other", not_found)):
        (tmp_path / name).write_bytes(case.key.to_bytes())
    asked = ["detect", str(found.suspect.path), "--original", str(found.model.path), "--json", "--key"]
    assert main([*asked, str(tmp_path / "other")]) == 1
    assert [each["verdict"] for each in json.loads(capsys.readouterr().out)["keys"]] == ["not found"]
    assert main([*asked, str(tmp_path / "ours"), "--key", str(tmp_path / "other")]) == 0
    both = json.loads(capsys.readouterr().out)
    assert (both["exit_code"], [each["verdict"] for each in both["keys"]]) == (0, ["found", "not found"])
    assert both["keys"][0]["recipient"] == "Northwind"
    expected = irwm.detect(found.suspect, found.model, found.key, keys_tried=2)
    assert (both["keys"][0]["log10_p"], both["keys"][0]["reason"]) == (expected.log10_p, expected.reason)


def test_detect_on_an_inconclusive_suspect_exits_3(inconclusive, tmp_path, capsys):
    (tmp_path / "key").write_bytes(inconclusive.key.to_bytes())
    suspect, original = str(inconclusive.suspect.path), str(inconclusive.model.path)
    assert main(["detect", suspect, "--original", original, "--key", str(tmp_path / "key")]) == 3
    assert capsys.readouterr().out.splitlines()[0].endswith(": inconclusive")


def test_detect_examines_each_suspect_of_a_folder(found, not_found, tmp_path, capsys):
    key, folder = tmp_path / "key", tmp_path / "suspects"
    key.write_bytes(found.key.to_bytes())
    shutil.copytree(not_found.model.path, folder / "one")
    (folder / "broken.gguf").write_bytes(b"GGUF")
    asked = ["detect", str(folder), "--original", str(found.model.path), "--key", str(key)]
    assert main([*asked, "--json"]) == 3, "suspects that could not be examined are not dismissed"
    answer = json.loads(capsys.readouterr().out)
    assert [row["suspect"] for row in answer["suspects"]] == ["broken.gguf", "one"]
    assert answer["suspects"][0]["error"]
    shutil.copytree(found.suspect.path, Path(os.fsdecode(os.fsencode(folder) + b"/mod\xe8le")))
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("mod\\xe8le:") + 1].strip() == f"{key}: found"


@pytest.mark.slow
def test_a_process_killed_by_the_models_leaves_the_report_open(
    signed: Path, whole: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If memory runs out, the report is not at fault: it stays open as without the models."""
    real, asked = sandbox._answer_of_child, []

    def ended(request, seconds):
        asked.append(seconds)
        if len(asked) == 1:
            return real(request, seconds)
        raise sandbox._EndedError("the verifier ended early, probably because the computer ran out of memory (-9)")

    monkeypatch.setattr(sandbox, "_answer_of_child", ended)
    brought = Brought(suspect=whole.suspect.path, original=whole.model.path, keys=(whole.key,))
    found = sandbox.judge_report(signed / "report.json", Signatory().first, brought=brought)
    assert asked == [sandbox.SECONDS, None]
    assert found.exit_code == 2
    assert "ran out of memory" in found.checks[-1].said
