"""Errors that any caller can cause: the first ones are logged, and no caller can fill a disk with the rest."""

from __future__ import annotations

import logging

# In the life of one process.
MOST = 20
_LOG = logging.getLogger("irwm.app")


class ErrorsSeen:
    """Logs the first errors with their traceback, then no more."""

    def __init__(self, most: int = MOST) -> None:
        self._left = most

    def note(self, error: BaseException) -> None:
        """Logs an error, unless the limit is reached."""
        if self._left > 0:
            self._left -= 1
            last = "" if self._left else " Errors after this one are not logged."
            _LOG.error("A call could not be answered.%s", last, exc_info=error)
