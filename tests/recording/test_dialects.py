"""Answers of servers, including hostile ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irwm.answers.token_names import Names
from ui.recording.dialects import Question, address, body, told
from ui.recording.errors import ServerError

NAMES = Names(Path("nowhere"), 100)  # tokens by id need no tokenizer
TOP = {"token_id:3": -0.5, "token_id:7": -2, "token_id:99": -3.25}
ENTRIES = [{"id": int(name[9:]), "token": "x", "bytes": [1], "logprob": value} for name, value in TOP.items()]
PROBABLE = [{"id": entry["id"], "prob": math.exp(entry["logprob"])} for entry in ENTRIES]


def openai(top: Any) -> dict[str, Any]:
    return {"choices": [{"text": "x", "logprobs": {"top_logprobs": [top]}}]}


def llama_cpp(**place: Any) -> dict[str, Any]:
    return {"content": "x", "completion_probabilities": [{"id": 3, **place}]}


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        ("openai", openai(TOP)),
        ("openai", {"choices": [{"logprobs": {"content": [{"id": 3, "top_logprobs": ENTRIES}]}}]}),  # llama.cpp's
        ("llama.cpp", llama_cpp(top_logprobs=ENTRIES)),
        ("llama.cpp", llama_cpp(top_probs=PROBABLE)),
    ],
)
def test_every_dialect_gives_the_same_values(api: str, answer: dict[str, Any]) -> None:
    (found,) = told(api, json.dumps(answer).encode(), NAMES)
    assert found.tokens.tolist() == [3, 7, 99]
    assert np.allclose(found.values, [-0.5, -2, -3.25])
    row = found.row(np.array([99, 4, 3]), 100)
    assert np.allclose(row[[0, 2]], [-3.25, -0.5])
    assert np.isnan(row[1])
    assert np.isfinite(found.row(np.array([3, 99 % 50]), 50)).tolist() == [True, False], "99 is not one of 50 tokens"


def test_each_prompt_token_has_an_answer() -> None:
    place = {"3": {"logprob": -0.5, "rank": 1}, "7": {"logprob": -2}}
    answer = openai(TOP)
    answer["choices"][0]["prompt_logprobs"] = [None, place, {"5": {"logprob": -1}}]
    found = told("openai", json.dumps(answer).encode(), NAMES, everywhere=True)
    assert [each.tokens.tolist() for each in found] == [[3, 7], [5]]
    with pytest.raises(ServerError):
        told("openai", json.dumps(openai(TOP)).encode(), NAMES, everywhere=True)


def test_placeholder_for_no_probability_is_left_out() -> None:
    values = (-1.0, -9999.0, None, -math.inf, math.nan)
    top = {f"token_id:{n}": value for n, value in enumerate(values, 1)}
    (found,) = told("openai", json.dumps(openai(top)).encode(), NAMES)
    assert found.tokens.tolist() == [1]
    tiny = [{"id": 1, "logprob": -1.0}, {"id": 2, "logprob": -3.4028234663852886e38}, {"id": 3, "logprob": -95.5}]
    (found,) = told("llama.cpp", json.dumps(llama_cpp(top_logprobs=tiny)).encode(), NAMES)
    assert found.tokens.tolist() == [1]


@pytest.mark.parametrize(
    "answer",
    [
        None, 3, "text", [], {}, {"choices": []}, {"choices": [7]}, {"choices": [{"logprobs": None}]},
        {"choices": [{"text": "x"}]}, openai(None), openai({}), openai([3]), openai({"token_id:1": "-1"}),
        openai({"token_id:1": 0.5}), openai({"token_id:1": True}), openai({"token_id:1": math.inf}),
        openai({"token_id:1": [-1]}), openai([{"id": 1}]), {"choices": [{"logprobs": {"content": []}}]},
        {"choices": {"0": {}}}, {"error": "\u202e evil \x1b[31m"},
    ],
)  # fmt: skip
def test_malformed_response_is_one_error(answer: Any) -> None:
    with pytest.raises(ServerError) as caught:
        told("openai", json.dumps(answer).encode(), NAMES)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("api", "endpoint", "full"),
    [
        ("openai", "http://h:1", "http://h:1/v1/completions"),
        ("openai", "http://h:1/", "http://h:1/v1/completions"),
        ("openai", "https://h/v1", "https://h/v1/completions"),
        ("openai", "https://h/x/v1/completions", "https://h/x/v1/completions"),
        ("llama.cpp", "http://h:1/", "http://h:1/completion"),
        ("llama.cpp", "http://h:1/completion", "http://h:1/completion"),
    ],
)
def test_an_endpoint_may_be_given_with_its_path_or_without(api: str, endpoint: str, full: str) -> None:
    assert address(api, endpoint) == full


def test_request_holds_only_what_the_plan_states() -> None:
    question = Question("a prompt", 20, (3, 7), 30.0)
    assert json.loads(body("openai", "m", question)) == {
        "model": "m", "prompt": "a prompt", "max_tokens": 1, "temperature": 1.0, "logprobs": 20,
        "return_tokens_as_token_ids": True, "logit_bias": {"3": 30.0, "7": 30.0},
    }  # fmt: skip
    assert json.loads(body("llama.cpp", "m", question)) == {
        "model": "m", "prompt": "a prompt", "n_predict": 1, "temperature": 1.0, "n_probs": 20, "stream": False,
        "logit_bias": [[3, 30.0], [7, 30.0]], "post_sampling_probs": True, "samplers": ["temperature"],
    }  # fmt: skip
