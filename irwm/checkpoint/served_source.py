"""Facts about a suspect that is known only by its answers, and about its server: values that a report prints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

# What a suspect's answers hold: complete log-probability vectors, or generated text, with the log-probability of each
# token and without any. The last two are also the scale of such a recording.
VECTORS = "vectors"
GENERATED_TOKENS, TEXT_ALONE = GENERATED = "generated tokens", "text"


@dataclass(frozen=True, slots=True)
class Recording:
    """The evidence in a recording, summarised.

    Attributes:
        endpoint, model, api, scale, original, prompt_seed: see `irwm.checkpoint.recorded.Source`. For generated text
            the scale is `GENERATED_TOKENS` or `TEXT_ALONE`.
        prompts, requests: the number of different prompts, and of answered requests.
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
    """Facts about a suspect that is known only by its answers.

    Attributes:
        given: the number of answers.
        used: answers with enough values, from which the head was recovered; of generated text, those with tokens.
        tokens: tokens with a value in each of them: the rows of the head. Of generated text, all tokens that a tracing
            scores.
        directions: the number of directions in which the answers vary, if visible: the model's width.
        recording: the server and the times; None if unknown.
        form: `VECTORS`, `GENERATED_TOKENS` or `TEXT_ALONE`.
    """

    given: int
    used: int
    tokens: int
    directions: int | None
    recording: Recording | None = None
    form: str = VECTORS

    @property
    def generated(self) -> bool:
        """Whether the suspect is known only by generated text, which shows no weights."""
        return self.form in GENERATED


def utc_text(time: datetime) -> str:
    """A time as in a recording and a report: ISO 8601, UTC, to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_of(time_ms: int) -> str:
    """The same of milliseconds since 1970."""
    return utc_text(datetime.fromtimestamp(int(time_ms) / 1000, UTC))
