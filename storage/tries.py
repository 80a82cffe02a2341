"""Wrong passphrases, counted for the vault and not for who enters them, each making the next try wait longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from storage.errors import TooManyTriesError

# So many wrong ones cost nothing: a person mistypes. Behind them the wait is a second, and doubles up to a minute.
FREE, LONGEST_WAIT = 3, 60.0


class Count(NamedTuple):
    """Tries before a right one: those that were wrong, and those that came too early and were not looked at."""

    wrong: int
    refused: int


class Tries:
    """The wrong passphrases since the last right one.

    Args:
        monotonic: a clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._wrong, self._refused, self._not_before = 0, 0, 0.0

    def require(self) -> None:
        """Refuses a try that comes too early; it is not looked at, so it tells nobody anything.

        Raises:
            TooManyTriesError: says how many seconds are left.
        """
        with self._guard:
            left = self._not_before - self._monotonic()
            self._refused += left > 0
        if left > 0:
            raise TooManyTriesError(left)

    def failed(self) -> None:
        """Counts a wrong passphrase."""
        with self._guard:
            self._wrong += 1
            if self._wrong >= FREE:
                wait = min(LONGEST_WAIT, 2.0 ** (self._wrong - FREE))
                self._not_before = self._monotonic() + wait

    def succeeded(self) -> Count:
        """What came before this right one."""
        with self._guard:
            count = Count(self._wrong, self._refused)
            self._wrong, self._refused, self._not_before = 0, 0, 0.0
        return count
