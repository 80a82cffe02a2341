"""`python app.py collect`: permission, the plan, a kill in the middle, and the mark found at the end."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

import app
import irwm
from irwm.checkpoint import special_token_ids
from irwm.keys.queried_tokens import tokens_asked
from irwm.report.signature_file import ENDING
from irwm.report.verify import verify_report
from tests.command.commands import REPOSITORY, Answered, Desk, signals_kept
from tests.conftest import Marked
from tests.jobs.recipients import put_in_vault
from tests.recording.conftest import small
from tests.recording.servers import VOCABULARY, answering
from tools.waiting import until, until_ended
from ui.recording.journal import journal_of
from ui.recording.sending import TOKEN

__all__ = ["small"]
pytestmark = pytest.mark.usefixtures("no_token")
SECRET = "sk-very-secret-0123456789"


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)


def words(url: str, original: Path, out: Path, *more: str) -> list[str]:
    return ["collect", "--endpoint", url, "--model", "served", "--original", str(original), "--out", str(out),
            "--rate", "1000", *more]  # fmt: skip


def here(capfd: pytest.CaptureFixture[str], *arguments: str) -> Answered:
    """The command in this process, with nothing on standard input."""
    capfd.readouterr()
    with signals_kept(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", None)
        status = app.main(list(arguments))
    out, said = capfd.readouterr()
    return Answered(status, json.loads(out), said)


@pytest.mark.parametrize("allowed", [(), ("--plan",)])
def test_collect_sends_nothing_without_permission(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], allowed: tuple[str, ...]
) -> None:
    with answering(small) as server:
        done = here(capfd, *words(server.url, small, tmp_path / "a", "--answers", "30", *allowed))
    assert not server.asked
    assert not list(tmp_path.iterdir())
    assert "for 30 answers" in done.said
    assert "never sends keys or weights" in done.said
    if allowed:
        assert (done.status, done.answer["outcome"]) == (0, "planned")
        assert done.answer["result"]["requests"] == 30
        assert done.answer["result"]["requests_if_told"]["20"] == 30 * -(-(VOCABULARY - 1) // 19)
        assert done.said.splitlines()[-1].startswith("No request was sent.")
    else:
        assert (done.status, done.answer["error"]["type"]) == (2, "NotAllowedError")
        assert "--send" in done.said.splitlines()[-1]


def test_recording_is_answered_with_its_digest(small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.safetensors"
    with answering(small) as server:
        done = here(capfd, *words(server.url, small, out, "--answers", "20", "--send", "--quiet"))
    result = done.answer["result"]
    assert (done.status, done.answer["outcome"], done.answer["files"]) == (0, "recorded", [str(out)])
    assert result["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert (result["answers"], result["tokens"], result["requests"]) == (20, VOCABULARY, 20)
    assert done.said.splitlines()[-1].startswith("Recorded: 20 answers with 4 096 tokens each")
    again = here(capfd, *words("http://127.0.0.1:1", small, out, "--send"))
    assert (again.status, again.answer["error"]["type"]) == (2, "OutputExistsError")


def test_api_token_is_not_in_files_or_messages(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    out = tmp_path / "a"
    with answering(small, token=SECRET, faults={4: "echo"}) as server:
        refused = here(capfd, *words(server.url, small, out, "--answers", "20", "--send"))
        assert (refused.status, refused.answer["error"]["type"]) == (2, "RefusedError")
        kept = [each.read_bytes() for each in tmp_path.iterdir()]
        done = here(capfd, *words(server.url, small, out, "--answers", "20", "--send"))
    assert done.status == 0
    kept += [each.read_bytes() for each in tmp_path.iterdir()]
    shown = f"{refused.said}{refused.answer}{done.said}{done.answer}".encode() + b"".join(kept)
    assert len(kept) >= 2
    assert SECRET.encode() not in shown
    assert all(SECRET.encode() not in each.body for each in server.asked)


@pytest.mark.parametrize(
    "more",
    [
        *(["--endpoint", "http://me:secret@h/"], ["--api", "x"], ["--send", "--plan"], ["--rate", "0"]),
        *(["--original", "nowhere"], ["--out", "nowhere/a"], ["--tokens", "nowhere"], ["--answers", "3"]),
        *(
            ["--temperature", "0.5"],
            ["--max-tokens", "9"],
            ["--prompts", "chosen"],
            ["--api", "chat"],
            ["--generate", "--top", "5"],
        ),
        *(["--generate", "--inside"], ["--generate", "--tokens", "chosen"], ["--generate", "--answers", "0"]),
    ],
)
def test_wrong_collect_arguments_are_reported(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], more: list[str]
) -> None:
    done = here(capfd, *words("http://127.0.0.1:1", small, tmp_path / "a"), *more)
    assert (done.status, done.answer["outcome"]) == (2, "error")
    assert done.answer["error"]["type"] != "NotAllowedError", "refused before the missing permission is"
    assert "secret" not in done.said.replace("secret@", "")


@pytest.mark.slow
def test_token_list_is_requested(small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listed = tmp_path / "tokens.txt"
    listed.write_text("5, 7\n" + " ".join(map(str, range(100, 140))))
    more = ("--answers", "20", "--send", "--tokens", str(listed))
    with answering(small, most=20) as server:
        done = here(capfd, *words(server.url, small, tmp_path / "a", *more))
    assert (done.status, done.answer["result"]["told_at_once"]) == (0, False)
    tokens = irwm.read_answers(tmp_path / "a").token_ids
    assert tokens is not None
    assert tokens.tolist() == [5, 7, *range(100, 140)]


@pytest.mark.parametrize("text", ["1 two", "", "3 3", "9999"])
def test_invalid_token_list_is_refused(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    listed = tmp_path / "tokens.txt"
    listed.write_text(text)
    done = here(capfd, *words("http://127.0.0.1:1", small, tmp_path / "b", "--tokens", str(listed)))
    assert done.status == 2
    assert done.answer["error"]["type"] != "NotAllowedError", "refused before the missing permission is"


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, REPOSITORY / "app.py", *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGINT])
def test_resumed_recording_sends_no_prompt_twice(small: Path, tmp_path: Path, signal_: signal.Signals) -> None:
    out, middle, answer_it = tmp_path / "a", threading.Event(), threading.Event()

    def before(number: int) -> None:
        if number == 8:  # seven are answered, the eighth waits
            middle.set()
            answer_it.wait(60)

    with answering(small, before) as server:
        arguments = words(server.url, small, out, "--answers", "20", "--send")
        process = start(*arguments)
        assert until(lambda: middle.is_set() or process.poll() is not None, "the eighth request")
        process.send_signal(signal_)
        text, said = until_ended(process, "the command to end")
        answer_it.set()
        if signal_ == signal.SIGINT:
            assert (process.returncode, json.loads(text)["outcome"]) == (4, "stopped"), said
            assert json.loads(text)["result"] == {"answers_kept": 7}
            assert "the same command continues" in said
        assert not out.exists()
        assert journal_of(out).exists()
        process = start(*arguments)
        text, said = until_ended(process, "the resumed command")
        assert process.returncode == 0, said
        assert "already recorded: 7" in said
    prompts = [each.prompt for each in server.asked]
    assert len(set(prompts)) == len(prompts) == 21, "no prompt was sent twice, including the lost one"
    assert json.loads(text)["result"]["requests"] == 20
    found = irwm.read_answers(out)
    assert found.prompts == tuple(prompts[:7] + prompts[8:])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a"]


def test_generated_text_is_planned_then_recorded(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    with answering(small) as server:
        arguments = words(server.url, small, out, "--generate", "--answers", "5", "--max-tokens", "6")
        plan = here(capfd, *arguments, "--plan")
        choosing = here(capfd, *arguments, "--plan", "--prompts", "chosen")
        assert not server.asked
        done = here(capfd, *arguments, "--send", "--temperature", "0.8")
    assert [each.answer["result"]["prompts"] for each in (plan, choosing)] == ["random", "chosen"]
    assert "to choose the prompts" in choosing.said
    assert "to choose" not in plan.said
    assert (plan.status, plan.answer["result"]["tokens_at_most"]) == (0, 30)
    with_values, text = plan.answer["result"]["tokens_needed"].values()
    assert max(with_values) < min(text), "text alone takes more"
    assert "never sends keys or weights" in plan.said
    result = done.answer["result"]
    assert (done.status, done.answer["outcome"], done.answer["files"]) == (0, "recorded", [str(out)])
    assert result["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert (result["answers"], result["log_probabilities"]) == (5, True)
    assert result["tokens"] == irwm.read_responses(out, irwm.open_checkpoint(small)).tokens
    assert json.loads(server.asked[0].body)["temperature"] == 0.8


@pytest.mark.slow
def test_recipient_is_named_from_generated_text_after_a_kill(
    gemma_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole process by commands: copies for five recipients, one of them is served, its answers are recorded, the
    recording is killed in the middle and resumed, the recipient is named, and the report is verified."""
    desk, out = Desk.made(tmp_path), tmp_path / "answers.jsonl"
    people = tmp_path / "people.txt"
    people.write_text("".join(f"recipient {number}\n" for number in range(5)))
    options = ("--owner", "Us", "--recipients", people, "--utility", "no", "--report", tmp_path / "receipts")
    made = desk.here(capfd, "protect", gemma_path, tmp_path / "copies", *options)
    assert made.status == 0, made.said
    table = (tmp_path / "receipts" / "receipts.csv").read_bytes().decode("utf-8-sig")
    receipts = list(csv.DictReader(io.StringIO(table)))
    assert len(receipts) == 5
    with answering(Path(receipts[2]["folder"])) as server:
        arguments = words(server.url, gemma_path, out, "--generate", "--answers", "16", "--max-tokens", "48", "--send")
        process = start(*arguments)
        assert until(lambda: len(server.asked) > 6 or process.poll() is not None, "six requests")
        process.kill()
        until_ended(process, "the killed command")
        assert not out.exists()
        done = here(capfd, *arguments)
    assert done.status == 0, done.said
    assert done.answer["result"]["answers"] == 16
    assert len(set(server.prompts)) == len(server.prompts)
    found = desk.here(capfd, "investigate", out, "--original", gemma_path, "--report", tmp_path / "report")
    assert (found.status, found.answer["outcome"]) == (0, "found"), found.said
    assert found.answer["result"]["whose"] == [receipts[2]["recipient"]]
    (report,) = (path for path in (tmp_path / "report").glob("*.json") if not path.name.endswith(ENDING))
    vault = desk.vault()
    keys = [irwm.Key.from_bytes(vault.key_bytes(id)) for id in vault.key_ids()]
    again = verify_report(report, suspect=out, original=irwm.open_checkpoint(gemma_path), keys=keys)
    failed = [check for check in again.checks if check.ok is False]
    assert not failed, failed
    assert {"examination", "recipients"} <= {check.name for check in again.checks if check.ok}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["whole", "parts"])
def test_answering_release_is_found_by_its_key(
    release_of: Callable[[str], Marked], tmp_path: Path, capfd: pytest.CaptureFixture[str], way: str
) -> None:
    """The whole process: a marked release is served, recorded, killed in the middle, resumed, and found by its mark."""
    marked = release_of("gemma")
    original, out = marked.original, tmp_path / "a.safetensors"
    more = ["--answers", "150", "--send"]
    if way == "parts":
        rows = marked.key.marked_rows
        others = np.setdiff1d(np.arange(original.vocab_size), rows)
        tokens = np.random.default_rng(0).permutation(np.concatenate([rows, others[::7][: 4 * original.hidden_size]]))
        (tmp_path / "tokens").write_text(" ".join(map(str, tokens)))
        more += ["--tokens", str(tmp_path / "tokens")]
    with answering(marked.release, most=200 if way == "parts" else None, strict=True, decimals=4) as server:
        arguments = words(server.url, original.path, out, *more)
        process = start(*arguments)
        assert until(lambda: len(server.asked) > 60 or process.poll() is not None, "sixty requests")
        process.kill()
        until_ended(process, "the killed command")
        assert not out.exists()
        done = here(capfd, *arguments)
    assert done.status == 0, done.said
    answers = irwm.read_answers(out, original)
    suspect = irwm.suspect_from_answers(answers.log_probabilities, original, answers.token_ids)
    found = irwm.detect(suspect, original, marked.key)
    assert found.verdict == "found"
    assert found.log10_p < -20
    wrong = irwm.generate_key(original, secret=bytes(32), owner="them")
    assert irwm.detect(suspect, original, wrong).verdict != "found"
    if way == "whole":
        assert len(set(server.prompts)) == len(server.prompts)


@pytest.mark.slow
def test_tokens_are_chosen_by_the_vaults_keys(
    release_of: Callable[[str], Marked], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marked = release_of("gemma")
    desk = Desk.made(tmp_path)
    put_in_vault(desk.vault(), [marked.key])
    arguments = words("http://127.0.0.1:1", marked.original.path, tmp_path / "a", "--plan", "--tokens", "chosen")
    done = desk.here(capfd, *arguments)
    rows = len(marked.key.marked_rows)
    assert (done.status, done.answer["result"]["tokens"]) == (0, rows + max(9 * rows, 4 * marked.original.hidden_size))
    wrong = desk.here(capfd, *arguments, passphrase="another one of five words")
    assert (wrong.status, wrong.answer["outcome"]) == (2, "error")
    none = desk.here(capfd, *arguments, "--keys", "nobody's")
    assert "not a key for this original" in none.said


def test_chosen_tokens_hide_the_marked_ones_among_many(release_of: Callable[[str], Marked]) -> None:
    """The same each time, each once, in an order that reveals nothing; no token that no text contains."""
    marked = release_of("gemma")
    rows, tokens = marked.key.marked_rows, tokens_asked([marked.key], marked.original)
    assert set(rows) <= set(tokens.tolist())
    assert len(set(tokens.tolist())) == len(tokens) >= 10 * len(rows)
    assert (tokens_asked([marked.key], marked.original) == tokens).all()
    places = np.flatnonzero(np.isin(tokens, rows)) / len(tokens)
    assert kstest(places, "uniform").pvalue > 1e-3
    assert not set(special_token_ids(marked.original)) & set(tokens.tolist())
    other = irwm.generate_key(marked.original, secret=bytes(32), owner="them")
    both = tokens_asked([other, marked.key], marked.original)
    assert (both == tokens_asked([marked.key, other], marked.original)).all()
    assert set(rows) | set(other.marked_rows) <= set(both.tolist())
