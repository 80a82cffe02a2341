"""The exit code of `irwm verify`, as a process, for every kind of file that a person may receive (docs/verifying.md).

0: signed by the given identity, and every number was computed again. 2: not established. 1: a check fails.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from irwm.report import from_json, wording
from irwm.report.write import write_document
from storage.backup import back_up
from storage.case_archive import export_case
from tests.ownership.authority import make_authority
from tests.report.of_jobs import SEEN, Desk
from tests.report.test_main import run
from ui.components.commitment_box import commitment_of
from ui.services.stamps import own_request

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
OTHER = "ab" * 32
IDENTITY, ROOT, EVERYTHING = "identity", "root", "everything"


@dataclass(frozen=True)
class Made:
    """One file of every kind, by its kind, and the other inputs of the reader."""

    folder: Path
    files: dict[str, Path]
    identity: str
    root: Path
    brought: dict[str, list[object]]

    def options(self, kind: str, given: Sequence[str]) -> list[object]:
        """The command's options for the given inputs."""
        known: dict[str, list[object]] = {
            IDENTITY: ["--identity", self.identity],
            ROOT: ["--tsa-root", self.root],
            EVERYTHING: self.brought.get(kind, []),
        }
        return [option for each in given for option in known.get(each, ["--identity", each])]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All files, made by real tasks with a real vault and a real authority."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    files = {"report": desk.traced(), "sweep": desk.sweep(), "lab": desk.lab(), "dispute": desk.dispute(trusting=True)}
    files["outsiders"] = files["report"].with_name("report-without-rows.zip")
    others = desk.root / "others"
    others.mkdir()
    write_document(others / "unsigned", _unsigned(files["report"]))
    files["unsigned"] = others / "unsigned" / "report.json"
    for ending in ("html", "pdf", "signature.json"):
        (others / ending).mkdir()
        files[ending] = Path(shutil.copy(files["report"].with_suffix(f".{ending}"), others / ending))
    files["archive"] = export_case(desk.vault, desk.vault.cases()[0].id, others / "case.zip")
    files["backup"] = back_up(desk.vault.home, others / "backup.sqlite3")
    commitment = commitment_of(desk.vault, desk.vault.keys()[0].id)
    asked = own_request(commitment.digest)
    for name, content in {
        "commitment.json": commitment.to_bytes(),
        "stamp.tsq": asked,
        "stamp.tsr": desk.authority.answer(asked),
        "root.pem": desk.authority.root,
        "garbage.json": bytes(range(256)),
        "list.json": b"[1, 2]",
        "report.json.gz": b"\x1f\x8b" + bytes(100),
    }.items():
        files[name] = others / name
        files[name].write_bytes(content)
    files["empty folder"] = others / "empty"
    files["empty folder"].mkdir()
    files["no file"] = others / "none.json"
    common = ["--identity", desk.identity, "--tsa-root", files["root.pem"], "--seen", SEEN]
    common += ["--audit-log", desk.exported_log()]
    brought = {kind: [*common, *options] for kind, options in desk.brought.items()}
    brought["outsiders"] = brought["report"]
    return Made(desk.root, files, desk.identity, files["root.pem"], brought)


def _unsigned(path: Path) -> dict:
    document = from_json(path.read_bytes())
    status = {name: value for name, value in document["status"].items() if name != "custody"}
    return document | {"status": status | {"signed": False, "note": wording.STATUS}}


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


# Kind, other inputs, and the exit code.
AS_MADE = [
    ("report", (EVERYTHING,), 0),
    ("report", (IDENTITY, ROOT), 2),  # models, keys and log are not given
    ("report", (OTHER, ROOT), 1),
    ("outsiders", (EVERYTHING,), 0),
    ("outsiders", (IDENTITY, ROOT), 2),
    ("outsiders", (OTHER, ROOT), 1),
    ("lab", (EVERYTHING,), 2),  # attacks are not run again
    ("lab", (), 2),
    ("lab", (OTHER,), 1),
    ("sweep", (EVERYTHING,), 0),
    ("sweep", (IDENTITY, ROOT), 2),
    ("sweep", (OTHER,), 1),
    ("dispute", (EVERYTHING,), 0),
    ("dispute", (IDENTITY, ROOT), 2),
    ("dispute", (OTHER, ROOT), 1),
    ("unsigned", (), 2),
    ("unsigned", (IDENTITY,), 1),  # a signature was expected and is not there
    ("html", (IDENTITY,), 2),
    ("pdf", (IDENTITY,), 2),
    ("signature.json", (IDENTITY,), 2),
    ("archive", (IDENTITY,), 2),
    ("backup", (), 2),
    ("commitment.json", (), 2),
    ("stamp.tsq", (), 2),
    ("stamp.tsr", (), 2),
    ("root.pem", (), 2),
    ("report.json.gz", (), 2),
    ("empty folder", (), 2),
    ("no file", (), 2),
    ("garbage.json", (), 1),
    ("list.json", (), 1),
]


@pytest.mark.parametrize(("kind", "given", "code"), AS_MADE, ids=lambda value: str(value))
def test_every_kind_of_file_has_its_exit_code(made: Made, kind: str, given: tuple[str, ...], code: int) -> None:
    said = run("verify", made.files[kind], *made.options(kind, given))
    assert said.returncode == code, said.stdout + said.stderr
    assert said.stderr == ""
    assert said.stdout.rstrip().endswith(".")


CHANGED = [
    ("report", ".json"),
    ("report", ".html"),
    ("report", ".pdf"),
    ("report", ".signature.json"),
    ("lab", ".json"),
    ("lab", ".signature.json"),
    ("sweep", ".json"),
    ("sweep", ".html"),
    ("dispute", ".json"),
    ("dispute", ".signature.json"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "ending"), CHANGED)
def test_changed_byte_exits_1(made: Made, tmp_path: Path, kind: str, ending: str) -> None:
    folder = shutil.copytree(made.files[kind].parent, tmp_path / "copy")
    path = folder / made.files[kind].name
    flip(path.with_suffix(ending))
    said = run("verify", path, "--identity", made.identity, "--tsa-root", made.root)
    assert said.returncode == 1, said.stdout + said.stderr
    assert said.stdout.splitlines()[-1].startswith("Verification failed: ")


def test_changed_sweep_report_exits_1_and_missing_one_2(made: Made, tmp_path) -> None:
    folder = shutil.copytree(made.files["sweep"].parent, tmp_path / "copy")
    row = next(row for row in json.loads((folder / "sweep.json").read_bytes())["rows"] if row["error"] is None)
    flip(folder / row["json"])
    changed = run("verify", folder / "sweep.json", "--identity", made.identity, "--tsa-root", made.root)
    assert changed.returncode == 1, changed.stdout
    (folder / row["json"]).unlink()
    missing = run("verify", folder / "sweep.json", "--identity", made.identity, "--tsa-root", made.root)
    assert missing.returncode == 2, missing.stdout
    assert "numbers could not be checked" in missing.stdout.splitlines()[-1]


@pytest.mark.parametrize("ending", [".pdf", ".html", ".signature.json"])
def test_unsigned_files_next_to_a_sweeps_report_end_with_1(made: Made, tmp_path: Path, ending: str) -> None:
    folder = shutil.copytree(made.files["sweep"].parent, tmp_path / "copy")
    row = next(row for row in json.loads((folder / "sweep.json").read_bytes())["rows"] if row["error"] is None)
    name = folder / row["json"].replace(".json", ending)
    (folder / name).write_bytes(b"%PDF-1.7 acquitted")
    said = run("verify", folder / "sweep.json", "--identity", made.identity, "--tsa-root", made.root)
    assert said.returncode == 1, said.stdout


def test_a_page_of_another_name_in_a_reports_folder_is_noticed(made: Made, tmp_path: Path) -> None:
    folder = shutil.copytree(made.files["report"].parent, tmp_path / "copy")
    for path in folder.iterdir():
        if not path.name.startswith("report."):
            path.unlink()
    (folder / "report 2.pdf").write_bytes(b"%PDF-1.7 acquitted")
    said = run("verify", folder, "--identity", made.identity, "--tsa-root", made.root)
    assert said.returncode == 2, said.stdout
    assert "report 2" in said.stdout


def test_a_removed_signature_and_a_foreign_root_end_with_1(made: Made, tmp_path) -> None:
    folder = shutil.copytree(made.files["report"].parent, tmp_path / "copy")
    signature = folder / "report.signature.json"
    kept = signature.read_bytes()
    signature.unlink()
    assert run("verify", folder / "report.json").returncode == 1
    signature.write_bytes(kept)
    (tmp_path / "other.pem").write_bytes(make_authority(tmp_path / "authority").root)
    said = run("verify", folder / "report.json", "--identity", made.identity, "--tsa-root", tmp_path / "other.pem")
    assert said.returncode == 1, said.stdout
