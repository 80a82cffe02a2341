"""Recorded responses of a server as a file: each request and response as it was, with its time and digests.

docs/answers.md ("The file of responses") describes the format. `python app.py collect --generate` writes it. Complete
log-probability vectors have another format (`irwm.checkpoint.recorded`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from irwm.answers.answers import Answers
from irwm.answers.responses import Prompt, answers_of_pairs
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.files import parse_json, read_small, require_bounded
from irwm.checkpoint.formats.content import first_bytes
from irwm.checkpoint.recorded import MOST_TIME_MS
from irwm.errors import AnswersError, AnswersFileError, CheckpointError, path_from, printable

FORMAT, VERSION = "irwm-responses", 1
# Text alone may need 300 000 tokens. They take 2 MB, or 100 MB with llama.cpp's log-probabilities.
MOST_BYTES = 256 << 20
# Of one request or response.
MOST_RESPONSE_BYTES = 16 << 20
# Of the first line, and characters of each of its texts.
_HEADER_BYTES, _LONGEST = 16 << 10, 2000
# Larger whole numbers are not exact as floats, or not floats at all.
_EXACT = 1 << 53
_ADVICE = "Record the responses again with `python app.py collect --generate`, or copy the file again"


@dataclass(frozen=True, slots=True)
class ResponsesSource:
    """The server and the settings of the requests.

    Attributes:
        endpoint: the server's address, without user name, password and query.
        model: the model's name on the server.
        api: the type of API, "openai", "chat" or "llama.cpp".
        original: the original's fingerprint, hex SHA-256.
        prompt_seed: the seed of the prompts.
        temperature: at which the server was asked to sample.
        max_tokens: tokens of a response at most.
    """

    endpoint: str
    model: str
    api: str
    original: str
    prompt_seed: int
    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, as they were sent and received, without HTTP headers.

    Attributes:
        request, response: JSON texts.
        time_ms: when the response was complete: milliseconds since 1970, UTC, by the recorder's clock.
    """

    request: str = field(repr=False)
    response: str = field(repr=False)
    time_ms: int

    @property
    def prompt(self) -> Prompt:
        """The prompt in the request: a text, or a chat's messages.

        Raises:
            ValueError: there is none.
        """
        asked = json.loads(self.request)
        found = asked.get("messages", asked.get("prompt")) if isinstance(asked, dict) else None
        if not isinstance(found, str) and not (found and isinstance(found, list) and all(map(_is_message, found))):
            raise ValueError("the request has no prompt")
        return found


@dataclass(frozen=True, slots=True)
class RecordedResponses:
    """The content of a file.

    Attributes:
        source: the server.
        exchanges: in the order of the file, at least one.
        bytes, sha256: of the file, the digest in hex.
    """

    source: ResponsesSource
    exchanges: tuple[Exchange, ...]
    bytes: int
    sha256: str


def read_responses(path: str | Path, original: Checkpoint) -> Answers:
    """The answers in a file of recorded responses, for `irwm.trace_answers` and `irwm.detect_answers`.

    Args:
        path: what `python app.py collect --generate` wrote.
        original: its tokenizer encodes prompts and texts.

    Raises:
        AnswersFileError: the file is missing, too large, truncated, changed or of another format, or its responses
            cannot be used (`irwm.answers_from_responses`).
        UnsupportedCheckpointError: the original has no tokenizer that transformers can open.
    """
    file = path_from(path)
    return answers_in(file, read_recorded_responses(file), original)


def answers_in(file: Path, recorded: RecordedResponses, original: Checkpoint) -> Answers:
    """The answers in the content of a file; see `read_responses`."""
    with _typed(file):
        return answers_of_pairs(((each.prompt, json.loads(each.response)) for each in recorded.exchanges), original)


def read_recorded_responses(file: Path) -> RecordedResponses:
    """The content of a file.

    Raises:
        AnswersFileError: as `read_responses`.
    """
    with _typed(file):
        content = read_small(file, MOST_BYTES, "responses file")
        lines = content.split(b"\n")
        source, count = _header(file, lines[0])
        if lines[-1] or len(lines) - 2 != count:
            raise _broken(file, "the file is truncated or has extra lines", f"{count} responses", len(lines) - 2)
        exchanges = [_exchange(file, number, line) for number, line in enumerate(lines[1:-1], 2)]
    return RecordedResponses(source, tuple(exchanges), len(content), hashlib.sha256(content).hexdigest())


def read_source(path: str | Path) -> tuple[ResponsesSource, int]:
    """The first line of a file, which is fast for any size: the server, and how many responses there are.

    Raises:
        AnswersFileError: as `read_responses`.
    """
    file = path_from(path)
    with _typed(file):
        return _header(file, first_bytes(file, most=_HEADER_BYTES)[0].split(b"\n")[0])


def holds_responses(path: str | Path) -> bool:
    """Whether a file claims to hold recorded responses, even if it is truncated."""
    file = path_from(path)
    if not os.path.isfile(file):  # False also if the system rejects the path
        return False
    try:
        # As this program writes it: any other kind of file may contain the name.
        return first_bytes(file, most=_HEADER_BYTES)[0].startswith(f'{{"format":"{FORMAT}"'.encode())
    except CheckpointError:
        return False


def write_responses(path: Path, source: ResponsesSource, exchanges: Sequence[Exchange]) -> None:
    """Writes a file and waits until it is on the disk.

    Args:
        path: must not exist; the caller renames the file when it is complete.

    Raises:
        OSError: the disk is full, or the path exists.
    """
    header = {"format": FORMAT, "version": VERSION, **asdict(source), "responses": len(exchanges)}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # private from the start
    with open(descriptor, "wb") as stream:
        stream.write(_line(header))
        for each in exchanges:
            stream.write(_line(asdict(each) | {f"{name}_sha256": _sha256(getattr(each, name)) for name in _TEXTS}))
        stream.flush()
        os.fsync(stream.fileno())


_TEXTS = ("request", "response")


def _line(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _typed(file: Path) -> Iterator[None]:
    """Turns other errors into this module's error, with the file's name."""
    try:
        yield
    except (CheckpointError, AnswersError) as error:
        if isinstance(error, AnswersFileError):
            raise
        raise AnswersFileError(
            f"these responses cannot be used: {error.problem}", file=file, expected=error.expected, found=error.found,
            advice=error.advice or _ADVICE,
        ) from error  # fmt: skip
    except MemoryError as error:
        raise AnswersFileError(
            "there is not enough memory for these responses", file=file, advice="Use a machine with more memory"
        ) from error


def _broken(file: Path, problem: str, expected: str | None = None, found: object = None) -> AnswersFileError:
    shown = None if found is None else printable(str(found), 200)
    return AnswersFileError(problem, file=file, expected=expected, found=shown, advice=_ADVICE)


def _object(file: Path, line: bytes, what: str) -> dict[str, Any]:
    require_bounded(line, file, what)
    value = parse_json(line, file, what, strict=True)
    if not isinstance(value, dict):
        raise _broken(file, f"the {what} is not a JSON object")
    return value


def _header(file: Path, line: bytes) -> tuple[ResponsesSource, int]:
    value = _object(file, line, "first line")
    if value.get("format") != FORMAT:
        raise _broken(file, "this file does not contain recorded responses", f"format {FORMAT}", value.get("format"))
    if value.get("version") != VERSION:
        raise AnswersFileError(
            "these responses were written by a different version of this program", file=file,
            expected=f"version {VERSION}",
            found=printable(f"version {value.get('version')}", 80),
            advice="Use the version of this program that wrote them",
        )  # fmt: skip
    values: dict[str, Any] = {}
    for each in fields(ResponsesSource):
        given = value.get(each.name)
        if each.type == "float" and type(given) is int and abs(given) <= _EXACT:  # JSON may leave ".0" out
            given = float(given)
        values[each.name] = given
        if type(values[each.name]).__name__ != each.type:
            raise _broken(file, f"the first line has no valid {each.name}", str(each.type), given)
    ranges: dict[str, tuple[float, float]] = {
        "prompt_seed": (0, 2**63 - 1),
        "temperature": (0, 100),
        "max_tokens": (1, 2**31),
    }
    for name, (least, most) in ranges.items():
        if not least <= values[name] <= most:
            raise _broken(file, f"the {name} on the first line is out of range", f"{least} to {most}", values[name])
    for name in ("endpoint", "model", "api", "original"):
        if not values[name].isprintable() or len(values[name]) > _LONGEST:
            expected = f"at most {_LONGEST} printable characters"
            raise _broken(file, f"the {name} on the first line cannot be used", expected, values[name])
    count = value.get("responses")
    if type(count) is not int or count < 1:
        raise _broken(file, "the first line does not state the number of responses", "1 or more", count)
    return ResponsesSource(**values), count


def _exchange(file: Path, number: int, line: bytes) -> Exchange:
    value = _object(file, line, f"line {number}")
    texts = {name: value.get(name) for name in _TEXTS}
    for name, text in texts.items():
        try:
            fits = isinstance(text, str) and value.get(f"{name}_sha256") == _sha256(text)
        except UnicodeEncodeError:  # half of a surrogate pair
            fits = False
        if not fits:
            raise _broken(
                file, f"line {number} was changed: the SHA-256 of its {name} does not match the one on that line"
            )
        assert isinstance(text, str)
        data = text.encode()
        if len(data) > MOST_RESPONSE_BYTES:
            large = f"the {name} on line {number} is too large"
            raise _broken(file, large, f"at most {MOST_RESPONSE_BYTES} bytes", f"{len(data)} bytes")
        require_bounded(data, file, f"{name} on line {number}")
        parse_json(data, file, f"{name} on line {number}", strict=False)
    time = value.get("time_ms")
    if type(time) is not int or not 0 <= time <= MOST_TIME_MS:
        raise _broken(file, f"line {number} has no valid time", "milliseconds since 1970", time)
    found = Exchange(str(texts["request"]), str(texts["response"]), time)
    try:
        found.prompt  # noqa: B018
    except ValueError as error:
        raise _broken(file, f"line {number} has no prompt", "text, or the messages of a chat") from error
    return found


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("role", "content"))
