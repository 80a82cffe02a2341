"""What every page is handed: the settings, the way to the vault, and the jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from storage.jobs import Jobs
from storage.vault import Vault
from ui import preferences
from ui.drafts import Drafts
from ui.preferences import Preferences
from ui.recent import RecentPaths
from ui.sessions import Sessions, session_of
from ui.settings import Settings


@dataclass(slots=True)
class Context:
    """Shared by all pages of one running app.

    Attributes:
        settings: this start's settings; replaced by `prefer` when an officer changes them, so ask for them anew.
        sessions: each browser's view of the vault. Pages ask `require(request)`.
        jobs: the table of long tasks, sealed: kinds, states and times. Pages ask `jobs_of` and `jobs_to_start`.
        recent: paths picked before, for the pickers.
        opened: a `gr.State` of the page that is being built, put here before it is: a number that grows when this
            browser, unlocked just now or found unlocked after a reload, sees that page for the first time. Its `change`
            event is where a page fills in what must not be shown before: jobs, keys, recent paths. Each page has its
            own: to fill in six of which five are out of sight took most of the time that a reload took.
        page: the name of the page that is being built, put here before it is.
        cards: by kind of job, the page that shows it and the `gr.State` of that page's card with the job shown. Who
            puts a job's id there has that page show the job and its result, as after a reload.
        dark: a `gr.State`, whether this browser shows the dark page; for figures, which carry their own colours.
        device: what the app computes on, in a few words, as the strip at the top shows it.
        top: that strip, set when it is built, so that the page Settings can draw it anew.
        drafts: what was typed into Protect's wizard and not used yet.
        next_steps: the buttons below Protect's receipt, set when that page is built, so that the pages they lead to
            can wire them.
        settings_form: Protect's form of settings, set when that page is built, so that another page can fill it in.
    """

    settings: Settings
    sessions: Sessions
    jobs: Jobs
    recent: RecentPaths = field(init=False)
    opened: Any = None
    page: str = ""
    cards: dict[str, tuple[str, Any]] = field(default_factory=dict)
    dark: Any = None
    device: str = ""
    top: Any = None
    settings_form: Any = None
    next_steps: Any = None
    drafts: Drafts = field(default_factory=Drafts)

    def __post_init__(self) -> None:
        self.recent = RecentPaths(self.settings.home)

    def prefer(self, chosen: Preferences) -> None:
        """Keeps what an officer set, and goes by it from now on.

        Raises:
            PreferencesError: it cannot be kept; nothing changed.
        """
        preferences.write(self.settings.home, chosen)
        self.settings = self.settings.with_preferences(chosen)
        self.sessions.set_idle(chosen.idle_seconds)

    def session(self, request: Any) -> str | None:
        """The browser behind a `gr.Request`."""
        return session_of(request, self.settings.port)

    def is_open(self, request: Any) -> bool:
        """Whether this browser may see what the vault protects. For timers; asking does not count as use."""
        return self.sessions.is_open(self.session(request))

    def jobs_of(self, request: Any) -> Jobs:
        """The table of long tasks as this browser may read it. For timers too; asking does not count as use."""
        keys = self.sessions.jobs_keys(self.session(request))
        return self.jobs if keys is None else self.jobs.opened(keys)

    def jobs_to_start(self, vault: Vault) -> Jobs:
        """The table of long tasks for whoever starts one.

        Raises:
            VaultLockedError, StorageError
        """
        return self.jobs.opened(vault.jobs_keys_to_seal())

    def require(self, request: Any) -> Vault:
        """This browser's unlocked vault; the first line of every handler that a person sets off.

        Raises:
            SessionLockedError: the passphrase has not been proved here, or was too long ago.
        """
        return self.sessions.vault(self.session(request))
