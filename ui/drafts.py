"""The Protect wizard as it was left and not used yet, so that a reload of the page loses nothing.

In this process's memory alone: customers' names belong neither on the disk in the open nor in the browser's storage. A
browser gets its own draft back, and only while it may see what the vault protects. Nothing in it is a secret.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

# Browsers whose drafts are kept; the one that typed last the longest ago goes first.
KEPT = 32


@dataclass(frozen=True, slots=True)
class Draft:
    """What stands in the wizard's fields.

    Attributes:
        texts: whom the release is for, as typed.
        original: the path that was chosen; None before.
        step: the one that is shown, from 1.
        place: the folder to write into, the release's name in it, and whether its cost is measured.
        filled_for: hidden size of the model that the preset's fields were filled in for.
        settings: the values of the form of settings.
    """

    texts: tuple[str, ...] = ()
    original: str | None = None
    step: int = 1
    place: tuple[str, ...] = ()
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
        """Takes the place of what was kept; an empty one keeps nothing."""
        if session is None:
            return
        with self._lock:
            self._drafts.pop(session, None)
            if not draft.is_empty:
                self._drafts[session] = draft
            while len(self._drafts) > KEPT:
                self._drafts.popitem(last=False)

    def of(self, session: str | None) -> Draft | None:
        """What this browser left; None for nothing."""
        with self._lock:
            return self._drafts.get(session) if session is not None else None

    def drop(self, session: str | None) -> None:
        """It was used."""
        self.keep(session, Draft())
