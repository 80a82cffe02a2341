"""The unused input of the Protect wizard, so that a reload of the page loses nothing.

In this process's memory alone: customers' names must not be stored in plain text on the disk or in the browser. A
browser gets its own draft back, and only while it may see vault data. A draft contains no secret.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

# Browsers whose drafts are kept; the least recently used draft is dropped first.
KEPT = 32


@dataclass(frozen=True, slots=True)
class Draft:
    """The values of the wizard's fields.

    Attributes:
        texts: the recipients, as typed.
        original: the chosen path; None before.
        step: the visible step, from 1.
        place: the folder to write into, the release's name in it, and whether its cost is measured.
        also: other files of the original that the release gets.
        filled_for: hidden size of the model for which the preset's fields were filled in.
        settings: the values of the form of settings.
    """

    texts: tuple[str, ...] = ()
    original: str | None = None
    step: int = 1
    place: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    filled_for: int | None = None
    settings: tuple[Any, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.original is None and not any(self.texts)


class Drafts:
    """The newest draft of each browser, by the browser's session."""

    def __init__(self) -> None:
        self._drafts: OrderedDict[str, Draft] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, session: str | None, draft: Draft) -> None:
        """Replaces the kept draft; an empty one is dropped."""
        if session is None:
            return
        with self._lock:
            self._drafts.pop(session, None)
            if not draft.is_empty:
                self._drafts[session] = draft
            while len(self._drafts) > KEPT:
                self._drafts.popitem(last=False)

    def of(self, session: str | None) -> Draft | None:
        """This browser's draft; None if there is none."""
        with self._lock:
            return self._drafts.get(session) if session is not None else None

    def drop(self, session: str | None) -> None:
        """Drops the draft after use."""
        self.keep(session, Draft())
