"""What can go wrong while a served model is asked."""

from __future__ import annotations

from irwm.errors import IrwmError


class RecordingError(IrwmError):
    """Answers cannot be recorded, or not gone on with; what was recorded before is kept."""


class NotAllowedError(RecordingError):
    """Nothing was sent, because nobody allowed it."""


class ServerError(RecordingError):
    """The server cannot be reached, refuses, or answers something else than log-probabilities."""


class RefusedError(ServerError):
    """The server refuses this request as it is. Another one may be fine.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, problem: str, **parts: str | None) -> None:
        self.status = status
        super().__init__(problem, **parts)
