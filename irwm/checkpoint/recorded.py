"""Recorded answers as a file: log-probabilities, and the evidence of their source.

docs/answers.md ("The file") describes the format.

A recording is one safetensors file. `python app.py collect` writes it. A NumPy file (.npz) with the arrays
`log_probabilities` and `token_ids` is read as well: it has no evidence.
"""

from __future__ import annotations

import json
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from irwm.checkpoint.files import open_regular, parse_json, require_bounded
from irwm.checkpoint.formats.safetensors_file import read_metadata, read_safetensors
from irwm.checkpoint.model import Checkpoint
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import Tensor
from irwm.errors import AnswersFileError, CheckpointError, printable

FORMAT, VERSION = "irwm-answers", "1"
# 6 000 answers of the largest vocabularies, 256 000 tokens, have 6 GB.
MOST_BYTES = 8 << 30
# Prompts are short: 20 000 of 200 characters have 4 MB.
MOST_PROMPT_BYTES = 64 << 20
MOST_VOCABULARY = 1 << 24
DIGEST_BYTES = 32
# The tokens that the values are relative to: the whole vocabulary, or only the chosen tokens.
SCALES = ("all tokens", "chosen tokens")
_TABLE, _TOKENS, _PROMPTS, _TIMES = "log_probabilities", "token_ids", "prompts", "requests.time_ms"
# The end of the year 9999; later times cannot be printed.
MOST_TIME_MS = 253_402_300_799_999
_ADVICE = "Record the answers again with `python app.py collect`, or copy the file again"


@dataclass(frozen=True, slots=True)
class Source:
    """The server and the settings of the recording.

    Attributes:
        endpoint: the server's address, without user name, password and query.
        model: the model's name on the server.
        api: the type of API, "openai" or "llama.cpp".
        original: the original's fingerprint, hex SHA-256.
        vocab_size: tokens of the original.
        prompt_seed: the seed of the prompts.
        scale: one of `SCALES`; the probabilities of a row sum to 1 over these tokens, as far as they were given.
        began, ended: time of the first and of the last answer, UTC.
    """

    endpoint: str
    model: str
    api: str
    original: str
    vocab_size: int
    prompt_seed: int
    scale: str
    began: str
    ended: str


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """All answered requests, r in total, in order of time.

    Attributes:
        prompt: (r,) int64, the number of its prompt.
        time_ms: (r,) int64, time of its complete answer: milliseconds since 1970, UTC, by the recorder's clock.
        request_sha256, response_sha256: (r, 32) uint8, SHA-256 of the bytes that were sent and received, without
            the HTTP headers.
    """

    prompt: NDArray[np.int64]
    time_ms: NDArray[np.int64]
    request_sha256: NDArray[np.uint8]
    response_sha256: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedAnswers:
    """The answers of a served model.

    Attributes:
        log_probabilities: (n, v) float32, natural logarithms; NaN where the server gave none.
        token_ids: (v,) int64, the token of each column; None where column i is token i.
        source: the server; None for a file without evidence, like the following.
        prompts: the prompts, each once.
        prompt_of: (n,) int64, the prompt of each answer. Several answers may come from one prompt.
        requests: all requests.
    """

    log_probabilities: NDArray[np.float32]
    token_ids: NDArray[np.int64] | None
    source: Source | None = None
    prompts: tuple[str, ...] = field(default=(), repr=False)
    prompt_of: NDArray[np.int64] | None = None
    requests: Requests | None = None


def read_answers(path: str | Path, original: Checkpoint | None = None) -> RecordedAnswers:
    """The answers in a file, for `irwm.suspect_from_answers`.

    Args:
        path: a recording (.safetensors), or a NumPy archive with `log_probabilities` (n, v) and perhaps `token_ids`
            (v,).
        original: if given, the answers must use this model's tokens.

    Raises:
        AnswersFileError: the file is missing, too large, truncated, of another format, without log-probabilities, or
            uses tokens of another vocabulary.
    """
    file = Path(path)
    with _typed(file):
        archive = _is_archive(file)
        answers = _read_archive(file) if archive else _read_recording(file)
        _check_table(file, answers.log_probabilities)
        _check_tokens(file, answers, original)
    return answers


@dataclass(frozen=True, slots=True)
class Header:
    """The content of a recording's header, before any answer is read.

    Attributes:
        source: the server.
        answers, tokens, requests: their numbers; the number of tokens is the number of columns.
        bytes: the file's size.
    """

    source: Source
    answers: int
    tokens: int
    requests: int
    bytes: int


def read_header(path: str | Path) -> Header:
    """A recording's header, which is fast for any size.

    Raises:
        AnswersFileError: the file is missing, truncated, or of another format.
    """
    file = Path(path)
    with _typed(file):
        stored, source = _content(file)
        table, times = stored.get(_TABLE), stored.get(_TIMES)
        if table is None or len(table.shape) != 2 or times is None or len(times.shape) != 1:
            raise _broken(file, f"{_TABLE} or {_TIMES} is missing", "a table of answers and the time of each request")
        return Header(source, *table.shape, times.shape[0], file.stat().st_size)


def holds_answers(path: str | Path) -> bool:
    """Whether a file claims to be a recording, or has the name of a NumPy archive; also if it is truncated."""
    file = Path(path)
    if not os.path.isfile(file):  # False also if the system rejects the path
        return False
    if file.suffix.lower() == ".npz":
        return True
    try:
        return read_metadata(file).get("format") == FORMAT
    except CheckpointError:
        return False


def write_answers(path: Path, answers: RecordedAnswers) -> None:
    """Writes a recording and waits until it is on the disk.

    Args:
        path: must not exist; the caller renames the file when it is complete.
        answers: with evidence.

    Raises:
        OSError: the disk is full, or the path exists.
    """
    source, requests, prompt_of = answers.source, answers.requests, answers.prompt_of
    assert source is not None
    assert requests is not None
    assert prompt_of is not None
    tensors: dict[str, NDArray[Any]] = {
        _TABLE: answers.log_probabilities,
        _PROMPTS: np.frombuffer(json.dumps(list(answers.prompts)).encode("ascii"), dtype=np.uint8),
        "prompt_of": prompt_of,
        **{f"requests.{each.name}": getattr(requests, each.name) for each in fields(Requests)},
    }
    if answers.token_ids is not None:
        tensors[_TOKENS] = answers.token_ids
    about = {name: str(value) for name, value in asdict(source).items()}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # private from the start
    try:
        save_file(tensors, path, metadata={"format": FORMAT, "version": VERSION, **about})
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _typed(file: Path) -> Iterator[None]:
    """Turns file reading errors into this module's error."""
    try:
        yield
    except CheckpointError as error:
        raise AnswersFileError(
            f"these answers cannot be read: {error.problem}", file=file, tensor=error.tensor,
            expected=error.expected, found=error.found, advice=error.advice or _ADVICE,
        ) from error  # fmt: skip
    except MemoryError as error:
        raise AnswersFileError(
            "there is not enough memory for these answers", file=file, advice="Use a machine with more memory"
        ) from error


def _broken(file: Path, problem: str, expected: str | None = None, found: object = None) -> AnswersFileError:
    shown = None if found is None else printable(str(found), 200)
    return AnswersFileError(problem, file=file, expected=expected, found=shown, advice=_ADVICE)


def _is_archive(file: Path) -> bool:
    """Whether it is a ZIP archive, as NumPy writes; its size is checked before it is read."""
    with open_regular(file) as (descriptor, state):
        if state.size > MOST_BYTES:
            raise _broken(file, "the answers file is too large", f"at most {MOST_BYTES} bytes", f"{state.size} bytes")
        return os.read(descriptor, 4) == b"PK\x03\x04"


# -- the recording ----------------------------------------------------------------------------------------------------


def _read_recording(file: Path) -> RecordedAnswers:
    stored, source = _content(file)

    def take(name: str, dtype: str, *shape: int | None) -> NDArray[Any]:
        return _array(file, name, stored.pop(name, None), dtype, shape)

    table = take(_TABLE, "F32", None, None)
    n, v = table.shape
    tokens = take(_TOKENS, "I64", v) if _TOKENS in stored else None
    prompts = _prompts(file, stored.get(_PROMPTS), take)
    prompt_of = take("prompt_of", "I64", n)
    asked = take("requests.prompt", "I64", None)
    r = len(asked)
    requests = Requests(
        asked,
        take(_TIMES, "I64", r),
        take("requests.request_sha256", "U8", r, DIGEST_BYTES),
        take("requests.response_sha256", "U8", r, DIGEST_BYTES),
    )
    if stored:
        raise _broken(
            file, "the file contains a tensor that does not belong in an answers file", found=sorted(stored)[0]
        )
    for name, numbers in (("prompt_of", prompt_of), ("requests.prompt", asked)):
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(prompts):
            raise _broken(
                file, f"{name} refers to a prompt that does not exist", f"0 to {len(prompts) - 1}", numbers.max()
            )
    times = requests.time_ms
    if not r or not 0 <= times.min() <= times.max() <= MOST_TIME_MS:
        found = f"{times.min()} to {times.max()}" if r else "no requests"
        expected = "one or more request times, in milliseconds since 1970"
        raise _broken(file, f"{_TIMES} contains no valid times", expected, found)
    return RecordedAnswers(table, tokens, source, prompts, prompt_of, requests)


def _content(file: Path) -> tuple[dict[str, Tensor], Source]:
    """The tensors, none of them read, and the source."""
    content = read_safetensors(file)
    about = content.metadata
    if about.get("format") != FORMAT:
        raise _broken(
            file, "this file contains no recorded answers", f"format {FORMAT}", f"format {about.get('format')}"
        )
    if about.get("version") != VERSION:
        raise AnswersFileError(
            "these answers were written by a different version of this program", file=file,
            expected=f"version {VERSION}",
            found=printable(f"version {about.get('version')}"),
            advice="Use the version of this program that wrote them",
        )  # fmt: skip
    return dict(content.tensors), _source(file, about)


def _source(file: Path, about: Mapping[str, object]) -> Source:
    values: dict[str, Any] = {}
    for each in fields(Source):
        text = about.get(each.name)
        if not isinstance(text, str):
            raise _broken(file, f"the file contains no value for {each.name}")
        values[each.name] = text
    for name in ("vocab_size", "prompt_seed"):
        text = values[name]
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise _broken(file, f"{name} is not a number", found=text)
        values[name] = int(text)
    if values["scale"] not in SCALES:
        raise _broken(file, "the scale of the values is unknown", " or ".join(SCALES), values["scale"])
    if not 0 < values["vocab_size"] <= MOST_VOCABULARY:
        raise _broken(file, "no model has this many tokens", f"1 to {MOST_VOCABULARY}", values["vocab_size"])
    return Source(**values)


def _array(file: Path, name: str, tensor: Tensor | None, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """One tensor, with its number format and shape checked before it is read; None in the shape allows any length."""
    wanted = f"{dtype} {' × '.join('any' if each is None else str(each) for each in shape)}"
    if tensor is None:
        raise _broken(file, f"{name} is missing", wanted)
    fits = len(tensor.shape) == len(shape) and all(
        is_ in (each, is_ if each is None else each) for is_, each in zip(tensor.shape, shape, strict=True)
    )
    if tensor.dtype != dtype or not fits:
        found = f"{tensor.dtype} {' × '.join(map(str, tensor.shape))}"
        raise _broken(file, f"{name} has the wrong shape or number format", wanted, found)
    array: NDArray[Any] = read_tensor(tensor).numpy()
    return array


def _prompts(file: Path, tensor: Tensor | None, take: Any) -> tuple[str, ...]:
    if tensor is not None and tensor.nbytes > MOST_PROMPT_BYTES:
        raise _broken(file, "the prompts are too large", f"at most {MOST_PROMPT_BYTES} bytes", tensor.nbytes)
    raw = take(_PROMPTS, "U8", None).tobytes()
    require_bounded(raw, file, "list of prompts")
    value = parse_json(raw, file, "list of prompts", strict=True)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _broken(file, "the prompts are not a list of strings")
    if len(set(value)) != len(value):
        raise _broken(file, "the list of prompts contains a duplicate")
    return tuple(value)


# -- NumPy's archive --------------------------------------------------------------------------------------------------


# Errors of zipfile and NumPy for bytes that are not one of their archives, including encrypted members and bad shapes.
_NO_ARCHIVE = (
    OSError, ValueError, EOFError, KeyError, RuntimeError, TypeError, OverflowError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def _read_archive(file: Path) -> RecordedAnswers:
    try:
        with zipfile.ZipFile(file) as archive:
            members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()[:16]}
            if _TABLE not in members:
                raise _broken(
                    file, "this archive contains no answers", f"an array named {_TABLE}", ", ".join(sorted(members))
                )
            table = _member(file, archive, members[_TABLE], 2)
            tokens = _member(file, archive, members[_TOKENS], 1) if _TOKENS in members else None
    except _NO_ARCHIVE as error:
        raise _broken(file, "this archive cannot be read", "a NumPy archive (.npz)", error) from error
    if not np.issubdtype(table.dtype, np.floating):
        raise _broken(file, f"{_TABLE} are not floating-point numbers", "float16, float32 or float64", table.dtype)
    if tokens is not None and (not np.issubdtype(tokens.dtype, np.integer) or len(tokens) != table.shape[1]):
        raise _broken(file, f"{_TOKENS} do not match the columns", f"{table.shape[1]} whole numbers", tokens.shape)
    with np.errstate(over="ignore"):
        return RecordedAnswers(table.astype(np.float32), None if tokens is None else tokens.astype(np.int64))


def _member(file: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, dimensions: int) -> NDArray[Any]:
    """One array; its stated size must equal the size that the archive states, before memory is allocated."""
    if member.file_size > MOST_BYTES:
        raise _broken(file, "the answers file is too large", f"at most {MOST_BYTES} bytes", f"{member.file_size} bytes")
    with archive.open(member) as stream:
        shape, dtype = _header(stream)
        # NumPy's header has some 100 bytes, and at most 10 000 that this reads.
        if (
            dtype.hasobject
            or len(shape) != dimensions
            or not np.prod([1, *shape], dtype=object) * dtype.itemsize <= (member.file_size)
        ):
            expected = f"a {dimensions}-dimensional array of plain numbers"
            found = f"{dtype} {shape} in {member.file_size} bytes"
            raise _broken(file, f"{member.filename} is not the expected array", expected, found)
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


# -- both -------------------------------------------------------------------------------------------------------------


def _check_table(file: Path, table: NDArray[np.float32]) -> None:
    if 0 in table.shape:
        raise _broken(file, "the file contains no answers", "at least one answer and one token", f"{table.shape}")
    if not any(np.isfinite(row).any() for row in table):
        raise _broken(
            file,
            "no answer contains a finite log-probability",
            "at least one finite number",
            "only NaN or infinite values",
        )


def _check_tokens(file: Path, answers: RecordedAnswers, original: Checkpoint | None) -> None:
    v, tokens = answers.log_probabilities.shape[1], answers.token_ids
    size = answers.source.vocab_size if answers.source is not None else MOST_VOCABULARY
    if original is not None:
        if answers.source is not None and size != original.vocab_size:
            raise other_vocabulary(file, original, f"{size} tokens")
        size = original.vocab_size
    if tokens is None:
        if v > size:
            raise other_vocabulary(file, original, f"{v} tokens")
        return
    if np.unique(tokens).size != v:
        raise _broken(file, "a token occurs more than once", f"{v} different tokens", f"{np.unique(tokens).size}")
    if not 0 <= tokens.min() <= tokens.max() < size:
        raise other_vocabulary(file, original, f"tokens {tokens.min()} to {tokens.max()}")


def other_vocabulary(file: Path, original: Checkpoint | None, found: str) -> AnswersFileError:
    """The error for answers that use tokens other than the original's, or other than the file itself states."""
    wanted = (
        "the tokens listed in the file" if original is None else f"the {original.vocab_size} tokens of the original"
    )
    return AnswersFileError(
        "these answers use tokens from a different vocabulary", file=file, expected=wanted,
        found=found, advice="Choose the original that the served model was made from",
    )  # fmt: skip
