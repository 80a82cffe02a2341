"""Errors of a recording."""

from __future__ import annotations

from irwm.errors import IrwmError


class RecordingError(IrwmError):
    """Answers cannot be recorded, or a recording cannot be continued; earlier answers are kept."""


class NotAllowedError(RecordingError):
    """No request was sent, because sending was not allowed."""


class ServerError(RecordingError):
    """The server cannot be reached, refuses, or its answer has no log-probabilities."""


class RefusedError(ServerError):
    """The server refuses this request. Another one may succeed.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, problem: str, **parts: str | None) -> None:
        self.status = status
        super().__init__(problem, **parts)
