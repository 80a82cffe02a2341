"""The owner of a stream of answers: the browser that used its `session_hash` first, identified by its cookie.

Gradio 6.31.0 gives the answers of a session to any caller that names its hash. The hash is not secret: it appears in
addresses, and so in logs and histories. A program without cookies is identified by its hash alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ui.budget import Refusal

# A page takes a new hash each time it is loaded.
REMEMBERED = 4096
# For one browser, so that one that is unlocked cannot fill everything.
REMEMBERED_EACH = 64
# Of all locked browsers together: Gradio holds one or two megabytes for each.
REMEMBERED_LOCKED = 256


class Streams:
    """The owner of each session hash that was seen. Used on the server's event loop alone.

    Args:
        is_open: whether a session is unlocked, by its identifier; see `ui.sessions.session_of`.
        forget: called with a session hash that is no longer stored, so that other data about it is dropped too.
    """

    def __init__(self, is_open: Callable[[str], bool], forget: Callable[[str], object]) -> None:
        self._is_open, self._forget = is_open, forget
        self._owners: OrderedDict[str, str | None] = OrderedDict()

    def claim(self, stream: str, cookie: str | None) -> None:
        """Lets the owner of a session hash pass, which is the first caller to name it.

        Raises:
            Refusal: 403, it belongs to another browser.
        """
        if stream in self._owners:
            if self._owners[stream] != cookie:
                raise Refusal(403, "This session belongs to another browser.")
            self._owners.move_to_end(stream)
            return
        self._owners[stream] = cookie
        own = [name for name, owner in self._owners.items() if owner == cookie] if cookie else []
        for name in own[:-REMEMBERED_EACH]:
            self._drop(name)
        # Never one of an unlocked browser: otherwise a flood of new ones would free its stream for an attacker.
        locked = [name for name, owner in self._owners.items() if not self._unlocked(name, owner)]
        for name in locked[:-REMEMBERED_LOCKED]:
            self._drop(name)
        if len(self._owners) > REMEMBERED:
            self._drop(stream)

    def without_cookie(self) -> list[str]:
        """The session hashes of programs without cookies."""
        return [stream for stream, owner in self._owners.items() if owner is None]

    def _drop(self, name: str) -> None:
        del self._owners[name]
        self._forget(name)

    def _unlocked(self, stream: str, cookie: str | None) -> bool:
        return self._is_open(f"cookie:{cookie}" if cookie else f"hash:{stream}")
