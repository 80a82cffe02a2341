"""A server of a real model that returns log-probabilities, in two dialects and with faults on demand.

It listens on this machine only.

    python -m tools.answering MODEL [MODEL ...] --port 8000 --most 20 --decimals 4 --fault 429@5 --fault drop@9

    POST /v1/completions    as OpenAI and vLLM: logprobs, logit_bias, prompt_logprobs, return_tokens_as_token_ids
    POST /v1/chat/completions  the same for generated text, with the model's chat template
    POST /completion        as llama.cpp: n_probs, logit_bias, post_sampling_probs

A request for one token gets the likeliest one, and one for more tokens a text that is sampled at its temperature.

Several models answer alternately, as behind one address. A fault is `WHAT@N`, for request number N counted from 1: a
status such as 429 or 500, `drop` (closes the connection), `cut` (half of the JSON), `slow` (byte by byte), `redirect`,
`words` (JSON of another kind), or `echo` (401, with the request's token repeated). `WHAT@*` applies to each request.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from irwm.inference import serving
from irwm.inference.loading import open_model
from irwm.inference.serving import DTYPES

HOST = "127.0.0.1"
READY = "Answering at"
EVERY = 0  # the number of a fault for every request
_SLOWLY = 0.05


@dataclass(frozen=True)
class Serving(serving.Serving):
    """How a model is served: the content of answers, and the handling of requests.

    Attributes:
        most: greatest number of log-probabilities in an answer; None for all.
        strict: whether requests for more get status 400, as with vLLM; otherwise they get fewer, as with others.
        extensions: whether fields unknown to OpenAI are accepted; otherwise they give status 400.
        bias_shows: whether a logit bias changes the log-probabilities.
        silent: whether generated text has no log-probabilities; with `strict`, requests for them get status 400.
        token: token that the API requires.
        faults: faults by the request's number, counted from 1, or `EVERY`.
    """

    most: int | None = None
    strict: bool = False
    extensions: bool = True
    bias_shows: bool = True
    silent: bool = False
    token: str | None = None
    faults: Mapping[int, str] = field(default_factory=dict)


class Refused(Exception):
    """The request gets status 400."""


class Models:
    """Models that answer alternately.

    Args:
        folders: model folders, each with its tokenizer.
    """

    def __init__(self, folders: Sequence[Path], serving: Serving) -> None:
        opened = [open_model(folder) for folder in folders]
        # The method of nn.Module, which transformers overrides in its types.
        self._models = [torch.nn.Module.to(each.model, DTYPES[serving.dtype]) for each in opened]
        self._tokenizer = opened[0].tokenizer
        self._serving, self._turn = serving, 0
        self._generator = torch.Generator().manual_seed(0)
        self._logits: Callable[[int, str], torch.Tensor] = lru_cache(maxsize=4)(self._computed)
        self.text: Callable[[int], str] = lru_cache(maxsize=None)(self._text)

    def log_probabilities(self, prompt: str, bias: Mapping[int, float]) -> torch.Tensor:
        """Return (places, v) log-probabilities at each token of the prompt, as this server returns them."""
        self._turn = (self._turn + 1) % len(self._models)
        logits = self._logits(self._turn, prompt).clone()
        for token, amount in bias.items():
            if not 0 <= token < logits.shape[1]:
                raise Refused(f"there is no token {token}")
            logits[:, token] += max(-100.0, min(100.0, amount))
        return self._serving.told(logits, self._generator)

    def generated(self, ids: Sequence[int], count: int, temperature: float) -> list[tuple[int, float]]:
        """Return up to `count` tokens after a prompt, with their log-probabilities as this server returns them."""
        self._turn = (self._turn + 1) % len(self._models)
        shown, known, found = torch.tensor([list(ids)]), None, []
        end = self._tokenizer.eos_token_id
        for _ in range(count):
            with torch.no_grad():
                made = self._models[self._turn](shown, past_key_values=known, use_cache=True)
            logits, known = made.logits[:, -1].float(), made.past_key_values
            chances = (logits / temperature).softmax(-1) if temperature else None
            shown = logits.argmax(-1)[None] if chances is None else chances.multinomial(1, generator=self._generator)
            token = int(shown)
            if token == end:
                break
            found.append((token, float(self._serving.told(logits, self._generator)[0, token])))
        return found

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the tokens of a chat's messages."""
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def whole_text(self, tokens: list[int]) -> str:
        """Return the text of several tokens."""
        return str(self._tokenizer.decode(tokens))

    def ids(self, prompt: str) -> list[int]:
        """Return the prompt's tokens."""
        return [int(each) for each in self._tokenizer(prompt).input_ids]

    def _computed(self, turn: int, prompt: str) -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = self._models[turn](torch.tensor([self.ids(prompt)])).logits
        return logits[0].float()

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))


@dataclass
class Asked:
    """One received request.

    Attributes:
        number: its number, counted from 1.
        prompt: its prompt.
        status: status of the answer; 0 if the connection was dropped.
        at: seconds of a monotonic clock.
        body: the request's bytes.
    """

    number: int
    prompt: str
    status: int
    at: float
    body: bytes = field(repr=False)


class Answering(ThreadingHTTPServer):
    """The server. `asked` lists its requests so far.

    Args:
        folders: the models' folders.
        serving: how they are served.
        port: 0 for any.
        before: called with a request's number before it is answered.
    """

    daemon_threads = True

    def __init__(
        self, folders: Sequence[Path], serving: Serving, port: int = 0, before: Callable[[int], None] | None = None
    ) -> None:
        self.models, self.serving, self.before = Models(folders, serving), serving, before
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    @property
    def prompts(self) -> list[str]:
        """The prompts of answered requests."""
        return [each.prompt for each in self.asked if each.status == 200]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected or were killed."""

    @contextmanager
    def running(self) -> Any:
        """Answer in a thread until the block ends."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answering

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = self.server
        with server.lock:
            number = len(server.asked) + 1
            asked = Asked(number, "", 0, time.monotonic(), content)
            server.asked.append(asked)
        if server.before is not None:
            server.before(number)
        fault = server.serving.faults.get(number, server.serving.faults.get(EVERY, ""))
        if fault == "drop":
            self.close_connection = True
            return
        status, value = self._answer(content, asked)
        headers: dict[str, str] = {}
        if fault.isdigit():
            status, value, headers = int(fault), {"error": "on demand"}, {"Retry-After": "0"}
        elif fault == "redirect":
            status, value, headers = 307, {}, {"Location": f"{server.url}/elsewhere"}
        elif fault == "words":
            value = {"choices": [{"text": "no log-probabilities here"}]}
        elif fault == "echo":
            status, value = 401, {"error": f"what you sent: {self.headers.get('Authorization')}"}
        asked.status = status
        self._send(status, json.dumps(value).encode(), fault, headers)

    def _answer(self, content: bytes, asked: Asked) -> tuple[int, dict[str, Any]]:
        server = self.server
        if server.serving.token is not None and self.headers.get("Authorization") != f"Bearer {server.serving.token}":
            return 401, {"error": "a token is needed"}
        paths = {"/v1/completions": _openai, "/v1/chat/completions": _generated_chat, "/completion": _llama_cpp}
        respond = paths.get(self.path)
        if respond is None:
            return 404, {"error": "there is nothing at this path"}
        try:
            value = json.loads(content)
            asked.prompt = value["messages"][-1]["content"] if "messages" in value else str(value["prompt"])
            with server.lock:  # one model, one thread
                return 200, respond(server.models, server.serving, value)
        except (Refused, KeyError, ValueError) as error:
            return 400, {"error": str(error)}

    def _send(self, status: int, body: bytes, fault: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in (usual | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if fault == "cut":
            self.close_connection = True
            self.wfile.write(body[: len(body) // 2])
        elif fault == "slow":
            for i in range(len(body)):
                self.wfile.write(body[i : i + 1])
                self.wfile.flush()
                time.sleep(_SLOWLY)
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log, since the list `asked` has all requests."""


def _count(serving: Serving, asked: int, vocabulary: int) -> int:
    most = vocabulary if serving.most is None else min(serving.most, vocabulary)
    if asked > most and serving.strict:
        raise Refused(f"at most {most} log-probabilities are returned")
    return min(asked, most)


_KNOWN = {
    *("model", "prompt", "messages", "max_tokens", "temperature", "top_p", "stream"),
    *("logprobs", "top_logprobs", "logit_bias"),
}  # fmt: skip


def _check(serving: Serving, asked: Mapping[str, Any]) -> None:
    unknown = asked.keys() - _KNOWN
    if unknown and not serving.extensions:
        raise Refused(f"unrecognized request argument: {sorted(unknown)[0]}")


def _generated(
    models: Models, serving: Serving, asked: Mapping[str, Any], ids: Sequence[int], count: int
) -> tuple[list[tuple[int, float]], bool]:
    """Sampled tokens, and whether their log-probabilities are returned."""
    wanted = bool(asked.get("logprobs") or asked.get("n_probs"))
    if wanted and serving.silent and serving.strict:
        raise Refused("log-probabilities are not supported")
    return models.generated(ids, count, float(asked["temperature"])), wanted and not serving.silent


def _generated_openai(models: Models, serving: Serving, asked: Mapping[str, Any]) -> dict[str, Any]:
    prompt = models.ids(asked["prompt"])
    found, told = _generated(models, serving, asked, prompt, int(asked["max_tokens"]))
    tokens = [token for token, _ in found]
    by_id = asked.get("return_tokens_as_token_ids")
    choice: dict[str, Any] = {"text": models.whole_text(tokens), "index": 0, "finish_reason": "length"}
    if told:
        names = [f"token_id:{token}" if by_id else models.text(token) for token in tokens]
        choice["logprobs"] = {"tokens": names, "token_logprobs": [value for _, value in found]}
    if asked.get("return_token_ids"):
        choice |= {"token_ids": tokens, "prompt_token_ids": prompt}
    return {"object": "text_completion", "model": asked["model"], "choices": [choice]}


def _generated_chat(models: Models, serving: Serving, asked: Mapping[str, Any]) -> dict[str, Any]:
    _check(serving, asked)
    found, told = _generated(models, serving, asked, models.chat(asked["messages"]), int(asked["max_tokens"]))
    text = models.whole_text([token for token, _ in found])
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
    if told:
        content = [{"token": models.text(token), "logprob": value, "top_logprobs": []} for token, value in found]
        choice["logprobs"] = {"content": content}
    return {"object": "chat.completion", "model": asked["model"], "choices": [choice]}


def _generated_llama_cpp(models: Models, serving: Serving, asked: Mapping[str, Any]) -> dict[str, Any]:
    found, told = _generated(models, serving, asked, models.ids(asked["prompt"]), int(asked["n_predict"]))
    made: dict[str, Any] = {"content": models.whole_text([token for token, _ in found])}
    if told:
        made["completion_probabilities"] = [
            {"id": token, "token": models.text(token), "logprob": value, "top_logprobs": []} for token, value in found
        ]
    return made


def _openai(models: Models, serving: Serving, asked: Mapping[str, Any]) -> dict[str, Any]:
    _check(serving, asked)
    if int(asked["max_tokens"]) > 1:
        return _generated_openai(models, serving, asked)
    bias = {int(token): float(amount) for token, amount in asked.get("logit_bias", {}).items()}
    values = models.log_probabilities(asked["prompt"], bias if serving.bias_shows else {})
    count = _count(serving, int(asked["logprobs"]), values.shape[1])
    by_id = asked.get("return_tokens_as_token_ids")
    top = values[-1].topk(count)
    pairs = list(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    names = [f"token_id:{token}" if by_id else models.text(token) for token, _ in pairs]
    chosen = models.text(pairs[0][0])
    choice: dict[str, Any] = {
        "text": chosen, "index": 0, "finish_reason": "length",
        "logprobs": {
            "tokens": [names[0]], "token_logprobs": [pairs[0][1]], "text_offset": [0],
            "top_logprobs": [dict(zip(names, (value for _, value in pairs), strict=True))],
        },
    }  # fmt: skip
    if "prompt_logprobs" in asked:
        inside = _count(serving, int(asked["prompt_logprobs"]), values.shape[1])
        choice["prompt_logprobs"] = [None, *(_place(row, inside, models) for row in values[:-1])]
    return {"object": "text_completion", "model": asked["model"], "choices": [choice]}


def _place(row: torch.Tensor, count: int, models: Models) -> dict[str, Any]:
    top = row.topk(count)
    return {
        str(token): {"logprob": value, "rank": rank + 1, "decoded_token": models.text(token)}
        for rank, (token, value) in enumerate(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    }


def _llama_cpp(models: Models, serving: Serving, asked: Mapping[str, Any]) -> dict[str, Any]:
    if int(asked["n_predict"]) > 1:
        return _generated_llama_cpp(models, serving, asked)
    after = bool(asked.get("post_sampling_probs")) and serving.bias_shows
    bias = {int(token): float(amount) for token, amount in asked.get("logit_bias", [])} if after else {}
    values = models.log_probabilities(asked["prompt"], bias)[-1]
    top = values.topk(_count(serving, int(asked["n_probs"]), len(values)))
    entries = [
        {"id": token, "token": models.text(token), "bytes": list(models.text(token).encode())}
        | ({"prob": math.exp(value)} if after else {"logprob": value})
        for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
    return {
        "content": entries[0]["token"],
        "completion_probabilities": [entries[0] | {"top_probs" if after else "top_logprobs": entries}],
    }


def main(arguments: Sequence[str]) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tools.answering", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--most", type=int, metavar="K", help="number of log-probabilities in an answer (default: all)")
    parser.add_argument("--strict", action="store_true", help="status 400 for requests of more")
    parser.add_argument("--plain", action="store_true", help="status 400 for fields unknown to OpenAI")
    parser.add_argument("--hide-bias", action="store_true", help="a bias does not change the log-probabilities")
    parser.add_argument("--silent", action="store_true", help="no log-probabilities with generated text")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--decimals", type=int, metavar="N")
    parser.add_argument("--noise", type=float, default=0.0, metavar="NATS")
    parser.add_argument("--token", help="token that the API requires")
    parser.add_argument("--fault", action="append", default=[], metavar="WHAT@N")
    given = parser.parse_args(arguments)
    faults = {}
    for each in given.fault:
        what, _, number = each.partition("@")
        faults[EVERY if number == "*" else int(number)] = what
    serving = Serving(
        dtype=given.dtype,
        temperature=given.temperature,
        decimals=given.decimals,
        noise=given.noise,
        most=given.most,
        strict=given.strict,
        extensions=not given.plain,
        bias_shows=not given.hide_bias,
        silent=given.silent,
        token=given.token,
        faults=faults,
    )
    with Answering(given.models, serving, given.port) as server:
        print(f"{READY} {server.url}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
