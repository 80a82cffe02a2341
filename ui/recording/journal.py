"""The file that a recording grows in: one line for each event, written to the disk before the next event begins.

A line is a checksum (CRC-32 in hex), a space, and JSON. A process that is killed leaves at most a torn last line, which
is cut off when the recording is resumed. Before a prompt is sent, a line records that: a prompt whose answer never
arrived is not sent a second time; another one replaces it.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, NotRequired, TypedDict

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from irwm.answers.recorded_responses import Exchange
from storage.files import open_to_append, sync_folder
from ui.recording.errors import RecordingError

ENDING = ".recording"
VERSION = 1
WHOLE = -1  # the part of an answer that contains all tokens at once


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One answered request.

    Attributes:
        prompt: number of the prompt.
        part: which of the parts of the chosen tokens it asked for; `WHOLE` for all at once.
        bias: the bias of the request.
        time_ms: when the answer was complete.
        request_sha256, response_sha256: hex.
        values: (rows, columns) float32; None if the answer is kept as evidence only.
    """

    prompt: int
    part: int
    bias: float
    time_ms: int
    request_sha256: str
    response_sha256: str
    values: NDArray[np.float32] | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Server:
    """The capabilities of a server, found by a first request.

    Attributes:
        top: how many log-probabilities are requested.
        told: how many its answer has.
        whole: whether these are all wanted tokens.
        extensions: whether it accepts fields that only some servers support.
    """

    top: int
    told: int
    whole: bool
    extensions: bool


class Begun(TypedDict):
    """The first line. The settings must not change during a recording."""

    what: Literal["recording"]
    version: int
    settings: Mapping[str, object]


class AskedLine(TypedDict):
    """A prompt is about to be sent for the first time."""

    what: Literal["asked"]
    prompt: int


class TextsLine(TypedDict):
    """The chosen prompts; see `ui.recording.chosen_prompts`."""

    what: Literal["prompts"]
    texts: list[str]


class ServerLine(TypedDict):
    """See `Server`."""

    what: Literal["server"]
    top: int
    told: int
    whole: bool
    extensions: bool


class AnswerLine(TypedDict):
    """See `Entry`; the values are little-endian float32 in base64."""

    what: Literal["answer"]
    prompt: int
    part: int
    bias: float
    time: int
    request: str
    response: str
    shape: NotRequired[list[int]]
    values: NotRequired[str]


class ExchangeLine(TypedDict):
    """A request for generated text and its response; see `irwm.answers.recorded_responses.Exchange`."""

    what: Literal["exchange"]
    prompt: int
    time: int
    request: str
    response: str


Line = Begun | AskedLine | TextsLine | ServerLine | AnswerLine | ExchangeLine


class Journal:
    """An unfinished recording; use it in a with block, in one process at a time.

    Args:
        out: the file for the finished recording; the journal is in the same folder.
        settings: the values that must not change during a recording, as JSON values.

    Raises:
        RecordingError: another process records into it, it was begun with other settings, it is damaged, or the disk
            cannot be written.
    """

    def __init__(self, out: Path, settings: Mapping[str, object]) -> None:
        self.path = journal_of(out)
        self._descriptor = -1
        self._lock = FileLock(str(self.path) + ".lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise RecordingError(
                "another command is recording to this file",
                file=out,
                advice="Wait until it has finished, or use another --out",
            ) from error
        except OSError as error:
            raise _disk(self.path, error) from error
        self.server: Server | None = None
        self.texts: tuple[str, ...] | None = None  # chosen prompts
        self.asked: set[int] = set()  # prompts
        self.parts: dict[int, set[int]] = {}  # of each answered prompt: the parts that are known
        self.rows = self.requests = 0
        self.bias = 0.0  # the largest so far
        try:
            self._begin(dict(settings))
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def note_asked(self, prompt: int) -> None:
        """Records that a prompt is about to be sent for the first time."""
        # Data passed to the system survives a kill; only answers need to survive a power cut as well.
        self._append({"what": "asked", "prompt": prompt}, durable=False)
        self.asked.add(prompt)

    def note_texts(self, texts: Sequence[str]) -> None:
        """Records the chosen prompts."""
        self._append({"what": "prompts", "texts": list(texts)}, durable=True)
        self.texts = tuple(texts)

    def note_server(self, server: Server) -> None:
        """Records the server's capabilities."""
        told: ServerLine = {"what": "server", "top": server.top, "told": server.told, "whole": server.whole,
                            "extensions": server.extensions}  # fmt: skip
        self._append(told, durable=True)
        self.server = server

    def add(self, entry: Entry) -> None:
        """Stores an answer: after the return it is on the disk."""
        line: AnswerLine = {
            "what": "answer", "prompt": entry.prompt, "part": entry.part, "bias": entry.bias, "time": entry.time_ms,
            "request": entry.request_sha256, "response": entry.response_sha256,
        }  # fmt: skip
        if entry.values is not None:
            packed = np.ascontiguousarray(entry.values, dtype="<f4")
            line["shape"], line["values"] = list(packed.shape), base64.b64encode(packed.tobytes()).decode("ascii")
        self._append(line, durable=True)
        self._count(entry.prompt, entry.part, entry.bias, None if entry.values is None else len(entry.values))

    def add_exchange(self, prompt: int, exchange: Exchange) -> None:
        """Stores a response: after the return it is on the disk."""
        line: ExchangeLine = {
            "what": "exchange", "prompt": prompt, "time": exchange.time_ms, "request": exchange.request,
            "response": exchange.response,
        }  # fmt: skip
        self._append(line, durable=True)
        self._count(prompt, WHOLE, 0.0, 1)

    def exchanges(self) -> Iterator[Exchange]:
        """All requests for generated text with their responses, in the order in which they came."""
        for line in self._lines():
            if line["what"] == "exchange":
                yield _exchange(line)

    def entries(self) -> Iterator[Entry]:
        """All answers, in the order in which they came."""
        for line in self._lines():
            if line["what"] == "answer":
                yield _entry(line, self.path)

    def complete(self, parts: int) -> list[int]:
        """The prompts of which this many parts are answered."""
        return [number for number, done in self.parts.items() if len(done) == parts]

    def remove(self) -> None:
        """Removes the journal, once the recording is published."""
        self._close()  # Windows cannot remove an open file
        self.path.unlink(missing_ok=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._lock.release()

    def _begin(self, settings: dict[str, object]) -> None:
        new = not os.path.lexists(self.path)
        try:
            self._descriptor = open_to_append(self.path)
        except OSError as error:
            raise _disk(self.path, error) from error
        try:
            lines = self._lines(cut=True)
            first = next(lines, None)
            if first is None:
                self._append({"what": "recording", "version": VERSION, "settings": settings}, durable=True)
                if new:
                    sync_folder(self.path.parent)
                return
            self._require_same(first, settings)
            for line in lines:
                self._take(line)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _require_same(self, first: Line, settings: dict[str, object]) -> None:
        known = first.get("settings")
        if first.get("what") != "recording" or first.get("version") != VERSION or not isinstance(known, dict):
            raise _damaged(self.path)
        for name, value in settings.items():
            if known.get(name) != value:
                raise RecordingError(
                    f"this recording was started with a different {name.replace('_', ' ')}", file=self.path,
                    expected=str(known.get(name))[:200], found=str(value)[:200],
                    advice="Run the same command again, use another --out, or remove this file to start over",
                )  # fmt: skip

    def _take(self, line: Line) -> None:
        try:
            if line["what"] == "asked":
                self.asked.add(int(line["prompt"]))
            elif line["what"] == "prompts":
                self.texts = tuple(map(str, line["texts"]))
            elif line["what"] == "server":
                self.server = Server(int(line["top"]), int(line["told"]), bool(line["whole"]), bool(line["extensions"]))
            elif line["what"] == "answer":
                rows = int(line["shape"][0]) if "shape" in line else None
                self._count(int(line["prompt"]), int(line["part"]), float(line["bias"]), rows)
            elif line["what"] == "exchange":
                _exchange(line)
                self._count(int(line["prompt"]), WHOLE, 0.0, 1)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise _damaged(self.path) from error

    def _count(self, prompt: int, part: int, bias: float, rows: int | None) -> None:
        self.requests += 1
        self.asked.add(prompt)
        self.bias = max(self.bias, bias)
        done = self.parts.setdefault(prompt, set())
        if rows is not None:
            done.add(part)
            self.rows += rows if part == WHOLE else 0

    def _append(self, line: Line, *, durable: bool) -> None:
        text = json.dumps(line, separators=(",", ":")).encode("ascii")
        data = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            if durable:
                os.fsync(self._descriptor)
        except OSError as error:
            raise _disk(self.path, error) from error

    def _lines(self, *, cut: bool = False) -> Iterator[Line]:
        """Every whole line; cuts off a torn last one if requested."""
        good = 0
        try:
            with self.path.open("rb") as stream:
                for raw in stream:
                    line = _whole(raw)
                    if line is None:
                        if stream.read(1):
                            raise _damaged(self.path)
                        if cut:
                            os.truncate(self.path, good)
                        return
                    good += len(raw)
                    yield line
        except OSError as error:
            raise _disk(self.path, error) from error


def journal_of(out: Path) -> Path:
    """The file in which a recording grows."""
    return out.with_name(out.name + ENDING)


def _whole(raw: bytes) -> Line | None:
    """The values of a line; None for a torn one."""
    if not raw.endswith(b"\n") or raw[8:9] != b" ":
        return None
    try:
        fits = int(raw[:8], 16) == zlib.crc32(raw[9:-1])
        line: Line | None = json.loads(raw[9:-1]) if fits else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and "what" in line else None


def _entry(line: AnswerLine, path: Path) -> Entry:
    try:
        values = None
        if "values" in line:
            values = np.frombuffer(base64.b64decode(line["values"]), dtype="<f4").reshape(line["shape"])
        return Entry(int(line["prompt"]), int(line["part"]), float(line["bias"]), int(line["time"]), line["request"],
                     line["response"], values)  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error


def _exchange(line: ExchangeLine) -> Exchange:
    return Exchange(str(line["request"]), str(line["response"]), int(line["time"]))


def _damaged(path: Path) -> RecordingError:
    return RecordingError(
        "this unfinished recording is damaged", file=path, advice="Remove it to start over, or use another --out"
    )


def _disk(path: Path, error: OSError) -> RecordingError:
    return RecordingError(
        "the recording cannot be saved", file=path, found=error.strerror or type(error).__name__,
        advice="Free up some space, or allow this account to write to this folder. Then run the same command again",
    )  # fmt: skip
