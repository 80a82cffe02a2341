"""What all callers together that have not proved the passphrase may make the app hold, store or compute at one time.

Whoever can reach the port is a stranger until the passphrase was proved, and the next stranger is free. So the limits
hold for all of them together, and what an unlocked officer needs lies above them.
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
    """A request that goes no further."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is too much.

    Attributes:
        stored: bytes of uploads that lie on the disk or arrive, everybody's counted; a backup of a vault with a
            hundred thousand keys has a quarter of it.
        body: bytes of one request that is not an upload.
        values: commas, brackets and braces in it, each of which may become an object in memory.
        arriving: bytes of such requests that arrive at one time.
        answers: requests that are being answered at one time. An open page keeps two. Where there are more, the
            oldest one ends that waits for its sender or is a stream.
        waiting: calls in Gradio's queue, from where on strangers have to wait outside.
        turns: requests that are worked on at one time, until their answer begins; the others wait for their turn. The
            page takes the event loop 60 ms, and an officer's click goes through it several times.
        turn_seconds: after which the next one's turn begins in any case.
    """

    stored: int = 512 * MIB
    body: int = 2 * MIB
    values: int = 20_000
    arriving: int = 32 * MIB
    answers: int = 128
    waiting: int = 48
    turns: int = 2
    turn_seconds: float = 2.0


STRANGERS = Limits()


class Budget:
    """What unauthenticated callers take at this moment. Used on the server's event loop alone, so it needs no lock.

    Args:
        later: calls a function after so many seconds, unless what it returns is cancelled before; by default it is the
            event loop that does so.
    """

    def __init__(self, limits: Limits = STRANGERS, later: Later | None = None) -> None:
        self.limits = limits
        self._later = later
        self.answers = 0
        self.arriving = 0
        # Those that may be ended, the oldest first.
        self._idle: dict[Place, None] = {}
        self._turns = asyncio.Semaphore(limits.turns)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Callable[[], None]]:
        """Waits for a stranger's turn; what it gives ends the turn, which ends with the block at the latest."""
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
        """Counts one stranger's request of `size` bytes while it is answered.

        Raises:
            Refusal: 503, others take all there is, or this one had to make room for another.
        """
        refused = Refusal(503, "Too many requests from locked browsers. Try again in a moment.")
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
    """One request among those that are answered."""

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
        """Ends it as soon as the event loop comes to it."""
        self.is_idle(False)
        self.stay.reschedule(asyncio.get_running_loop().time())
