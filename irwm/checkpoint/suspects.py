"""Opens a suspect in any form: its weights, an adapter on the original, or its answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from irwm.checkpoint.model import Checkpoint
from irwm.checkpoint.opening import open_checkpoint
from irwm.checkpoint.recorded import Header, RecordedAnswers, holds_answers, other_vocabulary, read_answers
from irwm.checkpoint.remote.opening import local_path, server_of
from irwm.checkpoint.served_model import require_enough, suspect_from_answers
from irwm.checkpoint.served_source import Recording, utc_of
from irwm.errors import AnswersError, AnswersFileError


def open_suspect(path: str | Path, original: Checkpoint | None = None, answers: bool = False) -> Checkpoint:
    """Opens what is to be examined: a checkpoint, an adapter, or a file of recorded answers.

    Args:
        original: the original that it is compared with; required for adapters and answers.
        answers: whether it must be a file of answers; otherwise the contents decide.

    Raises:
        AnswersError: answers that cannot be used, or no original to compare them with.
        CheckpointError: as `open_checkpoint`.
    """
    file = local_path(path)
    if not answers and not holds_answers(file):
        return open_checkpoint(file, base=original)
    if server_of(file):
        raise AnswersFileError(
            "recorded answers cannot be read from a server", file=file, advice="Download the file and use its path"
        )
    if original is None:
        raise AnswersError(
            "recorded answers can be examined only together with the original",
            file=file,
            advice="Choose the original as well",
        )
    read = read_answers(file, original)
    with _about(file):
        suspect = suspect_from_answers(read.log_probabilities, original, read.token_ids)
    assert suspect.answers is not None
    recording = _recording(read)
    return replace(
        suspect,
        path=file,
        shards=(file,),
        bytes_total=file.stat().st_size,
        notes=(*suspect.notes, *_notes(recording, original)),
        answers=replace(suspect.answers, recording=recording),
    )


def check_header(file: Path, header: Header, original: Checkpoint) -> None:
    """Rejects, before any answer is read, a recording that cannot be examined with this original.

    Raises:
        AnswersFileError: it uses tokens of another vocabulary, or has too few answers or tokens.
    """
    if header.source.vocab_size != original.vocab_size:
        raise other_vocabulary(file, original, f"{header.source.vocab_size} tokens")
    size = header.answers, header.tokens
    with _about(file):
        require_enough(size, original.hidden_size, size)


@contextmanager
def _about(file: Path) -> Iterator[None]:
    """Adds the file's name to an error about the answers in it."""
    try:
        yield
    except AnswersError as error:
        raise AnswersFileError(
            error.problem, file=file, expected=error.expected, found=error.found, advice=error.advice
        ) from error
    except MemoryError as error:
        raise AnswersFileError(
            "there is not enough memory for these answers", file=file, advice="Use a machine with more memory"
        ) from error


def _recording(answers: RecordedAnswers) -> Recording | None:
    source, requests = answers.source, answers.requests
    if source is None or requests is None:
        return None
    return Recording(
        endpoint=source.endpoint,
        model=source.model,
        api=source.api,
        scale=source.scale,
        original=source.original,
        prompt_seed=source.prompt_seed,
        prompts=len(answers.prompts),
        requests=len(requests.time_ms),
        began=utc_of(requests.time_ms.min()),
        ended=utc_of(requests.time_ms.max()),
        requests_sha256=hashlib.sha256(requests.request_sha256.tobytes()).hexdigest(),
        responses_sha256=hashlib.sha256(requests.response_sha256.tobytes()).hexdigest(),
    )


def _notes(recording: Recording | None, original: Checkpoint) -> list[str]:
    if recording is None:
        return ["The file contains no information about the server, the times, the requests or the responses."]
    if recording.original != original.fingerprint:
        return ["The answers were recorded for a different original with the same number of tokens."]
    return []
