"""Sessions: each browser has its own view of the vault and must prove the passphrase itself.

Browsers are distinguished by a random cookie that our server issues: HttpOnly, so that no script can read it;
SameSite=Strict; deleted when the browser closes. It survives a reload, which Gradio's session hash does not. Programs
without cookies (gradio_client) are distinguished by that hash.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from irwm.errors import IrwmError
from storage.backup import latest_backup
from storage.errors import VaultLockedError, VaultMissingError
from storage.job_keys import JobsKeys
from storage.session import time_awake_or_asleep
from storage.vault import Vault
from storage.wrong_passphrases import Tries

ID_BYTES = 32
# More browsers than one user opens; limited because any program on this computer may open sessions.
REMEMBERED = 64


class SessionLockedError(IrwmError):
    """This browser has not proved the passphrase, or has been idle for too long."""

    def __init__(self) -> None:
        super().__init__("the vault is locked for this browser", advice="enter the passphrase; your input is not lost")


def new_session_id() -> str:
    """A fresh identifier for one browser, impossible to guess."""
    return secrets.token_urlsafe(ID_BYTES)


def cookie_name(port: int) -> str:
    """Name of the session cookie; with the port, since browsers share cookies between the ports of one host."""
    return f"irwm_session_{port}"


def folder_of(session: str) -> str:
    """The name of the folder with the files that a session may download."""
    return hashlib.sha256(session.encode()).hexdigest()[:32]


def session_of(request: Any, port: int) -> str | None:
    """The identifier of the browser behind a `gr.Request`; None for a call without one."""
    web = getattr(request, "request", None)
    cookie = web.cookies.get(cookie_name(port)) if web is not None else None
    if cookie:
        return f"cookie:{cookie}"
    hashed = getattr(request, "session_hash", None)
    return f"hash:{hashed}" if hashed else None


class Sessions:
    """The vault as each browser sees it. Kept in memory only.

    Args:
        home: the folder of the vault.
        settings: passed to `Vault.open` and `Vault.create`, such as `idle_seconds`; tests pass a cheap `cost` too.
    """

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        self._cost = {"cost": settings.pop("cost")} if "cost" in settings else {}
        # One count for all browsers.
        self._settings = {"tries": Tries(settings.get("monotonic", time_awake_or_asleep)), **settings}
        self._views: OrderedDict[str, Vault] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def tries(self) -> Tries:
        """The tries of all browsers, for other code that tries a passphrase."""
        tries: Tries = self._settings["tries"]
        return tries

    def vault_exists(self) -> bool:
        """Whether a first passphrase has been chosen."""
        return Vault.exists(self.home)

    def is_open(self, session: str | None) -> bool:
        """Whether this browser is unlocked; this does not count as use."""
        vault = self._view(session)
        return vault is not None and vault.is_unlocked

    def vault(self, session: str | None) -> Vault:
        """This browser's unlocked vault.

        Raises:
            SessionLockedError: it has not proved the passphrase, or was idle too long.
        """
        vault = self._view(session)
        if vault is None or not vault.is_unlocked:
            raise SessionLockedError()
        return vault

    def jobs_keys(self, session: str | None) -> JobsKeys | None:
        """The keys that open the list of jobs for this browser; None if it is locked. This does not count as use."""
        vault = self._view(session)
        try:
            return None if vault is None else vault.jobs_keys()
        except VaultLockedError:
            return None

    def create(self, session: str | None, passphrase: str) -> None:
        """Creates the vault and opens it for this browser.

        Raises:
            VaultExistsError: another window was faster.
            PassphraseError, StorageError: see `Vault.create`.
        """
        if session is None:
            raise SessionLockedError()
        self._remember(session, Vault.create(self.home, passphrase, caller=session, **self._cost, **self._settings))

    def unlock(self, session: str | None, passphrase: str) -> None:
        """Opens the vault for this browser and no other.

        Raises:
            VaultMissingError: there is none yet.
            WrongPassphraseError, PassphraseError, StorageError: see `Vault.unlock`.
        """
        if session is None:
            raise SessionLockedError()
        vault = self._view(session)
        if vault is None:
            if not self.vault_exists() and latest_backup(self.home) is None:
                raise VaultMissingError(
                    "there is no vault yet", file=self.home, advice="choose a passphrase to create one"
                )
            vault = Vault.open(self.home, caller=session, **self._settings)
            self._remember(session, vault)
        vault.unlock(passphrase)

    def is_known(self, session: str) -> bool:
        """Whether this browser proved the passphrase before, unlocked or not."""
        return self.tries.has_proved(session)

    def renew(self, old: str, new: str) -> None:
        """Gives a locked browser a new identifier; its wrong passphrases still count for it."""
        self.tries.rename(old, new)

    def forget(self) -> None:
        """Locks every browser and drops its view of the vault, before another vault replaces it."""
        with self._lock:
            for vault in self._views.values():
                vault.lock()
            self._views.clear()

    def set_idle(self, seconds: float) -> None:
        """Locks every browser after this many seconds without use, including those that are open."""
        with self._lock:
            self._settings["idle_seconds"] = seconds
            for vault in self._views.values():
                # Checked first: a session whose time was up, but that was not used since, must not be unlocked again.
                _ = vault.is_unlocked
                vault.idle_seconds = seconds

    def lock(self, session: str | None) -> None:
        """Locks this browser only."""
        vault = self._view(session)
        if vault is not None:
            vault.lock()

    def _view(self, session: str | None) -> Vault | None:
        if session is None:
            return None
        with self._lock:
            vault = self._views.get(session)
            if vault is not None:
                self._views.move_to_end(session)
            return vault

    def _remember(self, session: str, vault: Vault) -> None:
        with self._lock:
            self._views[session] = vault
            self._views.move_to_end(session)
            while len(self._views) > REMEMBERED:
                # The oldest locked one is dropped first: new sessions must not lock out a user.
                locked = next((name for name, view in self._views.items() if not view.is_unlocked), None)
                _, forgotten = (locked, self._views.pop(locked)) if locked else self._views.popitem(last=False)
                forgotten.lock()
