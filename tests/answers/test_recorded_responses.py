"""The file of responses: what was written can be read, and a changed or invalid file is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import irwm
from irwm.answers.recorded_responses import (
    MOST_BYTES,
    Exchange,
    ResponsesSource,
    holds_responses,
    read_recorded_responses,
    read_source,
    write_responses,
)
from irwm.errors import AnswersFileError

SOURCE = ResponsesSource("http://127.0.0.1:1/v1/completions", "m", "openai", "ab" * 32, 3, 1.0, 128)


def exchange(text: str, values: list[float] | None = None, prompt: object = "def main():\n") -> Exchange:
    choice: dict[str, Any] = {"text": text, "token_ids": [40, 50, 60][: len(values or ())] or [40]}
    if values is not None:
        choice["logprobs"] = {"tokens": ["a", "b", "c"][: len(values)], "token_logprobs": values}
    asked = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
    return Exchange(json.dumps(asked), json.dumps({"choices": [choice]}, ensure_ascii=False), 1_772_359_200_000)


EXCHANGES = [exchange('é\u202e\u2028 "', [-0.5, -1.5, -0.25]), exchange("", [-2.0])]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    write_responses(path, SOURCE, EXCHANGES)
    return path


@pytest.fixture(scope="module")
def model(demo_path: Path) -> irwm.Checkpoint:
    return irwm.open_checkpoint(demo_path)


def test_written_responses_can_be_read(file: Path, model: irwm.Checkpoint) -> None:
    recorded = read_recorded_responses(file)
    assert (recorded.source, list(recorded.exchanges)) == (SOURCE, EXCHANGES)
    assert read_source(file) == (SOURCE, 2)
    assert holds_responses(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "main" not in repr(recorded), "prompts and texts are not printed"
    found = irwm.read_responses(file, model)
    assert [each[length:].tolist() for each, length in zip(found.sequences, found.prompt_lengths, strict=True)] == [
        [40, 50, 60], [40],
    ]  # fmt: skip
    assert found.log_probabilities is not None
    assert [each.tolist() for each in found.log_probabilities] == [[-0.5, -1.5, -0.25], [-2.0]]
    with pytest.raises(FileExistsError):
        write_responses(file, SOURCE, EXCHANGES)


def test_another_file_that_has_the_formats_name_is_no_recording(tmp_path: Path) -> None:
    """A copy with this name in its metadata is examined as weights."""
    weights = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(2)}, weights, metadata={"irwm-responses": "1"})
    assert not holds_responses(weights)


def test_a_chats_messages_are_its_prompt(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Go on"}]
    write_responses(tmp_path / "a", SOURCE, [exchange("x", prompt=messages)])
    assert read_recorded_responses(tmp_path / "a").exchanges[0].prompt == messages


def test_files_match_the_documentation(file: Path) -> None:
    """docs/answers.md lists every name of every line."""
    document = (Path(__file__).parents[2] / "docs" / "answers.md").read_text("utf-8")
    section = document[document.index("## The file of responses") : document.index("## Requirements")]
    for line in file.read_text("utf-8").split("\n")[:2]:
        for name in json.loads(line):
            assert f"`{name}`" in section, name


def changed(file: Path, number: int, change: Callable[[dict[str, Any]], object]) -> bytes:
    lines = file.read_bytes().split(b"\n")
    value = json.loads(lines[number])
    change(value)
    lines[number] = json.dumps(value).encode()
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, lambda line: line.update(format="other")),
        (0, lambda line: line.update(version=2)),
        (0, lambda line: line.pop("model")),
        (0, lambda line: line.update(temperature="1")),
        (0, lambda line: line.update(temperature=10**400)),
        (0, lambda line: line.update(prompt_seed=-1)),
        (0, lambda line: line.update(max_tokens=0)),
        (0, lambda line: line.update(model="a\u202eb")),
        (0, lambda line: line.update(original="a" * 3000)),
        (0, lambda line: line.update(prompt_seed=True)),
        (0, lambda line: line.update(responses=3)),
        (0, lambda line: line.update(responses=0)),
        (1, lambda line: line.update(response=line["response"].replace("0.5", "0.6"))),
        (1, lambda line: line.update(request="{}")),
        (1, lambda line: line.update(response=7)),
        (1, lambda line: line.update(response="\ud800")),
        (1, lambda line: line.pop("response_sha256")),
        (1, lambda line: line.update(time_ms=-1)),
        (1, lambda line: line.update(time_ms=1e12)),
    ],
)  # fmt: skip
def test_changed_file_is_refused(
    file: Path, model: irwm.Checkpoint, number: int, change: Callable[[dict[str, Any]], object]
) -> None:
    file.write_bytes(changed(file, number, change))
    with pytest.raises(AnswersFileError) as caught:
        irwm.read_responses(file, model)
    assert caught.value.file == str(file)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]\n", b"\xff\n", b"[" * 200_000, b'{"a":1,"a":2}\n', b"\x00" * 40_000]
)
def test_other_content_is_refused(tmp_path: Path, model: irwm.Checkpoint, content: bytes) -> None:
    file = tmp_path / "a"
    file.write_bytes(content)
    for read in (lambda: irwm.read_responses(file, model), lambda: read_source(file)):
        with pytest.raises(AnswersFileError):
            read()
    assert not holds_responses(file)


def test_cut_at_any_byte_it_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(AnswersFileError):
            read_recorded_responses(file)
    file.write_bytes(whole[:-1])
    with pytest.raises(AnswersFileError):
        read_recorded_responses(file)


def test_response_or_request_of_another_form_is_refused(tmp_path: Path, model: irwm.Checkpoint) -> None:
    """Its digests are right; the message names the file."""
    wrong = [
        Exchange('{"prompt":"a"}', '{"error":"x"}', 0), Exchange('{"prompt":"a"}', "words", 0),
        Exchange('{"question":"a"}', EXCHANGES[0].response, 0), Exchange('{"messages":[]}', EXCHANGES[0].response, 0),
        Exchange('{"prompt":"a"}', "[" * 100_000, 0), exchange("text alone"),
    ]  # fmt: skip
    for number, each in enumerate(wrong):
        path = tmp_path / str(number)
        write_responses(path, SOURCE, [EXCHANGES[0], each])
        with pytest.raises(AnswersFileError) as caught:
            irwm.read_responses(path, model)
        assert caught.value.file == str(path)


def test_missing_and_far_too_large_files_are_refused(tmp_path: Path, model: irwm.Checkpoint) -> None:
    with pytest.raises(AnswersFileError):
        irwm.read_responses(tmp_path / "nothing", model)
    assert not holds_responses(tmp_path / "nothing")
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(AnswersFileError) as caught:
        irwm.read_responses(large, model)
    assert str(MOST_BYTES) in str(caught.value.expected)
