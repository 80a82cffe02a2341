"""`python app.py watch`: one pass, or one after the other until it is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.command.commands import Desk
from tools.small_models import write_llama
from tools.waiting import until, until_ended


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A vault with one original, whose release is in the folder "suspects"."""
    desk = Desk.made(tmp_path_factory.mktemp("desk"))
    write_llama(desk.work / "model", vocab_size=1200)
    write_llama(desk.work / "suspects" / "other", vocab_size=1500, hidden_size=96, seed=5)
    words = ("protect", "model", "suspects/copy", "--owner", "Labs", "--recipient", "Ada", "--utility", "no")
    process = desk.start(*words)
    until_ended(process, "the command protect")
    assert process.returncode == 0
    return desk


@pytest.mark.slow
def test_one_pass(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    first = desk.here(capfd, "watch", "suspects", "--quiet")
    assert (first.status, first.answer["outcome"]) == (0, "found"), first.said
    result = first.answer["result"]
    assert result["counts"] == {"found": 1, "no match": 1}
    assert [(row["name"], row["result"]["whose"]) for row in result["rows"]] == [("copy", ["Ada"])]
    assert first.answer["job"]["kind"] == "watch"
    assert first.said == ("2 new suspects: 1 with a mark, 1 like no original. Marks found so far: copy (Ada).\n")
    second = desk.here(capfd, "watch", "suspects", "--quiet", "--original", "model", "--seconds", "60")
    assert (second.status, second.answer["result"]["counts"]) == (0, {})


def test_wrong_arguments_are_errors(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["nowhere"], ["hf://?sort=x"], ["suspects", "--every", "0"], ["suspects", "--most", "0"]):
        answered = desk.here(capfd, "watch", *words)
        assert (answered.status, answered.answer["outcome"]) == (2, "error"), words
        assert answered.answer["job"] is None


def document_of(process: subprocess.Popen[str]) -> dict[str, object]:
    """The next document that the command prints."""
    assert process.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = process.stdout.readline()
        assert line, text
        text += line
    found: dict[str, object] = json.loads(text)
    return found


@pytest.mark.slow
def test_passes_follow_each_other_until_a_signal(desk: Desk) -> None:
    process = desk.start("watch", "suspects", "--every", "0.0003", "--quiet")
    assert process.stdout is not None
    documents = [document_of(process) for _ in range(2)]
    assert [each["outcome"] for each in documents] == ["found", "found"]
    (desk.work / "suspects").rename(desk.work / "away")
    while documents[-1]["outcome"] != "error":
        documents.append(document_of(process))
    (desk.work / "away").rename(desk.work / "suspects")
    while documents[-1]["outcome"] == "error":
        documents.append(document_of(process))
    process.send_signal(signal.SIGTERM)
    out, said = until_ended(process, "the command watch")
    last = json.loads(out)
    assert documents[-1]["outcome"] == "found"
    assert (process.returncode, last["outcome"]) == (4, "stopped"), said
    until(lambda: all(job.is_over for job in desk.jobs.recent()), "the end of its jobs")
    assert Path(desk.work / "suspects" / "copy").is_dir()
