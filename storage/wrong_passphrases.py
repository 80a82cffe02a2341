"""Wrong passphrases: counted for the vault, and followed by a wait for the caller who entered them.

With one wait for all callers, any caller could keep the owner out. So each caller waits for its own wrong tries. One
key derivation runs at a time, and at most `MOST_WAITING` tries wait for their turn. A caller who proved the passphrase
before goes first and always gets a place. A caller who takes a new session for each try gets one try for each key
derivation.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from storage.errors import TooManyTriesError, WrongPassphraseError

# This many wrong tries have no wait: users mistype. Then the wait is a second, and doubles up to a minute.
FREE, LONGEST_WAIT = 3, 60.0
# Tries that wait for their turn. With a backup's most expensive derivation (0.8 s) the last of them waits about 4 s.
MOST_WAITING = 4
# Callers that are remembered. A forgotten caller gets FREE tries again, as a new session would.
REMEMBERED = 1024


class Count(NamedTuple):
    """Tries before a right one: those that were wrong, and those that were refused without a check."""

    wrong: int
    refused: int


class _Caller:
    """The wrong tries of one caller, the end of its wait, and whether it proved the passphrase."""

    def __init__(self) -> None:
        self.wrong, self.not_before, self.proved = 0, 0.0, False


class Tries:
    """The tries of one vault's passphrase. Threads may share it.

    Args:
        monotonic: a clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._callers: OrderedDict[str, _Caller] = OrderedDict()
        self._wrong, self._refused = 0, 0
        self._busy = False
        # The waiting callers: first those who proved the passphrase before, then in order of arrival.
        self._waiting: list[tuple[bool, int]] = []
        self._arrivals = itertools.count()

    @contextlib.contextmanager
    def one(self, caller: str) -> Iterator[None]:
        """Waits for the caller's turn, then counts a `WrongPassphraseError` of the block as a wrong try.

        Raises:
            TooManyTriesError: the caller's own wait is not over, or too many others wait. It says how many seconds
                are left. The passphrase was not checked.
        """
        with self._changed:
            self._require(caller)
            place = (not self._of(caller).proved, next(self._arrivals))
            if place[0] and len(self._waiting) >= MOST_WAITING:
                self._refused += 1
                raise TooManyTriesError(1.0, "too many passphrase attempts are in progress")
            self._waiting.append(place)
            try:
                self._changed.wait_for(lambda: not self._busy and min(self._waiting) == place)
            finally:
                self._waiting.remove(place)
            self._busy = True
        try:
            with self._changed:
                # Again: of many tries that one caller sends together, only the first few are checked.
                self._require(caller)
            yield
        except WrongPassphraseError:
            with self._changed:
                self._failed(caller)
            raise
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def proved(self, caller: str) -> Count:
        """Records that the caller knows the passphrase, and returns the earlier tries."""
        with self._changed:
            count = Count(self._wrong, self._refused)
            self._wrong, self._refused = 0, 0
            known = self._callers[caller] = _Caller()
            known.proved = True
            return count

    def begin(self, caller: str) -> None:
        """Starts the count for a new vault, whose passphrase this caller chose."""
        with self._changed:
            self._callers.clear()
            self._wrong, self._refused = 0, 0
            self._of(caller).proved = True

    def has_proved(self, caller: str) -> bool:
        """Whether the caller entered the right passphrase before."""
        with self._changed:
            known = self._callers.get(caller)
            return known is not None and known.proved

    def rename(self, old: str, new: str) -> None:
        """Renames a caller; its count is kept."""
        with self._changed:
            if old in self._callers:
                self._callers[new] = self._callers.pop(old)

    def _require(self, caller: str) -> None:
        known = self._callers.get(caller)
        left = 0.0 if known is None else known.not_before - self._monotonic()
        if left > 0:
            self._refused += 1
            raise TooManyTriesError(left)

    def _failed(self, caller: str) -> None:
        self._wrong += 1
        known = self._of(caller)
        known.wrong += 1
        if known.wrong >= FREE:
            known.not_before = self._monotonic() + min(LONGEST_WAIT, 2.0 ** (known.wrong - FREE))

    def _of(self, caller: str) -> _Caller:
        known = self._callers.setdefault(caller, _Caller())
        self._callers.move_to_end(caller)
        while len(self._callers) > REMEMBERED:
            # Callers who proved the passphrase are removed last.
            unproved = (name for name, each in self._callers.items() if not each.proved)
            del self._callers[next(unproved, next(iter(self._callers)))]
        return known
