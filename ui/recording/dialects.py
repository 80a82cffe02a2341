"""The form of a request for log-probabilities, and where they are in the server's answer.

    openai      POST /v1/completions with `logprobs`; as OpenAI, vLLM, llama.cpp and llama-cpp-python answer it.
                With `prompt_logprobs` (vLLM) the answer has them for every token of the prompt
    chat        POST /v1/chat/completions; only for generated text
    llama.cpp   POST /completion with `n_probs`

The answer is untrusted: everything in it is checked, and another form is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irwm.answers.token_names import Names
from irwm.errors import printable
from ui.recording.errors import ServerError

OPENAI, CHAT, LLAMA_CPP = "openai", "chat", "llama.cpp"
# For complete vectors, and for generated text.
APIS, GENERATING = (OPENAI, LLAMA_CPP), (OPENAI, CHAT, LLAMA_CPP)
# Some servers have a value for "no probability at all": -9999 (vLLM) or the least 32-bit number (llama.cpp). With
# 32-bit numbers llama.cpp also uses it for the smallest probabilities: below e^-87 they are not exact.
LEAST = {OPENAI: -1000.0, LLAMA_CPP: -87.0}
# Largest effect of rounding on the logarithm of 1.
_ABOVE_ZERO = 1e-3


@dataclass(frozen=True, slots=True)
class Question:
    """One request.

    Attributes:
        prompt: the text.
        top: how many log-probabilities are requested.
        biased: tokens that the bias is added to.
        bias: in nats; 0 for none.
        extensions: whether fields that only some servers support may be used: tokens by their ids, and `everywhere`.
        everywhere: the log-probabilities at every token of the prompt.
    """

    prompt: str
    top: int
    biased: tuple[int, ...] = ()
    bias: float = 0.0
    extensions: bool = True
    everywhere: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """The log-probabilities in one answer.

    Attributes:
        tokens: (k,) int64, each once.
        values: (k,) float32, natural logarithms.
    """

    tokens: NDArray[np.int64]
    values: NDArray[np.float32]

    def row(self, wanted: NDArray[np.int64], size: int) -> NDArray[np.float32]:
        """The values of the wanted tokens, NaN for missing ones.

        Args:
            wanted: token ids below `size`.
            size: of the vocabulary; tokens with this number or a higher one are left out.
        """
        whole = np.full(size, np.nan, dtype=np.float32)
        known = self.tokens < size
        whole[self.tokens[known]] = self.values[known]
        return whole[wanted]


def address(api: str, endpoint: str) -> str:
    """The address for requests, from an endpoint typed with or without its path."""
    base = endpoint.rstrip("/")
    if api == LLAMA_CPP:
        return base if base.endswith("/completion") else f"{base}/completion"
    path = "/chat/completions" if api == CHAT else "/completions"
    if base.endswith(path):
        return base
    return f"{base}{path}" if base.endswith("/v1") else f"{base}/v1{path}"


def body(api: str, model: str, question: Question) -> bytes:
    """The body of the request: the same question gives the same bytes."""
    return _packed(_llama_cpp(model, question) if api == LLAMA_CPP else _openai(model, question))


@dataclass(frozen=True, slots=True)
class Order:
    """One request for generated text.

    Attributes:
        prompt: the text; with `CHAT` it is the user's message.
        temperature: for sampling.
        max_tokens: tokens of the response at most.
        log_probabilities: whether that of each generated token is requested.
        extensions: whether fields that only some servers support may be used: token ids.
    """

    prompt: str
    temperature: float
    max_tokens: int
    log_probabilities: bool = True
    extensions: bool = True


def order_body(api: str, model: str, order: Order) -> bytes:
    """The body of the request: the same order gives the same bytes."""
    asked: dict[str, object] = {"model": model, "temperature": order.temperature, "stream": False}
    # One likely token is requested for each place: with 0, llama.cpp leaves all log-probabilities out.
    if api == LLAMA_CPP:
        asked |= {"prompt": order.prompt, "n_predict": order.max_tokens, "samplers": ["temperature"]}
        asked |= {"n_probs": 1} if order.log_probabilities else {}
        return _packed(asked | ({"return_tokens": True} if order.extensions else {}))
    asked |= {"max_tokens": order.max_tokens, "top_p": 1.0}
    if api == CHAT:
        asked["messages"] = messages(order.prompt)
        asked |= {"logprobs": True, "top_logprobs": 1} if order.log_probabilities else {}
    else:
        asked["prompt"] = order.prompt
        asked |= {"logprobs": 1} if order.log_probabilities else {}
    if order.extensions:
        asked["return_token_ids"] = True
        asked |= {"return_tokens_as_token_ids": True} if order.log_probabilities else {}
    return _packed(asked)


def messages(prompt: str) -> list[dict[str, str]]:
    """A prompt as the messages of a chat."""
    return [{"role": "user", "content": prompt}]


def _packed(asked: Mapping[str, object]) -> bytes:
    return json.dumps(asked, separators=(",", ":")).encode("ascii")


def _openai(model: str, question: Question) -> dict[str, object]:
    asked: dict[str, object] = {
        "model": model, "prompt": question.prompt, "max_tokens": 1, "temperature": 1.0, "logprobs": question.top,
    }  # fmt: skip
    if question.extensions:
        asked["return_tokens_as_token_ids"] = True
    if question.everywhere:
        asked["prompt_logprobs"] = question.top
    if question.biased:
        asked["logit_bias"] = {str(token): question.bias for token in question.biased}
    return asked


def _llama_cpp(model: str, question: Question) -> dict[str, object]:
    asked: dict[str, object] = {
        "model": model, "prompt": question.prompt, "n_predict": 1, "temperature": 1.0, "n_probs": question.top,
        "stream": False,
    }  # fmt: skip
    if question.biased:
        # A bias has an effect only after the samplers, so all samplers that cut off tokens are switched off.
        asked |= {
            "logit_bias": [[token, question.bias] for token in question.biased],
            "post_sampling_probs": True, "samplers": ["temperature"],
        }  # fmt: skip
    return asked


def told(api: str, answer: bytes, names: Names, *, everywhere: bool = False) -> list[Told]:
    """The log-probabilities in an answer: of the token after the prompt, or at every token of the prompt.

    Args:
        answer: JSON; this was checked when it arrived.
        names: finds the tokens if the server writes them as text.
        everywhere: read `prompt_logprobs`.

    Raises:
        ServerError: there are none, or they are not log-probabilities.
    """
    value = json.loads(answer)
    least = LEAST[api]
    if everywhere:
        found = [_told(_by_id(each), least) for each in _prompt_places(value)]
    elif api == LLAMA_CPP:
        found = [_told(_pairs(_top(_first(value, "completion_probabilities")), names), least)]
    else:
        found = [_told(_pairs(_openai_top(value), names), least)]
    if not any(len(each.tokens) for each in found):
        raise _none()
    return found


def _openai_top(value: Any) -> Any:
    logprobs = _field(_first(value, "choices"), "logprobs")
    if isinstance(logprobs, Mapping) and isinstance(logprobs.get("content"), list):  # the form of llama.cpp
        return _top(_first(logprobs, "content"))
    return _first(logprobs, "top_logprobs")


def _top(place: Any) -> Any:
    return place["top_probs"] if isinstance(place, Mapping) and "top_probs" in place else _field(place, "top_logprobs")


def _prompt_places(value: Any) -> Iterator[Mapping[str, object]]:
    choice = _first(value, "choices")
    places = choice.get("prompt_logprobs") if isinstance(choice, Mapping) else None
    if not isinstance(places, list):
        raise ServerError(
            "this server returns no log-probabilities for prompt tokens", expected="prompt_logprobs in its response",
            advice="Leave out --inside",
        )  # fmt: skip
    yield from (each for each in places if isinstance(each, Mapping))  # the first token has none


def _by_id(place: Mapping[str, object]) -> Iterator[tuple[int | None, Any]]:
    for token, value in place.items():
        known = token.isascii() and token.isdigit() and len(token) < 10
        yield int(token) if known else None, value.get("logprob") if isinstance(value, Mapping) else value


def _pairs(top: Any, names: Names) -> Iterator[tuple[int | None, Any]]:
    """Token and logarithm: of a mapping from texts, or of a list of entries that name the token's id."""
    if isinstance(top, Mapping):
        yield from ((names.token(name), value) for name, value in top.items())
        return
    if not isinstance(top, list):
        raise _none()
    for entry in top:
        if not isinstance(entry, Mapping):
            raise _none()
        token = entry["id"] if type(entry.get("id")) is int else names.token(str(entry.get("token")))
        yield token, entry.get("logprob") if "logprob" in entry else _logarithm(entry.get("prob"))


def _told(pairs: Iterable[tuple[int | None, Any]], least: float) -> Told:
    found: dict[int, float] = {}
    for token, value in pairs:
        if token is None or value is None:
            continue
        if type(value) not in (int, float):
            raise _none()
        number = float(value)
        if number > _ABOVE_ZERO:
            raise ServerError(
                "the server's numbers are not log-probabilities",
                expected="values no greater than 0",
                found=f"{number:g}",
            )
        if token >= 0 and number > least:  # false for NaN
            found[token] = number
    return Told(np.array(list(found), dtype=np.int64), np.array(list(found.values()), dtype=np.float32))


def _logarithm(value: Any) -> float | None:
    return math.log(value) if type(value) in (int, float) and value > 0 else None


def _first(value: Any, name: str) -> Any:
    entries = _field(value, name)
    if not isinstance(entries, list) or not entries:
        raise _none()
    return entries[0]


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping) or name not in value:
        raise _none(value)
    return value[name]


def _none(value: Any = None) -> ServerError:
    fields = ", ".join(map(str, value)) if isinstance(value, Mapping) else ""
    return ServerError(
        "the server's response contains no log-probabilities",
        found=printable(f"the fields {fields}", 200) if fields else None,
        advice="Check --api and --endpoint; many servers return log-probabilities only if this is enabled",
    )
