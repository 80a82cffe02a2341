"""Recordings of a real model behind a real server, with every form of answer, and with every fault."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

import irwm
from irwm.errors import IrwmError, OutputExistsError
from irwm.inference.loading import open_model
from tests.recording.servers import VOCABULARY, WIDTH, answering, planned, recorded
from tools.answering import Answering, Serving
from ui.recording import recorder
from ui.recording.errors import RecordingError, RefusedError, ServerError
from ui.recording.journal import Journal, journal_of

ANSWERS = WIDTH + 4


def of_model(folder: Path, prompts: tuple[str, ...]) -> NDArray[np.float64]:
    """(prompts, v) log-probabilities of the next token, from the model itself."""
    opened = open_model(folder)
    with torch.no_grad():
        rows = [opened.model(opened.tokenizer(each, return_tensors="pt").input_ids).logits[0, -1] for each in prompts]
    return log_softmax(torch.stack(rows).double().numpy(), axis=1)


def asked(answers: irwm.RecordedAnswers) -> tuple[str, ...]:
    """The prompt of each answer."""
    assert answers.prompt_of is not None
    return tuple(answers.prompts[place] for place in answers.prompt_of.tolist())


def chosen(count: int, seed: int = 1) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(VOCABULARY)[:count]


@pytest.mark.parametrize("api", ["openai", "llama.cpp"])
def test_all_tokens_at_once_equal_model_outputs_and_every_request_is_evidence(
    small: Path, tmp_path: Path, api: str
) -> None:
    """A killed recorder left half a file in the same place, and another one elsewhere."""
    out, other = tmp_path / "a.safetensors", tmp_path / f"b.{'0' * 16}.partial"
    for path in (tmp_path / f"{out.name}.{'0' * 16}.partial", other):
        path.write_text("half")
        os.utime(path, (0, 0))
    with answering(small) as server:
        answers = recorded(small, server.url, out, api=api, answers=ANSWERS, seed=5)
    assert answers.token_ids is None
    assert answers.log_probabilities.shape == (ANSWERS, VOCABULARY)
    assert np.abs(answers.log_probabilities - of_model(small, answers.prompts)).max() < 1e-4
    assert server.prompts == list(answers.prompts), "each prompt was sent once"
    assert {each.name for each in tmp_path.iterdir()} == {out.name, other.name}
    source, requests = answers.source, answers.requests
    assert source is not None
    assert requests is not None
    assert (source.model, source.api, source.scale) == ("served", api, "all tokens")
    assert source.endpoint.startswith(server.url)
    assert (source.original, source.prompt_seed) == (irwm.open_checkpoint(small).fingerprint, 5)
    assert source.vocab_size == VOCABULARY
    assert source.began <= source.ended
    assert [bytes(each).hex() for each in requests.request_sha256] == [
        hashlib.sha256(each.body).hexdigest() for each in server.asked
    ]
    assert len({bytes(each) for each in requests.response_sha256}) == ANSWERS
    assert requests.prompt.tolist() == list(range(ANSWERS))
    assert (np.diff(requests.time_ms) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("api", "strict"), [("openai", False), ("openai", True), ("llama.cpp", True)])
def test_chosen_tokens_in_parts_equal_all_at_once(small: Path, tmp_path: Path, api: str, strict: bool) -> None:
    tokens = chosen(4 * WIDTH)
    with answering(small, most=20, strict=strict) as server:
        answers = recorded(small, server.url, tmp_path / "a", api=api, answers=ANSWERS, tokens=tokens)
    assert answers.token_ids is not None
    assert answers.token_ids.tolist() == tokens.tolist()
    assert answers.source is not None
    assert answers.source.scale == "chosen tokens"
    direct = of_model(small, asked(answers))[:, tokens]
    assert np.abs(answers.log_probabilities - log_softmax(direct, axis=1)).max() < 1e-3
    told = 20 if strict else 19  # a lenient server's answer may include the token that it chose beyond its limit
    refused = sum(each.status == 400 for each in server.asked)
    assert len(server.asked) - refused - 1 == ANSWERS * -(-(len(tokens) - 1) // (told - 1))
    assert refused == (0 if not strict else {"openai": 6, "llama.cpp": 3}[api])


def test_tokens_that_are_named_by_text_are_found(small: Path, tmp_path: Path) -> None:
    with answering(small, extensions=False) as server:
        answers = recorded(small, server.url, tmp_path / "a", answers=ANSWERS)
    told = np.isfinite(answers.log_probabilities)
    assert (told == told[0]).all(), "the same tokens each time"
    assert 3000 < told[0].sum() < VOCABULARY
    direct = of_model(small, answers.prompts)
    assert np.nanmax(np.abs(answers.log_probabilities - direct)) < 1e-4
    assert [each.status for each in server.asked[:2]] == [400, 200], "asked for ids, then without"


def test_prompt_positions_give_several_answers(small: Path, tmp_path: Path) -> None:
    with answering(small) as server:
        answers = recorded(small, server.url, tmp_path / "a", answers=30, inside=True)
    assert 1 < len(server.asked) < 6
    assert answers.prompt_of is not None
    assert set(answers.prompt_of.tolist()) == set(range(len(answers.prompts)))
    assert np.unique(answers.log_probabilities, axis=0).shape == (30, VOCABULARY)
    opened = open_model(small)
    with torch.no_grad():
        logits = opened.model(opened.tokenizer(answers.prompts[0], return_tensors="pt").input_ids).logits[0]
    direct = log_softmax(logits.double().numpy(), axis=1)
    assert np.abs(answers.log_probabilities[0] - direct[3]).max() < 1e-4, "the first places are left out"


@pytest.mark.sweep
@pytest.mark.parametrize("fault", ["429", "cut"])
def test_temporary_fault_does_not_change_the_recording(small: Path, tmp_path: Path, fault: str) -> None:
    with answering(small) as server:
        fine = recorded(small, server.url, tmp_path / "fine", answers=ANSWERS)
    with answering(small, faults={1: fault, 7: fault, 8: fault}) as server:
        answers = recorded(small, server.url, tmp_path / "a", answers=ANSWERS)
    assert (answers.log_probabilities == fine.log_probabilities).all()
    assert answers.prompts == fine.prompts
    assert len(server.asked) == ANSWERS + 3


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("500", ServerError),
        ("drop", ServerError),
        ("slow", ServerError),
        ("404", RefusedError),
        ("redirect", RefusedError),
        ("words", ServerError),
    ],
)
def test_lasting_fault_gives_one_sentence_and_keeps_answers(
    small: Path, tmp_path: Path, fault: str, kind: type[IrwmError]
) -> None:
    out = tmp_path / "a"
    # Ten seconds pass with each reading of this clock, one of which belongs to each piece of an answer.
    looks = itertools.count(step=10.0)
    with answering(small, faults=dict.fromkeys(range(6, 30), fault)) as server:
        with pytest.raises(kind) as caught:
            recorded(small, server.url, out, clock=lambda: next(looks), answers=ANSWERS,
                     top=100 if fault == "slow" else None,
                     tokens=chosen(2 * WIDTH) if fault == "slow" else None)  # fmt: skip
        assert "\n" not in str(caught.value)
        with pytest.raises(RecordingError), Journal(out, {"endpoint": "another"}):
            pass
    assert not out.exists()
    assert [each.name for each in tmp_path.iterdir() if not each.name.endswith(".lock")] == [journal_of(out).name]
    # The same server without faults: the rest is requested, and no answered prompt.
    if fault != "slow":
        port = server.server_address[1]
        with Answering([small], Serving(), port).running() as healthy:
            answers = recorded(small, healthy.url, out, answers=ANSWERS)
        assert len(healthy.asked) == ANSWERS - 5
        assert not set(healthy.prompts) & set(server.prompts)
        assert np.abs(answers.log_probabilities - of_model(small, asked(answers))).max() < 1e-4


@pytest.mark.parametrize("useless", ["bias", "constant"])
def test_server_that_can_tell_nothing_ends_the_recording(small: Path, tmp_path: Path, useless: str) -> None:
    """A bias has no effect, or each prompt has the same answer."""
    limits = {"most": 20, "bias_shows": False} if useless == "bias" else {}
    with answering(small, **limits) as server:
        if useless == "constant":
            server.models._logits = lambda turn, prompt: torch.zeros(1, VOCABULARY)  # type: ignore[method-assign]
        tokens = chosen(4 * WIDTH) if useless == "bias" else None
        with pytest.raises(ServerError):
            recorded(small, server.url, tmp_path / "a", answers=ANSWERS, tokens=tokens)
    assert len(server.asked) == 1 + (len(recorder.BIASES) if useless == "bias" else recorder.MOST_USELESS)


def test_server_that_leaves_out_tokens_is_asked_for_the_others(small: Path, tmp_path: Path) -> None:
    """No server returns the last rows of an embedding that are padding; others leave out what changes with the
    prompt, so the wanted tokens are requested in parts."""
    with answering(small) as server:
        whole = server.models._logits
        server.models._logits = lambda turn, prompt: whole(turn, prompt)[:, :-96]  # type: ignore[method-assign]
        answers = recorded(small, server.url, tmp_path / "a", answers=ANSWERS)
    told = np.isfinite(answers.log_probabilities)
    assert told[:, :-96].all()
    assert not told[:, -96:].any()
    with answering(small, most=4000) as server:
        answers = recorded(small, server.url, tmp_path / "b", answers=ANSWERS)
    assert answers.source is not None
    assert answers.source.scale == "chosen tokens"
    assert np.isfinite(answers.log_probabilities).all()


@pytest.mark.slow
def test_bias_is_raised_until_tokens_appear(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little does not show all tokens; the next part begins with the bias that was enough."""
    monkeypatch.setattr(recorder, "BIASES", (0.02, 0.5, 60.0))
    tokens = chosen(2 * WIDTH)
    with answering(small, most=20, strict=True) as server:
        answers = recorded(small, server.url, tmp_path / "a", answers=ANSWERS, tokens=tokens)
    biases = [
        max(json.loads(each.body).get("logit_bias", {"": 0}).values()) for each in server.asked if each.status == 200
    ]
    assert biases == sorted(biases), "it never decreases"
    assert set(biases) == {0, 0.02, 0.5, 60.0}
    direct = of_model(small, asked(answers))[:, tokens]
    assert np.abs(answers.log_probabilities - log_softmax(direct, axis=1)).max() < 1e-3
    assert answers.requests is not None
    assert len(answers.requests.prompt) == len(biases), "including answers with too few tokens"


def test_existing_recording_is_not_overwritten(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "a"
    with answering(small, before=lambda number: out.write_text("mine")) as server:
        with pytest.raises(OutputExistsError):
            recorded(small, server.url, out, answers=ANSWERS)
        assert out.read_text() == "mine"
        out.unlink()
        server.before = None
        before = len(server.asked)
        recorded(small, server.url, out, answers=ANSWERS)
        assert len(server.asked) == before, "all was kept"


@pytest.mark.parametrize(
    "given",
    [
        {"answers": WIDTH}, {"tokens": np.arange(2 * WIDTH - 1)}, {"top": 1}, {"top": VOCABULARY + 1}, {"seed": -1},
        {"api": "telegraph"}, {"api": "llama.cpp", "inside": True}, {"model": ""}, {"model": "a\nb"}, {"url": "h:1"},
    ],
)  # fmt: skip
def test_a_plan_that_cannot_work_is_refused(small: Path, given: dict[str, Any]) -> None:
    with pytest.raises(RecordingError):
        planned(small, **({"url": "http://127.0.0.1:1"} | given))


def test_plan_counts_actual_requests(small: Path) -> None:
    made = planned(small, "http://127.0.0.1:1", answers=20, tokens=chosen(101))
    assert made.requests(None) == 20
    assert [made.requests(told) for told in (101, 100, 51, 2)] == [20, 40, 40, 2000]
    assert made.document(3)["requests_if_told"] == {"1000": 20, "100": 40, "20": 120, "5": 500}
