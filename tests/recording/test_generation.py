"""Recordings of generated text from a real model behind a real server, in every dialect and with faults."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import irwm
from irwm.answers.random_prompts import Prompts
from irwm.answers.recorded_responses import read_recorded_responses
from irwm.errors import AnswersError, IrwmError, OutputExistsError, UnsupportedCheckpointError
from irwm.inference.loading import open_model
from irwm.inference.text import default_text
from tests.recording.servers import FAST, answering, scripted
from ui.recording import generation
from ui.recording.errors import NotAllowedError, RecordingError, RefusedError, ServerError
from ui.recording.generation import Generated, Generation, generate
from ui.recording.journal import Journal, journal_of
from ui.recording.sending import Permission, Sender

ANSWERS, TOKENS = 6, 5
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def planned(original: Path, url: str, **given: Any) -> Generation:
    usual: dict[str, Any] = {"endpoint": url, "model": "served", "text": default_text(), "pace": FAST,
                             "answers": ANSWERS, "max_tokens": TOKENS}  # fmt: skip
    return generation.generation(irwm.open_checkpoint(original), **(usual | given))


def recorded(original: Path, url: str, out: Path, **given: Any) -> Generated:
    """The whole process: plan and record."""
    made = planned(original, url, **given)
    with (
        Sender(Permission(made.url), made.pace, most_bytes=made.most_bytes) as sender,
        Journal(out, made.settings) as journal,
    ):
        return generate(made, sender, journal, out)


@pytest.fixture(scope="module")
def chatting(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model with a chat template."""
    folder = tmp_path_factory.mktemp("model") / "chatting"
    folder.mkdir()
    for file in small.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": CHAT}), "utf-8")
    return folder


def expected(folder: Path, answers: irwm.Answers) -> list[np.ndarray]:
    """The log-probabilities that the model gives to each answer's generated tokens."""
    model, found = open_model(folder).model, []
    for tokens, start in zip(answers.sequences, answers.prompt_lengths, strict=True):
        with torch.no_grad():
            values = model(torch.tensor(tokens.copy())[None]).logits[0].double().log_softmax(-1).numpy()
        found.append(values[range(start - 1, len(tokens) - 1), tokens[start:]])
    return found


@pytest.mark.parametrize("serving", [{}, {"extensions": False}], ids=["all fields", "only known fields"])
@pytest.mark.parametrize("api", ["openai", "chat", "llama.cpp"])
def test_recorded_tokens_have_the_models_log_probabilities(
    chatting: Path, tmp_path: Path, api: str, serving: dict[str, Any]
) -> None:
    """Also where the server accepts no other fields, and names tokens by their text."""
    out = tmp_path / "a.jsonl"
    with answering(chatting, **serving) as server:
        made = recorded(chatting, server.url, out, api=api, seed=5)
    answers = irwm.read_responses(out, irwm.open_checkpoint(chatting))
    assert (made.answers, made.tokens, made.log_probabilities) == (ANSWERS, answers.tokens, True)
    assert answers.tokens > ANSWERS
    assert answers.log_probabilities is not None
    for found, wanted in zip(answers.log_probabilities, expected(chatting, answers), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)
    content = read_recorded_responses(out)
    assert (content.source.api, content.source.prompt_seed, content.source.model) == (api, 5, "served")
    sent = [each for each in server.asked if each.status == 200]
    assert [each.request.encode() for each in content.exchanges] == [each.body for each in sent]
    assert len({each.prompt for each in sent}) == ANSWERS
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()[1:]]
    assert [each["request_sha256"] for each in lines] == [hashlib.sha256(each.body).hexdigest() for each in sent]
    assert [each.name for each in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("strict", [False, True])
def test_server_without_log_probabilities_gives_text(small: Path, tmp_path: Path, strict: bool) -> None:
    """It leaves them out, or refuses requests for them."""
    with answering(small, silent=True, strict=strict) as server:
        made = recorded(small, server.url, tmp_path / "a")
    answers = irwm.read_responses(tmp_path / "a", irwm.open_checkpoint(small))
    assert answers.log_probabilities is None
    assert (made.log_probabilities, made.answers) == (False, ANSWERS)
    assert made.tokens == answers.tokens > 0
    refused = [each.status == 400 for each in server.asked]
    assert sum(refused) == (2 if strict else 0)
    assert not any(refused[2:]), "the form that works is found once"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("fault", "kind"), [("redirect", RefusedError), ("500", ServerError), ("drop", ServerError), ("cut", ServerError)]
)
def test_lasting_fault_keeps_the_answers_and_the_rest_is_requested_later(
    small: Path, tmp_path: Path, fault: str, kind: type[IrwmError]
) -> None:
    out = tmp_path / "a"
    with answering(small, faults=dict.fromkeys(range(4, 30), fault)) as server:
        with pytest.raises(kind) as caught:
            recorded(small, server.url, out)
        assert "\n" not in str(caught.value)
        assert not out.exists()
        server.serving = type(server.serving)()
        before = len(server.asked)
        made = recorded(small, server.url, out)
    assert made.answers == ANSWERS
    assert len(server.asked) - before == ANSWERS - 3
    again = {each.prompt for each in server.asked[before:]}
    assert not again & {each.prompt for each in server.asked[:before]}, "no prompt is sent again"
    assert {each.name for each in tmp_path.iterdir()} == {out.name}


def test_temporary_fault_is_retried(small: Path, tmp_path: Path) -> None:
    with answering(small, faults={2: "429", 4: "drop"}) as server:
        assert recorded(small, server.url, tmp_path / "a").answers == ANSWERS
    assert len(server.asked) == ANSWERS + 2


def completion(text: str, value: float | None = None) -> tuple[int, bytes, dict[str, str]]:
    told = {"logprobs": {"tokens": [text], "token_logprobs": [value]}} if value is not None else {}
    return 200, json.dumps({"choices": [{"text": text} | told]}).encode(), {}


@pytest.mark.parametrize(
    "answers",
    [[(200, b'{"error": "x"}', {})], [(200, b"[1]", {})], [(200, '{"content": "é"}'.encode("utf-16"), {})],
     [(200, b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {})],
     [completion("the", -1.0), completion("the")], [completion("the"), completion("the", -1.0)], [completion("")]],
    ids=["error", "list", "utf-16", "deep", "no longer", "only later", "empty"],
)  # fmt: skip
def test_unusable_answers_end_the_recording(
    small: Path, tmp_path: Path, answers: list[tuple[int, bytes, dict[str, str]]]
) -> None:
    with scripted(*answers) as script, pytest.raises(ServerError):
        recorded(small, script.url, tmp_path / "a", answers=50)
    assert not (tmp_path / "a").exists()


def test_an_empty_answer_does_not_decide_what_a_server_gives(small: Path, tmp_path: Path) -> None:
    """A model may end its answer at once."""
    with scripted(completion(""), completion("the", -1.0)) as script:
        assert recorded(small, script.url, tmp_path / "a", answers=3).log_probabilities


def test_nothing_is_sent_without_permission_or_to_a_taken_name(small: Path, tmp_path: Path) -> None:
    with answering(small) as server:
        made = planned(small, server.url)
        with pytest.raises(NotAllowedError):
            Sender(None, made.pace, most_bytes=made.most_bytes)
        assert not server.asked
        server.before = lambda number: (tmp_path / "a").write_text("mine")
        with pytest.raises(OutputExistsError):
            recorded(small, server.url, tmp_path / "a")
    assert (tmp_path / "a").read_text() == "mine"
    assert journal_of(tmp_path / "a").exists(), "the answers are kept"


def test_another_kind_of_recording_is_not_continued(small: Path, tmp_path: Path) -> None:
    with Journal(tmp_path / "a", planned(small, "http://127.0.0.1:1").settings):
        pass
    for settings in (planned(small, "http://127.0.0.1:1", temperature=0.5).settings, {"vocabulary": 4096}):
        with pytest.raises(RecordingError):
            Journal(tmp_path / "a", settings)


@pytest.mark.parametrize("api", ["openai", pytest.param("chat", marks=pytest.mark.slow)])
def test_chosen_prompts_are_kept_when_a_recording_resumes(
    chatting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    """The first run stops after three answers. The second one does not choose again, and sends no prompt twice."""
    given, out = {"choose": True, "api": api, "answers": 4}, tmp_path / "a"
    with answering(chatting, faults=dict.fromkeys(range(4, 30), "500")) as server:
        with pytest.raises(ServerError):
            recorded(chatting, server.url, out, **given)
        server.serving = type(server.serving)()
        with Journal(out, planned(chatting, server.url, **given).settings) as journal:
            texts = journal.texts
        with pytest.raises(RecordingError, match="content"):
            Journal(out, planned(chatting, server.url, **given | {"choose": False}).settings)
        monkeypatch.setattr("ui.recording.chosen_prompts.choose_prompts", None)
        assert recorded(chatting, server.url, out, **given).answers == 4
    drawn = Prompts(0, default_text())
    pool = [drawn.prompt(number) for number in range(32)]
    assert texts is not None
    assert len(texts) == 4
    assert set(texts) <= set(pool)
    sent = list(dict.fromkeys(each.prompt for each in server.asked))
    assert [text for text in (*texts, drawn.prompt(32)) if any(text in each for each in sent)] == [
        *texts, drawn.prompt(32),
    ]  # fmt: skip
    assert len(sent) == 5, "that of the failed request is not sent again, and another one follows the chosen ones"


@pytest.mark.parametrize(
    "given",
    [
        {"answers": 0}, {"max_tokens": 0}, {"max_tokens": 10_000}, {"temperature": -1.0}, {"temperature": float("nan")},
        {"seed": -1}, {"api": "telegraph"}, {"model": ""}, {"url": "h:1"},
    ],
)  # fmt: skip
def test_a_plan_that_cannot_work_is_refused(small: Path, given: dict[str, Any]) -> None:
    with pytest.raises(RecordingError):
        planned(small, **({"url": "http://127.0.0.1:1"} | given))


def test_an_original_that_cannot_encode_the_answers_is_refused(small: Path, tmp_path: Path) -> None:
    """Without a chat template, or without a tokenizer."""
    with pytest.raises(AnswersError):
        planned(small, "http://127.0.0.1:1", api="chat")
    for file in small.iterdir():
        if not file.name.startswith("tokenizer"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UnsupportedCheckpointError):
        planned(tmp_path, "http://127.0.0.1:1")
