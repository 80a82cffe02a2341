"""What all callers together that have not proved the passphrase may make the app hold, store or compute at one time.

Whoever can reach the port is a stranger until the passphrase was proved, and the next stranger is free. So the limits
hold for all of them together, and what an unlocked officer needs lies above them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

MIB = 1024 * 1024


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
        answers: requests that are being answered at one time. An open page keeps two.
        waiting: calls in Gradio's queue, from where on strangers have to wait outside.
    """

    stored: int = 512 * MIB
    body: int = 2 * MIB
    values: int = 20_000
    arriving: int = 32 * MIB
    answers: int = 128
    waiting: int = 48


STRANGERS = Limits()


class Budget:
    """What strangers take at this moment. Used on the server's event loop alone, so it needs no lock."""

    def __init__(self, limits: Limits = STRANGERS) -> None:
        self.limits = limits
        self.answers = 0
        self.arriving = 0

    @contextlib.contextmanager
    def answering(self, size: int) -> Iterator[None]:
        """Counts one stranger's request of `size` bytes while it is answered.

        Raises:
            Refusal: 503, others take all there is.
        """
        if self.answers >= self.limits.answers or self.arriving + size > self.limits.arriving:
            raise Refusal(503, "Too many requests from locked browsers. Try again in a moment.")
        self.answers += 1
        self.arriving += size
        try:
            yield
        finally:
            self.answers -= 1
            self.arriving -= size
