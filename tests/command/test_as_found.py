"""One suspect, one verdict: from Python, by `irwm detect`, by the app's command and on the page."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import irwm
from irwm.__main__ import main
from irwm.errors import shown_path
from tests.checkpoint.as_found import KINDS
from tests.command.commands import Desk
from tests.jobs.recipients import PARAMETERS, make_keys, put_in_vault
from tools.small_models import write_llama
from ui.pages.investigate import described

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A vault with one key, its original, its release, and the opened key."""
    desk = Desk.made(tmp_path_factory.mktemp("desk"))
    # Tied, so that no head of the embedding's size is read as well if the config is contradicted.
    model = irwm.open_checkpoint(write_llama(desk.work / "model", vocab_size=1200, tie_word_embeddings=True))
    (key,) = make_keys(model, ["Ada"], PARAMETERS)
    irwm.insert(model, key, desk.work / "release")
    (desk.work / "opened.key").write_bytes(key.to_bytes())
    put_in_vault(desk.vault(), [key])
    return desk


def verdict_of(path: Path, original: irwm.Checkpoint, key: irwm.Key) -> str:
    try:
        return irwm.detect(irwm.open_suspect(path, original), original, key).verdict
    except irwm.IrwmError:
        return "inconclusive"  # a suspect that could not be examined is not cleared


@pytest.mark.fault(100)
@pytest.mark.sampled(2)  # of each kind either the release or the original; tests/checkpoint reads all of them
@pytest.mark.parametrize("marked", [True, False], ids=["release", "original"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_point_gives_one_verdict(
    desk: Desk, capfd: pytest.CaptureFixture[str], tmp_path: Path, kind: str, marked: bool
) -> None:
    original = irwm.open_checkpoint(desk.work / "model")
    key = irwm.Key.from_bytes((desk.work / "opened.key").read_bytes())
    given = KINDS[kind](desk.work / ("release" if marked else "model"), tmp_path / "suspect")
    paths = irwm.find_checkpoints(given).paths if given.is_dir() else (given,)
    verdicts = {verdict_of(path, original, key) for path in paths}
    verdict = next(word for word in ("found", "inconclusive", "not found") if word in verdicts)
    assert (verdict == "found") == marked
    arguments = ["detect", str(given), "--original", str(original.path), "--key", str(desk.work / "opened.key")]
    status = {"found": 0, "not found": 1, "inconclusive": 3}[verdict]
    assert main([*arguments, "--json"]) == status
    command = desk.here(capfd, "investigate", shown_path(given), "--original", "model", "--quiet")
    assert (command.status, command.answer["outcome"]) == (status, verdict), command.said
    # The page's message before the work begins: the suspect can be opened.
    assert [sound for _, sound in described(shown_path(given), str(original.path))][-1]


@pytest.mark.fault(99)
def test_a_copy_among_unmarked_models_is_found_under_a_name_that_is_not_utf_8(
    desk: Desk, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        shutil.copytree(desk.work / "model", tmp_path / "all" / name)
    KINDS["name in Latin-1"](desk.work / "release", tmp_path / "all" / "deeper")
    swept = desk.here(capfd, "investigate", tmp_path / "all", "--original", "model", "--quiet", "--report", "swept")
    assert (swept.status, swept.answer["outcome"]) == (0, "found")
    verdicts = {row["suspect"]: row["verdict"] for row in swept.answer["result"]["suspects"]}
    assert verdicts == {"deeper/mod\\xe8le": "found", "one": "not found", "two": "not found"}
    overview = json.loads((desk.work / "swept" / "sweep.json").read_text("utf-8"))
    assert [row["path"] for row in overview["rows"]] == sorted(verdicts)
    assert "mod\\xe8le" in (desk.work / "swept" / "sweep.html").read_text("utf-8")


@pytest.mark.fault(99)
def test_paths_that_are_not_utf_8_are_taken_and_written(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    original = KINDS["name in Latin-1"](desk.work / "model", desk.work / "latin")
    out, given = original.parent / os.fsdecode(b"copy\xff"), original.parent / os.fsdecode(b"report\xfe")
    made = desk.here(capfd, "protect", original, out, "--owner", "Us", "--recipient", "Bolt", "--quiet")
    assert (made.status, made.answer["outcome"]) == (0, "written"), made.said
    looked = desk.here(capfd, "investigate", out, "--original", original, "--quiet", "--report", given)
    assert (looked.status, looked.answer["outcome"]) == (0, "found"), looked.said
    assert list(given.glob("report-copy-xff-??????.json"))
