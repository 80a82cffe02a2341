"""The exit code of `irwm verify` for every kind of file that a person may receive (docs/verifying.md).

0: signed by the given identity, and every number was computed again. 2: not established. 1: a check fails.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from irwm.__main__ import main
from irwm.errors import path_from
from irwm.language import ENGLISH
from irwm.report import from_json, sandbox, wording
from irwm.report.checks import Verification
from irwm.report.reader_inputs import Brought
from irwm.report.received import SIGNATURE
from irwm.report.review import AGREES, READ
from irwm.report.verify import verified
from irwm.report.write import write_document
from storage.backup import back_up
from storage.case_archive import export_case
from tests.ownership.authority import make_authority
from tests.report.of_jobs import SEEN, Desk
from ui.components.commitment_box import commitment_of
from ui.services.review import ReviewRequest, file_review
from ui.services.stamps import own_request

pytestmark = pytest.mark.slow

OTHER = "ab" * 32
IDENTITY, ROOT, EVERYTHING = "identity", "root", "everything"


@dataclass(frozen=True)
class Made:
    """One file of every kind, by its kind, and the other inputs of the reader."""

    files: dict[str, Path]
    identity: str
    root: Path
    brought: dict[str, list[object]]

    def code(self, kind: str, given: Sequence[str], path: Path | None = None) -> int:
        """The command's exit code for a file of this kind and these inputs."""
        known: dict[str, list[object]] = {
            IDENTITY: ["--identity", self.identity],
            ROOT: ["--tsa-root", self.root],
            EVERYTHING: self.brought.get(kind, []),
        }
        options = [option for each in given for option in known.get(each, ["--identity", each])]
        return main(["verify", *map(str, [path or self.files[kind], *options])])


@pytest.fixture(scope="module")
def made(desk: Desk, files: dict[str, Path]) -> Made:
    files = dict(files)
    files["outsiders"] = files["report"].with_name(f"{files['report'].stem}-without-rows.zip")
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
    files["review"], files["review alone"] = _reviews(desk, files["report"], others)
    log = ["--audit-log", desk.exported_log()]  # after the review was signed
    brought["review"] = brought["review alone"] = ["--identity", desk.identity, *log]
    return Made(files, desk.identity, files["root.pem"], brought)


def _reviews(desk: Desk, report: Path, folder: Path) -> tuple[Path, Path]:
    """A review next to its report, and alone."""
    near, alone = folder / "reviewed", folder / "review-alone"
    near.mkdir()
    alone.mkdir()
    for file in report.parent.glob(f"{report.stem}.*"):
        shutil.copy(file, near)
    asked = ReviewRequest(reviewer="B. Second", extent=READ, conclusion=AGREES)
    _, files = file_review(asked, report.name, report.read_bytes(), verified(report, Brought()), desk.vault, ENGLISH)
    for name, content in files.items():
        (near / name).write_bytes(content)
        (alone / name).write_bytes(content)
    (name,) = (name for name in files if name.endswith(".json") and not name.endswith(SIGNATURE))
    return near / name, alone / name


def _unsigned(path: Path) -> dict[str, Any]:
    document = from_json(path.read_bytes())
    status = {name: value for name, value in document["status"].items() if name != "custody"}
    return document | {"status": status | {"signed": False, "note": wording.STATUS}}


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifies here; tests/report/test_main.py starts the child process."""

    def answer(asked: Mapping[str, Any], seconds: int | None) -> Verification:
        roots = asked["roots_pem"]
        brought = Brought(asked["identity"], roots and roots.encode("ascii"))
        if asked["brought"] is not None:
            brought = Brought.from_dict(asked["brought"])
        return verified(path_from(asked["path"]), brought)

    monkeypatch.setattr(sandbox, "_answer_of_child", answer)


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
    ("review", (EVERYTHING,), 2),  # it is an opinion
    ("review", (OTHER,), 1),
    ("review alone", (EVERYTHING,), 2),
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
def test_every_kind_of_file_has_its_exit_code(
    made: Made, capsys: pytest.CaptureFixture[str], kind: str, given: tuple[str, ...], code: int
) -> None:
    assert made.code(kind, given) == code
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.rstrip().endswith(".")


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def first_report(path: Path, ending: str = ".json") -> Path:
    """A file of the first report of a sweep."""
    row = next(row for row in json.loads(path.read_bytes())["rows"] if row["error"] is None)
    return path.with_name(row["json"].replace(".json", ending))


def flipped(ending: str) -> Callable[[Path], object]:
    return lambda path: flip(path.with_suffix(ending))


def replaced(ending: str) -> Callable[[Path], object]:
    """Another file in the place of one of the sweep's, which nobody signed."""
    return lambda path: first_report(path, ending).write_bytes(b"%PDF-1.7 acquitted")


# Kind, what is changed in a copy of its folder, and the exit code.
CHANGED: list[tuple[str, Callable[[Path], object], int]] = [
    ("report", flipped(".json"), 1),
    ("report", flipped(".html"), 1),
    ("report", flipped(".pdf"), 1),
    ("report", flipped(".signature.json"), 1),
    ("report", lambda path: path.with_suffix(".signature.json").unlink(), 1),
    ("lab", flipped(".json"), 1),
    ("lab", flipped(".signature.json"), 1),
    ("sweep", flipped(".json"), 1),
    ("sweep", flipped(".html"), 1),
    ("sweep", lambda path: flip(first_report(path)), 1),
    ("sweep", lambda path: first_report(path).unlink(), 2),
    ("sweep", replaced(".pdf"), 1),
    ("sweep", replaced(".html"), 1),
    ("sweep", replaced(".signature.json"), 1),
    ("dispute", flipped(".json"), 1),
    ("dispute", flipped(".signature.json"), 1),
]


@pytest.mark.parametrize(("kind", "change", "code"), CHANGED)
def test_changed_file_has_its_exit_code(
    made: Made, tmp_path: Path, kind: str, change: Callable[[Path], object], code: int
) -> None:
    path = shutil.copytree(made.files[kind].parent, tmp_path / "copy") / made.files[kind].name
    change(path)
    assert made.code(kind, (IDENTITY, ROOT), path) == code


def test_a_page_of_another_name_in_a_reports_folder_is_noticed(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in made.files["report"].parent.glob("report.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "report 2.pdf").write_bytes(b"%PDF-1.7 acquitted")
    assert made.code("report", (IDENTITY, ROOT), tmp_path) == 2
    assert "report 2" in capsys.readouterr().out


def test_a_foreign_root_ends_with_1(made: Made, tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_bytes(make_authority(tmp_path / "authority").root)
    command = ["verify", made.files["report"], "--identity", made.identity, "--tsa-root", tmp_path / "other.pem"]
    assert main(list(map(str, command))) == 1
