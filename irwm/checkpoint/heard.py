"""What is known of a suspect that only answers, and who was asked: values that a report prints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Recording:
    """The evidence in a recording, in a few values.

    Attributes:
        endpoint, model, api, scale, original, prompt_seed: see `irwm.checkpoint.recorded.Source`.
        prompts, requests: how many different texts were asked, and in how many requests that were answered.
        began, ended: time of the first and of the last answer, ISO 8601, UTC.
        requests_sha256, responses_sha256: SHA-256 of the requests' and of the responses' own SHA-256, 32 bytes each, in
            the order of the file.
    """

    endpoint: str
    model: str
    api: str
    scale: str
    original: str
    prompt_seed: int
    prompts: int
    requests: int
    began: str
    ended: str
    requests_sha256: str
    responses_sha256: str


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of a suspect by its answers alone.

    Attributes:
        given: answers there are.
        used: those that tell enough, from which the head was recovered.
        tokens: tokens that each of these tells, the rows of the head.
        directions: in how many the answers vary, where that shows: the width of the model behind them.
        recording: who was asked, and when; None where nothing says it.
    """

    given: int
    used: int
    tokens: int
    directions: int | None
    recording: Recording | None = None


def utc_text(time: datetime) -> str:
    """A time as a recording and a report have it: ISO 8601, UTC, to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
