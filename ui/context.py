"""The objects that every page gets: the settings, access to the vault, and the jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from irwm.language import catalogue_of
from storage.job_table import Job
from storage.jobs import Jobs
from storage.vault import Vault
from ui import offline, preferences
from ui.drafts import Drafts
from ui.jobs.processes import Ready
from ui.jobs.requests import Asked
from ui.preferences import Preferences
from ui.recent import RecentPaths
from ui.sessions import Sessions, session_of
from ui.settings import Settings


@dataclass(slots=True)
class Context:
    """Shared by all pages of one running app.

    Attributes:
        settings: this start's settings; replaced by `prefer` when an officer changes them, so do not keep a copy.
        sessions: each browser's view of the vault. Pages call `require(request)`.
        jobs: the table of long tasks, sealed: kinds, states and times. Pages call `jobs_of`, and `start` for a new one.
        ready: a process for the next task. Pages call `ready.prepare` when a task is likely to follow.
        recent: paths picked before, for the pickers.
        opened: a `gr.State` of the page that is being built, set before the page is built: a number that grows when
            this browser, just unlocked or found unlocked after a reload, shows that page for the first time. In its
            `change` event a page fills in what must not be shown before: jobs, keys, recent paths. Each page has its
            own: to fill in six pages, five of them hidden, took most of the time of a reload.
        page: the name of the page that is being built, set before it is built.
        cards: by kind of job, the page that shows it and the `gr.State` of that page's card with the job shown. Code
            that puts a job's id there makes that page show the job and its result, as after a reload.
        dark: a `gr.State`, whether this browser shows the dark page; for figures, which have their own colours.
        device: the device that the app computes on, in a few words, as shown in the strip at the top.
        top: that strip, set when it is built, so that the page Settings can draw it again.
        drafts: unused input of Protect's wizard.
        next_steps: the buttons below Protect's receipt, set when that page is built, so that the pages they lead to
            can wire them.
        investigate: the page Investigate, set when it is built, so that another page can fill it in.
        settings_form: Protect's form of settings, set when that page is built, so that another page can fill it in.
    """

    settings: Settings
    sessions: Sessions
    jobs: Jobs
    ready: Ready = field(default_factory=Ready)
    recent: RecentPaths = field(init=False)
    opened: Any = None
    page: str = ""
    cards: dict[str, tuple[str, Any]] = field(default_factory=dict)
    dark: Any = None
    device: str = ""
    top: Any = None
    settings_form: Any = None
    next_steps: Any = None
    investigate: Any = None
    drafts: Drafts = field(default_factory=Drafts)

    def __post_init__(self) -> None:
        self.recent = RecentPaths(self.settings.home)
        offline.allow_servers(self.settings.servers)

    def prefer(self, chosen: Preferences) -> None:
        """Saves an officer's preferences and applies them.

        Raises:
            PreferencesError: they cannot be saved; nothing changed.
        """
        preferences.write(self.settings.home, chosen)
        self.settings = self.settings.with_preferences(chosen)
        offline.allow_servers(self.settings.servers)
        self.sessions.set_idle(chosen.idle_seconds)

    def start(self, asked: Asked, vault: Vault) -> Job:
        """Starts a task; errors as `Asked.start`."""
        return asked.start(vault, self.jobs, self.ready)

    def said(self, text: str) -> str:
        """A text in the chosen language, for what reaches a browser past the document: Gradio's toasts."""
        return catalogue_of(self.settings.preferences.language).text(text)

    def session(self, request: Any) -> str | None:
        """The browser behind a `gr.Request`."""
        return session_of(request, self.settings.port)

    def is_open(self, request: Any) -> bool:
        """Whether this browser may see vault data. For timers; this does not count as use."""
        return self.sessions.is_open(self.session(request))

    def jobs_of(self, request: Any) -> Jobs:
        """The table of long tasks as this browser may read it. For timers too; this does not count as use."""
        keys = self.sessions.jobs_keys(self.session(request))
        return self.jobs if keys is None else self.jobs.opened(keys)

    def require(self, request: Any) -> Vault:
        """This browser's unlocked vault; the first line of every handler of a user action.

        Raises:
            SessionLockedError: the passphrase has not been proved here, or was too long ago.
        """
        return self.sessions.vault(self.session(request))
