"""Responses in the forms of servers become the tokens and log-probabilities that they were written from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irwm
from irwm.errors import AnswersError
from irwm.inference.loading import open_tokenizer

PROMPT, TEXT = "def main():\n", "    return [item for item in items if item]\n"
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


@pytest.fixture(scope="module")
def model(demo_path: Path) -> irwm.Checkpoint:
    return irwm.open_checkpoint(demo_path)


@pytest.fixture(scope="module")
def tokens(demo_path: Path) -> list[int]:
    return list(open_tokenizer(demo_path).encode(TEXT, add_special_tokens=False))


@pytest.fixture(scope="module")
def texts(demo_path: Path, tokens: list[int]) -> list[str]:
    return [str(open_tokenizer(demo_path).decode([token])) for token in tokens]


def values(count: int) -> list[float]:
    return [-0.25 * (number + 1) for number in range(count)]


def completion(tokens: list[int], texts: list[str]) -> dict[str, Any]:
    return {
        "object": "text_completion",
        "choices": [
            {
                "index": 0,
                "text": "".join(texts),
                "logprobs": {"tokens": texts, "token_logprobs": values(len(texts)), "top_logprobs": None},
                "finish_reason": "length",
            }
        ],
    }


def completion_by_ids(tokens: list[int], texts: list[str]) -> dict[str, Any]:
    """vLLM with `return_tokens_as_token_ids`."""
    made = completion(tokens, texts)
    made["choices"][0]["logprobs"]["tokens"] = [f"token_id:{token}" for token in tokens]
    return made


def chat(tokens: list[int], texts: list[str]) -> dict[str, Any]:
    content = [
        {"token": text, "bytes": list(text.encode()), "logprob": value, "top_logprobs": []}
        for text, value in zip(texts, values(len(texts)), strict=True)
    ]
    message = {"role": "assistant", "content": "".join(texts)}
    return {"choices": [{"index": 0, "message": message, "logprobs": {"content": content, "refusal": None}}]}


def chat_with_ids(tokens: list[int], texts: list[str]) -> dict[str, Any]:
    """vLLM with `return_token_ids`; the text of a token says nothing."""
    made = chat(tokens, texts)
    made["prompt_token_ids"] = [1, 2, 3]
    made["choices"][0]["token_ids"] = tokens
    for entry in made["choices"][0]["logprobs"]["content"]:
        entry["token"] = "�"
    return made


def llama_cpp(tokens: list[int], texts: list[str]) -> dict[str, Any]:
    given = zip(tokens, texts, values(len(texts)), strict=True)
    return {
        "content": "".join(texts),
        "completion_probabilities": [
            {"id": token, "token": text, "bytes": [], "logprob": value, "top_logprobs": []}
            for token, text, value in given
        ],
    }


def old_llama_cpp(tokens: list[int], texts: list[str]) -> dict[str, Any]:
    given = zip(texts, values(len(texts)), strict=True)
    return {
        "content": "".join(texts),
        "completion_probabilities": [
            {"content": text, "probs": [{"tok_str": "?", "prob": 0.1}, {"tok_str": text, "prob": math.exp(value)}]}
            for text, value in given
        ],
    }


FORMS = [completion, completion_by_ids, chat, chat_with_ids, llama_cpp, old_llama_cpp]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_its_tokens_and_log_probabilities(
    model: irwm.Checkpoint, tokens: list[int], texts: list[str], form: Callable[[list[int], list[str]], dict[str, Any]]
) -> None:
    response = json.loads(json.dumps(form(tokens, texts)))
    found = irwm.answers_from_responses([PROMPT], [response], model)
    prompt = [1, 2, 3] if form is chat_with_ids else open_tokenizer(model.path).encode(PROMPT)
    assert found.sequences[0].tolist() == [*prompt, *tokens]
    assert found.prompt_lengths == (len(prompt),)
    assert found.log_probabilities is not None
    assert found.log_probabilities[0] == pytest.approx(values(len(tokens)))


def test_text_alone_is_encoded_by_the_original(model: irwm.Checkpoint, tokens: list[int], texts: list[str]) -> None:
    without = completion(tokens, texts)
    without["choices"][0]["logprobs"] = None
    found = irwm.answers_from_responses([PROMPT, PROMPT], [TEXT, without], model)
    assert found.log_probabilities is None
    assert [each[-len(tokens) :].tolist() for each in found.sequences] == [tokens, tokens]


def test_responses_of_which_only_some_have_log_probabilities_are_refused(
    model: irwm.Checkpoint, tokens: list[int], texts: list[str]
) -> None:
    """Without the others' log-probabilities, most of the evidence would be lost."""
    with pytest.raises(AnswersError) as caught:
        irwm.answers_from_responses([PROMPT] * 3, [chat(tokens, texts), TEXT, TEXT], model)
    assert caught.value.found == "none in 2 of 3 answers; the first of these is in response 1"


def test_every_choice_is_used_and_empty_ones_are_left_out(
    model: irwm.Checkpoint, tokens: list[int], texts: list[str]
) -> None:
    response = completion(tokens, texts)
    (choice,) = response["choices"]
    empty = {"text": "", "logprobs": {"tokens": [], "token_logprobs": []}}
    found = irwm.answers_from_responses([PROMPT], [{"choices": [choice, empty, choice]}], model)
    assert len(found.sequences) == 2
    assert found.log_probabilities is not None


def test_answer_ends_before_a_token_that_is_not_known(
    model: irwm.Checkpoint, tokens: list[int], texts: list[str]
) -> None:
    """The text does not help: it was changed too."""
    response = completion(tokens, texts)
    response["choices"][0]["logprobs"]["tokens"] = [*texts[:3], "no token of this vocabulary", *texts[4:]]
    response["choices"][0]["text"] = "something else"
    missing = completion(tokens, texts)
    missing["choices"][0]["logprobs"]["token_logprobs"][5] = None
    least = completion(tokens, texts)
    least["choices"][0]["logprobs"]["token_logprobs"][2] = -9999.0
    found = irwm.answers_from_responses([PROMPT] * 3, [response, missing, least], model)
    sizes = [len(each) - length for each, length in zip(found.sequences, found.prompt_lengths, strict=True)]
    assert sizes == [3, 5, 2]
    assert found.log_probabilities is not None
    assert [len(each) for each in found.log_probabilities] == sizes


def test_messages_become_tokens_by_the_chat_template(
    model: irwm.Checkpoint, demo_path: Path, tmp_path: Path, tokens: list[int], texts: list[str]
) -> None:
    messages = [{"role": "user", "content": "Go on"}]
    with pytest.raises(AnswersError) as caught:
        irwm.answers_from_responses([messages], [chat(tokens, texts)], model)
    assert caught.value.file == str(model.path)
    for file in demo_path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": CHAT}), encoding="utf-8")
    chatting = irwm.open_checkpoint(tmp_path)
    found = irwm.answers_from_responses([messages], [chat(tokens, texts)], chatting)
    prompt = open_tokenizer(demo_path).encode("<user>Go on<assistant>", add_special_tokens=False)
    assert found.sequences[0].tolist() == [*prompt, *tokens]


@pytest.mark.parametrize(
    "response",
    [7, [], {}, {"choices": [{}]}, {"choices": [3]}, {"error": {"message": "x"}},
     {"choices": [{"text": "a", "logprobs": {"content": [1]}}]}],
)  # fmt: skip
def test_unknown_form_is_refused_with_its_number(model: irwm.Checkpoint, response: Any) -> None:
    with pytest.raises(AnswersError) as caught:
        irwm.answers_from_responses([PROMPT, PROMPT], [TEXT, response], model)
    assert caught.value.problem == "response 1 has an unknown format"


@pytest.mark.parametrize(
    "entry",
    [{"id": 10**30, "token": None, "logprob": -1.0}, {"id": -1, "token": None, "logprob": -1.0},
     {"id": 40, "logprob": -(10**400)}, {"id": 40, "prob": 10**400}],
)  # fmt: skip
def test_answer_ends_before_numbers_that_no_server_means(model: irwm.Checkpoint, entry: dict[str, Any]) -> None:
    sound = {"id": 40, "token": "a", "logprob": -0.5}
    response = {"content": "ab", "completion_probabilities": [sound, entry]}
    found = irwm.answers_from_responses(["def f():"], [response], model)
    assert [each[length:].tolist() for each, length in zip(found.sequences, found.prompt_lengths, strict=True)] == [
        [40]
    ]


def test_text_that_is_not_unicode_is_refused(model: irwm.Checkpoint) -> None:
    for prompt, response in (("def f():", "\ud800"), ("\ud800", "x")):
        with pytest.raises(AnswersError):
            irwm.answers_from_responses([prompt], [response], model)


def test_lists_that_do_not_fit_and_responses_without_tokens_are_refused(model: irwm.Checkpoint) -> None:
    with pytest.raises(AnswersError):
        irwm.answers_from_responses([PROMPT], [TEXT, TEXT], model)
    with pytest.raises(AnswersError):
        irwm.answers_from_responses([PROMPT], [""], model)


def test_recorded_responses_of_a_copy_are_traced(model: irwm.Checkpoint, tokens: list[int], texts: list[str]) -> None:
    """From responses to names in two calls; nobody is named from a text that no copy wrote."""
    keys = [
        irwm.generate_key(model, irwm.many_recipients(model.hidden_size), secret=bytes(32), recipient=name)
        for name in ("Ann", "Bob")
    ]
    answers = irwm.answers_from_responses([PROMPT] * 2, [llama_cpp(tokens, texts), chat(tokens, texts)], model)
    traces = irwm.trace_answers(answers, model, keys)
    assert [trace.named for trace in traces] == [False, False]
    assert np.isfinite([trace.z for trace in traces]).all()
