"""Limits on what all unauthenticated callers together may make the app hold, store or compute at one time.

Anyone who can reach the port is unauthenticated until the passphrase is proved, and can open any number of new
sessions. So the limits apply to all of them together. They are higher than the needs of an unlocked officer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

MIB = 1024 * 1024


class Cancellable(Protocol):
    def cancel(self) -> None: ...


Later: TypeAlias = Callable[[float, Callable[[], None]], Cancellable]


class Refusal(Exception):
    """A request that is refused."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits.

    Attributes:
        stored: bytes of uploads that are on the disk or arriving, of all callers together; a backup of a vault with a
            hundred thousand keys has a quarter of it.
        body: bytes of one request that is not an upload.
        values: commas, brackets and braces in it, each of which may become an object in memory.
        arriving: bytes of such requests that arrive at one time.
        answers: requests that are being answered at one time. An open page keeps two. If there are more, the
            oldest one that waits for its sender or is a stream ends.
        waiting: calls in Gradio's queue; if there are more, unauthenticated callers have to wait outside it.
        turns: requests that are processed at one time, until their answer begins; the others wait for their turn. The
            page takes 60 ms of the event loop, and an officer's click passes through it several times.
        turn_seconds: after this time the next request's turn begins in any case.
    """

    stored: int = 512 * MIB
    body: int = 2 * MIB
    values: int = 20_000
    arriving: int = 32 * MIB
    answers: int = 128
    waiting: int = 48
    turns: int = 2
    turn_seconds: float = 2.0


UNAUTHENTICATED = ServerLimits()


class Budget:
    """The present use by unauthenticated callers. Used on the server's event loop alone, so it needs no lock.

    Args:
        later: calls a function after a number of seconds, unless the returned object is cancelled before; default the
            event loop.
    """

    def __init__(self, limits: ServerLimits = UNAUTHENTICATED, later: Later | None = None) -> None:
        self.limits = limits
        self._later = later
        self.answers = 0
        self.arriving = 0
        # Those that may be ended, the oldest first.
        self._idle: dict[Place, None] = {}
        self._turns = asyncio.Semaphore(limits.turns)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Callable[[], None]]:
        """Waits for an unauthenticated caller's turn; the yielded function ends the turn, which ends with the block."""
        await self._turns.acquire()
        left = [self._turns.release]

        def over() -> None:
            if left:
                left.pop()()

        late = (self._later or asyncio.get_running_loop().call_later)(self.limits.turn_seconds, over)
        try:
            yield over
        finally:
            late.cancel()
            over()

    @contextlib.asynccontextmanager
    async def answering(self, size: int) -> AsyncIterator[Place]:
        """Counts one unauthenticated request of `size` bytes while it is answered.

        Raises:
            Refusal: 503, others use the whole limit, or this one was ended in favour of another.
        """
        refused = Refusal(
            503, "Too many requests from browsers that have not unlocked the vault. Try again in a moment."
        )
        if self.arriving + size > self.limits.arriving:
            raise refused
        if self.answers >= self.limits.answers:
            if not self._idle:
                raise refused
            next(iter(self._idle)).end()
        place = Place(self._idle)
        self.answers += 1
        self.arriving += size
        try:
            async with place.stay:
                yield place
        except TimeoutError:
            if place.stay.expired():
                raise refused from None
            raise
        finally:
            place.is_idle(False)
            self.answers -= 1
            self.arriving -= size


class Place:
    """One request that is being answered."""

    def __init__(self, idle: dict[Place, None]) -> None:
        self._idle = idle
        self.stay = asyncio.timeout(None)

    def is_idle(self, idle: bool) -> None:
        """Sets whether it only waits, so that it may be ended."""
        if idle:
            self._idle[self] = None
        else:
            self._idle.pop(self, None)

    def end(self) -> None:
        """Ends it at the next step of the event loop."""
        self.is_idle(False)
        self.stay.reschedule(asyncio.get_running_loop().time())
